//! The clock, behind a trait so that tests can inject their own.

use std::time::{Duration, SystemTime};

/// A source of wall-clock time.
pub trait Clock: Send + Sync {
    /// Returns the wall-clock time.
    fn now(&self) -> SystemTime;

    /// Returns the time since the Unix epoch; zero if the clock is set before it.
    fn since_epoch(&self) -> Duration {
        self.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
