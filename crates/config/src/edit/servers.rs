//! Adds and removes upstream servers.

use super::{ConfigChange, ConfigEditLock, ConfigFormat, EditError, NO_LAYOUT, PreparedEdit, edit};
use super::{entry_text, toml_spans};
use crate::reserved_names::{other_name, reserved_prefix};
use crate::resolve::{is_server_name, server_name_expected};
use crate::{Config, ConfigErrors, Environment, FAMILIES, jsonc, read, secret_detection};
use serde_json::Value;
use std::path::{Path, PathBuf};
use toml_edit::Key;

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
    pub start_timeout_ms: Option<u64>,
    pub always_trusted: bool,
    /// Comment in the file: where it came from.
    pub comment: Option<String>,
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

    /// Returns the entry as a TOML table.
    pub fn written(&self) -> String {
        let heading = format!("[mcp.{}]", Key::new(&self.name));
        entry_text::section(self.comment.as_deref(), &heading, &entry_text::members(self))
    }
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
    if let Some(reserved) = reserved_prefix(FAMILIES, &new.name) {
        let other = other_name(&new.name);
        let why = format!("its tools would be named like the hub's own `{reserved}_*`; call it `{other}`");
        return Err(EditError::Unfit { name: new.name.clone(), why });
    }
    let document = read::parse("server.toml", &new.written()).map_err(unfit)?;
    Config::of("server.toml", &document, home, env).map(drop).map_err(unfit)
}

/// Returns a name for a server that is imported: its own, or a similar one where that is reserved for the hub's tools.
pub fn importable_name(name: &str) -> String {
    match reserved_prefix(FAMILIES, name) {
        Some(_) => other_name(name),
        None => name.to_owned(),
    }
}

/// Validates the configuration with these servers added. Writes nothing.
pub fn preview_servers(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<Config, EditError> {
    Ok(adding(home, env, new)?.config)
}

fn adding(home: &Path, env: Environment<'_>, new: &[NewServer]) -> Result<PreparedEdit, EditError> {
    new.iter().try_for_each(|server| check_server(home, env, server))?;
    edit(home, env, &|file| entry_text::entries(file, new), |old, form, text| {
        for server in new {
            if old.pointer("/mcp").is_some_and(|mcp| mcp.get(&server.name).is_some()) {
                return Err(EditError::Taken(server.name.clone()));
            }
        }
        let mut text = text.to_owned();
        for server in new {
            let members = Value::Object(entry_text::members(server));
            text = match form {
                ConfigFormat::Json => {
                    jsonc::put(&text, &["mcp", &server.name], &members).map_err(EditError::Form)?
                }
                ConfigFormat::Toml => {
                    let key = Key::new(&server.name).to_string();
                    toml_spans::with_member(&text, &key, &entry_text::toml(&members))
                        .unwrap_or_else(|| with_section(&text, server))
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
            ConfigFormat::Toml => {
                toml_spans::without_server(text, name).ok_or_else(|| EditError::Form(NO_LAYOUT.to_owned()))?
            }
            ConfigFormat::Yaml => text.to_owned(),
        };
        Ok((text, ConfigChange::Removed(name.to_owned())))
    })?
    .write(&editing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::NEW_FILE;

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
        // Whose comment is it?
        let text = "mcp = {\n  one = { command = 'a' }, # here\n  x = { command = 'b' },\n}\n";
        let braces = home(text);
        let error = remove_server(braces.path(), &|_| None, "one").unwrap_err();
        assert!(matches!(error, EditError::ByHand { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(braces.path().join(NEW_FILE)).unwrap(), text);
        let home = home("[mcp.one]\ncommand = '''\n[mcp.two]\n'''\n");
        assert!(matches!(remove_server(home.path(), &|_| None, "two"), Err(EditError::Unknown(_))));
    }

    #[test]
    fn every_way_to_write_servers_takes_one_more_and_gives_it_back() {
        for (file, text) in [
            (NEW_FILE, "mcp = { one = { command = 'a' } } # mine\n"),
            (NEW_FILE, "mcp = { one.command = 'a', x.command = 'b', one.args = ['c'] } # mine\n"),
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
