//! Time a call spends waiting for people or for its turn, which its deadline excludes.

use crate::call::Trail;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The time during which a call waited for a person, a client or its turn (rate limit). It does not count towards the call's
/// deadline: a person reads slower than a tool works.
#[derive(Debug, Default)]
pub struct HumanWait {
    waited: Mutex<HumanWaitState>,
    /// The parent call, which waits while this one does.
    outer: Option<Arc<Trail>>,
}

#[derive(Debug, Default)]
struct HumanWaitState {
    before: Duration,
    /// The number of pending responses, and since when there has been at least one.
    waiting: usize,
    since: Option<Instant>,
}

impl HumanWait {
    /// The wait of a nested call.
    pub fn within(outer: Arc<Trail>) -> HumanWait {
        HumanWait { outer: Some(outer), ..HumanWait::default() }
    }

    /// Returns the total so far.
    pub fn total(&self) -> Duration {
        let waited = self.waited.lock();
        waited.before + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Counts as waiting until the guard is dropped.
    pub fn begin(&self) -> HumanWaitGuard<'_> {
        let mut waited = self.waited.lock();
        waited.waiting += 1;
        waited.since.get_or_insert_with(Instant::now);
        drop(waited);
        let outer = self.outer.as_ref().map(|outer| Box::new(outer.waits.begin()));
        HumanWaitGuard { waits: self, _outer: outer }
    }
}

/// One wait; ends when dropped.
#[must_use]
pub struct HumanWaitGuard<'a> {
    waits: &'a HumanWait,
    _outer: Option<Box<HumanWaitGuard<'a>>>,
}

impl Drop for HumanWaitGuard<'_> {
    fn drop(&mut self) {
        let mut waited = self.waits.waited.lock();
        waited.waiting -= 1;
        if waited.waiting == 0
            && let Some(since) = waited.since.take()
        {
            waited.before += since.elapsed();
        }
    }
}
