//! MCP prompts from Markdown files in a folder, with live reload.
//!
//! The file name is the prompt's name. YAML front matter may set a title, a description and arguments; `{{name}}` in
//! the text is replaced with an argument. An invalid file is left out and logged; the other prompts are not
//! affected.

mod file;
mod prompts_section;

pub use prompts_section::{PromptSettings, PromptsSection};

use crate::watch::{ChangeBatch, FolderWatcher, WatchGuard};
use arc_swap::ArcSwap;
use file::PromptFile;
use portcullis_core::json::printable;
use portcullis_core::root::{FileKind, RootError, RootedPath};
use portcullis_core::{
    BoxFuture, CallCtx, CatalogChange, ChangeNotifier, Completion, CompletionArgument, Content, Family,
    PromptDef, PromptMessage, PromptOutput, PromptSource, Role, Root, ToolError,
};
use portcullis_family::{FamilyModule, SectionSpec};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prompts in a folder; a person chooses from them in a menu.
const PROMPTS_MAX: usize = 500;
/// Size of a prompt file.
const FILE_BYTES_MAX: usize = 256 * 1024;

type PromptTable = BTreeMap<String, Arc<PromptFile>>;

struct Prompts {
    loaded: Arc<ArcSwap<PromptTable>>,
    /// Dropped with the family.
    _watch: Option<WatchGuard>,
}

pub(crate) const MODULE: FamilyModule = FamilyModule {
    name: "prompts",
    tables: None,
    section: Some(SectionSpec::of::<PromptsSection>()),
    doctor: None,
    provide: |parts| {
        let settings = parts.section::<PromptsSection>();
        Ok(settings.map(|prompts| family(&parts.folder(&prompts.path), parts.changes.clone()).into()))
    },
};

pub(crate) fn family(folder: &Path, changes: ChangeNotifier) -> Family {
    let loaded = Arc::new(ArcSwap::default());
    // The watch starts before the first load, so that no change in between is missed.
    let watch = watch(folder, loaded.clone(), changes)
        .inspect_err(
            |error| tracing::warn!(%error, "cannot watch the prompts folder; restart to see changes"),
        )
        .ok();
    loaded.store(Arc::new(load(folder)));
    Family::new("prompts").prompts(Prompts { loaded, _watch: watch })
}

/// Watches the folder and its parent, where the folder appears if it does not exist yet.
fn watch(
    folder: &Path,
    loaded: Arc<ArcSwap<PromptTable>>,
    changes: ChangeNotifier,
) -> io::Result<WatchGuard> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::Error::other("the prompts folder has no name"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent }.canonicalize()?;
    let folder = parent.join(name);
    let mut folders = FolderWatcher::new()?;
    folders.add(&parent)?;
    add_if_there(&mut folders, &folder)?;
    WatchGuard::start("watch-prompts", folders, move |folders, batch| {
        if !affects_folder(&batch, &parent, &folder) {
            return;
        }
        // The folder may have been replaced.
        if let Err(error) = add_if_there(folders, &folder) {
            tracing::warn!(%error, "cannot watch the prompts folder; restart to see changes");
        }
        let now = load(&folder);
        let before = loaded.swap(Arc::new(now.clone()));
        if !definitions(&before).eq(definitions(&now)) {
            changes.announce(CatalogChange::Prompts);
        }
    })
}

fn add_if_there(folders: &mut FolderWatcher, folder: &Path) -> io::Result<()> {
    match folder.canonicalize() {
        Ok(folder) => folders.add(&folder).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether a batch concerns the folder, and not only its siblings.
fn affects_folder(batch: &ChangeBatch, parent: &Path, folder: &PathBuf) -> bool {
    batch.lost || batch.touched.iter().any(|path| path == folder || path.parent() != Some(parent))
}

fn definitions(loaded: &PromptTable) -> impl Iterator<Item = &PromptDef> {
    loaded.values().map(|prompt| &*prompt.definition)
}

/// Loads every prompt of the folder. Invalid ones are left out and logged.
fn load(folder: &Path) -> PromptTable {
    let root = match Root::open(folder) {
        Ok(root) => root,
        Err(RootError::NotFound) => return PromptTable::new(),
        Err(error) => {
            tracing::warn!(%error, "cannot open the prompts folder");
            return PromptTable::new();
        }
    };
    let listed = match root.list(&RootedPath::root(), PROMPTS_MAX) {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(%error, "cannot list the prompts folder");
            return PromptTable::new();
        }
    };
    if listed.truncated {
        tracing::warn!(PROMPTS_MAX, "too many files in the prompts folder; the rest is left out");
    }
    let mut loaded = PromptTable::new();
    for entry in listed.entries.iter().filter(|entry| entry.kind != FileKind::Directory) {
        let Some(name) = entry.name.strip_suffix(".md") else { continue };
        match read(&root, &entry.name, name) {
            Ok(prompt) => drop(loaded.insert(name.to_owned(), Arc::new(prompt))),
            Err(reason) => tracing::warn!(file = entry.name, reason, "skipped an invalid prompt"),
        }
    }
    loaded
}

fn read(root: &Root, file: &str, name: &str) -> Result<PromptFile, String> {
    let content = RootedPath::parse(file).and_then(|path| root.read(&path, FILE_BYTES_MAX));
    let content = content.map_err(|error| error.to_string())?;
    let text = String::from_utf8(content).map_err(|_| "it is not UTF-8 text".to_owned())?;
    PromptFile::parse(name, &text)
}

impl Prompts {
    fn find(&self, name: &str) -> Result<Arc<PromptFile>, ToolError> {
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
        argument: CompletionArgument,
        _: CallCtx,
    ) -> BoxFuture<'_, Result<Completion, ToolError>> {
        Box::pin(async move {
            let prompt = self.find(&prompt)?;
            let values = prompt.values.get(&argument.name).cloned().unwrap_or_default();
            Ok(Completion::matching(values, &argument.value))
        })
    }
}

/// Renders the prompt, or fails on a wrong argument.
fn filled(prompt: &PromptFile, arguments: &Map<String, Value>) -> Result<String, ToolError> {
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
