//! Backoff and lockout after wrong passwords, per source address and in total.
//!
//! After five failures a source must wait before the next attempt, with exponential backoff; after ten it is locked out.
//! A limit over all sources stops distributed guessing. An attempt that comes too early is refused without a hash.

use parking_lot::Mutex;
use portcullis_core::Clock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Failures without a wait. People mistype.
const FREE: u32 = 5;
/// Failures that lock a source out.
const LOCK_AT: u32 = 10;
const LOCKED_FOR: Duration = Duration::from_secs(15 * 60);
/// The first backoff. It doubles with every further failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Failures of all sources together within [`LOCKED_FOR`].
const ALL_MAX: u32 = 100;
/// Tracked sources. The one with the earliest next attempt is evicted.
const SOURCES_MAX: usize = 1_000;
/// The /64 network of an IPv6 address: an attacker with one address there has 2⁶⁴.
const NETWORK: u128 = !0 << 64;

pub(super) struct PasswordLockout {
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_source: HashMap<IpAddr, Failures>,
    /// Of all sources, since `all_since`.
    all: u32,
    all_since: Duration,
}

/// Failures of a source. Times are since the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    count: u32,
    not_before: Duration,
    forget_at: Duration,
}

impl PasswordLockout {
    pub(super) fn new(clock: Arc<dyn Clock>) -> PasswordLockout {
        PasswordLockout { clock, table: Mutex::default() }
    }

    /// Returns the remaining wait of a source as an error.
    pub(super) fn check_lockout(&self, address: IpAddr) -> Result<(), Duration> {
        let now = self.clock.since_epoch();
        let table = self.table.lock();
        let own = table.by_source.get(&source(address)).filter(|failures| now < failures.forget_at);
        let own = own.and_then(|failures| left(failures.not_before, now));
        let all = (table.all >= ALL_MAX).then(|| left(table.all_since + LOCKED_FOR, now)).flatten();
        own.max(all).map_or(Ok(()), Err)
    }

    pub(super) fn failed(&self, address: IpAddr) {
        let now = self.clock.since_epoch();
        let mut table = self.table.lock();
        if left(table.all_since + LOCKED_FOR, now).is_none() {
            (table.all, table.all_since) = (0, now);
        }
        table.all = table.all.saturating_add(1);
        table.by_source.retain(|_, failures| now < failures.forget_at);
        if table.by_source.len() >= SOURCES_MAX
            && let Some(least) = table.by_source.iter().min_by_key(|(_, f)| f.not_before).map(|(s, _)| *s)
        {
            table.by_source.remove(&least);
        }
        let own = table.by_source.entry(source(address)).or_default();
        own.count = own.count.saturating_add(1);
        let wait = match own.count {
            ..FREE => Duration::ZERO,
            count @ FREE..LOCK_AT => FIRST_WAIT * 2u32.pow(count - FREE),
            _ => LOCKED_FOR,
        };
        own.not_before = now + wait;
        own.forget_at = now + LOCKED_FOR.max(wait * 2);
    }

    /// Clears the failures of a source.
    pub(super) fn succeeded(&self, address: IpAddr) {
        self.table.lock().by_source.remove(&source(address));
    }
}

/// Returns the time left until `then`, capped, so that a clock set back cannot extend a lockout.
fn left(then: Duration, now: Duration) -> Option<Duration> {
    then.checked_sub(now).filter(|left| !left.is_zero()).map(|left| left.min(LOCKED_FOR))
}

/// Normalizes an address to its source: IPv4 as is, IPv6 by /64, loopback as one.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    struct SetClock(Mutex<Duration>);

    impl Clock for SetClock {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + *self.0.lock()
        }
    }

    fn start() -> (Arc<SetClock>, PasswordLockout) {
        let clock = Arc::new(SetClock(Mutex::new(Duration::from_secs(1_800_000_000))));
        (clock.clone(), PasswordLockout::new(clock))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Guesses as fast as it is allowed to for an hour. Returns how many guesses were looked at.
    fn guess(may_try: impl Fn(&PasswordLockout) -> bool) -> u32 {
        let (clock, tries) = start();
        let mut looked_at = 0;
        for _ in 0..3_600 {
            while may_try(&tries) && looked_at < 100_000 {
                tries.failed(address("127.0.0.1"));
                looked_at += 1;
            }
            *clock.0.lock() += Duration::from_secs(1);
        }
        looked_at
    }

    #[test]
    fn guessing_does_not_get_far() {
        let guarded = guess(|tries| tries.check_lockout(address("127.0.0.1")).is_ok());
        assert!((10..=20).contains(&guarded), "{guarded}");
        // The test can fail: without the check everything is looked at.
        assert_eq!(guess(|_| true), 100_000);
    }

    #[test]
    fn waits_grow_and_end() {
        let (clock, tries) = start();
        let here = address("127.0.0.1");
        let mut waits = Vec::new();
        for _ in 0..10 {
            tries.failed(here);
            let wait = tries.check_lockout(here).err().unwrap_or_default();
            waits.push(wait.as_secs());
            *clock.0.lock() += wait;
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 900]);
        assert_eq!(tries.check_lockout(here), Ok(()), "the lock ends");
        tries.failed(here);
        tries.succeeded(here);
        tries.failed(here);
        assert_eq!(tries.check_lockout(here), Ok(()), "who knows the password begins anew");
    }

    #[test]
    fn others_are_not_held_up_but_all_together_are() {
        let (clock, tries) = start();
        for _ in 0..10 {
            tries.failed(address("10.0.0.1"));
        }
        assert!(
            tries.check_lockout(address("10.0.0.1")).is_err()
                && tries.check_lockout(address("10.0.0.2")).is_ok()
        );
        assert!(tries.check_lockout(address("::ffff:10.0.0.1")).is_err());
        for n in 0..u32::from(u16::MAX) {
            tries.failed(IpAddr::from(std::net::Ipv4Addr::from_bits(n)));
        }
        assert!(tries.check_lockout(address("10.0.0.2")).is_err(), "too many of all");
        assert!(tries.table.lock().by_source.len() <= SOURCES_MAX);
        *clock.0.lock() += LOCKED_FOR;
        assert!(tries.check_lockout(address("10.0.0.2")).is_ok());
    }
}
