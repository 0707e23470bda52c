//! Adds Portcullis to the configuration of MCP client applications.
//!
//! Plan (read-only), confirm the diff, apply. The file belongs to another application, so only our entry changes, a backup
//! is kept next to it, and a file that changed since the plan is not touched (TOCTOU).

mod client;

pub use client::{AppPresence, ClientApp, ClientFolders, Platform, shell_word};

use crate::client_file::{self, ClientFileError};
use jiff::Timestamp;
use portcullis_config::atomic_write::{replace, sibling_path, write_new};
use portcullis_config::jsonc;
use portcullis_core::{Clock, Secret};
use serde_json::{Map, Value};
use similar::TextDiff;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the entry in every client.
pub const ENTRY_NAME: &str = "portcullis";

/// Visible characters of a token, as in `portcullis clients list`.
const TOKEN_SHOWN_CHARS: usize = 8;
/// Owner read and write only.
const PRIVATE_FILE: u32 = 0o600;

/// Transport of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The client starts `portcullis stdio --client NAME` itself.
    Stdio,
    /// The client connects to a running hub, with a token.
    Http,
}

/// Location of the hub.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Absolute path of the binary, because clients may have a different PATH.
    pub binary: PathBuf,
    pub home: PathBuf,
    pub url: String,
    /// The client that the application is.
    pub client: String,
    pub token: Option<Secret<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("`{variable}` is not set, so the client's folder is unknown")]
    NoHome { variable: &'static str },
    #[error("an HTTP entry needs a token; create one with `portcullis clients add NAME`")]
    NeedsToken,
    #[error("cannot edit `{}` safely: {reason}; add the entry yourself", path.display())]
    NotUnderstood { path: PathBuf, reason: String },
    #[error("`{}` changed meanwhile; review the new diff first", path.display())]
    Changed { path: PathBuf },
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Endpoint {
    /// Returns the endpoint of this binary.
    pub fn of_this_program(home: &Path, url: &str, client: &str, token: &Secret<String>) -> Endpoint {
        Endpoint { token: Some(token.clone()), ..Endpoint::without_token(home, url, client) }
    }

    /// Returns the endpoint of this binary for a client whose token is not known.
    pub fn without_token(home: &Path, url: &str, client: &str) -> Endpoint {
        // Without a known path, PATH has to do.
        let binary = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("portcullis"));
        let (home, url, client) = (home.to_owned(), url.to_owned(), client.to_owned());
        Endpoint { binary, home, url, client, token: None }
    }
}

/// A planned change of a client's file.
pub struct InstallPlan {
    pub path: PathBuf,
    /// `None` if the file does not exist yet.
    pub before: Option<String>,
    pub after: String,
    /// Whether the entry contains a token, so that the file must be private.
    holds_token: bool,
}

impl fmt::Debug for InstallPlan {
    /// Omits the texts, which contain tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstallPlan").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ClientApp {
    /// Returns a complete file for a client without other servers, ready to paste.
    pub fn snippet(self, transport: Transport, endpoint: &Endpoint) -> String {
        let mut value = self.entry(transport, endpoint, &Value::Null);
        for key in self.section(&Value::Null).iter().chain([&ENTRY_NAME]).rev() {
            value = Value::Object(Map::from_iter([((*key).to_owned(), value)]));
        }
        format!("{value:#}\n")
    }

    /// Plans the change. Writes nothing.
    pub fn plan(
        self,
        transport: Transport,
        endpoint: &Endpoint,
        folders: &ClientFolders,
    ) -> Result<InstallPlan, InstallError> {
        let holds_token = self.transport(transport) == Transport::Http;
        if holds_token && endpoint.token.is_none() {
            return Err(InstallError::NeedsToken);
        }
        let path = self.path(folders);
        // A symlink is followed and kept: dotfiles are often linked.
        let path = path.canonicalize().unwrap_or(path);
        let before = read(&path)?;
        let text = before.as_deref().unwrap_or_default();
        let not_understood = |reason| InstallError::NotUnderstood { path: path.clone(), reason };
        let file = jsonc::parse(text).map_err(not_understood)?;
        let keys: Vec<&str> = self.section(&file).iter().copied().chain([ENTRY_NAME]).collect();
        let entry = self.entry(transport, endpoint, &file);
        let after = jsonc::put(text, &keys, &entry).map_err(not_understood)?;
        Ok(InstallPlan { path, before, after, holds_token })
    }
}

impl InstallPlan {
    /// Returns whether nothing has to change.
    pub fn is_done(&self) -> bool {
        self.before.as_ref() == Some(&self.after)
    }

    /// Returns a unified diff, with our tokens redacted.
    pub fn diff(&self) -> String {
        let name = self.path.display().to_string();
        let (before, after) =
            (redact_tokens(self.before.as_deref().unwrap_or_default()), redact_tokens(&self.after));
        let diff = TextDiff::from_lines(&before, &after);
        let old_name = if self.before.is_some() { name.as_str() } else { "/dev/null" };
        diff.unified_diff().context_radius(3).header(old_name, &name).to_string()
    }

    /// Applies the plan. Returns the backup, if there was a file.
    pub fn apply(&self, clock: &dyn Clock) -> Result<Option<PathBuf>, InstallError> {
        if read(&self.path)? != self.before {
            return Err(InstallError::Changed { path: self.path.clone() });
        }
        if self.is_done() {
            return Ok(None);
        }
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).map_err(|e| io_error("make", folder, e))?;
        let mode = match std::fs::metadata(&self.path) {
            Ok(metadata) if !self.holds_token => metadata.mode() & 0o777,
            _ => PRIVATE_FILE,
        };
        let backup = match &self.before {
            Some(text) => {
                let backup = sibling_path(&self.path, &format!("{}.bak", backup_stamp(clock)));
                // The old entry may contain a token too.
                write_new(&backup, text, PRIVATE_FILE).map_err(|e| io_error("write", &backup, e))?;
                Some(backup)
            }
            None => None,
        };
        replace(&self.path, &self.after, mode).map_err(|e| io_error("replace", &self.path, e))?;
        Ok(backup)
    }
}

/// Returns the text, if the file exists.
fn read(path: &Path) -> Result<Option<String>, InstallError> {
    match client_file::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(ClientFileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(ClientFileError::Io(error)) => Err(io_error("read", path, error)),
        Err(error) => Err(InstallError::NotUnderstood { path: path.to_owned(), reason: error.to_string() }),
    }
}

/// Returns a timestamp for a file name.
fn backup_stamp(clock: &dyn Clock) -> String {
    let now = Timestamp::try_from(clock.now()).unwrap_or_default();
    now.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Redacts our tokens, except their first characters.
fn redact_tokens(text: &str) -> String {
    use portcullis_store::clients::TOKEN_PREFIX;
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(TOKEN_PREFIX) {
        let (head, token) = rest.split_at(start + TOKEN_PREFIX.len());
        let length =
            token.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').unwrap_or(token.len());
        redacted.push_str(head);
        redacted.push_str(&token[..length.min(TOKEN_SHOWN_CHARS)]);
        redacted.push('…');
        rest = &token[length..];
    }
    redacted.push_str(rest);
    redacted
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> InstallError {
    InstallError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
