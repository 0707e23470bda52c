//! How fast a client may call.
//!
//! One bucket per client, for calls and lists alike. Names that nobody registered draw from it too: probing is
//! not free.

use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use portcullis_core::{BoxFuture, Call, Caller, Layer, Next, Outcome, ToolError};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many clients have a bucket at once. More than any configuration holds; a bucket is some hundred bytes.
const CLIENTS_MAX: usize = 10_000;
/// After how many checks the buckets are counted. Counting touches every shard of the map.
const CHECKS_BETWEEN_COUNTS: u32 = 1_024;

/// How fast, and how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

type Limiter<C> = RateLimiter<String, DashMapStateStore<String>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// The rate limit in force. Cheap to clone; every clone is the same limit.
pub struct Rate<C: Clock = DefaultClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C: Clock> {
    current: ArcSwap<Current<C>>,
    checks: AtomicU32,
    clients_max: usize,
    clock: C,
    metrics: Metrics,
}

struct Current<C: Clock> {
    settings: RateSettings,
    limiter: Limiter<C>,
}

impl<C: Clock> Clone for Rate<C> {
    fn clone(&self) -> Self {
        Rate { inner: self.inner.clone() }
    }
}

impl Rate {
    pub fn new(settings: RateSettings, metrics: Metrics) -> Rate {
        Rate::with_clock(settings, metrics, DefaultClock::default())
    }
}

impl<C: Clock + Clone> Rate<C> {
    /// Builds the limit on a clock of the caller's, so that tests need not wait.
    pub fn with_clock(settings: RateSettings, metrics: Metrics, clock: C) -> Rate<C> {
        Rate::bounded(settings, metrics, clock, CLIENTS_MAX)
    }

    fn bounded(settings: RateSettings, metrics: Metrics, clock: C, clients_max: usize) -> Rate<C> {
        let current = ArcSwap::from_pointee(Current::new(settings, clock.clone()));
        Rate { inner: Arc::new(Inner { current, checks: AtomicU32::new(0), clients_max, clock, metrics }) }
    }

    /// Changes the limit. If nothing changes, nobody's bucket does either.
    pub fn configure(&self, settings: RateSettings) {
        if self.inner.current.load().settings != settings {
            self.start_over(settings);
        }
    }

    fn start_over(&self, settings: RateSettings) {
        self.inner.current.store(Arc::new(Current::new(settings, self.inner.clock.clone())));
    }

    fn check(&self, caller: &Caller) -> Result<(), ToolError> {
        let current = self.inner.current.load();
        if self.inner.checks.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHECKS_BETWEEN_COUNTS) {
            self.tidy(&current);
        }
        current.limiter.check_key(&caller.client.name).map_err(|not_until| {
            self.inner.metrics.count_rate_limited();
            ToolError::rate_limited(not_until.wait_time_from(self.inner.clock.now()))
        })
    }

    fn tidy(&self, current: &Current<C>) {
        if current.limiter.len() <= self.inner.clients_max {
            return;
        }
        // Full buckets are like no buckets.
        current.limiter.retain_recent();
        current.limiter.shrink_to_fit();
        // All of them in use at once: forgetting costs one more burst each, and keeps the bound.
        if current.limiter.len() > self.inner.clients_max {
            self.start_over(current.settings);
        }
    }
}

impl<C: Clock> Current<C> {
    fn new(settings: RateSettings, clock: C) -> Current<C> {
        let quota = Quota::per_second(settings.per_second).allow_burst(settings.burst);
        Current { settings, limiter: RateLimiter::dashmap_with_clock(quota, clock) }
    }
}

impl<C> Layer for Rate<C>
where
    C: Clock + Clone + Send + Sync,
    C::Instant: Send + Sync,
{
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match self.check(&call.caller) {
            Ok(()) => next.run(call),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    fn admits(&self, caller: &Caller) -> Result<(), ToolError> {
        self.check(caller)
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
