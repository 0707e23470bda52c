//! The notes of a vault and the index over them, which follows the files.
//!
//! The kernel tells of changes, whoever makes them. What it does not tell, because there are more folders than it watches
//! or more changes than it remembers, is found by looking at the stamps of all files: every so often in any case, and
//! before a search where nobody tells of changes.

use super::index::{Index, Ranked};
use super::place::{Place, is_note, is_visible};
use super::query::Query;
use crate::files::FILE_BYTES_MAX;
use crate::watch::{Added, Batch, Folders, Watch};
use portcullis_core::Root;
use portcullis_core::root::{DEPTH_MAX, RootError, RootedPath, Walked};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, Weak,
};
use std::time::{Duration, Instant};

/// How many files and folders of a vault are looked at; attachments count too.
const ENTRIES_MAX: usize = 400_000;
/// How often the stamps are looked at, where the kernel tells of changes and where it does not.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOK_EVERY_UNTOLD: Duration = Duration::from_millis(500);
/// How often a note is read that changes while it is read. The next change is told anyway.
const READS_MAX: usize = 3;
/// How often the tree is looked at until all of its folders are watched.
const LOOKS_MAX: usize = 4;

pub(super) struct Notes {
    pub(super) root: Root,
    /// Where the root is, to tell which file an event is about.
    host: PathBuf,
    index: RwLock<Index>,
    /// Held by whoever looks through the tree: one at a time.
    looking: Mutex<Looking>,
    watch: OnceLock<Watch>,
}

#[derive(Default)]
struct Looking {
    last: Option<Instant>,
    /// The kernel tells of changes in every folder.
    told: bool,
    incomplete: Option<&'static str>,
}

/// What a search found, before any text is read.
pub(super) struct Found {
    pub(super) ranked: Vec<Ranked>,
    /// Words and conditions that no note fits.
    pub(super) unknown: Vec<String>,
    /// Why something may be missing.
    pub(super) incomplete: Option<&'static str>,
}

impl Notes {
    /// Begins to index a vault, on a thread of its own.
    pub(super) fn open(root: Root, host: &Path) -> std::io::Result<Arc<Notes>> {
        let notes = Arc::new(Notes {
            root,
            host: host.canonicalize()?,
            index: RwLock::new(Index::new()),
            looking: Mutex::default(),
            watch: OnceLock::new(),
        });
        let weak = Arc::downgrade(&notes);
        std::thread::Builder::new().name("index-vault".to_owned()).spawn(move || begin(&weak))?;
        Ok(notes)
    }

    /// Returns the notes that fit. Blocks until the first index is there.
    pub(super) fn find(self: &Arc<Notes>, query: &Query) -> Found {
        let incomplete = self.look_if_due();
        let (ranked, unknown) = self.read().rank(query);
        Found { ranked, unknown, incomplete }
    }

    /// Returns the notes with a name, or at the end of whose path it stands. Blocks until the first index is there.
    pub(super) fn named(self: &Arc<Notes>, name: &str) -> Vec<RootedPath> {
        self.look_if_due();
        self.read().named(name)
    }

    pub(super) fn backlinks(self: &Arc<Notes>, path: &RootedPath) -> Vec<RootedPath> {
        self.look_if_due();
        self.read().backlinks(path)
    }

    /// Returns the text of a note or another file.
    pub(super) fn text(&self, place: &Place) -> Result<String, RootError> {
        let content = self.root.open_unlinked(place.path())?.read(FILE_BYTES_MAX)?;
        String::from_utf8(content).map_err(|error| RootError::Io(std::io::Error::other(error)))
    }

    /// Looks at one path again, whatever it is now.
    pub(super) fn look_at(&self, path: &RootedPath) {
        if !is_note(path) || Place::of(path.clone()).is_none() {
            return;
        }
        for _ in 0..READS_MAX {
            let opened = self.root.open_unlinked(path).and_then(|file| {
                let stamp = file.stamp();
                Ok((stamp, file.read(FILE_BYTES_MAX)?))
            });
            let Ok((stamp, content)) = opened else {
                // Gone, or not a file that can be read; either way not a note that could be shown.
                self.write().remove(path);
                // Another thread may have put it in before this one took it out.
                if self.root.open_unlinked(path).is_ok_and(|file| file.read(FILE_BYTES_MAX).is_ok()) {
                    continue;
                }
                return;
            };
            // What is not text is let through as far as it is: a stray byte must not hide a note.
            self.write().put(path, stamp, &String::from_utf8_lossy(&content));
            // Another thread may have put a newer text in before this one.
            if self.root.open_unlinked(path).is_ok_and(|file| file.stamp() == stamp) {
                return;
            }
        }
    }

    /// Looks at the stamps of all files, and reads those that changed.
    pub(super) fn look_again(&self) {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut looking, None);
    }

    fn look(&self, looking: &mut Looking, watch: Option<&mut Folders>) {
        let walked = match watch {
            None => self.walk(),
            Some(folders) => self.walk_and_watch(looking, folders),
        };
        match walked {
            Ok(walked) => self.apply(looking, &walked),
            Err(error) => tracing::warn!(%error, "Could not look through the vault for changes."),
        }
        looking.last = Some(Instant::now());
    }

    fn walk(&self) -> Result<Walked, RootError> {
        self.root.walk_from(&RootedPath::root(), ENTRIES_MAX, DEPTH_MAX, &is_visible)
    }

    /// Walks until no folder is there that was not watched meanwhile.
    fn walk_and_watch(&self, looking: &mut Looking, folders: &mut Folders) -> Result<Walked, RootError> {
        let mut walked = self.walk()?;
        for _ in 0..LOOKS_MAX {
            let mut any_new = false;
            looking.told = true;
            for path in &walked.folders {
                match folders.add(&self.host.join(path.as_str())) {
                    Ok(Added::New) => any_new = true,
                    Ok(Added::Known) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => {
                        tracing::warn!(%error, "Cannot watch all of the vault; it is looked through before a search instead.");
                        looking.told = false;
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

    /// Brings the index in line with the tree.
    fn apply(&self, looking: &mut Looking, walked: &Walked) {
        let mut full = false;
        let mut there: HashSet<&RootedPath> = HashSet::new();
        for file in walked.files.iter().filter(|file| is_note(&file.path)) {
            there.insert(&file.path);
            // Read first, so that the lock is not held while another note is indexed.
            let known = self.read().stamp(&file.path);
            if known != Some(file.stamp) {
                let before = self.read().len();
                self.look_at(&file.path);
                full |= known.is_none() && self.read().len() == before && file.size <= FILE_BYTES_MAX as u64;
            }
        }
        if !walked.truncated {
            let gone: Vec<RootedPath> =
                self.read().paths().filter(|path| !there.contains(path)).cloned().collect();
            // Looked at once more: one that was written since the walk is not gone.
            gone.iter().for_each(|path| self.look_at(path));
        }
        looking.incomplete = match (walked.truncated, full) {
            (true, _) => Some("the vault has more files than are looked at, so some notes may be missing"),
            (_, true) => Some("not every note could be indexed, so some may be missing"),
            (false, false) => None,
        };
        let mut index = self.write();
        if index.is_wasteful() {
            *index = Index::new();
            drop(index);
            // What was written since the walk was in the index that is thrown away.
            let anew = self.walk();
            self.apply(looking, anew.as_ref().unwrap_or(walked));
            return;
        }
        if looking.last.is_none() {
            index.shrink();
        }
    }

    /// Looks again where it is time to, and waits for that only where nobody tells of changes.
    fn look_if_due(self: &Arc<Notes>) -> Option<&'static str> {
        // Whoever builds the first index holds this until it is there.
        let mut looking = match self.looking.try_lock() {
            Ok(looking) => looking,
            // A later look goes on beside the search.
            Err(TryLockError::WouldBlock) if self.watch.get().is_some() => return None,
            Err(TryLockError::WouldBlock) => self.looking.lock().unwrap_or_else(PoisonError::into_inner),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let age = looking.last.map(|last| last.elapsed());
        let incomplete = looking.incomplete;
        if age.is_none() || !looking.told && age.is_some_and(|age| age >= LOOK_EVERY_UNTOLD) {
            self.look(&mut looking, None);
            return looking.incomplete;
        }
        if age.is_some_and(|age| age >= LOOK_EVERY) {
            drop(looking);
            let notes = Arc::downgrade(self);
            let spawned = std::thread::Builder::new().name("look-at-vault".to_owned()).spawn(move || {
                if let Some(notes) = notes.upgrade() {
                    notes.look_again();
                }
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "Could not look through the vault.");
            }
        }
        incomplete
    }

    fn heard(&self, folders: &mut Folders, batch: &Batch) {
        for touched in &batch.touched {
            let below = touched.strip_prefix(&self.host).ok().and_then(Path::to_str);
            if let Some(path) = below.and_then(|below| RootedPath::parse(below).ok()) {
                self.look_at(&path);
            }
        }
        if batch.folders_changed || batch.lost {
            let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
            self.look(&mut looking, Some(folders));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the first index and goes on watching.
fn begin(notes: &Weak<Notes>) {
    let Some(strong) = notes.upgrade() else { return };
    let mut looking = strong.looking.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    let mut folders = match Folders::new() {
        Ok(folders) => folders,
        Err(error) => {
            tracing::warn!(%error, "Cannot watch the vault; it is looked through before a search instead.");
            return strong.look(&mut looking, None);
        }
    };
    strong.look(&mut looking, Some(&mut folders));
    tracing::info!(notes = strong.read().len(), took = ?started.elapsed(), "The vault is indexed.");
    let weak = notes.clone();
    let watch = Watch::start("watch-vault", folders, move |folders, batch| {
        if let Some(notes) = weak.upgrade() {
            notes.heard(folders, &batch);
        }
    });
    match watch {
        Ok(watch) => drop(strong.watch.set(watch)),
        Err(error) => {
            looking.told = false;
            tracing::warn!(%error, "Cannot watch the vault; it is looked through before a search instead.");
        }
    }
}
