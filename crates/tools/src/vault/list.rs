//! What is in a folder of the vault.

use super::note::is_note_extension;
use super::place::{Place, is_visible, told};
use super::{Vault, blocking, the_root};
use portcullis_core::root::{DEPTH_MAX, FileKind, RootError};
use portcullis_core::{CallCtx, Effect, Example, Json, Limits, Reach, Root, ToolError, ToolSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) const LIST: ToolSpec = ToolSpec {
    name: "vault_list",
    title: "List notes",
    description: "List the notes, other files and folders in one folder of the vault, folders first, or with `recursive` of \
                  everything below it, by path.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: Limits::DEFAULT,
    example: Example {
        what: "List all notes of a folder",
        arguments: r#"{"path": "Projects", "recursive": true}"#,
    },
};

/// How many entries one list holds; `truncated` says that there are others.
const ENTRIES_MAX: usize = 1_000;
/// How many files of a tree are looked at for one list.
const WALKED_MAX: usize = 400_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArgs {
    /// Path of the folder, relative to the vault. Left out, it is the vault itself.
    #[serde(default = "the_root")]
    path: String,
    /// Whether to list what is in the folders below, too.
    #[serde(default)]
    recursive: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    /// Path of the folder, relative to the vault; `.` is the vault itself.
    path: String,
    /// What is in it.
    entries: Vec<ListedEntry>,
    /// Whether there is more than is listed here.
    truncated: bool,
    /// What should be known about this answer, such as that the vault could not be synced.
    notice: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListedEntry {
    /// Path, relative to the vault.
    path: String,
    /// What it is: a note can be found by a search, another file only read if it is text.
    kind: ListedKind,
    /// Size in bytes; 0 for a folder.
    size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ListedKind {
    Note,
    File,
    Folder,
}

pub(super) async fn list(vault: Arc<Vault>, args: ListArgs, _: CallCtx) -> Result<Json<Listed>, ToolError> {
    let notice = vault.fresh().await;
    let asked = if args.path.is_empty() { "." } else { &args.path };
    let place = Place::parse(asked, "folder")?;
    blocking(move || {
        let tell = |error: RootError| told(error, "folder", place.path().as_str());
        let (entries, truncated) = if args.recursive {
            all_below(&vault.notes.root, &place)
        } else {
            directly_in(&vault.notes.root, &place)
        }
        .map_err(tell)?;
        Ok(Json(Listed { path: place.path().to_string(), entries, truncated, notice }))
    })
    .await
}

fn directly_in(root: &Root, place: &Place) -> Result<(Vec<ListedEntry>, bool), RootError> {
    let listed = root.list_unlinked(place.path(), ENTRIES_MAX, &is_visible)?;
    let entries = listed.entries.into_iter().filter_map(|entry| {
        let path = match place.path().is_root() {
            true => entry.name,
            false => format!("{}/{}", place.path(), entry.name),
        };
        let kind = match entry.kind {
            FileKind::Directory => ListedKind::Folder,
            FileKind::File => kind_of(&path),
            // Links and devices cannot be used, so they are not shown.
            FileKind::Link | FileKind::Pipe | FileKind::Device | FileKind::Other => return None,
        };
        Some(ListedEntry { path, kind, size: entry.size })
    });
    Ok((entries.collect(), listed.truncated))
}

fn all_below(root: &Root, place: &Place) -> Result<(Vec<ListedEntry>, bool), RootError> {
    let walked = root.walk_from(place.path(), WALKED_MAX, DEPTH_MAX, &is_visible)?;
    let folders = walked.folders.iter().filter(|folder| *folder != place.path());
    let folders =
        folders.map(|path| ListedEntry { path: path.to_string(), kind: ListedKind::Folder, size: 0 });
    let files = walked.files.iter().map(|file| {
        let path = file.path.to_string();
        ListedEntry { kind: kind_of(&path), path, size: file.size }
    });
    let mut entries: Vec<ListedEntry> = folders.chain(files).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let truncated = walked.truncated || entries.len() > ENTRIES_MAX;
    entries.truncate(ENTRIES_MAX);
    Ok((entries, truncated))
}

fn kind_of(path: &str) -> ListedKind {
    let is_note = path.rsplit_once('.').is_some_and(|(_, extension)| is_note_extension(extension));
    if is_note { ListedKind::Note } else { ListedKind::File }
}
