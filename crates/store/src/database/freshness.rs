//! Freshness: how long readers may use the snapshots after the last comparison with the database.

use super::DatabaseError;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

use std::time::{Duration, Instant};

/// Maximum age of the last comparison. A process that was stopped for longer reloads before it uses a snapshot, and a change
/// in another process waits this long for one that does not answer.
pub(super) const FRESH_FOR: Duration = Duration::from_secs(3);
/// How long readers wait for the reload after the process was stopped, counted from the first of them. A reload takes a
/// millisecond; the bound protects the threads of the runtime, which may be among the readers.
const REFRESH_WITHIN: Duration = Duration::from_millis(100);

pub(super) struct Freshness {
    made: Instant,
    /// Start of the last successful comparison, in nanoseconds since `made`. 0 if there was none, and `u64::MAX` if no other
    /// process can change the database.
    compared: AtomicU64,
    /// When the first reader found the snapshots stale; 0 while they are not.
    stale_since: AtomicU64,
    /// Why the last comparison failed.
    fault: Mutex<Option<String>>,
    /// Notified when one of these changes.
    told: Condvar,
}

impl Freshness {
    pub(super) fn new(is_shared: bool) -> Freshness {
        Freshness {
            made: Instant::now(),
            compared: AtomicU64::new(if is_shared { 0 } else { u64::MAX }),
            stale_since: AtomicU64::new(0),
            fault: Mutex::default(),
            told: Condvar::new(),
        }
    }

    /// Returns the time, never 0.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
    }

    pub(super) fn holds(&self) -> bool {
        let compared = self.compared.load(Ordering::Acquire);
        compared != 0 && self.now().saturating_sub(compared) < FRESH_FOR.as_nanos() as u64
    }

    /// Records that the snapshots show the database as of `as_of` or later.
    pub(super) fn extend(&self, as_of: u64) {
        let mut fault = self.lock_fault();
        *fault = None;
        self.compared.store(as_of, Ordering::Release);
        self.stale_since.store(0, Ordering::Release);
        self.told.notify_all();
    }

    /// Records a failed comparison. The snapshots expire when they would have anyway.
    pub(super) fn note_fault(&self, why: String) {
        *self.lock_fault() = Some(why);
        self.told.notify_all();
    }

    /// Expires the snapshots at once: they lack a change that was committed.
    pub(super) fn expire(&self) {
        self.compared.store(0, Ordering::Release);
    }

    /// Waits until the snapshots are fresh again. Returns at once if the last comparison failed.
    pub(super) fn wait(&self) -> Result<(), DatabaseError> {
        let now = self.now();
        let first = self.stale_since.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
        let began = first.err().unwrap_or(now);
        let within = REFRESH_WITHIN.saturating_sub(Duration::from_nanos(now.saturating_sub(began)));
        let mut fault = self.lock_fault();
        self.told.wait_while_for(&mut fault, |fault| !self.holds() && fault.is_none(), within);
        if self.holds() { Ok(()) } else { Err(DatabaseError::stale(fault.as_deref())) }
    }

    fn lock_fault(&self) -> MutexGuard<'_, Option<String>> {
        self.fault.lock()
    }
}
