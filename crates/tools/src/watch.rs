//! File watcher on inotify, with debounce.
//!
//! It uses inotify directly, because the `notify` crate always subscribes to opened files too: each read by a tool
//! would wake a thread, and reads are the most frequent operation.

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

/// Debounce time: shorter than a person notices, longer than the several steps of an editor's save.
const DEBOUNCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Paths in one batch. Beyond it, the listener rescans everything.
const TOUCHED_MAX: usize = 4_096;
/// Watched folders. The usual limit per user is 8,192 to a million, shared with other programs.
const FOLDERS_MAX: usize = 4_096;
/// Enough for a few dozen events with the longest names.
const BUFFER_BYTES: usize = 16 * 1024;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// An inotify instance with its watched folders.
pub(crate) struct FolderWatcher {
    inotify: OwnedFd,
    paths: HashMap<i32, PathBuf>,
}

/// The changes within one debounce interval.
#[derive(Debug, Default)]
pub(crate) struct ChangeBatch {
    pub(crate) touched: BTreeSet<PathBuf>,
    /// A folder was created, removed or moved, so changes below it may be missing.
    pub(crate) folders_changed: bool,
    /// The kernel queue or the batch overflowed.
    pub(crate) lost: bool,
}

/// Whether a folder was watched before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStatus {
    New,
    Known,
}

/// Keeps the watch thread running until dropped.
pub(crate) struct WatchGuard {
    stop: Arc<OwnedFd>,
}

impl FolderWatcher {
    pub(crate) fn new() -> io::Result<FolderWatcher> {
        Ok(FolderWatcher {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            paths: HashMap::new(),
        })
    }

    /// Watches a folder, not recursively. Adding it again is harmless, and updates its path.
    pub(crate) fn add(&mut self, folder: &Path) -> io::Result<WatchStatus> {
        let descriptor = inotify::add_watch(&self.inotify, folder, CHANGES)?;
        let is_new = !self.paths.contains_key(&descriptor);
        if is_new && self.paths.len() >= FOLDERS_MAX {
            inotify::remove_watch(&self.inotify, descriptor)?;
            return Err(io::Error::other(format!("at most {FOLDERS_MAX} folders can be watched")));
        }
        self.paths.insert(descriptor, folder.to_owned());
        Ok(if is_new { WatchStatus::New } else { WatchStatus::Known })
    }

    /// Moves all pending events into `batch`.
    fn drain(&mut self, batch: &mut ChangeBatch) {
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

impl ChangeBatch {
    fn is_empty(&self) -> bool {
        self.touched.is_empty() && !self.lost
    }
}

impl WatchGuard {
    /// Calls `tell` with every batch, on a thread that ends when the guard is dropped.
    pub(crate) fn start(
        name: &str,
        mut folders: FolderWatcher,
        mut tell: impl FnMut(&mut FolderWatcher, ChangeBatch) + Send + 'static,
    ) -> io::Result<WatchGuard> {
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
                // Debounce: the kernel queues events while the thread sleeps, unless it is stopped.
                match poll(&mut [PollFd::new(&*stopped, PollFlags::IN)], Some(&DEBOUNCE)) {
                    Ok(0) | Err(Errno::INTR) => {}
                    Ok(_) | Err(_) => return,
                }
                let mut batch = ChangeBatch::default();
                folders.drain(&mut batch);
                if !batch.is_empty() {
                    tell(&mut folders, batch);
                }
            }
        })?;
        Ok(WatchGuard { stop })
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        // Cannot fail: the counter is far from its maximum.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A timeout that only a broken watch reaches.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn changes_are_told_once_and_the_thread_ends_with_the_watch() {
        let folder = tempfile::tempdir().unwrap();
        let mut folders = FolderWatcher::new().unwrap();
        folders.add(folder.path()).unwrap();
        let (sender, receiver) = mpsc::sync_channel(16);
        let watch =
            WatchGuard::start("test-watch", folders, move |_, batch| sender.send(batch).unwrap()).unwrap();

        // Temporary files of writes are not changes.
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
