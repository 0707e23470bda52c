//! Wrong tokens, and who sends them.
//!
//! After a few wrong tokens a source must wait before another one is looked at, each time longer, and after some more
//! it is locked for a while. A token that comes too early is refused without being looked at.
//!
//! On loopback all programs of a machine are one source, and behind a proxy all clients are. One that guesses must not
//! keep the others out, so:
//!
//! - A token that was good once from this source is not a guess and is always looked at. What is remembered of it is a
//!   64-bit keyed hash. That this could be met by chance opens nothing: whoever meets it is looked at, not let in.
//! - A wrong token that comes again and again is one guess, not many. It is slowed down and locked by itself. So a
//!   program with a token that was revoked does not lock out its whole machine.
//!
//! What remains: who guesses from a source can keep clients out that have not been let in there since the hub started.

use super::{Peer, Source, lock};
use portcullis_core::Clock;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many sources are remembered. An entry is some hundred bytes.
const SOURCES_MAX: usize = 10_000;
/// How many of a source's wrong tokens are known again.
const WRONG_MAX: usize = 32;
/// How many good tokens are remembered, over all sources. Only good tokens get in, so strangers cannot fill it.
const GOOD_MAX: usize = 20_000;
/// The first wait. It doubles with every further wrong token.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How often entries that no longer matter are thrown out.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Why a token did not let its bearer in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was looked at.
    Wrong,
    /// It was not, and will not be for this long.
    Wait(Duration),
}

/// Tells one token of one source from another, and tells nothing about it.
type Mark = NonZeroU64;

/// Who has guessed how often.
pub(crate) struct Guesses {
    failures_max: u32,
    lockout: Duration,
    sources_max: usize,
    clock: Arc<dyn Clock>,
    /// With a key that nobody knows, so that marks can neither be made nor be learned from how long a look takes.
    hasher: RandomState,
    failures: AtomicU64,
    /// How many sources are in the table. Where there is none, nobody waits for the lock.
    known: AtomicUsize,
    table: Mutex<Table>,
    good: Mutex<Good>,
}

#[derive(Default)]
struct Table {
    by_source: HashMap<Source, Standing>,
    swept: Duration,
}

/// How often something failed, and what follows from it. Times are since the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct Tries {
    failures: u32,
    not_before: Duration,
}

#[derive(Default)]
struct Standing {
    /// Of different tokens.
    source: Tries,
    forget_at: Duration,
    /// The newest last.
    wrong: VecDeque<(Mark, Tries)>,
}

#[derive(Default)]
struct Good {
    marks: HashSet<Mark>,
    oldest_first: VecDeque<Mark>,
}

impl Guesses {
    pub(crate) fn new(failures_max: u32, lockout: Duration, clock: Arc<dyn Clock>) -> Guesses {
        Guesses {
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

    /// Has a token looked at, unless it comes too early.
    ///
    /// Looking takes no turn of the runtime, so besides the allowed guesses at most one per thread can slip in.
    pub(crate) fn check<T>(
        &self,
        peer: &Peer,
        token: &str,
        look: impl FnOnce() -> Option<T>,
    ) -> Result<T, Refused> {
        let mark = self.mark(peer.place.source, token);
        // What a connection does all day costs one hash and no lock.
        let known_here = peer.place.good.load(Ordering::Relaxed) == mark.get();
        if !known_here && self.known.load(Ordering::Acquire) > 0 {
            self.may_try(peer.place.source, mark).map_err(Refused::Wait)?;
        }
        match look() {
            Some(found) => {
                if !known_here {
                    lock(&self.good).add(mark);
                    peer.place.good.store(mark.get(), Ordering::Relaxed);
                }
                Ok(found)
            }
            None => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                // Revoked, perhaps; but known to its bearer, so there is nothing to guess.
                if !known_here && !lock(&self.good).marks.contains(&mark) {
                    self.failed(peer.place.source, mark);
                }
                Err(Refused::Wrong)
            }
        }
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns how many sources are locked now.
    pub(crate) fn locked(&self) -> usize {
        let now = self.clock.since_epoch();
        let locked = |standing: &&Standing| {
            standing.source.failures >= self.failures_max && self.left(standing.source, now).is_some()
        };
        lock(&self.table).by_source.values().filter(locked).count()
    }

    fn mark(&self, source: Source, token: &str) -> Mark {
        NonZeroU64::new(self.hasher.hash_one((source, token))).unwrap_or(NonZeroU64::MIN)
    }

    /// Returns how long a token must wait, if it must.
    fn may_try(&self, source: Source, mark: Mark) -> Result<(), Duration> {
        let now = self.clock.since_epoch();
        let wait = {
            let table = lock(&self.table);
            let Some(standing) = table.by_source.get(&source).filter(|s| now < s.forget_at) else {
                return Ok(());
            };
            let own = standing.wrong_before(mark).and_then(|(_, tries)| self.left(*tries, now));
            own.max(self.left(standing.source, now))
        };
        match wait {
            Some(wait) if !lock(&self.good).marks.contains(&mark) => Err(wait),
            _ => Ok(()),
        }
    }

    fn failed(&self, source: Source, mark: Mark) {
        let now = self.clock.since_epoch();
        let mut table = lock(&self.table);
        if now.saturating_sub(table.swept) >= SWEEP_EVERY || now < table.swept {
            table.by_source.retain(|_, standing| now < standing.forget_at);
            table.swept = now;
        }
        if table.by_source.len() >= self.sources_max && !table.by_source.contains_key(&source) {
            table.make_room(self.sources_max, now);
        }
        let standing = table.by_source.entry(source).or_default();
        if now >= standing.forget_at {
            *standing = Standing::default();
        }
        let is_new = standing.wrong_before(mark).is_none();
        let until = if is_new {
            if standing.wrong.len() >= WRONG_MAX {
                standing.wrong.pop_front();
            }
            standing.wrong.push_back((mark, Tries { failures: 1, not_before: now }));
            standing.source = self.after_failure(standing.source, now);
            standing.source
        } else {
            let tries = standing.wrong.iter_mut().find(|(own, _)| *own == mark);
            let Some((_, tries)) = tries else { return };
            *tries = self.after_failure(*tries, now);
            *tries
        };
        // Quiet for as long as a lock lasts, and all is forgotten.
        standing.forget_at = standing.forget_at.max(until.not_before + self.lockout);
        let locked = is_new && until.failures >= self.failures_max;
        self.known.store(table.by_source.len(), Ordering::Release);
        drop(table);
        if locked {
            // Once for each lock: what comes while it lasts is not looked at and does not come here.
            let seconds = self.lockout.as_secs();
            tracing::warn!(target: "http", %source, seconds, "Too many wrong tokens; new ones from there are not looked at for a while.");
        }
    }

    fn after_failure(&self, tries: Tries, now: Duration) -> Tries {
        let failures = tries.failures.saturating_add(1);
        let slow_from = self.failures_max.div_ceil(2);
        let wait = match failures.checked_sub(slow_from) {
            None => Duration::ZERO,
            _ if failures >= self.failures_max => self.lockout,
            Some(doublings) => FIRST_WAIT.saturating_mul(1 << doublings.min(30)).min(self.lockout),
        };
        Tries { failures, not_before: now + wait }
    }

    /// Returns how long is left to wait. A clock that was set back must not lock anyone out for years.
    fn left(&self, tries: Tries, now: Duration) -> Option<Duration> {
        let left = tries.not_before.checked_sub(now)?;
        (!left.is_zero() && left <= self.lockout).then_some(left)
    }
}

impl Standing {
    fn wrong_before(&self, mark: Mark) -> Option<&(Mark, Tries)> {
        self.wrong.iter().find(|(own, _)| *own == mark)
    }
}

impl Table {
    /// Throws out what no longer matters, and then those who did least, many at once so that it is rarely done.
    ///
    /// Whoever has enough sources to push a locked one out has as many guesses by them as that one would give.
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

impl Good {
    fn add(&mut self, mark: Mark) {
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
