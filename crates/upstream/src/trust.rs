//! What of a server appears: what a person has looked at, and no more.

use crate::catalog::{Offer, Said};
use crate::spec::{Folder, ServerSpec, StdioSpec, TransportSpec};
use portcullis_core::json::printable;
use portcullis_store::pins::{Identity, Kind, Pin, Pins, Snapshot, Standing, hex};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Programs up to this size are known by their contents. Runtimes that carry everything have about a hundred.
const PROGRAM_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How a file that an interpreter is to run ends, wherever it stands. Other files among the arguments are data, which may
/// change, but for the one that an interpreter runs.
const SCRIPTS: [&str; 19] = [
    "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "py", "pyz", "rb", "sh", "pl", "php", "lua", "jar",
    "dll", "exe", "wasm",
];
/// Programs that run what their first file says, with any version behind the name.
const INTERPRETERS: [&str; 22] = [
    "python", "pypy", "node", "nodejs", "deno", "bun", "tsx", "ts-node", "ruby", "perl", "php", "lua",
    "luajit", "sh", "bash", "dash", "zsh", "java", "dotnet", "mono", "uv", "env",
];
/// What may stand between an interpreter and the file that it runs.
const WORDS_BEFORE: [&str; 2] = ["run", "exec"];
/// Options of theirs whose value is a file, and not the one that is run.
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
/// Options after which no file is run: what is, stands there or has a name. To a shell, `-e` is something else.
const INSTEAD: [&str; 4] = ["-m", "-c", "-e", "--eval"];
/// What interpreters look for where what they are to run is no file itself.
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

/// Whether a server's definitions wait for a person.
#[derive(Debug, Clone)]
pub enum Trust {
    /// They are taken as they come.
    Always,
    /// What nobody has looked at waits.
    Pinned(Arc<Pins>),
}

/// One thing that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// `tool`, `prompt`, `template`, `instructions` or `resources`.
    pub kind: &'static str,
    /// As the server says it, with everything in it visible.
    pub name: String,
    pub why: String,
}

impl Quarantined {
    pub(crate) fn new(kind: &'static str, name: &str, standing: Standing) -> Quarantined {
        Quarantined { kind, name: printable(name), why: standing.as_str().to_owned() }
    }
}

impl Trust {
    /// Says how a definition stands now. With pins this costs one `stat`.
    pub(crate) fn standing(&self, server: &str, seen: &Snapshot, kind: Kind, name: &str) -> Standing {
        let Trust::Pinned(pins) = self else { return Standing::Trusted };
        match (pins.of(server), seen.pins(kind).get(name)) {
            (Some(trusted), Some(pin)) => trusted.standing(&seen.identity, kind, name, &pin.sha256),
            _ => Standing::Server,
        }
    }

    /// Names what tells a server from the one of this name that somebody looked at; nothing where nobody has.
    pub(crate) fn differing(&self, server: &str, identity: &Identity) -> Vec<String> {
        let Trust::Pinned(pins) = self else { return Vec::new() };
        let Some(trusted) = pins.of(server) else { return Vec::new() };
        let known = &trusted.as_it_was.identity;
        let facts: BTreeSet<&String> = known.keys().chain(identity.keys()).collect();
        let differ = facts.into_iter().filter(|fact| known.get(*fact) != identity.get(*fact));
        differ.map(|fact| printable(fact)).collect()
    }

    /// Returns whether this very server is trusted, whatever it offers besides.
    pub(crate) fn knows(&self, server: &str, identity: &Identity) -> bool {
        match self {
            Trust::Always => true,
            Trust::Pinned(pins) => {
                pins.of(server).is_some_and(|trusted| trusted.as_it_was.identity == *identity)
            }
        }
    }

    pub(crate) fn instructions_stand(&self, server: &str, seen: &Snapshot) -> bool {
        match self {
            Trust::Always => true,
            Trust::Pinned(pins) => pins.of(server).is_some_and(|trusted| {
                trusted.instructions_stand(&seen.identity, seen.instructions.as_deref())
            }),
        }
    }
}

/// Takes from an offer what cannot be told apart or read, and pins the rest.
pub(crate) fn snapshot(offer: &mut Offer, identity: Identity) -> Snapshot {
    let mut dropped = Vec::new();
    let tools = pinned(&mut offer.tools, &mut dropped);
    let prompts = pinned(&mut offer.prompts, &mut dropped);
    let templates = pinned(&mut offer.templates, &mut dropped);
    offer.dropped.extend(dropped);
    Snapshot { identity, instructions: offer.instructions.clone(), tools, prompts, templates }
}

fn pinned(all: &mut Vec<Said>, dropped: &mut Vec<(String, String)>) -> BTreeMap<String, Pin> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for said in all.iter() {
        *counts.entry(said.own.clone()).or_default() += 1;
    }
    let mut pins = BTreeMap::new();
    all.retain(|said| {
        // Which of the two a call would reach is the server's to choose, at every call.
        let why = match (counts.get(&said.own), Pin::of(said.raw.get())) {
            (Some(1), Ok(pin)) => {
                pins.insert(said.own.clone(), pin);
                return true;
            }
            (Some(1), Err(why)) => why,
            _ => "the server offers two of this name".to_owned(),
        };
        let entry = (printable(&said.own), why);
        if !dropped.contains(&entry) {
            dropped.push(entry);
        }
        false
    });
    pins
}

/// Says how a server is reached, and by what. Reads the program, where there is one.
pub(crate) async fn facts(spec: &ServerSpec) -> Identity {
    match &spec.transport {
        TransportSpec::Stdio(spec) => {
            let spec = spec.clone();
            // A program that cannot be read has said so among the facts.
            tokio::task::spawn_blocking(move || stdio_facts(&spec)).await.unwrap_or_default()
        }
        TransportSpec::Http(http) => {
            let mut facts = Identity::from([("url".to_owned(), http.place.to_string())]);
            // Another one to vouch for who we are makes it another server.
            if let Some(oauth) = &http.oauth
                && let Some(issuer) = oauth.issuer().await
            {
                facts.insert("issuer".to_owned(), issuer);
            }
            facts
        }
    }
}

fn stdio_facts(spec: &StdioSpec) -> Identity {
    // The hub's own two are the same for every server, but not wherever the hub is started from.
    let names = spec.env.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.filter(|name| !matches!(*name, "PATH" | "HOME")).collect();
    let cwd = match &spec.cwd {
        Folder::Chosen(cwd) => cwd.display().to_string(),
        // The same for every server, wherever the hub keeps what it has.
        Folder::Own(_) | Folder::Inherited => String::new(),
    };
    let (command, program) = match spec.program.find() {
        Ok(found) => (found.display().to_string(), contents(&found)),
        Err(why) => (why, "not found".to_owned()),
    };
    let mut facts = Identity::from([
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
            facts.insert(format!("script {}", main.display()), contents(&main));
        }
        facts.insert(format!("script {script}"), contents(&path));
    }
    facts
}

/// Returns the file that a folder of node's begins with, as its description says.
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
                // What is run has a name, and every file after it is data. It may stand for a file.
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

/// Returns the folder that an interpreter goes to before it looks for files, where an argument says it.
fn folder_of<'a>(interpreter: &str, before: &str, argument: &'a str) -> Option<&'a str> {
    let option = match interpreter {
        "uv" => "--directory",
        "bun" => "--cwd",
        _ => return None,
    };
    let joined = || argument.strip_prefix(option)?.strip_prefix('=');
    if before == option { Some(argument) } else { joined() }
}

/// Returns where a file is that is named from a folder.
fn placed(folder: &str, file: &str) -> String {
    Path::new(folder).join(file).display().to_string()
}

/// Returns whether what comes after an option of an interpreter belongs to it.
fn has_value(interpreter: &str, option: &str) -> bool {
    match interpreter {
        "python" | "pypy" => matches!(option, "-X" | "-W"),
        "perl" | "ruby" => matches!(option, "-I"),
        "php" => matches!(option, "-d"),
        "node" | "nodejs" => matches!(option, "-C" | "--conditions"),
        _ => false,
    }
}

/// Returns which interpreter a program is, whatever its version, if it is one.
fn interpreter(program: &Path) -> Option<&'static str> {
    let name = program.file_name()?.to_str()?;
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.into_iter().find(|known| *known == name)
}

/// Which file it was: device, number, size, and when it and what is known of it changed.
type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// What files were found to hold, so that a server that starts again and again costs nothing.
static KNOWN: Mutex<BTreeMap<PathBuf, (Stamp, String)>> = Mutex::new(BTreeMap::new());
/// How many are remembered.
const KNOWN_MAX: usize = 1_000;

/// Returns the digest of a file, or why there is none.
fn contents(path: &Path) -> String {
    let cannot = |error: std::io::Error| format!("not readable: {}", error.kind());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return cannot(error),
    };
    let found = match file.metadata() {
        Ok(found) if found.is_file() => found,
        Ok(_) => return "not a file".to_owned(),
        Err(error) => return cannot(error),
    };
    if found.size() > PROGRAM_BYTES_MAX {
        return format!("too large to read: {} bytes", found.size());
    }
    let stamp = (
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    );
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, digest)) = known().get(path).filter(|(seen, _)| *seen == stamp) {
        return digest.clone();
    }
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 256 * 1024]);
    let mut file = file.take(PROGRAM_BYTES_MAX + 1);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => hash.update(&buffer[..bytes]),
            Err(error) => return cannot(error),
        }
    }
    let digest = format!("sha256:{}", hex(&hash.finalize()));
    let mut known = known();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(path.to_owned(), (stamp, digest.clone()));
    digest
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
            // What is run has a name; the files after it are data.
            ("/usr/bin/uv", "--directory /srv run mcp-server-sqlite --db-path data", ""),
            ("/usr/bin/env", "uvx mcp-server-sqlite --db-path data", ""),
            ("/usr/bin/deno", "run -A npm:foo data", ""),
            ("/usr/bin/java", "-cp app.jar Main data", "app.jar"),
            // What runs by itself runs no other file, but for those that say what they are.
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
