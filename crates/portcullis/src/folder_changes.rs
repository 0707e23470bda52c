//! Hearing of files that another process changes.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::path::Path;
use tokio::net::unix::pipe::Receiver;

/// Tells at once when a file in a folder changes, where the kernel can.
///
/// Tokio knows no inotify, but to read from it is to read from a pipe; registering it otherwise needs `unsafe`.
pub(crate) struct FolderChanges(Option<Receiver>);

impl FolderChanges {
    pub(crate) fn of(folder: &Path) -> FolderChanges {
        let watched = || {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let kinds =
                WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE;
            inotify::add_watch(&watch, folder, kinds)?;
            Receiver::from_owned_fd_unchecked(watch)
        };
        FolderChanges(watched().ok())
    }

    /// Returns when something has changed.
    pub(crate) async fn next(&self) {
        let Some(watch) = &self.0 else { return std::future::pending().await };
        if watch.readable().await.is_err() {
            return std::future::pending().await;
        }
        // What changed does not matter: the file's own stamp says whether it did.
        let mut events = [0; 4096];
        while watch.try_read(&mut events).is_ok_and(|bytes| bytes > 0) {}
    }
}
