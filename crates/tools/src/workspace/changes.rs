//! Tells clients when a workspace file changes.

use super::address;
use super::resources::FILES_MAX;
use crate::watch::{Added, Batch, Folders, Watch};
use portcullis_core::root::{DEPTH_MAX, RootError, RootedPath};
use portcullis_core::{Affected, Change, Changes, List, Root, Unruled};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// How often the tree is looked at for one batch. More than once only while somebody makes folders at that moment,
/// and the next batch tells of those anyway.
const LOOKS_MAX: usize = 4;

/// Starts to watch every folder of the workspace.
pub(super) fn watch(root: Root, host: &Path, changes: Changes) -> Result<Watch, RootError> {
    let host = host.canonicalize().map_err(RootError::Io)?;
    let mut folders = Folders::new().map_err(RootError::Io)?;
    let mut seen = Seen { root, host, files: BTreeSet::new() };
    seen.look_again(&mut folders)?;
    let watch = Watch::start("watch-workspace", folders, move |folders, batch| {
        for change in seen.changes(folders, batch) {
            changes.announce(change);
        }
    });
    watch.map_err(RootError::Io)
}

/// What the workspace held when it was last looked at.
struct Seen {
    root: Root,
    /// Where the root is, to tell which file an event is about. Files are only ever reached through the root.
    host: PathBuf,
    files: BTreeSet<RootedPath>,
}

impl Seen {
    /// Returns what to tell about a batch: the list if it is another one now, and every file that was touched.
    fn changes(&mut self, folders: &mut Folders, batch: Batch) -> Vec<Change> {
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
            match self.look_again(folders) {
                Ok(new) => {
                    listed.extend(before.symmetric_difference(&self.files).cloned());
                    touched.extend(listed.iter().cloned());
                    // What happened in a folder before it was watched nobody has told.
                    let new: BTreeSet<&str> = new.iter().map(RootedPath::as_str).collect();
                    let untold = |file: &&RootedPath| {
                        let folder = file.as_str().rsplit_once('/');
                        folder.is_some_and(|(folder, _)| new.contains(folder))
                    };
                    touched.extend(self.files.iter().filter(untold).cloned());
                }
                Err(error) => tracing::warn!(%error, "Could not look through the workspace for changes."),
            }
            // What was lost may have been anything.
            if batch.lost {
                listed.extend(self.files.iter().cloned());
            }
        }
        let list = (!listed.is_empty()).then(|| {
            let resource = |path: &RootedPath| Affected::resource(&address::of(path), Unruled::default());
            Change::Within(List::Resources, listed.iter().map(resource).collect())
        });
        let files = touched.iter().map(|path| Change::ResourceUpdated(address::of(path)));
        list.into_iter().chain(files).collect()
    }

    /// Looks at the whole tree, until it holds no folder that was not watched while it was looked at.
    /// Returns the folders that are watched from now on.
    fn look_again(&mut self, folders: &mut Folders) -> Result<BTreeSet<RootedPath>, RootError> {
        let mut new = BTreeSet::new();
        for _ in 0..LOOKS_MAX {
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

    /// Watches these folders, and adds those that were not watched before to `new`.
    fn watch_all(&self, folders: &mut Folders, paths: &[RootedPath], new: &mut BTreeSet<RootedPath>) {
        for path in paths {
            match folders.add(&self.host.join(path.as_str())) {
                Ok(Added::New) => {
                    new.insert(path.clone());
                }
                Ok(Added::Known) => {}
                // Gone already.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(%path, %error, "Cannot watch all of the workspace; some changes go untold.");
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
