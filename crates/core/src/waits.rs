//! How long a call has waited for people.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The time in which a call could not go on because a person or a client had to answer. It does not count towards the
/// call's deadline: a person who has to approve reads slower than a tool works.
#[derive(Debug, Default)]
pub struct Waits(Mutex<Waited>);

#[derive(Debug, Default)]
struct Waited {
    before: Duration,
    /// How many answers are waited for now, and since when at least one is.
    waiting: usize,
    since: Option<Instant>,
}

impl Waits {
    /// Returns how long it has been so far.
    pub fn total(&self) -> Duration {
        let waited = self.lock();
        waited.before + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Counts as waiting until the returned value is dropped.
    pub fn begin(&self) -> Waiting<'_> {
        let mut waited = self.lock();
        waited.waiting += 1;
        waited.since.get_or_insert_with(Instant::now);
        Waiting(self)
    }

    fn lock(&self) -> MutexGuard<'_, Waited> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait, until it is dropped.
#[must_use]
pub struct Waiting<'a>(&'a Waits);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waited = self.0.lock();
        waited.waiting -= 1;
        if waited.waiting == 0
            && let Some(since) = waited.since.take()
        {
            waited.before += since.elapsed();
        }
    }
}
