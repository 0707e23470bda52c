//! The other processes on this machine that have the same database open.
//!
//! Each has a file in a folder beside the database, locked for as long as the process lives, and writes into it the version that
//! its snapshots show. Whoever changes something writes the new version into a file that all of them watch, and waits
//! until each has read again: a revocation that was acknowledged is in force everywhere.

use super::engine::FRESH_FOR;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a change writes, and all processes watch.
const CHANGED: &str = "changed";
/// A version as text, of the same length always, so that no reader sees half of one.
const DIGITS: usize = 20;
/// A process that does not answer for this long reads again before it goes by what it has.
const ANSWER_WITHIN: Duration = FRESH_FOR.saturating_add(Duration::from_millis(500));
const PAUSE: Duration = Duration::from_micros(200);

pub(super) struct Peers {
    folder: PathBuf,
    changed: File,
    /// Tells of writes to `changed`; where the kernel has none to give, the tick has to do.
    watch: Option<OwnedFd>,
    own: File,
    own_path: PathBuf,
    acknowledged: Option<i64>,
}

impl Peers {
    pub(super) fn join(database: &Path) -> io::Result<Peers> {
        let mut folder = database.as_os_str().to_owned();
        folder.push("-processes");
        let folder = PathBuf::from(folder);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let open = |path: &Path| {
            OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)
        };
        let changed_path = folder.join(CHANGED);
        let changed = open(&changed_path)?;
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .and_then(|watch| inotify::add_watch(&watch, &changed_path, WatchFlags::MODIFY).map(|_| watch))
            .ok();
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let own_path = folder.join(format!("{}-{:08x}", std::process::id(), u32::from_ne_bytes(random)));
        let own = open(&own_path)?;
        own.lock()?;
        // From here on whoever changes something waits for this process.
        Ok(Peers { folder, changed, watch, own, own_path, acknowledged: None })
    }

    /// Returns what can be waited on for news.
    pub(super) fn news(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Returns whether there was news since this was last asked.
    pub(super) fn were_told(&mut self) -> bool {
        let Some(watch) = &self.watch else { return true };
        let mut events = [0; 1024];
        let mut told = false;
        while rustix::io::read(watch, &mut events).is_ok_and(|bytes| bytes > 0) {
            told = true;
        }
        told
    }

    /// Writes down which version the snapshots of this process show.
    pub(super) fn acknowledge(&mut self, version: i64) {
        // A file that cannot be written costs whoever changes something a wait, and nothing else.
        if self.acknowledged != Some(version) && write_version(&self.own, version).is_ok() {
            self.acknowledged = Some(version);
        }
    }

    /// Tells every other process of a change and waits until it goes by it.
    pub(super) fn tell(&mut self, version: i64) {
        let _ = write_version(&self.changed, version);
        let began = Instant::now();
        let mut behind = self.others();
        while !behind.is_empty() && began.elapsed() < ANSWER_WITHIN {
            behind.retain(|path| is_behind(path, version));
            if !behind.is_empty() {
                pause();
            }
        }
    }

    fn others(&self) -> Vec<PathBuf> {
        let Ok(listed) = fs::read_dir(&self.folder) else { return Vec::new() };
        let paths = listed.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        paths.filter(|path| *path != self.own_path && !path.ends_with(CHANGED)).collect()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.own_path);
    }
}

/// Returns whether a process lives and still goes by an older version. What a dead one left is removed.
fn is_behind(path: &Path, version: i64) -> bool {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return false };
    if read_version(&file).is_some_and(|seen| seen >= version) {
        return false;
    }
    if file.try_lock().is_ok() {
        let _ = fs::remove_file(path);
        return false;
    }
    true
}

fn write_version(file: &File, version: i64) -> io::Result<()> {
    file.write_all_at(format!("{version:0DIGITS$}").as_bytes(), 0)
}

fn read_version(file: &File) -> Option<i64> {
    let mut digits = [0; DIGITS];
    file.read_exact_at(&mut digits, 0).ok()?;
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "the engine's thread is its own")]
fn pause() {
    std::thread::sleep(PAUSE);
}
