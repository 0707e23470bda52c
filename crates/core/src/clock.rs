//! Time, from one place, so that tests can bring their own.

use std::time::{Duration, SystemTime};

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// Returns the wall-clock time.
    fn now(&self) -> SystemTime;

    /// Returns the time since the Unix epoch; zero if the clock stands before it.
    fn since_epoch(&self) -> Duration {
        self.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
