//! `workspace_*`: files under the workspace root, as tools and as resources.

mod changes;
mod file_uri;
mod resources;

use crate::files;
use portcullis_core::root::{FileKind, RootError, RootedPath};
use portcullis_core::{
    CallCtx, CallLimits, ChangeNotifier, Effect, Example, Family, FileContents, Json, Label, Reach, Root,
    SummaryWithData, ToolError, ToolSpec, blocking,
};
use portcullis_family::FamilyModule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

const READ: ToolSpec = ToolSpec {
    name: "workspace_read",
    title: "Read a workspace file",
    description: "Return the text of one file of the workspace. Use `workspace_list` first if you do not know \
                  its path. Only UTF-8 text of up to 1 MiB can be read.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "Read a note", arguments: r#"{"path": "notes/hello.md"}"# },
};

pub(crate) const WRITE_NAME: &str = "workspace_write";

const WRITE: ToolSpec = ToolSpec {
    name: WRITE_NAME,
    title: "Write a workspace file",
    description: "Write a file of the workspace: a new one, with the folders on the way, or all of an existing one, \
                  whose old text is lost. To keep it, read it first and write it back with your changes. \
                  Returns how many bytes were written.",
    effect: Effect::Write,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example {
        what: "Write a note",
        arguments: r##"{"path": "notes/hello.md", "content": "# Hello\n"}"##,
    },
};

const LIST: ToolSpec = ToolSpec {
    name: "workspace_list",
    title: "List a workspace folder",
    description: "List what is in one folder of the workspace, folders first, with the size of each file in bytes. \
                  It does not look into the folders in it; list those by their own path.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "List the whole workspace", arguments: "{}" },
};

/// Entries of one list. More than a model wants to read; `truncated` says if there are more.
const ENTRIES_MAX: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    /// Path of the file, relative to the workspace, like `notes/todo.md`.
    path: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    /// Path of the file, relative to the workspace, like `notes/todo.md`.
    path: String,
    /// The whole new text of the file, at most 1 MiB.
    content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    /// Path of the folder, relative to the workspace. Defaults to the workspace itself.
    #[serde(default = "the_root")]
    path: String,
}

fn the_root() -> String {
    ".".to_owned()
}

#[derive(Debug, Serialize, JsonSchema)]
struct WriteFacts {
    /// Path of the file, relative to the workspace.
    path: String,
    /// How many bytes the file has now.
    bytes: u64,
    /// Whether there was no such file before.
    created: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WorkspaceListing {
    /// Path of the folder, relative to the workspace; `.` is the workspace itself.
    path: String,
    /// What is in the folder, folders first, then by name.
    entries: Vec<WorkspaceEntry>,
    /// Whether the folder holds more than is listed here.
    truncated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WorkspaceEntry {
    /// The name, without the path of the folder.
    name: String,
    /// What it is; only a `file` can be read and only a `directory` listed.
    kind: WorkspaceEntryKind,
    /// Size in bytes; 0 for what is not a file.
    size: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum WorkspaceEntryKind {
    File,
    Directory,
    Other,
}

struct Workspace {
    root: Root,
}

pub(crate) const MODULE: FamilyModule = FamilyModule {
    name: "workspace",
    tables: None,
    // The hub's own data lies in the workspace too, so its section is not the family's.
    section: None,
    doctor: None,
    provide: |parts| {
        if !parts.workspace.enabled {
            return Ok(None);
        }
        let folder = parts.workspace.data_dir();
        Ok(Some(family(parts.root.clone(), &folder, parts.changes.clone()).into()))
    },
};

pub(crate) fn family(root: Root, host: &Path, changes: ChangeNotifier) -> Family {
    files::tidy(&root);
    let workspace = Arc::new(Workspace { root: root.clone() });
    Family::new("workspace")
        .tool(READ, &workspace, read)
        .labelled(&[Label::Private])
        .tool(WRITE, &workspace, write)
        .tool(LIST, &workspace, list)
        .labelled(&[Label::Private])
        .resources(resources::WorkspaceFiles::new(root, host, changes))
}

async fn read(workspace: Arc<Workspace>, args: ReadArgs, _: CallCtx) -> Result<FileContents, ToolError> {
    let tell = |error: RootError| workspace_path_error(error, "file", &args.path);
    let path = RootedPath::parse(&args.path).map_err(tell)?;
    let content = files::read(&workspace.root, &path).await.map_err(tell)?;
    let text = files::text(&path, content);
    text.map(|text| files::contents(&path, text))
        .map_err(|error| error.hint(format!("the resource `{}` gives it in base64", file_uri::of(&path))))
}

async fn write(
    workspace: Arc<Workspace>,
    args: WriteArgs,
    _: CallCtx,
) -> Result<SummaryWithData<WriteFacts>, ToolError> {
    files::check_size(&args.content)?;
    let tell = |error: RootError| workspace_path_error(error, "file", &args.path);
    let path = RootedPath::parse(&args.path).map_err(tell)?;
    let (root, target) = (workspace.root.clone(), path.clone());
    let written = blocking(move || root.write(&target, args.content.as_bytes())).await.map_err(tell)?;
    Ok(SummaryWithData {
        sentence: format!("Wrote {} bytes to {path}", written.bytes),
        facts: WriteFacts { path: path.to_string(), bytes: written.bytes, created: written.created },
    })
}

async fn list(
    workspace: Arc<Workspace>,
    args: ListArgs,
    _: CallCtx,
) -> Result<Json<WorkspaceListing>, ToolError> {
    let tell = |error: RootError| workspace_path_error(error, "folder", &args.path);
    // A model may give an empty path for the workspace itself.
    let asked = if args.path.is_empty() { "." } else { &args.path };
    let path = RootedPath::parse(asked).map_err(tell)?;
    let (root, target) = (workspace.root.clone(), path.clone());
    let listed = blocking(move || root.list(&target, ENTRIES_MAX)).await.map_err(tell)?;
    let entries = listed.entries.into_iter().map(|entry| WorkspaceEntry {
        name: entry.name,
        kind: match entry.kind {
            FileKind::File => WorkspaceEntryKind::File,
            FileKind::Directory => WorkspaceEntryKind::Directory,
            FileKind::Link | FileKind::Pipe | FileKind::Device | FileKind::Other => WorkspaceEntryKind::Other,
        },
        size: entry.size,
    });
    Ok(Json(WorkspaceListing {
        path: path.to_string(),
        entries: entries.collect(),
        truncated: listed.truncated,
    }))
}

fn workspace_path_error(error: RootError, what: &str, path: &str) -> ToolError {
    error.into_tool_error(what, path, LIST.name)
}

#[cfg(test)]
#[path = "workspace/workspace_tests.rs"]
mod tests;
