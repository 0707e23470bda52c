//! Edits the configuration file and preserves everything else.
//!
//! An edit is verified before it is written: the result is parsed again, and nothing but the entry may differ. A file
//! that cannot be edited is left alone, with instructions for editing it by hand.

mod allow_rule;
mod entry_text;
mod init;
mod rules;
mod servers;
mod toml_spans;

pub use allow_rule::{AddRuleError, AllowRule, add_rule};
pub use init::{InitMode, InitOutcome, init};
pub use rules::{NewRule, RuleEdit, edit_rules, version};
pub use servers::{NewServer, add_servers, check_server, importable_name, preview_servers, remove_server};

use crate::atomic_write::replace;
use crate::read::{self, ConfigFile};
use crate::{Config, ConfigErrors, Environment};
use portcullis_store::{FileError, FileLock};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const NEW_FILE: &str = "portcullis.toml";
const PRIVATE_FILE: u32 = 0o600;
/// Lock file of configuration edits, next to the configuration.
const LOCK_FILE: &str = "portcullis.lock";
const NO_LAYOUT: &str = "its layout is not supported";

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
    #[error(
        "`{0}` is the configuration; move it away first, since `portcullis init` writes `portcullis.toml`"
    )]
    OtherFormat(String),
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

/// Format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigFormat {
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
enum ConfigChange {
    Added(Vec<String>),
    Removed(String),
    /// Only comments and empty sections.
    Nothing,
    /// `meant` is the resolved new rule.
    Rules {
        edit: RuleEdit,
        meant: Value,
    },
}

/// A verified edit.
struct PreparedEdit {
    source: ConfigFile,
    text: String,
    config: Config,
}

/// Prepares an edit and verifies it: the result is parsed again, and everything else must be unchanged. `entry` is the
/// manual instruction if the file cannot be edited.
fn edit(
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
    let old = old.written.value();
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
    let (mut before, mut after) = (old, new.written.value());
    let taken = |value: &mut Value, name: &str| value["mcp"].as_object_mut().and_then(|mcp| mcp.remove(name));
    let done = match &change {
        ConfigChange::Added(names) => names.iter().all(|name| taken(&mut after, name).is_some()),
        ConfigChange::Removed(name) => taken(&mut before, name).is_some(),
        ConfigChange::Nothing => true,
        ConfigChange::Rules { edit, meant } => edit.is_all(meant, &mut before, &mut after),
    };
    if !done || before != after {
        return Err(by_hand(NO_LAYOUT.to_owned()));
    }
    Ok(PreparedEdit { source, text, config: new })
}

impl PreparedEdit {
    /// Writes the edit atomically. It must have been prepared under the lock.
    fn write(self, editing: &ConfigEditLock) -> Result<PathBuf, EditError> {
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
