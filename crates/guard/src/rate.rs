//! Rate limit: one token bucket per client, for calls and lists alike.
//!
//! Unregistered names draw from it too, so probing is not free.

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

/// Bound on buckets. More clients than any configuration has; a bucket is some hundred bytes.
const CLIENTS_MAX: usize = 10_000;
/// Checks between counts of the buckets. Counting touches every shard of the map.
const CHECKS_BETWEEN_COUNTS: u32 = 1_024;

/// Rate and burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

type KeyedRateLimiter<C> =
    RateLimiter<String, DashMapStateStore<String>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// The active rate limit. Clones share state.
pub struct ClientRateLimiter<C: Clock = DefaultClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C: Clock> {
    current: ArcSwap<RateLimiterState<C>>,
    checks: AtomicU32,
    clients_max: usize,
    clock: C,
    metrics: Metrics,
}

struct RateLimiterState<C: Clock> {
    settings: RateSettings,
    limiter: KeyedRateLimiter<C>,
}

impl<C: Clock> Clone for ClientRateLimiter<C> {
    fn clone(&self) -> Self {
        ClientRateLimiter { inner: self.inner.clone() }
    }
}

impl ClientRateLimiter {
    pub fn new(settings: RateSettings, metrics: Metrics) -> ClientRateLimiter {
        ClientRateLimiter::with_clock(settings, metrics, DefaultClock::default())
    }
}

impl<C: Clock + Clone> ClientRateLimiter<C> {
    /// Injects a clock, so that tests need not wait.
    pub fn with_clock(settings: RateSettings, metrics: Metrics, clock: C) -> ClientRateLimiter<C> {
        ClientRateLimiter::bounded(settings, metrics, clock, CLIENTS_MAX)
    }

    fn bounded(
        settings: RateSettings,
        metrics: Metrics,
        clock: C,
        clients_max: usize,
    ) -> ClientRateLimiter<C> {
        let current = ArcSwap::from_pointee(RateLimiterState::new(settings, clock.clone()));
        ClientRateLimiter {
            inner: Arc::new(Inner { current, checks: AtomicU32::new(0), clients_max, clock, metrics }),
        }
    }

    /// Changes the limit. Keeps the buckets if nothing changes.
    pub fn configure(&self, settings: RateSettings) {
        if self.inner.current.load().settings != settings {
            self.start_over(settings);
        }
    }

    fn start_over(&self, settings: RateSettings) {
        self.inner.current.store(Arc::new(RateLimiterState::new(settings, self.inner.clock.clone())));
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

    fn tidy(&self, current: &RateLimiterState<C>) {
        if current.limiter.len() <= self.inner.clients_max {
            return;
        }
        // A full bucket is equivalent to none.
        current.limiter.retain_recent();
        current.limiter.shrink_to_fit();
        // All in use at once: a reset gives each client one more burst, and keeps the bound.
        if current.limiter.len() > self.inner.clients_max {
            self.start_over(current.settings);
        }
    }
}

impl<C: Clock> RateLimiterState<C> {
    fn new(settings: RateSettings, clock: C) -> RateLimiterState<C> {
        let quota = Quota::per_second(settings.per_second).allow_burst(settings.burst);
        RateLimiterState { settings, limiter: RateLimiter::dashmap_with_clock(quota, clock) }
    }
}

impl<C> Layer for ClientRateLimiter<C>
where
    C: Clock + Clone + Send + Sync,
    C::Instant: Send + Sync,
{
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match self.check(call.caller()) {
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
