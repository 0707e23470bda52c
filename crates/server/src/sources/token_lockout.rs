//! Lockout of sources that send wrong tokens (brute force).
//!
//! After a few wrong tokens a source must wait before the next one is checked, with exponential backoff, and after
//! some more it is locked out for a while. A token that comes too early is refused without a check.
//!
//! On loopback all programs of a machine are one source, and behind a proxy all clients are. One that guesses must not
//! lock out the others, so:
//!
//! - A token that was valid once from this source is not a guess and is always checked. It is remembered as a 64-bit
//!   keyed hash. A collision is harmless: such a token is checked, not accepted.
//! - A wrong token that is repeated is one guess. It has its own backoff and lockout. So a program with a revoked token
//!   does not lock out its whole machine.
//!
//! What remains: a source that guesses can lock out clients that have not authenticated from it since the hub started.

use super::{PeerConnection, SourceNetwork};
use crate::hub::ClientsUnavailable;
use parking_lot::Mutex;
use portcullis_core::Clock;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Sources in the table. An entry has some hundred bytes.
const SOURCES_MAX: usize = 10_000;
/// Wrong tokens of a source that are recognized when repeated.
const WRONG_MAX: usize = 32;
/// Valid tokens that are remembered, over all sources. Only valid tokens are stored, so an attacker cannot fill it.
const GOOD_MAX: usize = 20_000;
/// The first wait. It doubles with every further wrong token.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Interval of the removal of expired entries.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Why a token was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    /// It was checked.
    Wrong,
    /// It was not checked, and will not be for this long.
    Wait(Duration),
    /// It could not be checked. That is no guess.
    Unchecked,
}

/// A keyed hash of source and token, which reveals nothing about the token.
type TokenFingerprint = NonZeroU64;

/// Failed attempts by source.
pub(crate) struct TokenLockout {
    failures_max: u32,
    lockout: Duration,
    sources_max: usize,
    clock: Arc<dyn Clock>,
    /// With a random key, so that hashes can neither be forged nor be learned by timing.
    hasher: RandomState,
    failures: AtomicU64,
    /// Number of sources in the table. While it is zero, the lock is not taken.
    known: AtomicUsize,
    table: Mutex<Table>,
    good: Mutex<GoodTokens>,
}

#[derive(Default)]
struct Table {
    by_source: HashMap<SourceNetwork, SourceRecord>,
    swept: Duration,
}

/// Failed attempts, and the end of the wait. Times are since the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct FailureCount {
    failures: u32,
    not_before: Duration,
}

#[derive(Default)]
struct SourceRecord {
    /// Over all tokens of the source.
    source: FailureCount,
    forget_at: Duration,
    /// The newest last.
    wrong: VecDeque<(TokenFingerprint, FailureCount)>,
}

#[derive(Default)]
struct GoodTokens {
    marks: HashSet<TokenFingerprint>,
    oldest_first: VecDeque<TokenFingerprint>,
}

impl TokenLockout {
    pub(crate) fn new(failures_max: u32, lockout: Duration, clock: Arc<dyn Clock>) -> TokenLockout {
        TokenLockout {
            failures_max,
            lockout,
            sources_max: SOURCES_MAX,
            clock,
            hasher: RandomState::new(),
            failures: AtomicU64::new(0),
            known: AtomicUsize::new(0),
            table: Mutex::default(),
            good: Mutex::default(),
        }
    }

    /// Checks a token, unless it comes too early.
    ///
    /// The check does not yield to the runtime, so concurrency allows at most one extra guess per thread.
    pub(crate) fn check<T>(
        &self,
        peer: &PeerConnection,
        token: &str,
        look: impl FnOnce() -> Result<Option<T>, ClientsUnavailable>,
    ) -> Result<T, TokenRefusal> {
        let mark = self.mark(peer.place.source, token);
        // The hot path costs one hash and no lock.
        let known_here = peer.place.good.load(Ordering::Relaxed) == mark.get();
        if !known_here && self.known.load(Ordering::Acquire) > 0 {
            self.may_try(peer.place.source, mark).map_err(TokenRefusal::Wait)?;
        }
        match look().map_err(|ClientsUnavailable| TokenRefusal::Unchecked)? {
            Some(found) => {
                if !known_here {
                    self.good.lock().add(mark);
                    peer.place.good.store(mark.get(), Ordering::Relaxed);
                }
                Ok(found)
            }
            None => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                // Perhaps revoked; but its holder knew it, so it is no guess.
                if !known_here && !self.good.lock().marks.contains(&mark) {
                    self.failed(peer.place.source, mark);
                }
                Err(TokenRefusal::Wrong)
            }
        }
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the number of sources that are locked out now.
    pub(crate) fn locked(&self) -> usize {
        let now = self.clock.since_epoch();
        let locked = |standing: &&SourceRecord| {
            standing.source.failures >= self.failures_max && self.left(standing.source, now).is_some()
        };
        self.table.lock().by_source.values().filter(locked).count()
    }

    fn mark(&self, source: SourceNetwork, token: &str) -> TokenFingerprint {
        NonZeroU64::new(self.hasher.hash_one((source, token))).unwrap_or(NonZeroU64::MIN)
    }

    /// Returns how long a token must wait, if it must.
    fn may_try(&self, source: SourceNetwork, mark: TokenFingerprint) -> Result<(), Duration> {
        let now = self.clock.since_epoch();
        let wait = {
            let table = self.table.lock();
            let Some(standing) = table.by_source.get(&source).filter(|s| now < s.forget_at) else {
                return Ok(());
            };
            let own = standing.wrong_before(mark).and_then(|(_, tries)| self.left(*tries, now));
            own.max(self.left(standing.source, now))
        };
        match wait {
            Some(wait) if !self.good.lock().marks.contains(&mark) => Err(wait),
            _ => Ok(()),
        }
    }

    fn failed(&self, source: SourceNetwork, mark: TokenFingerprint) {
        let now = self.clock.since_epoch();
        let mut table = self.table.lock();
        if now.saturating_sub(table.swept) >= SWEEP_EVERY || now < table.swept {
            table.by_source.retain(|_, standing| now < standing.forget_at);
            table.swept = now;
        }
        if table.by_source.len() >= self.sources_max && !table.by_source.contains_key(&source) {
            table.make_room(self.sources_max, now);
        }
        let standing = table.by_source.entry(source).or_default();
        if now >= standing.forget_at {
            *standing = SourceRecord::default();
        }
        let is_new = standing.wrong_before(mark).is_none();
        let until = if is_new {
            if standing.wrong.len() >= WRONG_MAX {
                standing.wrong.pop_front();
            }
            standing.wrong.push_back((mark, FailureCount { failures: 1, not_before: now }));
            standing.source = self.after_failure(standing.source, now);
            standing.source
        } else {
            let tries = standing.wrong.iter_mut().find(|(own, _)| *own == mark);
            let Some((_, tries)) = tries else { return };
            *tries = self.after_failure(*tries, now);
            *tries
        };
        // The record expires after the length of a lockout without further failures.
        standing.forget_at = standing.forget_at.max(until.not_before + self.lockout);
        let locked = is_new && until.failures >= self.failures_max;
        self.known.store(table.by_source.len(), Ordering::Release);
        drop(table);
        if locked {
            // Once per lockout: tokens during it are not checked and do not get here.
            let seconds = self.lockout.as_secs();
            tracing::warn!(target: "http", %source, seconds, "too many wrong tokens; source is locked out");
        }
    }

    fn after_failure(&self, tries: FailureCount, now: Duration) -> FailureCount {
        let failures = tries.failures.saturating_add(1);
        let slow_from = self.failures_max.div_ceil(2);
        let wait = match failures.checked_sub(slow_from) {
            None => Duration::ZERO,
            _ if failures >= self.failures_max => self.lockout,
            Some(doublings) => FIRST_WAIT.saturating_mul(1 << doublings.min(30)).min(self.lockout),
        };
        FailureCount { failures, not_before: now + wait }
    }

    /// Returns the remaining wait. A clock that was set back must not lock a source out for years.
    fn left(&self, tries: FailureCount, now: Duration) -> Option<Duration> {
        let left = tries.not_before.checked_sub(now)?;
        (!left.is_zero() && left <= self.lockout).then_some(left)
    }
}

impl SourceRecord {
    fn wrong_before(&self, mark: TokenFingerprint) -> Option<&(TokenFingerprint, FailureCount)> {
        self.wrong.iter().find(|(own, _)| *own == mark)
    }
}

impl Table {
    /// Removes expired records, then those with the fewest failures, many at once so that it is rare.
    ///
    /// An attacker with enough sources to evict a locked one has as many guesses from them as that one would give.
    fn make_room(&mut self, sources_max: usize, now: Duration) {
        self.by_source.retain(|_, standing| now < standing.forget_at);
        if self.by_source.len() < sources_max {
            return;
        }
        let mut by_harm: Vec<_> =
            self.by_source.iter().map(|(source, s)| (s.source.failures, s.forget_at, *source)).collect();
        by_harm.sort_unstable_by_key(|(failures, forget_at, _)| (*failures, *forget_at));
        for (_, _, source) in by_harm.into_iter().take((sources_max / 8).max(1)) {
            self.by_source.remove(&source);
        }
    }
}

impl GoodTokens {
    fn add(&mut self, mark: TokenFingerprint) {
        if !self.marks.insert(mark) {
            return;
        }
        self.oldest_first.push_back(mark);
        if self.oldest_first.len() > GOOD_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.marks.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
