//! Rate limit: one token bucket per client, for calls and lists alike.
//!
//! A call that gets a token soon waits its turn; one that would wait longer is refused with the time to retry. A list never
//! waits. Unregistered names draw from the bucket too, so probing is not free.
//!
//! A waiting call holds a reservation: its token is drawn now, and it runs when that token is there (GCRA). Reservations
//! of a client come in the order of its calls, so the queue is fair. A call that is cancelled gives its token back.

use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use portcullis_core::{BoxFuture, Call, Caller, HumanWait, Layer, Limit, Next, Outcome, ToolError};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Bound on buckets. More clients than any configuration has; a bucket is some hundred bytes.
const CLIENTS_MAX: usize = 10_000;
/// Bound on the waiting calls of one client, each of which holds its arguments. The defaults allow 10.
const WAITING_PER_CLIENT_MAX: usize = 1_000;

/// Rate, burst, and how long a call may wait for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
    /// A call that would wait longer is refused; with zero, every call that is over the limit.
    pub wait: Duration,
}

/// The active rate limit. Clones share state.
#[derive(Clone)]
pub struct ClientRateLimiter {
    inner: Arc<Inner>,
}

struct Inner {
    current: ArcSwap<RateLimiterState>,
    clients_max: usize,
    waiting_max: usize,
    metrics: Metrics,
}

struct RateLimiterState {
    settings: RateSettings,
    buckets: Mutex<HashMap<String, ClientBucket>>,
}

/// The bucket of one client.
struct ClientBucket {
    /// When it is full again, if nothing more is drawn. Each token drawn moves this by one interval.
    full_at: Instant,
    /// Calls that wait for their turn.
    waiting: usize,
}

impl ClientRateLimiter {
    pub fn new(settings: RateSettings, metrics: Metrics) -> ClientRateLimiter {
        ClientRateLimiter::bounded(settings, metrics, CLIENTS_MAX, WAITING_PER_CLIENT_MAX)
    }

    fn bounded(
        settings: RateSettings,
        metrics: Metrics,
        clients_max: usize,
        waiting_max: usize,
    ) -> ClientRateLimiter {
        let current = ArcSwap::from_pointee(RateLimiterState::new(settings));
        ClientRateLimiter { inner: Arc::new(Inner { current, clients_max, waiting_max, metrics }) }
    }

    /// Changes the limit. Keeps the buckets if nothing changes. Calls that wait keep their turns.
    pub fn configure(&self, settings: RateSettings) {
        if self.inner.current.load().settings != settings {
            self.start_over(settings);
        }
    }

    fn start_over(&self, settings: RateSettings) {
        self.inner.current.store(Arc::new(RateLimiterState::new(settings)));
    }

    /// Draws a token that is there within `wait_max`. Returns the turn to wait for; `None` means now.
    fn draw(&self, caller: &Caller, wait_max: Duration) -> Result<Option<ReservedTurn>, ToolError> {
        let (current, client) = (self.inner.current.load_full(), &caller.client.name);
        let (interval, reserve) = (current.interval(), current.reserve());
        let now = Instant::now();
        let mut buckets = current.buckets.lock();
        if buckets.len() >= self.inner.clients_max && !buckets.contains_key(client) {
            self.tidy(&current, &mut buckets, now);
        }
        let bucket = match buckets.get_mut(client) {
            Some(bucket) => bucket,
            None => buckets.entry(client.clone()).or_insert(ClientBucket { full_at: now, waiting: 0 }),
        };
        let full_at = bucket.full_at.max(now);
        let wait = full_at.duration_since(now).saturating_sub(reserve);
        let refused = || {
            self.inner.metrics.count_rate_limited();
            Err(ToolError::rate_limited(wait))
        };
        if wait > wait_max {
            return refused();
        }
        if !wait.is_zero() && bucket.waiting >= self.inner.waiting_max {
            Limit::RateWaiting.hit();
            return refused();
        }
        bucket.full_at = full_at + interval;
        if wait.is_zero() {
            return Ok(None);
        }
        bucket.waiting += 1;
        drop(buckets);
        Ok(Some(ReservedTurn { at: now + wait, client: client.clone(), limiter: current, has_come: false }))
    }

    /// Makes room for one more bucket.
    fn tidy(&self, current: &RateLimiterState, buckets: &mut HashMap<String, ClientBucket>, now: Instant) {
        // A full bucket is equivalent to none.
        buckets.retain(|_, bucket| bucket.full_at > now || bucket.waiting > 0);
        // Most are in use at once: a reset gives each client one more burst, and keeps the bound. At half, so that not
        // every new client costs a look at all the others.
        if buckets.len() > self.inner.clients_max / 2 {
            self.start_over(current.settings);
        }
    }
}

impl RateLimiterState {
    fn new(settings: RateSettings) -> RateLimiterState {
        RateLimiterState { settings, buckets: Mutex::default() }
    }

    /// Returns the time between two tokens.
    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.settings.per_second.get()
    }

    /// Returns how far from full a bucket may be and still have a token.
    fn reserve(&self) -> Duration {
        self.interval() * (self.settings.burst.get() - 1)
    }
}

/// The turn of a waiting call. Dropped before it has come, it gives its token back.
struct ReservedTurn {
    at: Instant,
    client: String,
    limiter: Arc<RateLimiterState>,
    has_come: bool,
}

impl ReservedTurn {
    /// Waits. The time does not count towards the deadline of the call, which has not begun to work.
    async fn come(mut self, waits: &HumanWait) {
        let _waiting = waits.begin();
        sleep_until(self.at).await;
        self.has_come = true;
    }
}

impl Drop for ReservedTurn {
    fn drop(&mut self) {
        let mut buckets = self.limiter.buckets.lock();
        if let Some(bucket) = buckets.get_mut(&self.client) {
            bucket.waiting = bucket.waiting.saturating_sub(1);
            if !self.has_come {
                bucket.full_at =
                    bucket.full_at.checked_sub(self.limiter.interval()).unwrap_or(bucket.full_at);
            }
        }
    }
}

impl Layer for ClientRateLimiter {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let wait_max = self.inner.current.load().settings.wait;
        match self.draw(call.caller(), wait_max) {
            Ok(None) => next.run(call),
            Ok(Some(turn)) => Box::pin(async move {
                turn.come(&call.trail.waits).await;
                next.run(call).await
            }),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    fn admits(&self, caller: &Caller) -> Result<(), ToolError> {
        self.draw(caller, Duration::ZERO).map(drop)
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
