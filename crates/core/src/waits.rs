//! How long a call has waited for people.

use crate::call::Trail;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The time in which a call could not go on because a person or a client had to answer. It does not count towards the
/// call's deadline: a person who has to approve reads slower than a tool works.
#[derive(Debug, Default)]
pub struct Waits {
    waited: Mutex<Waited>,
    /// The call within which this one is made. While this one waits, that one waits too.
    outer: Option<Arc<Trail>>,
}

#[derive(Debug, Default)]
struct Waited {
    before: Duration,
    /// How many answers are waited for now, and since when at least one is.
    waiting: usize,
    since: Option<Instant>,
}

impl Waits {
    /// The waits of a call that is made within another.
    pub fn within(outer: Arc<Trail>) -> Waits {
        Waits { outer: Some(outer), ..Waits::default() }
    }

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
        drop(waited);
        let outer = self.outer.as_ref().map(|outer| Box::new(outer.waits.begin()));
        Waiting { waits: self, _outer: outer }
    }

    fn lock(&self) -> MutexGuard<'_, Waited> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait, until it is dropped.
#[must_use]
pub struct Waiting<'a> {
    waits: &'a Waits,
    _outer: Option<Box<Waiting<'a>>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waited = self.waits.lock();
        waited.waiting -= 1;
        if waited.waiting == 0
            && let Some(since) = waited.since.take()
        {
            waited.before += since.elapsed();
        }
    }
}
