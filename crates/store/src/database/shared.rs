//! What the threads of the engine share: the views, wake-ups, and the end of a thread.

use super::view::Refresh;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// How many panics in a row end a thread. One is a defect of the job; so many are a defect of the engine.
const PANICS_MAX: u32 = 16;

/// The views that are still in use.
#[derive(Default)]
pub(super) struct Views(Mutex<Vec<Weak<dyn Refresh>>>);

impl Views {
    pub(super) fn add(&self, view: &Arc<dyn Refresh>) {
        self.lock().push(Arc::downgrade(view));
    }

    pub(super) fn all(&self) -> Vec<Arc<dyn Refresh>> {
        let mut views = self.lock();
        views.retain(|view| view.strong_count() > 0);
        views.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Refresh>>> {
        self.0.lock()
    }
}

/// Wakes a thread that polls.
pub(super) struct WakeUp(OwnedFd);

impl WakeUp {
    pub(super) fn new() -> io::Result<WakeUp> {
        Ok(WakeUp(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn up(&self) {
        // It fails only where the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a thread of the engine has ended.
#[derive(Default)]
pub(super) struct Supervised(AtomicBool);

impl Supervised {
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Runs the steps of a thread until one says that it was the last. A panic ends its step only. `at_end` runs whatever
    /// happens, after which [`Supervised::is_over`].
    pub(super) fn run(&self, mut step: impl FnMut() -> bool, at_end: impl FnOnce()) {
        let mut panics = 0;
        while panics < PANICS_MAX {
            match catch_unwind(AssertUnwindSafe(&mut step)) {
                Ok(true) => panics = 0,
                Ok(false) => break,
                Err(_) => panics += 1,
            }
        }
        self.0.store(true, Ordering::Release);
        at_end();
    }
}
