//! Prompts from Markdown files in a folder.
//!
//! The name of the file is the name of the prompt. A front matter in YAML may give it a title, a description and
//! arguments; `{{name}}` in the text stands for an argument. A file with a mistake is left out, and the log says
//! why; the other prompts are not affected.

mod file;

use crate::watch::{Batch, Folders, Watch};
use arc_swap::ArcSwap;
use file::Prompt;
use portcullis_core::json::printable;
use portcullis_core::root::{FileKind, RootError, RootedPath};
use portcullis_core::{
    ArgumentInProgress, BoxFuture, CallCtx, Change, Changes, Completion, Content, Family, PromptDef,
    PromptMessage, PromptOutput, PromptSource, Role, Root, ToolError,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many prompts a folder may hold; a person chooses from them.
const PROMPTS_MAX: usize = 500;
/// How long a prompt file may be.
const FILE_BYTES_MAX: usize = 256 * 1024;

type Loaded = BTreeMap<String, Arc<Prompt>>;

struct Prompts {
    loaded: Arc<ArcSwap<Loaded>>,
    /// Ends with the family.
    _watch: Option<Watch>,
}

pub(crate) fn family(folder: &Path, changes: Changes) -> Family {
    let loaded = Arc::new(ArcSwap::default());
    // First the watch, then the look: what changes in between is seen twice rather than never.
    let watch = watch(folder, loaded.clone(), changes)
        .inspect_err(
            |error| tracing::warn!(%error, "Cannot watch the prompts; changes are seen at the next start."),
        )
        .ok();
    loaded.store(Arc::new(load(folder)));
    Family::new("prompts").prompts(Prompts { loaded, _watch: watch })
}

/// Watches the folder, and the one that holds it: that is where it appears if it does not exist yet.
fn watch(folder: &Path, loaded: Arc<ArcSwap<Loaded>>, changes: Changes) -> io::Result<Watch> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::Error::other("the folder of prompts has no name"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent }.canonicalize()?;
    let folder = parent.join(name);
    let mut folders = Folders::new()?;
    folders.add(&parent)?;
    add_if_there(&mut folders, &folder)?;
    Watch::start("watch-prompts", folders, move |folders, batch| {
        if !concerns(&batch, &parent, &folder) {
            return;
        }
        // The folder itself may be a new one.
        if let Err(error) = add_if_there(folders, &folder) {
            tracing::warn!(%error, "Cannot watch the prompts; changes are seen at the next start.");
        }
        let now = load(&folder);
        let before = loaded.swap(Arc::new(now.clone()));
        if !definitions(&before).eq(definitions(&now)) {
            changes.announce(Change::Prompts);
        }
    })
}

fn add_if_there(folders: &mut Folders, folder: &Path) -> io::Result<()> {
    match folder.canonicalize() {
        Ok(folder) => folders.add(&folder).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether a batch is about the folder, and not only about its neighbours.
fn concerns(batch: &Batch, parent: &Path, folder: &PathBuf) -> bool {
    batch.lost || batch.touched.iter().any(|path| path == folder || path.parent() != Some(parent))
}

fn definitions(loaded: &Loaded) -> impl Iterator<Item = &PromptDef> {
    loaded.values().map(|prompt| &*prompt.definition)
}

/// Reads every prompt of the folder. What cannot be read or understood is left out, and the log says why.
fn load(folder: &Path) -> Loaded {
    let root = match Root::open(folder) {
        Ok(root) => root,
        Err(RootError::NotFound) => return Loaded::new(),
        Err(error) => {
            tracing::warn!(%error, "Cannot open the folder of prompts.");
            return Loaded::new();
        }
    };
    let listed = match root.list(&RootedPath::root(), PROMPTS_MAX) {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(%error, "Cannot list the folder of prompts.");
            return Loaded::new();
        }
    };
    if listed.truncated {
        tracing::warn!(PROMPTS_MAX, "The folder of prompts holds too many files; the rest is left out.");
    }
    let mut loaded = Loaded::new();
    for entry in listed.entries.iter().filter(|entry| entry.kind != FileKind::Directory) {
        let Some(name) = entry.name.strip_suffix(".md") else { continue };
        match read(&root, &entry.name, name) {
            Ok(prompt) => drop(loaded.insert(name.to_owned(), Arc::new(prompt))),
            Err(reason) => tracing::warn!(file = entry.name, reason, "A prompt is left out."),
        }
    }
    loaded
}

fn read(root: &Root, file: &str, name: &str) -> Result<Prompt, String> {
    let content = RootedPath::parse(file).and_then(|path| root.read(&path, FILE_BYTES_MAX));
    let content = content.map_err(|error| error.to_string())?;
    let text = String::from_utf8(content).map_err(|_| "it is not UTF-8 text".to_owned())?;
    Prompt::parse(name, &text)
}

impl Prompts {
    fn find(&self, name: &str) -> Result<Arc<Prompt>, ToolError> {
        self.loaded.load().get(name).cloned().ok_or_else(|| ToolError::unknown("prompt", name))
    }
}

impl PromptSource for Prompts {
    fn prompts(&self) -> Vec<Arc<PromptDef>> {
        self.loaded.load().values().map(|prompt| prompt.definition.clone()).collect()
    }

    fn get(
        &self,
        name: String,
        arguments: Map<String, Value>,
        _: CallCtx,
    ) -> BoxFuture<'_, Result<PromptOutput, ToolError>> {
        Box::pin(async move {
            let prompt = self.find(&name)?;
            let text = filled(&prompt, &arguments)?;
            let message = PromptMessage { role: Role::User, content: Content::text(text) };
            Ok(PromptOutput { description: prompt.definition.description.clone(), messages: vec![message] })
        })
    }

    fn complete(
        &self,
        prompt: String,
        argument: ArgumentInProgress,
    ) -> BoxFuture<'_, Result<Completion, ToolError>> {
        Box::pin(async move {
            let prompt = self.find(&prompt)?;
            let values = prompt.values.get(&argument.name).cloned().unwrap_or_default();
            Ok(Completion::matching(values, &argument.value))
        })
    }
}

/// Puts the arguments into the text, or says which are wrong.
fn filled(prompt: &Prompt, arguments: &Map<String, Value>) -> Result<String, ToolError> {
    let definition = &prompt.definition;
    let name = &definition.name;
    let known = || {
        let names: Vec<String> = definition.arguments.iter().map(|a| format!("`{}`", a.name)).collect();
        if names.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", names.join(", ")) }
    };
    for (given, value) in arguments {
        let shown = printable(given);
        if !definition.arguments.iter().any(|argument| argument.name == *given) {
            return Err(
                ToolError::invalid_args(format!("prompt `{name}` has no argument `{shown}`")).hint(known())
            );
        }
        if !value.is_string() {
            return Err(ToolError::invalid_args(format!(
                "argument `{shown}` of prompt `{name}` must be a string"
            )));
        }
    }
    let missing: Vec<String> = definition
        .arguments
        .iter()
        .filter(|argument| argument.required && !arguments.contains_key(&argument.name))
        .map(|argument| format!("`{}`", argument.name))
        .collect();
    if !missing.is_empty() {
        return Err(
            ToolError::invalid_args(format!("prompt `{name}` needs {}", missing.join(", "))).hint(known())
        );
    }
    Ok(prompt.fill(|argument| arguments.get(argument).and_then(Value::as_str).unwrap_or_default()))
}

#[cfg(test)]
#[path = "prompts/prompts_tests.rs"]
mod tests;
