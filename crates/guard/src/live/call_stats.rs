//! Call statistics of the last hour, day and week, in ring buffers of periods with a latency histogram each.
//!
//! A period is allocated with its first call, so an idle hub holds almost nothing. All calls are counted finely, each client
//! and server coarsely: 70 KB at most for all, and 19 KB for each of [`SERIES_MAX`] clients and as many servers.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// Two buckets per power of two microseconds, up to more than an hour.
const BUCKETS: usize = 64;
/// Bound on the clients, and on the servers, with statistics of their own: the ones that called last.
pub(super) const SERIES_MAX: usize = 32;

/// How far statistics reach back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatsRange {
    #[default]
    Hour,
    Day,
    Week,
}

impl StatsRange {
    pub const ALL: [StatsRange; 3] = [StatsRange::Hour, StatsRange::Day, StatsRange::Week];

    pub fn as_str(self) -> &'static str {
        match self {
            StatsRange::Hour => "hour",
            StatsRange::Day => "day",
            StatsRange::Week => "week",
        }
    }

    pub fn named(name: &str) -> Option<StatsRange> {
        StatsRange::ALL.into_iter().find(|range| range.as_str() == name)
    }

    pub fn duration(self) -> Duration {
        Duration::from_secs(match self {
            StatsRange::Hour => 3_600,
            StatsRange::Day => 86_400,
            StatsRange::Week => 7 * 86_400,
        })
    }

    /// Returns the seconds of a period.
    fn period(self, detail: Detail) -> u64 {
        match (self, detail) {
            (StatsRange::Hour, Detail::Fine) => 60,
            (StatsRange::Hour, Detail::Coarse) => 300,
            (StatsRange::Day, Detail::Fine) => 900,
            (StatsRange::Day, Detail::Coarse) => 3_600,
            (StatsRange::Week, Detail::Fine) => 7_200,
            (StatsRange::Week, Detail::Coarse) => 21_600,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Detail {
    Fine,
    Coarse,
}

/// The calls that ended in one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeriodStats {
    /// Start of the period, in seconds since the epoch.
    pub began: u64,
    pub calls: u64,
    pub errors: u64,
    /// Approximate median duration.
    pub p50: Duration,
    /// Approximate 95th percentile.
    pub p95: Duration,
}

/// The statistics of one range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeStats {
    pub period: Duration,
    /// Oldest first, without periods without calls.
    pub periods: Vec<PeriodStats>,
    /// Over the whole range, which began with its first period.
    pub total: PeriodStats,
}

/// The statistics of all calls, of each client and of each server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsSnapshot {
    pub all: RangeStats,
    /// By name, without those that did not call.
    pub clients: Vec<(String, RangeStats)>,
    /// Upstream servers and native tool families, by name.
    pub servers: Vec<(String, RangeStats)>,
}

/// One ended call, for the statistics.
#[derive(Debug, Clone, Copy)]
pub struct EndedCall<'a> {
    pub at: SystemTime,
    pub client: &'a str,
    /// The upstream server or native tool family.
    pub server: Option<&'a str>,
    pub failed: bool,
    pub duration: Duration,
}

/// Whether a call that is older than what its place in a ring holds replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It ended now. The clock may have been set back.
    Live,
    /// It is from the audit log.
    Past,
}

pub(super) struct CallStats {
    all: StatsRings,
    clients: StatsSeries,
    servers: StatsSeries,
}

impl Default for CallStats {
    fn default() -> CallStats {
        CallStats {
            all: StatsRings::new(Detail::Fine),
            clients: StatsSeries::default(),
            servers: StatsSeries::default(),
        }
    }
}

impl CallStats {
    pub(super) fn count(&mut self, call: &EndedCall<'_>, arrival: Arrival) {
        let sample =
            Sample { seconds: seconds(call.at), failed: call.failed, bucket: bucket(call.duration), arrival };
        self.all.count(sample);
        self.clients.count(call.client, sample);
        if let Some(server) = call.server {
            self.servers.count(server, sample);
        }
    }

    pub(super) fn all(&self, range: StatsRange, now: SystemTime) -> RangeStats {
        self.all.stats(range, now)
    }

    pub(super) fn snapshot(&self, range: StatsRange, now: SystemTime) -> StatsSnapshot {
        StatsSnapshot {
            all: self.all(range, now),
            clients: self.clients.stats(range, now),
            servers: self.servers.stats(range, now),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    seconds: u64,
    failed: bool,
    bucket: usize,
    arrival: Arrival,
}

/// Statistics by name, of those that called last.
#[derive(Default)]
struct StatsSeries(HashMap<String, NamedRings>);

struct NamedRings {
    /// The last call, in seconds since the epoch.
    last: u64,
    rings: StatsRings,
}

impl StatsSeries {
    fn count(&mut self, name: &str, sample: Sample) {
        if let Some(series) = self.0.get_mut(name) {
            series.last = series.last.max(sample.seconds);
            series.rings.count(sample);
            return;
        }
        if self.0.len() >= SERIES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, series)| series.last);
            let Some((oldest, last)) = oldest.map(|(name, series)| (name.clone(), series.last)) else {
                return;
            };
            // Reading the log newest first must not evict a client by an older one.
            if sample.arrival == Arrival::Past && sample.seconds <= last {
                return;
            }
            self.0.remove(&oldest);
        }
        let mut rings = StatsRings::new(Detail::Coarse);
        rings.count(sample);
        self.0.insert(name.to_owned(), NamedRings { last: sample.seconds, rings });
    }

    fn stats(&self, range: StatsRange, now: SystemTime) -> Vec<(String, RangeStats)> {
        let named = self.0.iter().map(|(name, series)| (name.clone(), series.rings.stats(range, now)));
        let mut stats: Vec<(String, RangeStats)> = named.filter(|(_, stats)| stats.total.calls > 0).collect();
        stats.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        stats
    }
}

/// A ring for each range.
struct StatsRings([StatsRing; StatsRange::ALL.len()]);

impl StatsRings {
    fn new(detail: Detail) -> StatsRings {
        StatsRings(StatsRange::ALL.map(|range| StatsRing::new(range, detail)))
    }

    fn count(&mut self, sample: Sample) {
        self.0.iter_mut().for_each(|ring| ring.count(sample));
    }

    fn stats(&self, range: StatsRange, now: SystemTime) -> RangeStats {
        let [hour, day, week] = &self.0;
        match range {
            StatsRange::Hour => hour,
            StatsRange::Day => day,
            StatsRange::Week => week,
        }
        .stats(now)
    }
}

struct StatsRing {
    /// Seconds of a period.
    period: u64,
    /// By number modulo their count; allocated with the first call.
    periods: Box<[Option<Box<Period>>]>,
}

struct Period {
    /// Periods since the epoch.
    number: u64,
    histogram: Histogram,
}

#[derive(Clone)]
struct Histogram {
    calls: u64,
    errors: u64,
    durations: [u32; BUCKETS],
}

const EMPTY: Histogram = Histogram { calls: 0, errors: 0, durations: [0; BUCKETS] };

impl StatsRing {
    fn new(range: StatsRange, detail: Detail) -> StatsRing {
        let period = range.period(detail);
        let count = usize::try_from(range.duration().as_secs() / period).unwrap_or(1).max(1);
        StatsRing { period, periods: (0..count).map(|_| None).collect() }
    }

    fn count(&mut self, sample: Sample) {
        let number = sample.seconds / self.period;
        let place = usize::try_from(number % self.periods.len() as u64).unwrap_or_default();
        let Some(slot) = self.periods.get_mut(place) else { return };
        let fresh = || Period { number, histogram: EMPTY };
        let period = slot.get_or_insert_with(|| Box::new(fresh()));
        if period.number != number {
            if sample.arrival == Arrival::Past && period.number > number {
                return;
            }
            **period = fresh();
        }
        period.histogram.count(sample);
    }

    fn stats(&self, now: SystemTime) -> RangeStats {
        let (last, count) = (seconds(now) / self.period, self.periods.len() as u64);
        let first = (last + 1).saturating_sub(count);
        let mut total = EMPTY;
        let mut periods: Vec<PeriodStats> = Vec::new();
        for period in self.periods.iter().flatten() {
            if period.number >= first && period.number <= last {
                total.add(&period.histogram);
                periods.push(period.histogram.stats(period.number * self.period));
            }
        }
        periods.sort_unstable_by_key(|period| period.began);
        let total = total.stats(first * self.period);
        RangeStats { period: Duration::from_secs(self.period), periods, total }
    }
}

impl Histogram {
    fn count(&mut self, sample: Sample) {
        self.calls += 1;
        self.errors += u64::from(sample.failed);
        if let Some(bucket) = self.durations.get_mut(sample.bucket) {
            *bucket = bucket.saturating_add(1);
        }
    }

    fn add(&mut self, other: &Histogram) {
        self.calls += other.calls;
        self.errors += other.errors;
        for (sum, count) in self.durations.iter_mut().zip(&other.durations) {
            *sum = sum.saturating_add(*count);
        }
    }

    fn stats(&self, began: u64) -> PeriodStats {
        if self.calls == 0 {
            return PeriodStats { began, ..PeriodStats::default() };
        }
        PeriodStats {
            began,
            calls: self.calls,
            errors: self.errors,
            p50: self.percentile(50),
            p95: self.percentile(95),
        }
    }

    /// Returns a percentile of the durations.
    fn percentile(&self, percent: u64) -> Duration {
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

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
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

    fn call(secs: u64, client: &str, failed: bool, duration: Duration) -> EndedCall<'_> {
        EndedCall { at: at(secs), client, server: None, failed, duration }
    }

    fn counts(stats: &RangeStats) -> Vec<(u64, u64, u64)> {
        stats.periods.iter().map(|period| (period.began, period.calls, period.errors)).collect()
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
        let mut stats = CallStats::default();
        for n in 0..100 {
            let duration = Duration::from_micros(if n < 90 { 100 } else { 10_000 });
            stats.count(&call(6_000, "a", n < 10, duration), Arrival::Live);
        }
        stats.count(&call(6_061, "a", true, Duration::from_secs(100_000)), Arrival::Live);
        let hour = |stats: &CallStats, now| stats.all(StatsRange::Hour, at(now));
        let counted = hour(&stats, 6_100);
        assert_eq!(counts(&counted), [(6_000, 100, 10), (6_060, 1, 1)]);
        let us = |duration: Duration| duration.as_micros();
        let first = counted.periods[0];
        assert!((100..200).contains(&us(first.p50)) && (10_000..20_000).contains(&us(first.p95)));
        assert_eq!((counted.total.calls, counted.total.errors), (101, 11));
        assert!((100..200).contains(&us(counted.total.p50)), "over both minutes: {:?}", counted.total);
        assert_eq!(hour(&stats, 6_000 + 3_600).periods.len(), 1);
        assert_eq!(hour(&stats, 6_060 + 3_600).periods.len(), 0);
        stats.count(&call(6_000 + 3_600, "a", false, Duration::ZERO), Arrival::Live);
        assert_eq!(hour(&stats, 6_000 + 3_600).periods.len(), 2, "its place is taken by the new one");
        // The day and the week have all of them, in one period each.
        for range in [StatsRange::Day, StatsRange::Week] {
            assert_eq!(stats.all(range, at(9_600)).total.calls, 102, "{range:?}");
        }
    }

    #[test]
    fn a_past_call_never_replaces_a_newer_one() {
        let mut stats = CallStats::default();
        stats.count(&call(700_000, "a", false, Duration::ZERO), Arrival::Live);
        // Exactly a week before, so it would have the same place in every ring.
        stats.count(&call(700_000 - 604_800, "a", true, Duration::ZERO), Arrival::Past);
        // An hour before: the same place in the ring of the hour only.
        stats.count(&call(700_000 - 3_600, "a", true, Duration::ZERO), Arrival::Past);
        let total = |range| stats.all(range, at(700_000)).total;
        assert_eq!(
            StatsRange::ALL.map(|range| (total(range).calls, total(range).errors)),
            [(1, 0), (2, 1), (2, 1)]
        );
    }

    #[test]
    fn only_the_clients_that_called_last_have_their_own_statistics() {
        let mut stats = CallStats::default();
        for n in 0..SERIES_MAX as u64 + 1 {
            stats.count(&call(100 + n, &format!("c{n}"), false, Duration::ZERO), Arrival::Live);
        }
        let names = |stats: &CallStats| {
            let clients = stats.snapshot(StatsRange::Hour, at(200)).clients;
            clients.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let before = names(&stats);
        assert_eq!((before.len(), before.contains(&"c0".to_owned())), (SERIES_MAX, false));
        stats.count(&call(100, "older", false, Duration::ZERO), Arrival::Past);
        assert_eq!(names(&stats), before);
    }
}
