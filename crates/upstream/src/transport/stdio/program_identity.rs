//! Identity of a local server: its command, and the digests of the program and the scripts that it runs.
//!
//! A pin is valid only for the identity that an administrator has reviewed, so that a swapped program is noticed.

use crate::transport::{StdioSpec, WorkingDir};
use portcullis_store::pins::ServerIdentity;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Extensions of scripts. Other files among the arguments are data, which may change, except the one that an
/// interpreter runs.
const SCRIPTS: [&str; 19] = [
    "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "py", "pyz", "rb", "sh", "pl", "php", "lua", "jar",
    "dll", "exe", "wasm",
];
/// Programs that run their first file, with any version suffix.
const INTERPRETERS: [&str; 22] = [
    "python", "pypy", "node", "nodejs", "deno", "bun", "tsx", "ts-node", "ruby", "perl", "php", "lua",
    "luajit", "sh", "bash", "dash", "zsh", "java", "dotnet", "mono", "uv", "env",
];
/// Subcommands before the file that an interpreter runs.
const WORDS_BEFORE: [&str; 2] = ["run", "exec"];
/// Options whose value is a file that is not run.
const BESIDE: [&str; 14] = [
    "--env-file",
    "--env-file-if-exists",
    "--config",
    "--project",
    "--directory",
    "--import-map",
    "--lock",
    "--with-requirements",
    "-r",
    "--require",
    "--import",
    "--loader",
    "-cp",
    "-classpath",
];
/// Options after which no file is run: a module or inline code follows. To a shell, `-e` is something else.
const INSTEAD: [&str; 4] = ["-m", "-c", "-e", "--eval"];
/// Suffixes that interpreters try where the argument is no file itself.
const FORMS: [&str; 15] = [
    ".js",
    ".mjs",
    ".cjs",
    ".jsx",
    ".ts",
    ".mts",
    ".cts",
    ".tsx",
    ".json",
    ".node",
    "/package.json",
    "/index.js",
    "/index.ts",
    "/index.tsx",
    "/__main__.py",
];
const PACKAGE: &str = "package.json";
const PACKAGE_BYTES_MAX: u64 = 1024 * 1024;
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "zsh"];

/// Returns the identity of a local server. Reads the program.
pub(super) fn program_identity(spec: &StdioSpec) -> ServerIdentity {
    // The hub's own two are the same for every server, but depend on where the hub is started.
    let names = spec.env.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.filter(|name| !matches!(*name, "PATH" | "HOME")).collect();
    let cwd = match &spec.cwd {
        WorkingDir::Chosen(cwd) => cwd.display().to_string(),
        // The same for every server, independent of the hub's home.
        WorkingDir::Own(_) | WorkingDir::Inherited => String::new(),
    };
    let (command, program) = match spec.program.find() {
        Ok(found) => (found.display().to_string(), spec.digests.digest(&found)),
        Err(why) => (why, "not found".to_owned()),
    };
    let mut facts = ServerIdentity::from([
        ("command".to_owned(), command),
        ("args".to_owned(), serde_json::json!(spec.args).to_string()),
        ("cwd".to_owned(), cwd),
        ("env".to_owned(), names.join(" ")),
        ("program".to_owned(), program),
    ]);
    let (from, program) = (spec.cwd.path().unwrap_or(Path::new("/")), Path::new(&facts["command"]));
    for script in scripts(program, &spec.args, |argument| from.join(argument).is_file()) {
        let path = from.join(&script);
        if path.ends_with(PACKAGE)
            && let Some(main) = main_of(&path)
        {
            facts.insert(format!("script {}", main.display()), spec.digests.digest(&main));
        }
        facts.insert(format!("script {script}"), spec.digests.digest(&path));
    }
    facts
}

/// Returns the main file of a Node.js package.
fn main_of(package: &Path) -> Option<PathBuf> {
    let mut text = String::new();
    File::open(package).ok()?.take(PACKAGE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let said: serde_json::Value = serde_json::from_str(&text).ok()?;
    let main = package.parent()?.join(said["main"].as_str()?);
    let forms = ["", ".js", ".json", ".node", "/index.js"]
        .map(|form| PathBuf::from(format!("{}{form}", main.display())));
    forms.into_iter().find(|form| form.is_file())
}

/// Returns which files a program runs, by its arguments.
fn scripts(program: &Path, args: &[String], is_file: impl Fn(&str) -> bool) -> Vec<String> {
    let mut interpreter = interpreter(program);
    let (mut found, mut before, mut folder) = (Vec::new(), "", "");
    for argument in args.iter().map(String::as_str) {
        if let Some(chosen) = interpreter.and_then(|name| folder_of(name, before, argument)) {
            (folder, before) = (chosen, argument);
            continue;
        }
        let placed = placed(folder, argument);
        let ending = Path::new(argument).extension();
        let is_script = ending.is_some_and(|ending| SCRIPTS.iter().any(|known| ending == *known));
        let is_beside = BESIDE.contains(&before) || interpreter.is_some_and(|name| has_value(name, before));
        let is_first = interpreter.is_some() && !is_beside;
        if (is_script || is_first) && is_file(&placed) {
            found.push(placed);
            interpreter = interpreter.filter(|_| !is_first);
        } else if let Some(name) = interpreter {
            let meant = self::interpreter(Path::new(argument));
            interpreter = match argument {
                "-e" if SHELLS.contains(&name) => Some(name),
                instead if INSTEAD.contains(&instead) => None,
                option if option.starts_with('-') || is_beside => Some(name),
                // A variable, or the interpreter that is meant.
                word if name == "env" && word.contains('=') => Some(name),
                _ if name == "env" => meant,
                word if WORDS_BEFORE.contains(&word) => Some(name),
                _ if name == "uv" && meant.is_some() => meant,
                // A name of what is run; every file after it is data. The name may stand for a file.
                _ => {
                    let forms = FORMS.map(|form| format!("{}{form}", placed.trim_end_matches('/')));
                    found.extend(forms.into_iter().filter(|form| is_file(form)));
                    None
                }
            };
        }
        before = argument;
    }
    found
}

/// Returns the folder that an interpreter changes to first, where an argument names one.
fn folder_of<'a>(interpreter: &str, before: &str, argument: &'a str) -> Option<&'a str> {
    let option = match interpreter {
        "uv" => "--directory",
        "bun" => "--cwd",
        _ => return None,
    };
    let joined = || argument.strip_prefix(option)?.strip_prefix('=');
    if before == option { Some(argument) } else { joined() }
}

fn placed(folder: &str, file: &str) -> String {
    Path::new(folder).join(file).display().to_string()
}

/// Returns whether an option of an interpreter takes a value.
fn has_value(interpreter: &str, option: &str) -> bool {
    match interpreter {
        "python" | "pypy" => matches!(option, "-X" | "-W"),
        "perl" | "ruby" => matches!(option, "-I"),
        "php" => matches!(option, "-d"),
        "node" | "nodejs" => matches!(option, "-C" | "--conditions"),
        _ => false,
    }
}

/// Returns which interpreter a program is, in any version.
fn interpreter(program: &Path) -> Option<&'static str> {
    let name = program.file_name()?.to_str()?;
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.into_iter().find(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interpreter_runs_is_told_from_data() {
        let cases = [
            ("/usr/bin/python3.11", "/srv/serve /srv/data", "/srv/serve"),
            ("/usr/bin/python3", "-u serve data", "serve"),
            ("/usr/bin/python3", "-m serve data", ""),
            ("/usr/bin/node", "--env-file data -r hook.js serve data", "hook.js serve"),
            ("/usr/bin/java", "-jar serve data", "serve"),
            ("/usr/bin/dotnet", "serve.dll data", "serve.dll"),
            ("/usr/bin/uv", "--directory /srv run serve data", "/srv/serve"),
            ("/usr/bin/uv", "run --directory=/srv python3 serve data", "/srv/serve"),
            ("/usr/bin/uv", "--directory /srv run python -m serve data", ""),
            ("/usr/bin/bun", "--cwd /srv/web run /srv/serve", "/srv/serve"),
            ("/usr/bin/env", "A=1 python3 serve", "serve"),
            ("/usr/bin/bash", "-c data", ""),
            ("/usr/bin/bash", "-e serve data", "serve"),
            ("/usr/bin/python3", "-X utf8 serve data", "serve"),
            ("/usr/bin/perl", "-I lib serve data", "serve"),
            ("/usr/bin/php", "-d a=b serve", "serve"),
            ("/usr/bin/python3", "/srv/app data", "/srv/app/__main__.py"),
            ("/usr/bin/node", "/srv/web/ data", "/srv/web/package.json /srv/web/index.js"),
            ("/usr/bin/node", "build data", "build.js"),
            ("/usr/bin/bun", "run src/server data", "src/server.ts"),
            // A name of what is run; the files after it are data.
            ("/usr/bin/uv", "--directory /srv run mcp-server-sqlite --db-path data", ""),
            ("/usr/bin/env", "uvx mcp-server-sqlite --db-path data", ""),
            ("/usr/bin/deno", "run -A npm:foo data", ""),
            ("/usr/bin/java", "-cp app.jar Main data", "app.jar"),
            // A program runs no other file, except scripts by extension.
            ("/srv/serve", "data serve", ""),
            ("/usr/bin/npx", "data tool.js", "tool.js"),
        ];
        let files = [
            "/srv/serve",
            "/srv/data",
            "serve",
            "data",
            "hook.js",
            "serve.dll",
            "tool.js",
            "app.jar",
            "lib",
            "build.js",
            "src/server.ts",
            "/srv/app/__main__.py",
            "/srv/web/package.json",
            "/srv/web/index.js",
        ];
        for (program, args, expected) in cases {
            let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
            let found = scripts(Path::new(program), &args, |argument| files.contains(&argument));
            assert_eq!(found.join(" "), expected, "{program} {args:?}");
        }
    }
}
