//! Imports servers from the configuration of other applications.
//!
//! Read-only: nothing in such a file is started or resolved. Project files are untrusted, so everything taken from them is
//! shown to an administrator, who decides.

mod entry;
mod oauth;
mod program;
mod secret_extraction;
mod variables;

pub use secret_extraction::{host_of, in_clear, is_secret};

use crate::client_file;
use crate::install::{ClientApp, ClientFolders, ENTRY_NAME};
use portcullis_config::jsonc::parse_as_others;
use portcullis_config::{ForeignFormat, NewServer, parse_foreign};
use portcullis_core::Secret;
use portcullis_core::json::printable;
use portcullis_store::secrets::ordinary_text::{self, NotSecretReason};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use variables::EntryContext;

/// Servers per file.
const SERVERS_MAX: usize = 500;
/// Project files.
const PROJECT_FILES: [&str; 6] = [
    ".mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    "opencode.jsonc",
    "opencode.json",
    ".opencode/config.toml",
];
/// Other projects with servers that are listed.
const PROJECTS_NAMED_MAX: usize = 10;

/// Environment of an import.
pub struct ImportEnvironment<'a> {
    pub user_home: Option<&'a Path>,
    /// The current project.
    pub project: Option<&'a Path>,
    /// Whether a variable is set; its value is not read.
    pub is_set: &'a dyn Fn(&str) -> bool,
}

/// A value that moves to the secret store.
pub struct ExtractedSecret {
    /// Variable, header, or `oauth.` and the setting.
    pub key: String,
    /// Name in the store.
    pub name: String,
    /// The word before it, like `Bearer`, which stays in the configuration.
    scheme: Option<String>,
    /// `None` if the file has no value: the application prompts for it, or it is a variable.
    pub value: Option<Secret<String>>,
    /// Grant: `HOST:FIELD`.
    pub grant: String,
    /// Why the value in the file is not registered as a secret.
    refused: Option<NotSecretReason>,
}

impl ExtractedSecret {
    /// Returns the value for the configuration, which refers to the secret.
    fn reference(&self) -> String {
        let scheme = self.scheme.iter().map(|word| format!("{word} ")).collect::<String>();
        format!("{scheme}secret:{}", self.name)
    }

    /// Renames it, and the server's references.
    pub fn rename(&mut self, server: &mut NewServer, name: String) {
        let old = self.reference();
        self.name = name;
        let new = self.reference();
        for (key, written) in server.env.iter_mut().chain(&mut server.headers) {
            if *key == self.key && *written == old {
                written.clone_from(&new);
            }
        }
        for (key, written) in server.oauth.iter_mut().flatten() {
            if self.key == format!("oauth.{key}") && *written == old.as_str() {
                *written = Value::from(new.as_str());
            }
        }
    }

    /// Drops a value that is ordinary text: an untrusted file must not choose what is redacted.
    fn refuse_ordinary(&mut self) {
        let what = self.value.as_ref().and_then(|value| ordinary_text::ordinary(value.expose()));
        if what.is_some() {
            (self.value, self.refused) = (None, what);
        }
    }

    /// Returns the instruction to set the value, if the file has none.
    fn to_set(&self) -> Option<String> {
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
            Some(word) => format!("the part after `{word}`"),
            None => "the whole value".to_owned(),
        };
        Some(format!(
            "the value of `{}` is not in the file; to set {all}: {}",
            printable(&self.key),
            self.command()
        ))
    }

    /// Returns the command to set it.
    pub fn command(&self) -> String {
        format!("portcullis secrets set {} --grant '{}'", self.name, self.grant)
    }
}

impl ImportedServer {
    /// Returns all notes, with the secrets to set.
    pub fn all_notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.secrets.iter().filter_map(ExtractedSecret::to_set)).collect()
    }
}

/// A server to import.
pub struct ImportedServer {
    /// Its name in the file.
    pub own: String,
    pub server: NewServer,
    pub secrets: Vec<ExtractedSecret>,
    /// Notes, without the secrets to set.
    pub notes: Vec<String>,
}

/// The servers of one file.
pub struct ImportedFile {
    pub path: PathBuf,
    pub servers: Vec<ImportedServer>,
    /// Skipped servers and reasons.
    pub skipped: Vec<(String, String)>,
    /// Notes on the file.
    pub notes: Vec<String>,
}

/// A section of servers in a file.
struct ServerSection<'f> {
    entries: &'f Map<String, Value>,
    /// Inputs that the application prompts for.
    inputs: Vec<Value>,
    /// The project they are for, if not the file's.
    project: Option<PathBuf>,
}

/// Returns the existing usual places.
pub fn usual_places(places: Option<&ClientFolders>, project: Option<&Path>) -> Vec<PathBuf> {
    // OpenCode reads both of its files; the .jsonc one takes precedence.
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
pub fn read(path: &Path, environment: &ImportEnvironment<'_>) -> Result<ImportedFile, String> {
    let text = client_file::read(path).map_err(|error| error.to_string())?;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    of_text(&path, &text, environment)
}

/// Reads the text of a file.
pub fn of_text(path: &Path, text: &str, environment: &ImportEnvironment<'_>) -> Result<ImportedFile, String> {
    let (file, duplicate_key) = parsed(path, text)?;
    let mut found =
        ImportedFile { path: path.to_owned(), servers: Vec::new(), skipped: Vec::new(), notes: Vec::new() };
    found.notes.extend(
        duplicate_key.map(|said| format!("{}; the last one wins, as in the application", printable(&said))),
    );
    // Project servers first: they take precedence.
    let mut sections = project_sections(&file, environment, &mut found.notes);
    sections.extend(sections_of(&file));
    if sections.is_empty() && !file["projects"].is_object() {
        let why = "no servers: it has none of `mcpServers`, `mcp_servers`, `servers` and `mcp`";
        return Err(why.to_owned());
    }
    let count: usize = sections.iter().map(|section| section.entries.len()).sum();
    if count > SERVERS_MAX {
        return Err(format!("it has {count} servers: the limit is {SERVERS_MAX}"));
    }
    let usual_timeout = &file["experimental"]["mcp_timeout"];
    // By name in this hub: name in the file, and whether it is of a project.
    let mut names: BTreeMap<String, (String, bool)> = BTreeMap::new();
    for section in &sections {
        let project = section.project.as_deref().or_else(|| project_of(path, environment.user_home));
        for (own, entry) in section.entries {
            let context = EntryContext { own, inputs: &section.inputs, project, environment };
            let mut read = entry::read(entry, &context);
            if let Ok(imported) = &mut read {
                entry::default_timeout(imported, entry, usual_timeout);
            }
            // Also if the name appears only after the command is split.
            let command = read.as_ref().ok().and_then(|imported| imported.server.command.as_deref());
            let is_hub = is_this_hub(own, entry) || command.is_some_and(is_hub_binary);
            match read {
                _ if is_hub => {
                    found.skipped.push((own.clone(), "it is this hub".to_owned()));
                }
                Ok(imported) => match names.get(&imported.server.name) {
                    Some((other, of_project)) if other == own => {
                        let who = if *of_project { "the project" } else { "another part of the file" };
                        let why = format!("{who} has a server of this name, which takes precedence");
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

/// Parses a file by its extension, and a text without one by its look.
fn parsed(path: &Path, text: &str) -> Result<(Value, Option<String>), String> {
    let foreign = |format| parse_foreign(text, format).map(|file| (file, None));
    let looks_like_json = || text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '/']);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => foreign(ForeignFormat::Toml),
        Some("yaml" | "yml") => foreign(ForeignFormat::Yaml),
        None if !looks_like_json() && !text.trim().is_empty() => {
            // What TOML refuses and YAML reads as one word is neither.
            foreign(ForeignFormat::Toml).or_else(|not_toml| match foreign(ForeignFormat::Yaml) {
                Ok(found) if found.0.is_object() => Ok(found),
                _ => parse_as_others(text).map_err(|_| not_toml),
            })
        }
        _ => parse_as_others(text),
    }
}

/// Finds the server sections under all known keys, with their inputs.
fn sections_of<'f>(file: &'f Value) -> Vec<ServerSection<'f>> {
    // A server named `servers` has a type or command; the section has servers.
    let is_section = |value: &Value| {
        value.as_object().is_some_and(|members| members.values().all(Value::is_object) || members.is_empty())
    };
    let inputs = |value: &Value| value["inputs"].as_array().cloned().unwrap_or_default();
    // A VS Code workspace file nests its settings.
    let (mcp, of_workspace) = (&file["mcp"], &file["settings"]["mcp"]);
    let nested = [mcp, of_workspace].into_iter().filter(|mcp| is_section(&mcp["servers"]));
    let mut places = vec![
        (&file["mcpServers"], inputs(file)),
        (&file["mcp_servers"], Vec::new()),
        (&file["servers"], inputs(file)),
    ];
    places.extend(nested.map(|mcp| (&mcp["servers"], inputs(mcp))));
    places.retain(|(entries, _)| entries.is_object());
    // Next to other servers, this key may be unrelated settings.
    if !is_section(&mcp["servers"]) && (places.is_empty() || is_section(mcp)) {
        places.push((mcp, Vec::new()));
    }
    let section = |(entries, inputs): (&'f Value, _)| {
        Some(ServerSection { entries: entries.as_object()?, inputs, project: None })
    };
    places.into_iter().filter_map(section).collect()
}

/// Finds the per-project servers of Claude Code: imports the current project's, lists the others.
fn project_sections<'f>(
    file: &'f Value,
    environment: &ImportEnvironment<'_>,
    notes: &mut Vec<String>,
) -> Vec<ServerSection<'f>> {
    let (mut sections, mut others) = (Vec::new(), Vec::new());
    for (folder, project) in file["projects"].as_object().into_iter().flatten() {
        let Some(entries) = project["mcpServers"].as_object().filter(|entries| !entries.is_empty()) else {
            continue;
        };
        if environment.project.is_some_and(|present| present == Path::new(folder)) {
            sections.push(ServerSection {
                entries,
                inputs: Vec::new(),
                project: Some(PathBuf::from(folder)),
            });
        } else {
            others.push(format!("`{}` ({})", printable(folder), entries.len()));
        }
    }
    if !others.is_empty() {
        let more = others.len().saturating_sub(PROJECTS_NAMED_MAX);
        others.truncate(PROJECTS_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!(
            "these projects have their own servers; import them from their folders: {}{more}",
            others.join(", ")
        ));
    }
    sections
}

/// Returns whether an entry is Portcullis itself, which must not be its own upstream.
fn is_this_hub(own: &str, entry: &Value) -> bool {
    let command = entry["command"].as_str().or_else(|| entry["command"][0].as_str()).unwrap_or_default();
    own == ENTRY_NAME || is_hub_binary(command)
}

fn is_hub_binary(command: &str) -> bool {
    Path::new(command).file_name().is_some_and(|name| name == "portcullis")
}

/// Returns the project folder of a project file.
fn project_of<'a>(path: &'a Path, user_home: Option<&Path>) -> Option<&'a Path> {
    let name = PROJECT_FILES.into_iter().find(|name| path.ends_with(name))?;
    let folder = path.ancestors().nth(Path::new(name).components().count())?;
    // User files have the same names. The file path is canonical; the home path may contain symlinks.
    let is_home = |home: &Path| folder == home || home.canonicalize().is_ok_and(|home| folder == home);
    let is_own = user_home.is_some_and(is_home) || folder.ends_with("opencode");
    (!is_own).then_some(folder)
}

#[cfg(test)]
mod tests;
