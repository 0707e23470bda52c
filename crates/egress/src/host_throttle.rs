//! Outbound rate limit per host: a token bucket, and `Retry-After`.
//!
//! A host is the name in the URL. Two names of one site have separate buckets.

use crate::error::EgressError;
use parking_lot::Mutex;
use portcullis_core::Clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Hosts with a bucket. An evicted host starts with a full one.
const HOSTS_MAX: usize = 4_096;
/// Upper bound on a server's `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// The rate limit of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRateLimit {
    /// Refill rate.
    pub per_minute: u32,
    /// Bucket size.
    pub burst: u32,
}

impl Default for HostRateLimit {
    fn default() -> HostRateLimit {
        HostRateLimit { per_minute: 60, burst: 20 }
    }
}

/// The token bucket of one host. Times are since the epoch.
#[derive(Debug, Clone, Copy)]
struct HostBucket {
    tokens: f64,
    counted_at: Duration,
    barred_until: Duration,
}

pub(crate) struct HostThrottle {
    limit: HostRateLimit,
    clock: Arc<dyn Clock>,
    hosts: Mutex<HashMap<String, HostBucket>>,
}

impl HostThrottle {
    pub(crate) fn new(limit: HostRateLimit, clock: Arc<dyn Clock>) -> HostThrottle {
        HostThrottle { limit, clock, hosts: Mutex::default() }
    }

    /// Takes a token, or fails with the time to wait.
    pub(crate) fn take(&self, host: &str) -> Result<(), EgressError> {
        let now = self.clock.since_epoch();
        let per_second = f64::from(self.limit.per_minute.max(1)) / 60.0;
        let paced = |retry_after| Err(EgressError::Paced { host: host.to_owned(), retry_after });
        self.with(host, now, |visits| {
            if visits.barred_until > now {
                return paced(visits.barred_until - now);
            }
            let passed = now.saturating_sub(visits.counted_at).as_secs_f64();
            visits.tokens = (visits.tokens + passed * per_second).min(f64::from(self.limit.burst.max(1)));
            visits.counted_at = now;
            if visits.tokens < 1.0 {
                return paced(Duration::from_secs_f64((1.0 - visits.tokens) / per_second));
            }
            visits.tokens -= 1.0;
            Ok(())
        })
    }

    /// Applies a `Retry-After` header: seconds, or an HTTP date.
    pub(crate) fn bar(&self, host: &str, retry_after: &str) {
        let now = self.clock.since_epoch();
        let wait = match retry_after.trim().parse::<u64>() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let Ok(date) = httpdate::parse_http_date(retry_after.trim()) else { return };
                date.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(now)
            }
        };
        let until = now + wait.min(RETRY_AFTER_MAX);
        self.with(host, now, |visits| visits.barred_until = visits.barred_until.max(until));
    }

    fn with<T>(&self, host: &str, now: Duration, look: impl FnOnce(&mut HostBucket) -> T) -> T {
        // A panic under this lock leaves no partial change.
        let mut hosts = self.hosts.lock();
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(host) {
            make_room(&mut hosts, now);
        }
        let fresh = HostBucket {
            tokens: f64::from(self.limit.burst.max(1)),
            counted_at: now,
            barred_until: Duration::ZERO,
        };
        look(hosts.entry(host.to_owned()).or_insert(fresh))
    }
}

/// Evicts the least recently requested host, preferably one without a pending `Retry-After`.
fn make_room(hosts: &mut HashMap<String, HostBucket>, now: Duration) {
    let oldest = hosts.iter().min_by_key(|(_, visits)| (visits.barred_until > now, visits.counted_at));
    if let Some(host) = oldest.map(|(host, _)| host.clone()) {
        hosts.remove(&host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    struct Hand(Mutex<u64>);

    impl Clock for Hand {
        fn now(&self) -> SystemTime {
            UNIX_EPOCH + Duration::from_secs(1_800_000_000 + *self.0.lock())
        }
    }

    fn waits(pace: &HostThrottle, host: &str) -> Option<u64> {
        match pace.take(host) {
            Ok(()) => None,
            Err(EgressError::Paced { retry_after, .. }) => Some(retry_after.as_secs()),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_host_is_asked_at_its_pace_and_others_do_not_pay() {
        let clock = Arc::new(Hand(Mutex::new(0)));
        let pace = HostThrottle::new(HostRateLimit { per_minute: 30, burst: 3 }, clock.clone());
        let asked: Vec<_> = (0..5).map(|_| waits(&pace, "a.test")).collect();
        assert_eq!(asked, [None, None, None, Some(2), Some(2)]);
        assert_eq!(waits(&pace, "b.test"), None);
        *clock.0.lock() = 2;
        assert_eq!((waits(&pace, "a.test"), waits(&pace, "a.test")), (None, Some(2)));
    }

    #[test]
    fn what_a_server_asks_for_is_obeyed_within_reason() {
        let clock = Arc::new(Hand(Mutex::new(0)));
        let pace = HostThrottle::new(HostRateLimit::default(), clock.clone());
        pace.bar("a.test", "30");
        assert_eq!((waits(&pace, "a.test"), waits(&pace, "b.test")), (Some(30), None));
        // A later, shorter `Retry-After` does not shorten the first.
        pace.bar("a.test", "1");
        *clock.0.lock() = 10;
        assert_eq!(waits(&pace, "a.test"), Some(20));
        *clock.0.lock() = 30;
        assert_eq!(waits(&pace, "a.test"), None);
        pace.bar("c.test", "999999999");
        assert_eq!(waits(&pace, "c.test"), Some(3_600));
        let date = httpdate::fmt_http_date(clock.now() + Duration::from_secs(90));
        pace.bar("d.test", &date);
        assert_eq!(waits(&pace, "d.test"), Some(90));
        for nonsense in ["", "soon", "-5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            pace.bar("e.test", nonsense);
            assert_eq!(waits(&pace, "e.test"), None, "{nonsense}");
        }
    }

    #[test]
    fn memory_of_hosts_is_bounded_and_keeps_those_that_asked_for_a_pause() {
        let pace = HostThrottle::new(HostRateLimit::default(), Arc::new(Hand(Mutex::new(0))));
        pace.bar("barred.test", "600");
        for n in 0..HOSTS_MAX * 2 {
            let _ = pace.take(&format!("{n}.test"));
        }
        assert_eq!(pace.hosts.lock().len(), HOSTS_MAX);
        assert_eq!(waits(&pace, "barred.test"), Some(600));
    }
}
