//! Writing servers into the configuration and taking them out, and leaving everything else in it as it is.

use super::by_hand;
use super::edit_rules::RuleEdit;
use super::inline;
use super::meaning::{is_server_name, server_name_expected};
use super::read::{self, Source};
use super::sections::without;
use super::{Config, ConfigErrors, Environment};
use crate::install::{put_jsonc, take_jsonc};
use crate::private;
use crate::replace::replace;
use portcullis_store::{FileError, Hold};
use serde_json::{Value, json};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const NEW_FILE: &str = "portcullis.toml";
const PRIVATE_FILE: u32 = 0o600;
/// Whoever changes the configuration holds this file, which is empty, beside it.
const LOCK_FILE: &str = "portcullis.lock";

/// A server that is to be in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewServer {
    pub name: String,
    pub command: Option<String>,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub env: Vec<(String, String)>,
    pub url: Option<String>,
    pub headers: Vec<(String, String)>,
    /// Whether to log in there, and the settings for that.
    pub oauth: Option<Vec<(String, Value)>>,
    pub timeout_ms: Option<u64>,
    pub always_trusted: bool,
    /// Where it came from, for whoever reads the file.
    pub comment: Option<String>,
}

/// Why the configuration could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("server `{0}` is configured already; `portcullis mcp remove {0}` first, or choose another name")]
    Taken(String),
    #[error("no server is named `{}` in the configuration; `portcullis mcp list` shows them", portcullis_core::json::printable(.0))]
    Unknown(String),
    /// Only while a change is worked out; what is said then is what to do by hand.
    #[error("{0}")]
    Form(String),
    #[error("{name} cannot be changed for you: {why}\nchange it by hand:\n{entry}")]
    ByHand { name: String, why: String, entry: String },
    #[error("{}: {why}", if .name.is_empty() { "\"\"".to_owned() } else { portcullis_core::json::printable(.name) })]
    Unfit { name: String, why: String },
    #[error("{0} was changed at the same moment; try again")]
    Changed(String),
    #[error("cannot write `{path}`: {source}")]
    Io { path: String, source: std::io::Error },
    #[error(transparent)]
    Held(#[from] FileError),
}

/// The right to change the configuration of a home. Everybody else who wants to waits until it is dropped, so that
/// what was read last is what is changed.
#[derive(Debug)]
pub struct Editing {
    home: PathBuf,
    _hold: Hold,
}

impl Editing {
    pub fn of(home: &Path) -> Result<Editing, EditError> {
        Ok(Editing { home: home.to_owned(), _hold: Hold::of(&home.join(LOCK_FILE))? })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }
}

impl NewServer {
    /// Returns it as it may be shown: what is private in its words or its address is hidden.
    #[must_use]
    pub fn shown(&self) -> NewServer {
        let url = self.url.as_deref().map(private::shown_url);
        let (env, headers) = (private::shown_pairs(&self.env), private::shown_pairs(&self.headers));
        NewServer { args: private::shown_args(&self.args), env, url, headers, ..self.clone() }
    }

    /// Returns the settings as they stand in the file.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let list = |all: &[String]| all.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
        let table = |all: &[(String, String)]| {
            let members = all.iter().map(|(key, value)| format!("{} = {}", quoted(key), quoted(value)));
            members.collect::<Vec<_>>().join(", ")
        };
        let given = [("command", &self.command), ("cwd", &self.cwd), ("url", &self.url)];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, quoted(value.as_ref()?))));
        let mut settings: Vec<(&str, String)> = given.collect();
        if !self.args.is_empty() {
            settings.push(("args", format!("[{}]", list(&self.args))));
        }
        for (name, members) in [("env", &self.env), ("headers", &self.headers)] {
            if !members.is_empty() {
                settings.push((name, format!("{{ {} }}", table(members))));
            }
        }
        settings.extend(self.oauth.as_ref().map(|members| match members.as_slice() {
            [] => ("oauth", "true".to_owned()),
            members => {
                let member = |(key, value): &(String, Value)| {
                    // A number is written as in JSON.
                    let value = value.as_str().map_or_else(|| value.to_string(), quoted);
                    format!("{} = {value}", quoted(key))
                };
                let members: Vec<String> = members.iter().map(member).collect();
                ("oauth", format!("{{ {} }}", members.join(", ")))
            }
        }));
        settings.extend(self.timeout_ms.map(|timeout_ms| ("timeout_ms", timeout_ms.to_string())));
        settings.extend(self.always_trusted.then(|| ("trust", quoted("always"))));
        settings
    }

    /// Returns the entry as it stands in the file.
    pub fn written(&self) -> String {
        let mut text = String::new();
        if let Some(comment) = &self.comment {
            // Writing to a text does not fail, here and below.
            let _ = writeln!(text, "# {}", comment.replace(char::is_control, " "));
        }
        let _ = writeln!(text, "[mcp.{}]", key(&self.name));
        for (name, value) in self.settings() {
            let _ = writeln!(text, "{name} = {value}");
        }
        text
    }

    /// Returns the entry as it stands in a table on one line.
    fn in_braces(&self) -> String {
        let settings = self.settings().into_iter().map(|(name, value)| format!("{name} = {value}"));
        format!("{{ {} }}", settings.collect::<Vec<_>>().join(", "))
    }
}

/// Returns a text as TOML wants it, on one line: the lines of a file may end in several ways, and texts must not change
/// with them.
fn quoted(text: &str) -> String {
    if !text.contains(['\n', '\r']) {
        return toml::Value::String(text.to_owned()).to_string();
    }
    // What JSON escapes TOML escapes in the same way, and one more.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns a key as TOML wants it.
fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if is_bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}

/// Writes servers after everything else. Returns the file.
pub fn add_servers(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<PathBuf, EditError> {
    let editing = Editing::of(home)?;
    adding(home, env, new)?.write(&editing)
}

/// Says what is wrong with a server by itself, whatever else is in the file.
pub(crate) fn check_server(home: &Path, env: Environment<'_>, new: &NewServer) -> Result<(), EditError> {
    let unfit = |errors: ConfigErrors| {
        // Where it stands in a file that nobody has does not help.
        let said: Vec<&str> = errors.problems.iter().map(|problem| problem.text.as_str()).collect();
        EditError::Unfit { name: new.name.clone(), why: said.join("; ") }
    };
    // Said here, because the path of a key would hold the name.
    if !is_server_name(&new.name) {
        let why = format!("it is no name for a server, expected {}", server_name_expected());
        return Err(EditError::Unfit { name: new.name.clone(), why });
    }
    let document = read::parse("server.toml", &new.written()).map_err(unfit)?;
    Config::of("server.toml", &document, home, env).map(drop).map_err(unfit)
}

/// Returns the configuration as it would be with these servers. Writes nothing.
pub fn preview_servers(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<Config, EditError> {
    Ok(adding(home, env, new)?.config)
}

fn adding(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<Edited, EditError> {
    new.iter().try_for_each(|server| check_server(home, env, server))?;
    edit(home, env, &|file| by_hand::entries(file, new), |old, form, text| {
        for server in new {
            if old.pointer("/mcp").is_some_and(|mcp| mcp.get(&server.name).is_some()) {
                return Err(EditError::Taken(server.name.clone()));
            }
        }
        let mut text = text.to_owned();
        for server in new {
            text = match form {
                Form::Json => put_jsonc(&text, &["mcp", &server.name], &by_hand::members(server).into())
                    .map_err(EditError::Form)?,
                Form::Toml => match inline::with(&text, &key(&server.name), &server.in_braces()) {
                    Some(text) => text,
                    None => with_section(&text, server),
                },
                Form::Yaml => text,
            };
        }
        Ok((text, Change::Added(new.iter().map(|server| server.name.clone()).collect())))
    })
}

fn with_section(text: &str, server: &NewServer) -> String {
    // One blank line of its own, which goes with it when it is removed.
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{}", server.written())
}

/// Takes a server out, with the comment right above it. Returns the file.
pub fn remove_server(home: &Path, env: Environment<'_>, name: &str) -> Result<PathBuf, EditError> {
    let editing = Editing::of(home)?;
    let advice = format!("take `{}` out from under `mcp`\n", portcullis_core::json::printable(name));
    edit(home, env, &|_| advice.clone(), |old, form, text| {
        if old.pointer("/mcp").is_none_or(|mcp| mcp.get(name).is_none()) {
            return Err(EditError::Unknown(name.to_owned()));
        }
        let text = match form {
            Form::Json => take_jsonc(text, &["mcp", name]).map_err(EditError::Form)?,
            Form::Toml => without(text, name),
            Form::Yaml => text.to_owned(),
        };
        Ok((text, Change::Removed(name.to_owned())))
    })?
    .write(&editing)
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Toml,
    Json,
    /// Which is left to a person: nothing here keeps the comments in it.
    Yaml,
}

/// A text whose lines end as everywhere else, and how to put it back.
struct Lines {
    plain: String,
    mark: &'static str,
    newline: &'static str,
}

impl Lines {
    fn of(text: &str) -> Lines {
        const MARK: &str = "\u{feff}";
        let (mark, text) = text.strip_prefix(MARK).map_or(("", text), |rest| (MARK, rest));
        let plain = text.replace("\r\n", "\n");
        // Only where all of them end so: elsewhere they could not be put back.
        if plain.contains('\n') && plain.replace('\n', "\r\n") == text {
            return Lines { plain, mark, newline: "\r\n" };
        }
        Lines { plain: text.to_owned(), mark, newline: "\n" }
    }

    fn back(&self, text: &str) -> String {
        let lines = if self.newline == "\n" { text.to_owned() } else { text.replace('\n', self.newline) };
        format!("{}{lines}", self.mark)
    }
}

/// What is to be different afterwards.
pub(super) enum Change {
    Added(Vec<String>),
    Removed(String),
    /// `meant` is what a new rule says by itself.
    Rules {
        edit: RuleEdit,
        meant: Value,
    },
}

/// A change that keeps everything else as it is.
pub(super) struct Edited {
    source: Source,
    text: String,
    config: Config,
}

/// Works out the change. What would be written is read again: everything else has to mean what it meant. `entry` is
/// what a person puts into the file of that name where it cannot be changed for them.
pub(super) fn edit(
    home: &Path,
    env: Environment<'_>,
    entry: &dyn Fn(&str) -> String,
    work: impl FnOnce(&Value, Form, &str) -> Result<(String, Change), EditError>,
) -> Result<Edited, EditError> {
    let new_file =
        || Source { path: home.join(NEW_FILE), name: NEW_FILE, text: String::new(), writable_by_all: false };
    let source = read::find(home)?.unwrap_or_else(new_file);
    let (old, _) = Config::of(source.name, &read::parse(source.name, &source.text)?, home, env)?;
    let old = json!(old.written);
    let by_hand =
        |why: String| EditError::ByHand { name: source.name.to_owned(), why, entry: entry(source.name) };
    let form = match source.name.rsplit('.').next() {
        Some("toml") => Form::Toml,
        Some("json") => Form::Json,
        _ => Form::Yaml,
    };
    // A file that was written on Windows stays as it is, and is none here.
    let lines = Lines::of(&source.text);
    let (text, change) = match work(&old, form, &lines.plain) {
        Err(EditError::Form(why)) => return Err(by_hand(why)),
        worked => worked?,
    };
    if form == Form::Yaml {
        return Err(by_hand("only TOML and JSON can be".to_owned()));
    }
    let text = lines.back(&text);
    let refused = |errors: ConfigErrors| {
        // Where it stands in a text that nobody has does not help.
        let mut said: Vec<String> = errors.problems.into_iter().map(|problem| problem.text).collect();
        said.dedup();
        by_hand(said.join("; "))
    };
    let document = read::parse(source.name, &text).map_err(refused)?;
    let (new, _) = Config::of(source.name, &document, home, env).map_err(refused)?;
    let (mut before, mut after) = (old, json!(new.written));
    let taken = |value: &mut Value, name: &str| value["mcp"].as_object_mut().and_then(|mcp| mcp.remove(name));
    let done = match &change {
        Change::Added(names) => names.iter().all(|name| taken(&mut after, name).is_some()),
        Change::Removed(name) => taken(&mut before, name).is_some(),
        Change::Rules { edit, meant } => edit.is_all(meant, &mut before, &mut after),
    };
    if !done || before != after {
        return Err(by_hand("its form is not understood".to_owned()));
    }
    Ok(Edited { source, text, config: new })
}

impl Edited {
    /// Puts it in place. It has to have been worked out since the right to do so was had.
    pub(super) fn write(self, editing: &Editing) -> Result<PathBuf, EditError> {
        let Edited { source, text, .. } = self;
        // An editor holds nothing; what a person saved meanwhile is not overwritten.
        if read::find(editing.home())?.map_or_else(String::new, |now| now.text) != source.text {
            return Err(EditError::Changed(source.name.to_owned()));
        }
        // Where the file is a link, what it points to is the file.
        let path = std::fs::canonicalize(&source.path).unwrap_or_else(|_| source.path.clone());
        let mode =
            std::fs::metadata(&path).map_or(PRIVATE_FILE, |metadata| metadata.permissions().mode() & 0o777);
        replace(&path, &text, mode)
            .map_err(|error| EditError::Io { path: source.path.display().to_string(), source: error })?;
        Ok(source.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> NewServer {
        NewServer {
            name: name.to_owned(),
            command: Some("npx".to_owned()),
            args: vec!["-y".to_owned(), "a \"b\"\n".to_owned()],
            env: vec![("KEY".to_owned(), "secret:KEY".to_owned())],
            comment: Some("from\nelsewhere".to_owned()),
            ..NewServer::default()
        }
    }

    fn home(text: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(NEW_FILE), text).unwrap();
        home
    }

    const MINE: &str = "# mine\n[limits]\nsessions_max = 5000 # many\n\n# the first\n[mcp.one]\ncommand = 'a'\n[mcp.one.env]\nX = '1'\n\n# asks\n[[policy]]\ndecision = 'ask'\n";

    #[test]
    fn a_server_comes_last_and_nothing_else_changes() {
        let home = home(MINE);
        let path = add_servers(home.path(), &|_| None, &[server("two"), server("three")]).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            text.strip_prefix(MINE).unwrap(),
            format!("\n{}\n{}", server("two").written(), server("three").written())
        );
        insta::assert_snapshot!(server("two").written(), @r#"
        # from elsewhere
        [mcp.two]
        command = "npx"
        args = ["-y", "a \"b\"\n"]
        env = { "KEY" = "secret:KEY" }
        "#);
        let error = add_servers(home.path(), &|_| None, &[server("two")]).unwrap_err();
        assert!(matches!(error, EditError::Taken(_)), "{error}");
    }

    #[test]
    fn a_server_goes_with_its_own_comment_and_nothing_else_changes() {
        let home = home(MINE);
        remove_server(home.path(), &|_| None, "one").unwrap();
        insta::assert_snapshot!(std::fs::read_to_string(home.path().join(NEW_FILE)).unwrap(), @r"
        # mine
        [limits]
        sessions_max = 5000 # many

        # asks
        [[policy]]
        decision = 'ask'
        ");
        assert!(matches!(remove_server(home.path(), &|_| None, "one"), Err(EditError::Unknown(_))));
    }

    #[test]
    fn what_was_added_and_removed_leaves_the_file_as_it_was() {
        for text in ["", MINE, "# only\n", "[limits]\nsessions_max = 5000\n\n", "[limits]\n\n\n# the end\n"] {
            let home = home(text);
            add_servers(home.path(), &|_| None, &[server("two"), server("three")]).unwrap();
            for name in ["two", "three"] {
                remove_server(home.path(), &|_| None, name).unwrap();
            }
            assert_eq!(std::fs::read_to_string(home.path().join(NEW_FILE)).unwrap(), text);
        }
    }

    #[test]
    fn whoever_changes_the_file_at_the_same_moment_loses_nothing() {
        const ALL: usize = 4;
        let (home, together) = (home(MINE), std::sync::Barrier::new(ALL));
        let names: Vec<String> = (0..ALL).map(|at| format!("s{at}")).collect();
        std::thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| {
                    together.wait();
                    add_servers(home.path(), &|_| None, &[server(name)]).unwrap();
                });
            }
        });
        let config = Config::load(home.path(), &|_| None).unwrap().config;
        let mut found: Vec<String> = config.mcp.iter().map(|server| server.name.clone()).collect();
        found.sort();
        assert_eq!(found, [vec!["one".to_owned()], names].concat());
    }

    #[test]
    fn what_cannot_be_changed_safely_is_left_to_a_person() {
        let text = "mcp = { one.command = 'a', x.command = 'b' }\n";
        let braces = home(text);
        for error in [
            add_servers(braces.path(), &|_| None, &[server("two")]).unwrap_err(),
            remove_server(braces.path(), &|_| None, "one").unwrap_err(),
        ] {
            assert!(matches!(error, EditError::ByHand { .. }), "{error}");
            assert_eq!(std::fs::read_to_string(braces.path().join(NEW_FILE)).unwrap(), text);
        }
        let home = home("[mcp.one]\ncommand = '''\n[mcp.two]\n'''\n");
        assert!(matches!(remove_server(home.path(), &|_| None, "two"), Err(EditError::Unknown(_))));
    }

    #[test]
    fn every_way_to_write_servers_takes_one_more_and_gives_it_back() {
        for (file, text) in [
            (NEW_FILE, "mcp = { one = { command = 'a' } } # mine\n"),
            (NEW_FILE, "mcp = {}\n[memory]\nenabled = true\n"),
            (NEW_FILE, "[mcp]\none = { command = 'a' }\n# two\ntwo.command = 'b'\n"),
            (NEW_FILE, "# mine\r\n\r\n[mcp.one]\r\ncommand = 'a'\r\nargs = [\"\"\"\r\nx\r\n\"\"\"]\r\n"),
            (NEW_FILE, "\u{feff}[mcp.one]\ncommand = 'a'\n"),
            (
                "portcullis.json",
                "{\n    \"mcp\": { \"one\": { \"command\": \"a\" } },\n    \"memory\": {}\n}\n",
            ),
            ("portcullis.json", "{\r\n\t\"mcp\": {\r\n\t\t\"one\": { \"command\": \"a\" }\r\n\t}\r\n}\r\n"),
        ] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join(file);
            std::fs::write(&path, text).unwrap();
            let had: Vec<_> = Config::load(home.path(), &|_| None).unwrap().config.mcp;
            let new = NewServer { comment: None, ..server("new") };
            add_servers(home.path(), &|_| None, std::slice::from_ref(&new)).unwrap();
            let added = std::fs::read_to_string(&path).unwrap();
            let config = Config::load(home.path(), &|_| None).unwrap().config;
            let read = config.mcp.iter().find(|server| server.name == "new").unwrap();
            assert_eq!((&read.args, &read.env), (&new.args, &new.env), "{added}");
            let ends = |text: &str| text.matches('\n').count() == text.matches("\r\n").count();
            assert_eq!(ends(&added), ends(text), "{added:?}");
            remove_server(home.path(), &|_| None, "new").unwrap();
            let config = Config::load(home.path(), &|_| None).unwrap().config;
            assert_eq!(config.mcp.len(), had.len());
            for name in had.iter().map(|server| &server.name) {
                remove_server(home.path(), &|_| None, name).unwrap();
            }
            let left = std::fs::read_to_string(&path).unwrap();
            assert!(
                !left.contains("command") && left.contains("# mine") == text.contains("# mine"),
                "{left}"
            );
        }
    }

    #[test]
    fn a_server_that_fits_nowhere_is_told_by_itself() {
        let home = home(MINE);
        let odd = [
            NewServer { name: "bad name".to_owned(), ..server("x") },
            NewServer { name: String::new(), ..server("x") },
            NewServer { url: Some("https://x.example.com".to_owned()), ..server("both") },
            NewServer { name: "place".to_owned(), url: Some("no".to_owned()), ..NewServer::default() },
        ];
        let told = odd.map(|server| add_servers(home.path(), &|_| None, &[server]).unwrap_err().to_string());
        insta::assert_snapshot!(told.join("\n"), @r#"
        bad name: it is no name for a server, expected letters, digits, `-` and `_`, 1 to 32 of them
        "": it is no name for a server, expected letters, digits, `-` and `_`, 1 to 32 of them
        both: `mcp.both` has `command` and `url`, expected one of them
        place: `mcp.place.url` is no address of a server: relative URL without a base
        "#);
        assert_eq!(std::fs::read_to_string(home.path().join(NEW_FILE)).unwrap(), MINE);
    }
}
