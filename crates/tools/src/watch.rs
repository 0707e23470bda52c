//! Folders that tell when something in them changes.
//!
//! This stands on the kernel's inotify directly. The crate `notify` asks to hear of every opening of a file too
//! and cannot be told otherwise, so each read by a tool would wake a thread, and reads are what tools do most.

use portcullis_core::root::is_temporary;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long changes are gathered before they are told: shorter than a person notices, longer than an editor's
/// save takes with its several steps.
const GATHER: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How many paths one batch names. Beyond it, whoever listens looks at everything.
const TOUCHED_MAX: usize = 4_096;
/// How many folders are watched; the usual limit of a user is 8,192 to a million, and others want some too.
const FOLDERS_MAX: usize = 4_096;
/// Room for a few dozen events with the longest names.
const BUFFER_BYTES: usize = 16 * 1024;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// The folders that are watched.
pub(crate) struct Folders {
    inotify: OwnedFd,
    paths: HashMap<i32, PathBuf>,
}

/// What changed within a short time.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) touched: BTreeSet<PathBuf>,
    /// A folder came, went or moved, so there may be changes below it that nobody told of.
    pub(crate) folders_changed: bool,
    /// More happened than could be told.
    pub(crate) lost: bool,
}

/// Whether a folder is watched only from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    New,
    Known,
}

/// Keeps a watch going until it is dropped.
pub(crate) struct Watch {
    stop: Arc<OwnedFd>,
}

impl Folders {
    pub(crate) fn new() -> io::Result<Folders> {
        Ok(Folders {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            paths: HashMap::new(),
        })
    }

    /// Watches a folder, but not those in it. To add it again does no harm, and tells of a new path.
    pub(crate) fn add(&mut self, folder: &Path) -> io::Result<Added> {
        let descriptor = inotify::add_watch(&self.inotify, folder, CHANGES)?;
        let is_new = !self.paths.contains_key(&descriptor);
        if is_new && self.paths.len() >= FOLDERS_MAX {
            inotify::remove_watch(&self.inotify, descriptor)?;
            return Err(io::Error::other(format!("at most {FOLDERS_MAX} folders are watched")));
        }
        self.paths.insert(descriptor, folder.to_owned());
        Ok(if is_new { Added::New } else { Added::Known })
    }

    /// Moves all that has happened so far into `batch`.
    fn drain(&mut self, batch: &mut Batch) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    batch.lost = true;
                    return;
                }
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                batch.lost = true;
                continue;
            }
            if event.events().contains(ReadFlags::IGNORED) {
                self.paths.remove(&event.wd());
                continue;
            }
            let (Some(folder), Some(name)) = (self.paths.get(&event.wd()), event.file_name()) else {
                continue;
            };
            if name.to_str().is_ok_and(is_temporary) {
                continue;
            }
            batch.folders_changed |= event.events().contains(ReadFlags::ISDIR);
            if batch.touched.len() == TOUCHED_MAX {
                batch.lost = true;
            } else {
                batch.touched.insert(folder.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.touched.is_empty() && !self.lost
    }
}

impl Watch {
    /// Hands every batch of changes to `tell`, on a thread that ends when the watch is dropped.
    pub(crate) fn start(
        name: &str,
        mut folders: Folders,
        mut tell: impl FnMut(&mut Folders, Batch) + Send + 'static,
    ) -> io::Result<Watch> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = stop.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                let mut sources =
                    [PollFd::new(&*stopped, PollFlags::IN), PollFd::new(&folders.inotify, PollFlags::IN)];
                match poll(&mut sources, None) {
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                    Ok(_) if !sources[0].revents().is_empty() => return,
                    Ok(_) => {}
                }
                // The kernel gathers meanwhile; the thread sleeps on, unless it is told to end.
                match poll(&mut [PollFd::new(&*stopped, PollFlags::IN)], Some(&GATHER)) {
                    Ok(0) | Err(Errno::INTR) => {}
                    Ok(_) | Err(_) => return,
                }
                let mut batch = Batch::default();
                folders.drain(&mut batch);
                if !batch.is_empty() {
                    tell(&mut folders, batch);
                }
            }
        })?;
        Ok(Watch { stop })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Cannot fail: the counter is nowhere near its end.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Far beyond what a batch takes; only a broken watch gets there.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn changes_are_told_once_and_the_thread_ends_with_the_watch() {
        let folder = tempfile::tempdir().unwrap();
        let mut folders = Folders::new().unwrap();
        folders.add(folder.path()).unwrap();
        let (sender, receiver) = mpsc::sync_channel(16);
        let watch = Watch::start("test-watch", folders, move |_, batch| sender.send(batch).unwrap()).unwrap();

        // Reads and writes in progress are not changes.
        std::fs::write(folder.path().join(format!(".portcullis-{}.tmp", "a".repeat(32))), "x").unwrap();
        for _ in 0..10 {
            std::fs::write(folder.path().join("notes.md"), "x").unwrap();
        }
        let batch = receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!(batch.touched.into_iter().collect::<Vec<_>>(), [folder.path().join("notes.md")]);
        assert!(!batch.lost && !batch.folders_changed);

        drop(watch);
        while receiver.recv_timeout(PATIENCE).is_ok() {}
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap_err(), mpsc::RecvTimeoutError::Disconnected);
    }
}
