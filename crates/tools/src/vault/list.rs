//! `vault_list`: lists a folder of the vault.

use super::note::is_note_extension;
use super::vault_path::{VaultPath, is_visible, vault_path_error};
use super::{Vault, the_root};
use portcullis_core::root::{DEPTH_MAX, FileKind, RootError};
use portcullis_core::{
    CallCtx, CallLimits, Effect, Example, Json, Reach, Root, ToolError, ToolSpec, blocking,
};
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
    limits: CallLimits::DEFAULT,
    example: Example {
        what: "List all notes of a folder",
        arguments: r#"{"path": "Projects", "recursive": true}"#,
    },
};

/// Entries of one list; `truncated` says if there are more.
const ENTRIES_MAX: usize = 1_000;
/// Files of a tree that are scanned for one list.
const WALKED_MAX: usize = 400_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VaultListArgs {
    /// Path of the folder, relative to the vault. Defaults to the vault itself.
    #[serde(default = "the_root")]
    path: String,
    /// Whether to list what is in the folders below, too.
    #[serde(default)]
    recursive: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VaultListing {
    /// Path of the folder, relative to the vault; `.` is the vault itself.
    path: String,
    /// What is in it.
    entries: Vec<VaultEntry>,
    /// Whether there is more than is listed here.
    truncated: bool,
    /// What should be known about this answer, such as that the vault could not be synced.
    notice: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct VaultEntry {
    /// Path, relative to the vault.
    path: String,
    /// What it is: a note can be found by a search, another file only read if it is text.
    kind: VaultEntryKind,
    /// Size in bytes; 0 for a folder.
    size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum VaultEntryKind {
    Note,
    File,
    Folder,
}

pub(super) async fn list(
    vault: Arc<Vault>,
    args: VaultListArgs,
    _: CallCtx,
) -> Result<Json<VaultListing>, ToolError> {
    let notice = vault.pull_if_due().await;
    let asked = if args.path.is_empty() { "." } else { &args.path };
    let place = VaultPath::parse(asked, "folder")?;
    blocking(move || {
        let tell = |error: RootError| vault_path_error(error, "folder", place.path().as_str());
        let (entries, truncated) = if args.recursive {
            all_below(&vault.notes.root, &place)
        } else {
            directly_in(&vault.notes.root, &place)
        }
        .map_err(tell)?;
        Ok(Json(VaultListing { path: place.path().to_string(), entries, truncated, notice }))
    })
    .await
}

fn directly_in(root: &Root, place: &VaultPath) -> Result<(Vec<VaultEntry>, bool), RootError> {
    let listed = root.list_nofollow(place.path(), ENTRIES_MAX, &is_visible)?;
    let entries = listed.entries.into_iter().filter_map(|entry| {
        let path = match place.path().is_root() {
            true => entry.name,
            false => format!("{}/{}", place.path(), entry.name),
        };
        let kind = match entry.kind {
            FileKind::Directory => VaultEntryKind::Folder,
            FileKind::File => kind_of(&path),
            // Links and devices cannot be used, so they are not listed.
            FileKind::Link | FileKind::Pipe | FileKind::Device | FileKind::Other => return None,
        };
        Some(VaultEntry { path, kind, size: entry.size })
    });
    Ok((entries.collect(), listed.truncated))
}

fn all_below(root: &Root, place: &VaultPath) -> Result<(Vec<VaultEntry>, bool), RootError> {
    let walked = root.walk_from(place.path(), WALKED_MAX, DEPTH_MAX, &is_visible)?;
    let folders = walked.folders.iter().filter(|folder| *folder != place.path());
    let folders =
        folders.map(|path| VaultEntry { path: path.to_string(), kind: VaultEntryKind::Folder, size: 0 });
    let files = walked.files.iter().map(|file| {
        let path = file.path.to_string();
        VaultEntry { kind: kind_of(&path), path, size: file.size }
    });
    let mut entries: Vec<VaultEntry> = folders.chain(files).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let truncated = walked.truncated || entries.len() > ENTRIES_MAX;
    entries.truncate(ENTRIES_MAX);
    Ok((entries, truncated))
}

fn kind_of(path: &str) -> VaultEntryKind {
    let is_note = path.rsplit_once('.').is_some_and(|(_, extension)| is_note_extension(extension));
    if is_note { VaultEntryKind::Note } else { VaultEntryKind::File }
}
