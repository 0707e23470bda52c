//! inotify watch of a folder.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::path::Path;
use tokio::net::unix::pipe::Receiver;

/// Wakes when a file in a folder changes, where the kernel supports it.
///
/// Tokio has no inotify, but reads it like a pipe; registering the descriptor otherwise needs `unsafe`.
pub struct FolderChanges(Option<Receiver>);

impl FolderChanges {
    pub fn of(folder: &Path) -> FolderChanges {
        let watched = || {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let kinds =
                WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE;
            inotify::add_watch(&watch, folder, kinds)?;
            Receiver::from_owned_fd_unchecked(watch)
        };
        FolderChanges(watched().ok())
    }

    /// Resolves after a change.
    pub async fn next(&self) {
        let Some(watch) = &self.0 else { return std::future::pending().await };
        if watch.readable().await.is_err() {
            return std::future::pending().await;
        }
        // The events do not matter: callers compare file fingerprints.
        let mut events = [0; 4096];
        while watch.try_read(&mut events).is_ok_and(|bytes| bytes > 0) {}
    }
}
