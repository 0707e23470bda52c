//! Per-minute call statistics in a ring buffer of 60 minutes, with a latency histogram each.

use std::time::{Duration, SystemTime};

const MINUTES: usize = 60;
/// Two buckets per power of two microseconds, up to more than an hour.
const BUCKETS: usize = 64;

/// The calls that ended in one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinuteStats {
    /// Start of the minute, in seconds since the epoch.
    pub began: u64,
    pub calls: u64,
    pub errors: u64,
    /// Approximate median duration.
    pub p50: Duration,
    /// Approximate 95th percentile.
    pub p95: Duration,
}

pub(super) struct MinuteRing(Box<[Minute; MINUTES]>);

#[derive(Clone, Copy)]
struct Minute {
    /// Minutes since the epoch.
    number: u64,
    calls: u64,
    errors: u64,
    durations: [u32; BUCKETS],
}

const NONE: Minute = Minute { number: 0, calls: 0, errors: 0, durations: [0; BUCKETS] };

impl Default for MinuteRing {
    fn default() -> MinuteRing {
        MinuteRing(Box::new([NONE; MINUTES]))
    }
}

impl MinuteRing {
    pub(super) fn count(&mut self, now: SystemTime, failed: bool, duration: Duration) {
        let number = number(now);
        let Some(minute) = self.0.get_mut(place(number)) else { return };
        if minute.number != number {
            *minute = Minute { number, ..NONE };
        }
        minute.calls += 1;
        minute.errors += u64::from(failed);
        if let Some(bucket) = minute.durations.get_mut(bucket(duration)) {
            *bucket = bucket.saturating_add(1);
        }
    }

    pub(super) fn counted(&self, now: SystemTime) -> Vec<MinuteStats> {
        let last = number(now);
        let recent =
            |minute: &&Minute| minute.calls > 0 && last.saturating_sub(minute.number) < MINUTES as u64;
        let mut counted: Vec<MinuteStats> = self.0.iter().filter(recent).map(Minute::counted).collect();
        counted.sort_unstable_by_key(|minute| minute.began);
        counted
    }
}

impl Minute {
    fn counted(&self) -> MinuteStats {
        MinuteStats {
            began: self.number * 60,
            calls: self.calls,
            errors: self.errors,
            p50: self.within(50),
            p95: self.within(95),
        }
    }

    /// Returns a percentile of the durations.
    fn within(&self, percent: u64) -> Duration {
        let wanted = (self.calls * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in self.durations.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return longest(bucket);
            }
        }
        longest(BUCKETS - 1)
    }
}

fn number(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 60
}

#[expect(clippy::cast_possible_truncation, reason = "below 60")]
fn place(number: u64) -> usize {
    (number % MINUTES as u64) as usize
}

/// Returns the bucket of a duration: its highest bit, and the one after it.
fn bucket(duration: Duration) -> usize {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1);
    let high = micros.ilog2();
    let half = if high == 0 { 0 } else { (micros >> (high - 1)) & 1 };
    ((high as usize) * 2 + usize::from(half == 1)).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket.
fn longest(bucket: usize) -> Duration {
    let high = 1_u64 << (bucket / 2);
    Duration::from_micros(if bucket.is_multiple_of(2) { high + high / 2 } else { high * 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn a_time_is_in_a_bucket_that_is_hardly_longer() {
        for micros in (1..5_000).chain((5_000..3_000_000_000).step_by(7_654_321)) {
            let duration = Duration::from_micros(micros);
            let bound = longest(bucket(duration));
            assert!(duration <= bound && bound <= duration * 2, "{duration:?} {bound:?}");
        }
    }

    #[test]
    fn minutes_are_counted_apart_and_forgotten_after_an_hour() {
        let mut minutes = MinuteRing::default();
        for n in 0..100 {
            minutes.count(at(6_000), n < 10, Duration::from_micros(if n < 90 { 100 } else { 10_000 }));
        }
        minutes.count(at(6_061), true, Duration::from_secs(100_000));
        let counted = minutes.counted(at(6_100));
        assert_eq!(
            counted.iter().map(|m| (m.began, m.calls, m.errors)).collect::<Vec<_>>(),
            [(6_000, 100, 10), (6_060, 1, 1)]
        );
        let us = |duration: Duration| duration.as_micros();
        assert!((100..200).contains(&us(counted[0].p50)) && (10_000..20_000).contains(&us(counted[0].p95)));
        assert_eq!(minutes.counted(at(6_000 + 3_600)).len(), 1);
        assert_eq!(minutes.counted(at(6_060 + 3_600)).len(), 0);
        minutes.count(at(6_000 + 3_600), false, Duration::ZERO);
        assert_eq!(minutes.counted(at(6_000 + 3_600)).len(), 2, "its place is taken by the new one");
    }
}
