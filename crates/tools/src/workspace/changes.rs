//! Watches the workspace and announces changes of its resources.

use super::file_uri;
use super::resources::FILES_MAX;
use crate::watch::{ChangeBatch, FolderWatcher, WatchGuard, WatchStatus};
use portcullis_core::root::{DEPTH_MAX, RootError, RootedPath};
use portcullis_core::{Affected, CatalogChange, ChangeNotifier, DefaultDecision, List, Root};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Scans of the tree for one batch. More than one is needed only while folders are being created, and the next batch
/// covers those anyway.
const SCANS_MAX: usize = 4;

/// Watches every folder of the workspace.
pub(super) fn watch(root: Root, host: &Path, changes: ChangeNotifier) -> Result<WatchGuard, RootError> {
    let host = host.canonicalize().map_err(RootError::Io)?;
    let mut folders = FolderWatcher::new().map_err(RootError::Io)?;
    let mut seen = WorkspaceSnapshot { root, host, files: BTreeSet::new() };
    seen.rescan(&mut folders)?;
    let watch = WatchGuard::start("watch-workspace", folders, move |folders, batch| {
        for change in seen.changes(folders, batch) {
            changes.announce(change);
        }
    });
    watch.map_err(RootError::Io)
}

/// The files of the workspace at the last scan.
struct WorkspaceSnapshot {
    root: Root,
    /// The root's path on the host, to map events to files. Files are only accessed through the root.
    host: PathBuf,
    files: BTreeSet<RootedPath>,
}

impl WorkspaceSnapshot {
    /// Returns the notifications for a batch: the list if it changed, and every touched file.
    fn changes(&mut self, folders: &mut FolderWatcher, batch: ChangeBatch) -> Vec<CatalogChange> {
        let mut touched = BTreeSet::new();
        let mut listed = BTreeSet::new();
        for path in &batch.touched {
            let Some(path) = self.rooted(path) else { continue };
            let shown = self.root.shows(&path);
            let was_there = if shown { !self.files.insert(path.clone()) } else { self.files.remove(&path) };
            if shown != was_there {
                listed.insert(path.clone());
            }
            if shown || was_there {
                touched.insert(path);
            }
        }
        if batch.folders_changed || batch.lost {
            let before = self.files.clone();
            match self.rescan(folders) {
                Ok(new) => {
                    listed.extend(before.symmetric_difference(&self.files).cloned());
                    touched.extend(listed.iter().cloned());
                    // Changes in a folder before it was watched caused no event.
                    let new: BTreeSet<&str> = new.iter().map(RootedPath::as_str).collect();
                    let unseen = |file: &&RootedPath| {
                        let folder = file.as_str().rsplit_once('/');
                        folder.is_some_and(|(folder, _)| new.contains(folder))
                    };
                    touched.extend(self.files.iter().filter(unseen).cloned());
                }
                Err(error) => tracing::warn!(%error, "could not scan the workspace for changes"),
            }
            // After an overflow, anything may have changed.
            if batch.lost {
                listed.extend(self.files.iter().cloned());
            }
        }
        let list = (!listed.is_empty()).then(|| {
            let resource =
                |path: &RootedPath| Affected::resource(&file_uri::of(path), DefaultDecision::default());
            CatalogChange::Within(List::Resources, listed.iter().map(resource).collect())
        });
        let files = touched.iter().map(|path| CatalogChange::ResourceUpdated(file_uri::of(path)));
        list.into_iter().chain(files).collect()
    }

    /// Scans the tree until no folder is new. Returns the folders that are watched from now on.
    fn rescan(&mut self, folders: &mut FolderWatcher) -> Result<BTreeSet<RootedPath>, RootError> {
        let mut new = BTreeSet::new();
        for _ in 0..SCANS_MAX {
            let walked = self.root.walk(FILES_MAX, DEPTH_MAX)?;
            self.files = walked.files.into_iter().map(|file| file.path).collect();
            let before = new.len();
            self.watch_all(folders, &walked.folders, &mut new);
            if new.len() == before {
                break;
            }
        }
        Ok(new)
    }

    /// Watches these folders, and adds the new ones to `new`.
    fn watch_all(&self, folders: &mut FolderWatcher, paths: &[RootedPath], new: &mut BTreeSet<RootedPath>) {
        for path in paths {
            match folders.add(&self.host.join(path.as_str())) {
                Ok(WatchStatus::New) => {
                    new.insert(path.clone());
                }
                Ok(WatchStatus::Known) => {}
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(%path, %error, "cannot watch the whole workspace; some changes are not announced");
                    break;
                }
            }
        }
    }

    fn rooted(&self, path: &Path) -> Option<RootedPath> {
        let path = RootedPath::parse(path.strip_prefix(&self.host).ok()?.to_str()?).ok()?;
        (!path.is_root()).then_some(path)
    }
}
