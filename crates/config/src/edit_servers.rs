//! Adds and removes servers in the configuration file, preserving everything else.

use super::edit_rules::RuleEdit;
use super::inline_tables;
use super::manual_snippet;
use super::read::{self, ConfigFile};
use super::resolve::{is_server_name, server_name_expected};
use super::toml_sections::without;
use super::{Config, ConfigErrors, Environment};
use crate::atomic_write::replace;
use crate::{jsonc, secret_detection};
use portcullis_store::{FileError, FileLock};
use serde_json::{Value, json};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const NEW_FILE: &str = "portcullis.toml";
const PRIVATE_FILE: u32 = 0o600;
/// Lock file of configuration edits, next to the configuration.
const LOCK_FILE: &str = "portcullis.lock";

/// A server to add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewServer {
    pub name: String,
    pub command: Option<String>,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub env: Vec<(String, String)>,
    pub url: Option<String>,
    pub headers: Vec<(String, String)>,
    /// OAuth settings, if it needs a login.
    pub oauth: Option<Vec<(String, Value)>>,
    pub timeout_ms: Option<u64>,
    pub always_trusted: bool,
    /// Comment in the file: where it came from.
    pub comment: Option<String>,
}

/// Why the configuration could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("server `{0}` already exists; run `portcullis mcp remove {0}` first, or choose another name")]
    Taken(String),
    #[error("no such server: `{}`; list them with `portcullis mcp list`", portcullis_core::json::printable(.0))]
    Unknown(String),
    /// Internal: mapped to manual instructions.
    #[error("{0}")]
    Form(String),
    #[error("cannot edit {name}: {why}\nedit it yourself:\n{entry}")]
    ByHand { name: String, why: String, entry: String },
    #[error("{}: {why}", if .name.is_empty() { "\"\"".to_owned() } else { portcullis_core::json::printable(.name) })]
    Unfit { name: String, why: String },
    #[error("{0} changed meanwhile; retry")]
    Changed(String),
    #[error("cannot write `{path}`: {source}")]
    Io { path: String, source: std::io::Error },
    #[error(transparent)]
    Held(#[from] FileError),
}

/// Exclusive lock for edits of a home's configuration, so that no edit is lost. Other editors wait.
#[derive(Debug)]
pub struct ConfigEditLock {
    home: PathBuf,
    _hold: FileLock,
}

impl ConfigEditLock {
    /// Waits for the lock of a home folder.
    pub fn of(home: &Path) -> Result<ConfigEditLock, EditError> {
        Ok(ConfigEditLock { home: home.to_owned(), _hold: FileLock::of(&home.join(LOCK_FILE))? })
    }

    /// Returns the home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }
}

impl NewServer {
    /// Returns a redacted copy for display.
    #[must_use]
    pub fn shown(&self) -> NewServer {
        let url = self.url.as_deref().map(secret_detection::shown_url);
        let (env, headers) =
            (secret_detection::shown_pairs(&self.env), secret_detection::shown_pairs(&self.headers));
        NewServer { args: secret_detection::shown_args(&self.args), env, url, headers, ..self.clone() }
    }

    /// Returns the settings as TOML.
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

    /// Returns the entry as a TOML table.
    pub fn written(&self) -> String {
        let mut text = String::new();
        if let Some(comment) = &self.comment {
            // Writing to a string does not fail, here and below.
            let _ = writeln!(text, "# {}", comment.replace(char::is_control, " "));
        }
        let _ = writeln!(text, "[mcp.{}]", key(&self.name));
        for (name, value) in self.settings() {
            let _ = writeln!(text, "{name} = {value}");
        }
        text
    }

    /// Returns the entry as an inline table.
    fn in_braces(&self) -> String {
        let settings = self.settings().into_iter().map(|(name, value)| format!("{name} = {value}"));
        format!("{{ {} }}", settings.collect::<Vec<_>>().join(", "))
    }
}

/// Quotes a string for TOML on one line: line ends of the file must not change the string.
fn quoted(text: &str) -> String {
    if !text.contains(['\n', '\r']) {
        return toml::Value::String(text.to_owned()).to_string();
    }
    // TOML escapes like JSON, plus DEL.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Quotes a key for TOML.
fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if is_bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}

/// Appends servers to the file. Returns its path.
pub fn add_servers(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<PathBuf, EditError> {
    let editing = ConfigEditLock::of(home)?;
    adding(home, env, new)?.write(&editing)
}

/// Validates a server by itself.
pub fn check_server(home: &Path, env: Environment<'_>, new: &NewServer) -> Result<(), EditError> {
    let unfit = |errors: ConfigErrors| {
        // The line in a temporary text is of no use.
        let said: Vec<&str> = errors.problems.iter().map(|problem| problem.text.as_str()).collect();
        EditError::Unfit { name: new.name.clone(), why: said.join("; ") }
    };
    // Checked here, because a key path would contain the name.
    if !is_server_name(&new.name) {
        let why = format!("invalid server name, expected {}", server_name_expected());
        return Err(EditError::Unfit { name: new.name.clone(), why });
    }
    let document = read::parse("server.toml", &new.written()).map_err(unfit)?;
    Config::of("server.toml", &document, home, env).map(drop).map_err(unfit)
}

/// Validates the configuration with these servers added. Writes nothing.
pub fn preview_servers(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<Config, EditError> {
    Ok(adding(home, env, new)?.config)
}

fn adding(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<PreparedEdit, EditError> {
    new.iter().try_for_each(|server| check_server(home, env, server))?;
    edit(home, env, &|file| manual_snippet::entries(file, new), |old, form, text| {
        for server in new {
            if old.pointer("/mcp").is_some_and(|mcp| mcp.get(&server.name).is_some()) {
                return Err(EditError::Taken(server.name.clone()));
            }
        }
        let mut text = text.to_owned();
        for server in new {
            text = match form {
                ConfigFormat::Json => {
                    jsonc::put(&text, &["mcp", &server.name], &manual_snippet::members(server).into())
                        .map_err(EditError::Form)?
                }
                ConfigFormat::Toml => {
                    match inline_tables::with(&text, &key(&server.name), &server.in_braces()) {
                        Some(text) => text,
                        None => with_section(&text, server),
                    }
                }
                ConfigFormat::Yaml => text,
            };
        }
        Ok((text, ConfigChange::Added(new.iter().map(|server| server.name.clone()).collect())))
    })
}

fn with_section(text: &str, server: &NewServer) -> String {
    // One blank line, removed together with the entry.
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{}", server.written())
}

/// Removes a server and the comment right above it. Returns the file.
pub fn remove_server(home: &Path, env: Environment<'_>, name: &str) -> Result<PathBuf, EditError> {
    let editing = ConfigEditLock::of(home)?;
    let advice = format!("remove `{}` from `mcp`\n", portcullis_core::json::printable(name));
    edit(home, env, &|_| advice.clone(), |old, form, text| {
        if old.pointer("/mcp").is_none_or(|mcp| mcp.get(name).is_none()) {
            return Err(EditError::Unknown(name.to_owned()));
        }
        let text = match form {
            ConfigFormat::Json => jsonc::take(text, &["mcp", name]).map_err(EditError::Form)?,
            ConfigFormat::Toml => without(text, name),
            ConfigFormat::Yaml => text.to_owned(),
        };
        Ok((text, ConfigChange::Removed(name.to_owned())))
    })?
    .write(&editing)
}

/// Format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigFormat {
    Toml,
    Json,
    /// Not edited: comments could not be preserved.
    Yaml,
}

/// A text normalized to LF, and how to restore its line ends.
struct NormalizedText {
    plain: String,
    mark: &'static str,
    newline: &'static str,
}

impl NormalizedText {
    fn of(text: &str) -> NormalizedText {
        const MARK: &str = "\u{feff}";
        let (mark, text) = text.strip_prefix(MARK).map_or(("", text), |rest| (MARK, rest));
        let plain = text.replace("\r\n", "\n");
        // Only if all lines end with CRLF: mixed line ends could not be restored.
        if plain.contains('\n') && plain.replace('\n', "\r\n") == text {
            return NormalizedText { plain, mark, newline: "\r\n" };
        }
        NormalizedText { plain: text.to_owned(), mark, newline: "\n" }
    }

    fn back(&self, text: &str) -> String {
        let lines = if self.newline == "\n" { text.to_owned() } else { text.replace('\n', self.newline) };
        format!("{}{lines}", self.mark)
    }
}

/// The expected difference.
pub(super) enum ConfigChange {
    Added(Vec<String>),
    Removed(String),
    /// `meant` is the resolved new rule.
    Rules {
        edit: RuleEdit,
        meant: Value,
    },
}

/// A verified edit.
pub(super) struct PreparedEdit {
    source: ConfigFile,
    text: String,
    config: Config,
}

/// Prepares an edit and verifies it: the result is parsed again, and everything else must be unchanged. `entry` is the
/// manual instruction if the file cannot be edited.
pub(super) fn edit(
    home: &Path,
    env: Environment<'_>,
    entry: &dyn Fn(&str) -> String,
    work: impl FnOnce(&Value, ConfigFormat, &str) -> Result<(String, ConfigChange), EditError>,
) -> Result<PreparedEdit, EditError> {
    let new_file = || ConfigFile {
        path: home.join(NEW_FILE),
        name: NEW_FILE,
        text: String::new(),
        writable_by_all: false,
    };
    let source = read::find(home)?.unwrap_or_else(new_file);
    let (old, _) = Config::of(source.name, &read::parse(source.name, &source.text)?, home, env)?;
    let old = json!(old.written);
    let by_hand =
        |why: String| EditError::ByHand { name: source.name.to_owned(), why, entry: entry(source.name) };
    let form = match source.name.rsplit('.').next() {
        Some("toml") => ConfigFormat::Toml,
        Some("json") => ConfigFormat::Json,
        _ => ConfigFormat::Yaml,
    };
    // CRLF files are normalized here and restored when written.
    let lines = NormalizedText::of(&source.text);
    let (text, change) = match work(&old, form, &lines.plain) {
        Err(EditError::Form(why)) => return Err(by_hand(why)),
        worked => worked?,
    };
    if form == ConfigFormat::Yaml {
        return Err(by_hand("only TOML and JSON files can be edited".to_owned()));
    }
    let text = lines.back(&text);
    let refused = |errors: ConfigErrors| {
        // The line in a temporary text is of no use.
        let mut said: Vec<String> = errors.problems.into_iter().map(|problem| problem.text).collect();
        said.dedup();
        by_hand(said.join("; "))
    };
    let document = read::parse(source.name, &text).map_err(refused)?;
    let (new, _) = Config::of(source.name, &document, home, env).map_err(refused)?;
    let (mut before, mut after) = (old, json!(new.written));
    let taken = |value: &mut Value, name: &str| value["mcp"].as_object_mut().and_then(|mcp| mcp.remove(name));
    let done = match &change {
        ConfigChange::Added(names) => names.iter().all(|name| taken(&mut after, name).is_some()),
        ConfigChange::Removed(name) => taken(&mut before, name).is_some(),
        ConfigChange::Rules { edit, meant } => edit.is_all(meant, &mut before, &mut after),
    };
    if !done || before != after {
        return Err(by_hand("its layout is not supported".to_owned()));
    }
    Ok(PreparedEdit { source, text, config: new })
}

impl PreparedEdit {
    /// Writes the edit atomically. It must have been prepared under the lock.
    pub(super) fn write(self, editing: &ConfigEditLock) -> Result<PathBuf, EditError> {
        let PreparedEdit { source, text, .. } = self;
        // Text editors do not take the lock; a file saved meanwhile is not overwritten.
        if read::find(editing.home())?.map_or_else(String::new, |now| now.text) != source.text {
            return Err(EditError::Changed(source.name.to_owned()));
        }
        // A symlink is followed.
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
        bad name: invalid server name, expected letters, digits, `-` and `_`, 1 to 32 of them
        "": invalid server name, expected letters, digits, `-` and `_`, 1 to 32 of them
        both: `mcp.both` has `command` and `url`, expected one of them
        place: `mcp.place.url` is not a valid URL: relative URL without a base
        "#);
        assert_eq!(std::fs::read_to_string(home.path().join(NEW_FILE)).unwrap(), MINE);
    }
}
