//! Servers in the files of other programs: what they are there, and what they would be here.
//!
//! Only read: nothing that such a file names is started, and no value in it is looked up. The files of a project belong
//! to whoever wrote the project, so all that is taken from them is what a person then sees and decides about.

mod entry;
mod kept;
mod oauth;
mod program;
mod variables;

pub(crate) use kept::{host_of, in_clear, is_secret};

use crate::install::{ClientApp, ENTRY_NAME, Places, parse_as_others};
use portcullis_core::Secret;
use portcullis_core::json::printable;
use portcullis_store::secrets::vocabulary::{self, Ordinary};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use variables::Context;

use crate::config::NewServer;

/// Far beyond any such file but that of Claude Code, which keeps its history in it.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How many servers one file may have.
const SERVERS_MAX: usize = 500;
/// Where projects keep their own.
const PROJECT_FILES: [&str; 5] =
    [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "opencode.jsonc", "opencode.json"];
/// How many other projects are named that have servers.
const PROJECTS_NAMED_MAX: usize = 10;

/// What is around the files.
pub(crate) struct Around<'a> {
    pub(crate) user_home: Option<&'a Path>,
    /// The project that somebody works on.
    pub(crate) project: Option<&'a Path>,
    /// Whether a variable is set. Its value is nobody's business here.
    pub(crate) is_set: &'a dyn Fn(&str) -> bool,
}

/// A value that goes into the secret store.
pub(crate) struct Lifted {
    /// What it is called: the variable, the header, or `oauth.` and the setting.
    pub(crate) key: String,
    /// The name it should have in the store.
    pub(crate) name: String,
    /// The word that stays in the configuration before it, like `Bearer`.
    pub(crate) scheme: Option<String>,
    /// `None` where the file has no value: somebody is asked for it there, or it is a variable.
    pub(crate) value: Option<Secret<String>>,
    /// Where it may go: `HOST:FIELD`.
    pub(crate) grant: String,
    /// What the value in the file is, where it is not taken for a secret.
    pub(crate) refused: Option<Ordinary>,
}

impl Lifted {
    /// Gives it another name, also where the server refers to it.
    pub(crate) fn rename(&mut self, server: &mut NewServer, name: String) {
        let (old, new) = (format!("secret:{}", self.name), format!("secret:{name}"));
        for (key, written) in server.env.iter_mut().chain(&mut server.headers) {
            let before = written.strip_suffix(&old).filter(|_| *key == self.key);
            if let Some(changed) = before.map(|before| format!("{before}{new}")) {
                *written = changed;
            }
        }
        for (key, written) in server.oauth.iter_mut().flatten() {
            if self.key == format!("oauth.{key}") && written.as_str() == Some(old.as_str()) {
                *written = Value::from(new.as_str());
            }
        }
        self.name = name;
    }

    /// Lets go of a value that is ordinary text. The file of a stranger must not choose what is redacted.
    fn refuse_ordinary(&mut self) {
        let what = self.value.as_ref().and_then(|value| vocabulary::ordinary(value.expose()));
        if what.is_some() {
            (self.value, self.refused) = (None, what);
        }
    }

    /// Says what a person has to do, where the file has no value.
    pub(crate) fn to_set(&self) -> Option<String> {
        if self.value.is_some() {
            return None;
        }
        if let Some(what) = self.refused {
            let (key, command) = (printable(&self.key), self.command());
            let how = if what.may_be_confirmed() {
                format!("if it is a secret, set it yourself: {command} --weak")
            } else {
                format!("set the value that was issued to you: {command}")
            };
            return Some(format!(
                "the value of `{key}` is {}, which is not registered as a secret: it would be redacted wherever it occurs; {how}",
                what.as_str()
            ));
        }
        let all = match &self.scheme {
            Some(word) => format!("what comes after `{word}`"),
            None => "all of it".to_owned(),
        };
        Some(format!(
            "the value of `{}` is not in the file; set {all}: {}",
            printable(&self.key),
            self.command()
        ))
    }

    /// Returns the command that sets it.
    pub(crate) fn command(&self) -> String {
        format!("portcullis secrets set {} --grant '{}'", self.name, self.grant)
    }
}

impl Imported {
    /// Returns what a person should know, with what is left to do.
    pub(crate) fn told(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.secrets.iter().filter_map(Lifted::to_set)).collect()
    }
}

/// A server as it would be here.
pub(crate) struct Imported {
    /// Its name in the file.
    pub(crate) own: String,
    pub(crate) server: NewServer,
    pub(crate) secrets: Vec<Lifted>,
    /// What a person should know, but for what has to be set.
    pub(crate) notes: Vec<String>,
}

/// What one file holds.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) servers: Vec<Imported>,
    /// What is not taken, and why.
    pub(crate) skipped: Vec<(String, String)>,
    /// What a person should know of the file.
    pub(crate) notes: Vec<String>,
}

/// Servers that stand together in a file.
struct Section<'f> {
    entries: &'f Map<String, Value>,
    /// What the file asks a person for.
    inputs: Vec<Value>,
    /// The project that they are for, where it is not that of the file.
    project: Option<PathBuf>,
}

/// Returns the usual places that exist.
pub(crate) fn usual_places(places: Option<&Places>, project: Option<&Path>) -> Vec<PathBuf> {
    // Where there are two of OpenCode, it reads both, and the one with comments counts more.
    let mine = places.iter().flat_map(|places| {
        let plain = ClientApp::OpenCode.path(places).with_extension("json");
        ClientApp::ALL.map(|app| app.path(places)).into_iter().chain([plain])
    });
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
pub(crate) fn read(path: &Path, around: &Around<'_>) -> Result<Found, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    of_text(&path, &text, around)
}

/// Reads the text of a file.
pub(crate) fn of_text(path: &Path, text: &str, around: &Around<'_>) -> Result<Found, String> {
    let (file, twice) = parse_as_others(text)?;
    let mut found =
        Found { path: path.to_owned(), servers: Vec::new(), skipped: Vec::new(), notes: Vec::new() };
    found
        .notes
        .extend(twice.map(|said| format!("{}; the last one counts, as it does there", printable(&said))));
    // Those of one project first: where both have a name, they count.
    let mut sections = project_sections(&file, around, &mut found.notes);
    sections.extend(sections_of(&file));
    if sections.is_empty() && !file["projects"].is_object() {
        let why = "it has none of `mcpServers`, `servers` and `mcp`, under which programs keep their servers";
        return Err(why.to_owned());
    }
    let count: usize = sections.iter().map(|section| section.entries.len()).sum();
    if count > SERVERS_MAX {
        return Err(format!("it has {count} servers, at most {SERVERS_MAX} are taken"));
    }
    // By the name here: the own name, and whether a project has it.
    let mut names: BTreeMap<String, (String, bool)> = BTreeMap::new();
    for section in &sections {
        let project = section.project.as_deref().or_else(|| project_of(path, around.user_home));
        for (own, entry) in section.entries {
            let context = Context { own, inputs: &section.inputs, project, around };
            let read = entry::read(entry, &context);
            // Also where its name is found only when the command is taken apart.
            let command = read.as_ref().ok().and_then(|imported| imported.server.command.as_deref());
            let is_hub = is_ourselves(own, entry) || command.is_some_and(is_our_program);
            match read {
                _ if is_hub => {
                    found.skipped.push((own.clone(), "it is this hub".to_owned()));
                }
                Ok(imported) => match names.get(&imported.server.name) {
                    Some((other, of_project)) if other == own => {
                        let who = if *of_project { "the project" } else { "another part of the file" };
                        let why = format!("{who} has one of this name, which counts more");
                        found.skipped.push((own.clone(), why));
                    }
                    Some((other, _)) => {
                        let name = &imported.server.name;
                        let why = format!("`{other}` would have the same name here, `{name}`");
                        found.skipped.push((own.clone(), why));
                    }
                    None => {
                        let holder = (own.clone(), section.project.is_some());
                        names.insert(imported.server.name.clone(), holder);
                        found.servers.push(imported);
                    }
                },
                Err(why) => found.skipped.push((own.clone(), why)),
            }
        }
    }
    Ok(found)
}

/// Finds the servers, under every key where a program keeps them, and what the file asks a person for.
fn sections_of<'f>(file: &'f Value) -> Vec<Section<'f>> {
    // A server that is called `servers` has a type or a command; the section has servers.
    let is_section = |value: &Value| {
        value.as_object().is_some_and(|members| members.values().all(Value::is_object) || members.is_empty())
    };
    let inputs = |value: &Value| value["inputs"].as_array().cloned().unwrap_or_default();
    // Of a workspace of VS Code the settings are a part.
    let (mcp, of_workspace) = (&file["mcp"], &file["settings"]["mcp"]);
    let nested = [mcp, of_workspace].into_iter().filter(|mcp| is_section(&mcp["servers"]));
    let mut places = vec![(&file["mcpServers"], inputs(file)), (&file["servers"], inputs(file))];
    places.extend(nested.map(|mcp| (&mcp["servers"], inputs(mcp))));
    places.retain(|(entries, _)| entries.is_object());
    // Beside other servers, what is called so may be settings of something else.
    if !is_section(&mcp["servers"]) && (places.is_empty() || is_section(mcp)) {
        places.push((mcp, Vec::new()));
    }
    let section = |(entries, inputs): (&'f Value, _)| {
        Some(Section { entries: entries.as_object()?, inputs, project: None })
    };
    places.into_iter().filter_map(section).collect()
}

/// Finds what Claude Code keeps for single projects: those of the present one are taken, the others are told of.
fn project_sections<'f>(file: &'f Value, around: &Around<'_>, notes: &mut Vec<String>) -> Vec<Section<'f>> {
    let (mut sections, mut others) = (Vec::new(), Vec::new());
    for (folder, project) in file["projects"].as_object().into_iter().flatten() {
        let Some(entries) = project["mcpServers"].as_object().filter(|entries| !entries.is_empty()) else {
            continue;
        };
        if around.project.is_some_and(|present| present == Path::new(folder)) {
            sections.push(Section { entries, inputs: Vec::new(), project: Some(PathBuf::from(folder)) });
        } else {
            others.push(format!("`{}` ({})", printable(folder), entries.len()));
        }
    }
    if !others.is_empty() {
        let more = others.len().saturating_sub(PROJECTS_NAMED_MAX);
        others.truncate(PROJECTS_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!(
            "these projects have servers of their own there, which are taken over in their folders: {}{more}",
            others.join(", ")
        ));
    }
    sections
}

/// Returns whether an entry is Portcullis itself: behind itself it would only find itself.
fn is_ourselves(own: &str, entry: &Value) -> bool {
    let command = entry["command"].as_str().or_else(|| entry["command"][0].as_str()).unwrap_or_default();
    own == ENTRY_NAME || is_our_program(command)
}

fn is_our_program(command: &str) -> bool {
    Path::new(command).file_name().is_some_and(|name| name == "portcullis")
}

/// Returns the folder of the project that a file belongs to, if it is one of a project.
fn project_of<'a>(path: &'a Path, user_home: Option<&Path>) -> Option<&'a Path> {
    let name = PROJECT_FILES.into_iter().find(|name| path.ends_with(name))?;
    let folder = path.ancestors().nth(Path::new(name).components().count())?;
    // The person's own files have the same names. The path of a file is the real one; that of a home may lead over a link.
    let is_home = |home: &Path| folder == home || home.canonicalize().is_ok_and(|home| folder == home);
    let is_own = user_home.is_some_and(is_home) || folder.ends_with("opencode");
    (!is_own).then_some(folder)
}

#[cfg(test)]
mod tests;
