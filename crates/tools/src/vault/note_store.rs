//! The notes of a vault with their index, kept up to date.
//!
//! inotify reports changes by any program. What it misses, because of watch limits or queue overflow, is found by
//! comparing the stamps of all files: periodically in any case, and before a search if the vault is not fully
//! watched.

use super::index::{NoteIndex, RankedNote};
use super::query::Query;
use super::vault_path::{VaultPath, is_note, is_visible};
use crate::files::FILE_BYTES_MAX;
use crate::watch::{ChangeBatch, FolderWatcher, WatchGuard, WatchStatus};
use parking_lot::{Mutex, RwLock};
use portcullis_core::Root;
use portcullis_core::root::{DEPTH_MAX, RootError, RootedPath, TreeListing};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Files and folders of a vault that are scanned, attachments included.
const ENTRIES_MAX: usize = 400_000;
/// Scan interval with and without a complete watch.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
const SCAN_INTERVAL_UNWATCHED: Duration = Duration::from_millis(500);
/// Attempts to read a note that changes meanwhile. The next change causes an event anyway.
const READS_MAX: usize = 3;
/// Scans until all folders are watched.
const SCANS_MAX: usize = 4;

pub(super) struct NoteStore {
    pub(super) root: Root,
    /// The root's path on the host, to map events to files.
    host: PathBuf,
    index: RwLock<NoteIndex>,
    /// Held during a scan: one at a time.
    looking: Mutex<ScanState>,
    watch: OnceLock<WatchGuard>,
}

#[derive(Default)]
struct ScanState {
    last: Option<Instant>,
    /// Whether every folder is watched.
    fully_watched: bool,
    incomplete: Option<&'static str>,
}

/// The ranked result of a search, before any text is read.
pub(super) struct RankedNotes {
    pub(super) ranked: Vec<RankedNote>,
    /// Words and conditions that no note matches.
    pub(super) unknown: Vec<String>,
    /// Why notes may be missing.
    pub(super) incomplete: Option<&'static str>,
}

impl NoteStore {
    /// Starts to index a vault on a background thread.
    pub(super) fn open(root: Root, host: &Path) -> std::io::Result<Arc<NoteStore>> {
        let notes = Arc::new(NoteStore {
            root,
            host: host.canonicalize()?,
            index: RwLock::new(NoteIndex::new()),
            looking: Mutex::default(),
            watch: OnceLock::new(),
        });
        let weak = Arc::downgrade(&notes);
        std::thread::Builder::new().name("index-vault".to_owned()).spawn(move || begin(&weak))?;
        Ok(notes)
    }

    /// Returns the matching notes. Blocks until the first index is built.
    pub(super) fn find(self: &Arc<NoteStore>, query: &Query) -> RankedNotes {
        let incomplete = self.rescan_if_due();
        let (ranked, unknown) = self.index.read().rank(query);
        RankedNotes { ranked, unknown, incomplete }
    }

    /// Returns the notes with this name or path suffix. Blocks until the first index is built.
    pub(super) fn named(self: &Arc<NoteStore>, name: &str) -> Vec<RootedPath> {
        self.rescan_if_due();
        self.index.read().named(name)
    }

    pub(super) fn backlinks(self: &Arc<NoteStore>, path: &RootedPath) -> Vec<RootedPath> {
        self.rescan_if_due();
        self.index.read().backlinks(path)
    }

    /// Returns the text of a note or another file.
    pub(super) fn text(&self, place: &VaultPath) -> Result<String, RootError> {
        let content = self.root.open_nofollow(place.path())?.read(FILE_BYTES_MAX)?;
        String::from_utf8(content).map_err(|error| RootError::Io(std::io::Error::other(error)))
    }

    /// Updates the index for one path.
    pub(super) fn reindex_path(&self, path: &RootedPath) {
        if !is_note(path) || VaultPath::of(path.clone()).is_none() {
            return;
        }
        for _ in 0..READS_MAX {
            let opened = self.root.open_nofollow(path).and_then(|file| {
                let stamp = file.stamp();
                Ok((stamp, file.read(FILE_BYTES_MAX)?))
            });
            let Ok((stamp, content)) = opened else {
                // Removed or unreadable, so it is not indexed.
                self.index.write().remove(path);
                // Another thread may have indexed it in between.
                if self.root.open_nofollow(path).is_ok_and(|file| file.read(FILE_BYTES_MAX).is_ok()) {
                    continue;
                }
                return;
            };
            // Lossy: one invalid byte must not hide a note.
            self.index.write().put(path, stamp, &String::from_utf8_lossy(&content));
            // Another thread may have indexed a newer text before.
            if self.root.open_nofollow(path).is_ok_and(|file| file.stamp() == stamp) {
                return;
            }
        }
    }

    /// Compares the stamps of all files, and reads the changed ones.
    pub(super) fn rescan(&self) {
        let mut looking = self.looking.lock();
        self.scan(&mut looking, None);
    }

    fn scan(&self, looking: &mut ScanState, watch: Option<&mut FolderWatcher>) {
        let walked = match watch {
            None => self.walk(),
            Some(folders) => self.walk_and_watch(looking, folders),
        };
        match walked {
            Ok(walked) => self.apply(looking, &walked),
            Err(error) => tracing::warn!(%error, "could not scan the vault for changes"),
        }
        looking.last = Some(Instant::now());
    }

    fn walk(&self) -> Result<TreeListing, RootError> {
        self.root.walk_from(&RootedPath::root(), ENTRIES_MAX, DEPTH_MAX, &is_visible)
    }

    /// Scans until no folder is new.
    fn walk_and_watch(
        &self,
        looking: &mut ScanState,
        folders: &mut FolderWatcher,
    ) -> Result<TreeListing, RootError> {
        let mut walked = self.walk()?;
        for _ in 0..SCANS_MAX {
            let mut any_new = false;
            looking.fully_watched = true;
            for path in &walked.folders {
                match folders.add(&self.host.join(path.as_str())) {
                    Ok(WatchStatus::New) => any_new = true,
                    Ok(WatchStatus::Known) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot watch the whole vault; it is scanned before each search");
                        looking.fully_watched = false;
                        return Ok(walked);
                    }
                }
            }
            if !any_new {
                break;
            }
            walked = self.walk()?;
        }
        Ok(walked)
    }

    /// Updates the index to match the tree.
    fn apply(&self, looking: &mut ScanState, walked: &TreeListing) {
        let mut full = false;
        let mut there: HashSet<&RootedPath> = HashSet::new();
        for file in walked.files.iter().filter(|file| is_note(&file.path)) {
            there.insert(&file.path);
            // In its own statement, so that the lock is released before the note is indexed.
            let known = self.index.read().stamp(&file.path);
            if known != Some(file.stamp) {
                let before = self.index.read().len();
                self.reindex_path(&file.path);
                full |= known.is_none()
                    && self.index.read().len() == before
                    && file.size <= FILE_BYTES_MAX as u64;
            }
        }
        if !walked.truncated {
            let gone: Vec<RootedPath> =
                self.index.read().paths().filter(|path| !there.contains(path)).cloned().collect();
            // Checked again: a note that was written since the scan is not gone.
            gone.iter().for_each(|path| self.reindex_path(path));
        }
        looking.incomplete = match (walked.truncated, full) {
            (true, _) => Some("the vault exceeds the file limit; some notes may be missing"),
            (_, true) => Some("the vault exceeds the index limit; some notes are not indexed"),
            (false, false) => None,
        };
        let mut index = self.index.write();
        if index.is_wasteful() {
            *index = NoteIndex::new();
            drop(index);
            // Notes written since the scan were only in the discarded index.
            let anew = self.walk();
            self.apply(looking, anew.as_ref().unwrap_or(walked));
            return;
        }
        if looking.last.is_none() {
            index.shrink();
        }
    }

    /// Scans if due, and waits for it only if the vault is not fully watched.
    fn rescan_if_due(self: &Arc<NoteStore>) -> Option<&'static str> {
        // The thread that builds the first index holds this lock until it is done.
        let mut looking = match self.looking.try_lock() {
            Some(looking) => looking,
            // A later scan runs concurrently with the search.
            None if self.watch.get().is_some() => return None,
            None => self.looking.lock(),
        };
        let age = looking.last.map(|last| last.elapsed());
        let incomplete = looking.incomplete;
        if age.is_none() || !looking.fully_watched && age.is_some_and(|age| age >= SCAN_INTERVAL_UNWATCHED) {
            self.scan(&mut looking, None);
            return looking.incomplete;
        }
        if age.is_some_and(|age| age >= SCAN_INTERVAL) {
            drop(looking);
            let notes = Arc::downgrade(self);
            let spawned = std::thread::Builder::new().name("look-at-vault".to_owned()).spawn(move || {
                if let Some(notes) = notes.upgrade() {
                    notes.rescan();
                }
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "could not scan the vault");
            }
        }
        incomplete
    }

    fn apply_changes(&self, folders: &mut FolderWatcher, batch: &ChangeBatch) {
        for touched in &batch.touched {
            let below = touched.strip_prefix(&self.host).ok().and_then(Path::to_str);
            if let Some(path) = below.and_then(|below| RootedPath::parse(below).ok()) {
                self.reindex_path(&path);
            }
        }
        if batch.folders_changed || batch.lost {
            let mut looking = self.looking.lock();
            self.scan(&mut looking, Some(folders));
        }
    }
}

/// Builds the first index and starts the watch.
fn begin(notes: &Weak<NoteStore>) {
    let Some(strong) = notes.upgrade() else { return };
    let mut looking = strong.looking.lock();
    let started = Instant::now();
    let mut folders = match FolderWatcher::new() {
        Ok(folders) => folders,
        Err(error) => {
            tracing::warn!(%error, "cannot watch the vault; it is scanned before each search");
            return strong.scan(&mut looking, None);
        }
    };
    strong.scan(&mut looking, Some(&mut folders));
    tracing::info!(notes = strong.index.read().len(), took = ?started.elapsed(), "vault indexed");
    let weak = notes.clone();
    let watch = WatchGuard::start("watch-vault", folders, move |folders, batch| {
        if let Some(notes) = weak.upgrade() {
            notes.apply_changes(folders, &batch);
        }
    });
    match watch {
        Ok(watch) => drop(strong.watch.set(watch)),
        Err(error) => {
            looking.fully_watched = false;
            tracing::warn!(%error, "cannot watch the vault; it is scanned before each search");
        }
    }
}
