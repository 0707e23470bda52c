//! Call statistics, as the page shows them: what this run counted, after what the audit log says about earlier runs.

use super::overview::micros;
use super::{HubDesk, now};
use crate::Problem;
use crate::audit::audit_record;
use crate::desk::{AuditRecord, CallSeries, PeriodSummary, Statistics, StatisticsQuery};
use jiff::Timestamp;
use portcullis_core::json::printable;
use portcullis_core::{Clock, SystemClock, blocking};
use portcullis_guard::{EndedCall, LiveCalls, PeriodStats, RangeStats, StatsRange, audit};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

/// What was counted of the calls of earlier runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct PastCalls {
    /// The oldest call that was counted, if older ones of the week were not.
    counted_since: Option<Timestamp>,
}

impl HubDesk {
    pub(super) async fn show_statistics(&self, wanted: StatisticsQuery) -> Result<Statistics, Problem> {
        let range = match wanted.range.as_deref() {
            None | Some("") => StatsRange::default(),
            Some(name) => StatsRange::named(name).ok_or_else(|| {
                let name = printable(name);
                Problem::invalid(format!("`range` is `{name}`, expected `hour`, `day` or `week`"))
            })?,
        };
        // Read from the log once, on first use: no call waits for it. If the log cannot be read now, the next request retries.
        let past = self.past_calls.get_or_try_init(|| self.count_past_calls()).await;
        let counted_since = past.ok().and_then(|past| past.counted_since);
        let tools = self.live.registry.tools();
        let known_servers: BTreeSet<String> = tools.iter().map(|tool| tool.provider().to_owned()).collect();
        let clock = SystemClock.now();
        let stats = self.live.handles.live.stats(range, clock);
        let named = |named: Vec<(String, RangeStats)>| -> Vec<CallSeries> {
            named.into_iter().map(|(name, stats)| series(name, &stats)).collect()
        };
        let began = clock.checked_sub(range.duration()).and_then(|began| Timestamp::try_from(began).ok());
        Ok(Statistics {
            range: range.as_str().to_owned(),
            now: now(),
            counted_since: counted_since.filter(|since| began.is_some_and(|began| *since > began)),
            all: series(String::new(), &stats.all),
            clients: named(stats.clients),
            servers: named(stats.servers),
            known_servers: known_servers.into_iter().collect(),
        })
    }

    async fn count_past_calls(&self) -> Result<PastCalls, Problem> {
        let (settings, live) = (self.ops.audit_settings(), self.live.handles.live.clone());
        let tools = self.live.registry.tools();
        let servers: HashMap<String, String> =
            tools.iter().map(|tool| (tool.name.clone(), tool.provider().to_owned())).collect();
        blocking(move || {
            let until = live.first_call().unwrap_or_else(|| SystemClock.now());
            let week = StatsRange::Week.duration();
            let since = until.checked_sub(week).unwrap_or(SystemTime::UNIX_EPOCH);
            let mut oldest = None;
            let mut is_whole_week = false;
            let is_all = audit::newest_ends(&settings, &mut |line| {
                let Some(past) = audit_record(line).and_then(|record| PastCall::of(record, &servers)) else {
                    return ControlFlow::Continue(());
                };
                if past.at < since {
                    is_whole_week = true;
                    return ControlFlow::Break(());
                }
                if past.at < until {
                    oldest = Some(past.at);
                    past.count(&live);
                }
                ControlFlow::Continue(())
            });
            let is_all = is_all.map_err(|error| Problem::unavailable(error.to_string()))? || is_whole_week;
            let oldest = oldest.and_then(|oldest| Timestamp::try_from(oldest).ok());
            Ok(PastCalls { counted_since: oldest.filter(|_| !is_all) })
        })
        .await
    }
}

/// A call of an earlier run.
struct PastCall {
    at: SystemTime,
    client: String,
    server: Option<String>,
    failed: bool,
    duration: Duration,
}

impl PastCall {
    /// Reads an end record. Changes by administrators are recorded like calls, but are none.
    fn of(record: AuditRecord, servers: &HashMap<String, String>) -> Option<PastCall> {
        if !matches!(record.kind.as_str(), "tool" | "resource" | "prompt" | "completion" | "task") {
            return None;
        }
        let at: Timestamp = record.time.parse().ok()?;
        Some(PastCall {
            at: at.into(),
            // The tool may be gone; then its calls count for all and for the client.
            server: servers.get(&record.target).filter(|_| record.kind == "tool").cloned(),
            client: record.client,
            failed: record.outcome.is_some_and(|outcome| outcome != "ok"),
            duration: Duration::from_micros(record.duration_us.unwrap_or_default()),
        })
    }

    fn count(&self, live: &LiveCalls) {
        live.count_past(&EndedCall {
            at: self.at,
            client: &self.client,
            server: self.server.as_deref(),
            failed: self.failed,
            duration: self.duration,
        });
    }
}

fn series(name: String, stats: &RangeStats) -> CallSeries {
    CallSeries {
        name,
        period_seconds: stats.period.as_secs(),
        periods: stats.periods.iter().map(summary).collect(),
        total: summary(&stats.total),
    }
}

pub(super) fn summary(stats: &PeriodStats) -> PeriodSummary {
    PeriodSummary {
        at: Timestamp::from_second(i64::try_from(stats.began).unwrap_or_default()).unwrap_or_default(),
        calls: stats.calls,
        errors: stats.errors,
        p50_us: micros(stats.p50),
        p95_us: micros(stats.p95),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_an_earlier_run_is_counted_as_it_ended() {
        let servers = HashMap::from([("fs_read".to_owned(), "files".to_owned())]);
        let record = |kind: &str, outcome: &str| AuditRecord {
            time: "2026-11-16T08:00:00.000Z".to_owned(),
            client: "laptop".to_owned(),
            kind: kind.to_owned(),
            target: "fs_read".to_owned(),
            outcome: Some(outcome.to_owned()),
            duration_us: Some(1_500),
            ..AuditRecord::default()
        };
        let live = LiveCalls::default();
        for (kind, outcome, counted) in [
            ("tool", "ok", true),
            ("tool", "denied", true),
            ("resource", "ok", true),
            ("client", "ok", false),
        ] {
            let past = PastCall::of(record(kind, outcome), &servers);
            assert_eq!(past.is_some(), counted, "{kind}");
            past.iter().for_each(|past| past.count(&live));
        }
        let at: Timestamp = "2026-11-16T09:30:00Z".parse().unwrap();
        let counts = |named: Vec<(String, RangeStats)>| -> Vec<(String, u64, u64)> {
            named.into_iter().map(|(name, stats)| (name, stats.total.calls, stats.total.errors)).collect()
        };
        let stats = live.stats(StatsRange::Day, at.into());
        assert_eq!(counts(stats.clients), [("laptop".to_owned(), 3, 1)]);
        assert_eq!(counts(stats.servers), [("files".to_owned(), 2, 1)]);
        assert_eq!(live.stats(StatsRange::Hour, at.into()).all.total.calls, 0);
    }
}
