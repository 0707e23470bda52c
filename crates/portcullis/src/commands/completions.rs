//! `portcullis completions`: the script of a shell, and the names that it asks for while a person types.
//!
//! The scripts are clap's, with a function around them that asks this program for names of servers, clients and tools. What
//! can stand at a place is decided here, once for all shells. The dynamic engine of `clap_complete` would decide it too; it
//! is unstable, and writes to stdout past the redaction.

use super::{LoadedHome, open, open_operations_for_reading};
use crate::cli::Cli;
use crate::home::{Home, environment};
use crate::print;
use anyhow::Result;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use portcullis_ops::tool_families::native_tools;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

const BASH: &str = r#"
_portcullis_names() {
    _portcullis "$@"
    local names
    names=$("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null) || return 0
    if [[ -n "${names}" ]]; then
        COMPREPLY=( $(compgen -W "${names}" -- "${COMP_WORDS[COMP_CWORD]}") )
    fi
}
complete -F _portcullis_names -o bashdefault -o default portcullis
"#;

const ZSH: &str = r#"
_portcullis_names() {
    local -a names
    names=(${(f)"$("${words[1]}" __complete -- "${(@)words[2,CURRENT-1]}" 2>/dev/null)"})
    if (( ${#names} )); then
        compadd -a names
    else
        _portcullis "$@"
    fi
}
compdef _portcullis_names portcullis
"#;

const FISH: &str = r#"
complete -c portcullis -a '(set -l typed (commandline -opc); $typed[1] __complete -- $typed[2..-1] 2>/dev/null)'
"#;

/// What a name on the command line is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Server,
    Client,
    Tool,
}

pub(crate) fn script(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "portcullis", &mut script);
    let names = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    };
    print::out(format!("{}{names}", String::from_utf8_lossy(&script)));
    ExitCode::SUCCESS
}

/// Prints the names that can follow these words, one per line. Where nothing is known, nothing is printed.
pub(crate) fn names(home: Option<&Path>, words: &[String]) -> Result<ExitCode> {
    let place = TypedPlace::of(&Cli::command(), words);
    let home = place.home.as_deref().map(Path::new).or(home);
    if let Some(kind) = place.kind {
        // A home is not made for a completion.
        let path = Home::locate(home, environment)?;
        if path.is_dir() {
            let names = known(&path, kind)?.into_iter().filter(|name| is_inert(name));
            print::out(names.map(|name| format!("{name}\n")).collect::<String>());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shells expand what they complete from, so a name may have no character that means something to one.
fn is_inert(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn known(home: &Path, kind: NameKind) -> Result<BTreeSet<String>> {
    let LoadedHome { home, loaded, .. } = open(Some(home))?;
    let config = loaded.config;
    Ok(match kind {
        NameKind::Server => config.mcp.into_iter().map(|server| server.name).collect(),
        NameKind::Client => {
            let local = config.stdio.client.clone();
            let clients = open_operations_for_reading(home, config)?.list_clients()?;
            clients.into_iter().map(|client| client.name).chain([local]).collect()
        }
        NameKind::Tool => {
            let native = native_tools(&config)?;
            let pinned = open_operations_for_reading(home, config.clone())?.pinned_tools(&config)?;
            native.iter().chain(&pinned).map(|tool| tool.name.clone()).collect()
        }
    })
}

/// Where the next word stands.
struct TypedPlace {
    kind: Option<NameKind>,
    /// The value of `--home`.
    home: Option<String>,
}

impl TypedPlace {
    fn of(root: &Command, words: &[String]) -> TypedPlace {
        let (mut command, mut parent, mut given) = (root, "", 0);
        let (mut home, mut option) = (None, None);
        for word in words {
            if let Some(arg) = option.take() {
                if is_of(arg, "home") {
                    home = Some(word.clone());
                }
            } else if word == "--" {
                // What follows belongs to another program.
                return TypedPlace { kind: None, home };
            } else if let Some(name) = word.strip_prefix("--") {
                let (name, value) =
                    name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
                let mut all = command.get_arguments().chain(root.get_arguments());
                let arg = all.find(|arg| arg.get_long() == Some(name));
                match value {
                    Some(value) if name == "home" => home = Some(value.to_owned()),
                    Some(_) => {}
                    None => option = arg.filter(|arg| arg.get_action().takes_values()),
                }
            } else if let Some(inner) = command.find_subcommand(word) {
                (parent, command, given) = (command.get_name(), inner, 0);
            } else if !word.starts_with('-') {
                given += 1;
            }
        }
        let next = option.or_else(|| command.get_positionals().nth(given));
        TypedPlace { kind: next.and_then(|arg| kind_of(parent, command.get_name(), arg)), home }
    }
}

fn is_of(arg: &Arg, id: &str) -> bool {
    arg.get_id().as_str() == id
}

/// Returns what an argument names. New names are not completed.
fn kind_of(parent: &str, command: &str, arg: &Arg) -> Option<NameKind> {
    match (parent, arg.get_id().as_str()) {
        _ if command == "add" && is_of(arg, "name") => None,
        (_, "client" | "clients") => Some(NameKind::Client),
        ("policy" | "audit", "tool" | "tools") => Some(NameKind::Tool),
        ("mcp", "name") => Some(NameKind::Server),
        ("clients", "name") => Some(NameKind::Client),
        ("tools", "name") => Some(NameKind::Tool),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_given_nothing_to_expand() {
        assert!(is_inert("git_log") && is_inert("a-b.c"));
        for name in ["$(id)", "`id`", "a b", "a;b", "~", "*", "a\\b"] {
            assert!(!is_inert(name), "{name}");
        }
    }

    #[test]
    fn the_place_says_what_is_named() {
        use NameKind::{Client, Server, Tool};
        for (line, kind, home) in [
            ("", None, None),
            ("mcp", None, None),
            ("mcp trust", Some(Server), None),
            ("mcp trust git", None, None),
            ("mcp trust --diff", Some(Server), None),
            ("--home /h mcp --json reload", Some(Server), Some("/h")),
            ("mcp --home=/h test", Some(Server), Some("/h")),
            ("mcp add", None, None),
            ("mcp add x -- npx", None, None),
            ("clients revoke", Some(Client), None),
            ("clients snippet", Some(Client), None),
            ("clients add", None, None),
            ("stdio --client", Some(Client), None),
            ("tools call", Some(Tool), None),
            ("tools call a", None, None),
            ("tools show", Some(Tool), None),
            ("policy test", Some(Client), None),
            ("policy test local", Some(Tool), None),
            ("policy add ask --tool", Some(Tool), None),
            ("policy add ask --client", Some(Client), None),
            ("audit search --client", Some(Client), None),
            ("secrets remove", None, None),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let place = TypedPlace::of(&Cli::command(), &words);
            assert_eq!((place.kind, place.home.as_deref()), (kind, home), "{line}");
        }
    }
}
