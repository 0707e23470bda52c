//! Servers in the files of other programs: what they are there, and what they would be here.
//!
//! Only read: nothing that such a file names is started, and no value in it is looked up. The files of a project belong
//! to whoever wrote the project, so all that is taken from them is what a person then sees and decides about.

mod entry;

use crate::install::{ClientApp, ENTRY_NAME, Places, parse_jsonc};
use entry::Context;
use portcullis_core::Secret;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::NewServer;

/// Far beyond any such file but that of Claude Code, which keeps its history in it.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How many servers one file may have.
const SERVERS_MAX: usize = 500;
/// Where projects keep their own.
const PROJECT_FILES: [&str; 5] =
    [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "opencode.json", "opencode.jsonc"];

/// A value that goes into the secret store.
pub(crate) struct Lifted {
    /// What it is called in the file: the variable, or the header.
    pub(crate) key: String,
    /// The name it should have in the store.
    pub(crate) name: String,
    /// `None` where the file has no value: somebody was asked for it there.
    pub(crate) value: Option<Secret<String>>,
    /// Where it may go: `HOST:FIELD`.
    pub(crate) grant: String,
}

/// A server as it would be here.
pub(crate) struct Imported {
    /// Its name in the file.
    pub(crate) own: String,
    pub(crate) server: NewServer,
    pub(crate) secrets: Vec<Lifted>,
    /// What a person should know.
    pub(crate) notes: Vec<String>,
}

/// What one file holds.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) servers: Vec<Imported>,
    /// What is not taken, and why.
    pub(crate) skipped: Vec<(String, String)>,
}

/// Returns the usual places that exist.
pub(crate) fn usual_places(places: Option<&Places>, project: Option<&Path>) -> Vec<PathBuf> {
    let mine = places.iter().flat_map(|places| ClientApp::ALL.map(|app| app.path(places)));
    let project = project.iter().flat_map(|folder| PROJECT_FILES.map(|name| folder.join(name)));
    let mut found: Vec<PathBuf> = Vec::new();
    for path in mine.chain(project) {
        if path.is_file() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// Reads one file.
pub(crate) fn read(path: &Path, user_home: Option<&Path>) -> Result<Found, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    of_text(&path, &text, user_home)
}

/// Reads the text of a file.
pub(crate) fn of_text(path: &Path, text: &str, user_home: Option<&Path>) -> Result<Found, String> {
    let file = parse_jsonc(text)?;
    let (entries, inputs) = sections(&file)
        .ok_or("it has none of `mcpServers`, `servers` and `mcp`, under which programs keep their servers")?;
    if entries.len() > SERVERS_MAX {
        return Err(format!("it has {} servers, at most {SERVERS_MAX} are taken", entries.len()));
    }
    let mut found = Found { path: path.to_owned(), servers: Vec::new(), skipped: Vec::new() };
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (own, entry) in entries {
        let context = Context { own, inputs: &inputs, project: project_of(path, user_home), user_home };
        match entry::read(entry, &context) {
            _ if is_ourselves(own, entry) => {
                found.skipped.push((own.clone(), "it is this hub".to_owned()));
            }
            Ok(imported) => {
                let name = imported.server.name.clone();
                if let Some(other) = names.insert(name.clone(), own.clone()) {
                    let why = format!("`{other}` would have the same name here, `{name}`");
                    found.skipped.push((own.clone(), why));
                    continue;
                }
                found.servers.push(imported);
            }
            Err(why) => found.skipped.push((own.clone(), why)),
        }
    }
    Ok(found)
}

/// Finds the servers, and what the file asks a person for.
fn sections(file: &Value) -> Option<(&Map<String, Value>, Vec<Value>)> {
    let mcp = &file["mcp"];
    // A server that is called `servers` has a type or a command; the section has servers.
    let is_section = |value: &Value| {
        value.as_object().is_some_and(|members| members.values().all(Value::is_object) || members.is_empty())
    };
    let inputs = |value: &Value| value["inputs"].as_array().cloned().unwrap_or_default();
    if let Some(servers) = file["mcpServers"].as_object() {
        return Some((servers, inputs(file)));
    }
    if let Some(servers) = file["servers"].as_object() {
        return Some((servers, inputs(file)));
    }
    if is_section(&mcp["servers"]) {
        return mcp["servers"].as_object().map(|servers| (servers, inputs(mcp)));
    }
    mcp.as_object().map(|servers| (servers, Vec::new()))
}

/// Returns whether an entry is Portcullis itself: behind itself it would only find itself.
fn is_ourselves(own: &str, entry: &Value) -> bool {
    let command = entry["command"].as_str().or_else(|| entry["command"][0].as_str()).unwrap_or_default();
    own == ENTRY_NAME || Path::new(command).file_name().is_some_and(|name| name == "portcullis")
}

/// Returns the folder of the project that a file belongs to, if it is one of a project.
fn project_of<'a>(path: &'a Path, user_home: Option<&Path>) -> Option<&'a Path> {
    let name = PROJECT_FILES.into_iter().find(|name| path.ends_with(name))?;
    let folder = path.ancestors().nth(Path::new(name).components().count())?;
    // The person's own files have the same names.
    let is_own = Some(folder) == user_home || folder.ends_with("opencode");
    (!is_own).then_some(folder)
}

#[cfg(test)]
mod tests;
