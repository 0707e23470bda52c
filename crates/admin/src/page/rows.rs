//! View models of calls and of the last hour, shared by the page and its live stream.

use super::chart::ChartSet;
use super::formatting::{TimeDisplay, label, share, short, tone_of_outcome, took};
use super::html_escaper::{revealed, visible};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_ops::desk::{CallView, Overview};
use serde::Serialize;
use serde_json::{Value, json};

const HOUR_SECONDS: u64 = 3_600;

/// One call. Invisible characters in its texts are already marked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CallRow {
    pub(crate) call: u64,
    pub(crate) at: Timestamp,
    /// The time in the hub's zone, for a page without the script.
    pub(crate) time: String,
    pub(crate) client: String,
    pub(crate) what: String,
    pub(crate) arguments: String,
    pub(crate) outcome: String,
    pub(crate) tone: &'static str,
    pub(crate) took: String,
    pub(crate) ended: bool,
}

impl CallRow {
    pub(crate) fn of(line: &CallView, zone: &TimeZone) -> CallRow {
        let what =
            if line.kind == "tool" { line.target.clone() } else { format!("{} {}", line.kind, line.target) };
        let (outcome, tone, took) = match &line.end {
            Some(end) => {
                (visible(&label(&end.outcome)), tone_of_outcome(&end.outcome), took(end.duration_us))
            }
            None => (label("running"), tone_of_outcome("running"), String::new()),
        };
        CallRow {
            call: line.call,
            at: line.at,
            time: TimeDisplay::Second.text(line.at, zone),
            client: visible(&line.client),
            what: visible(&what),
            arguments: visible(&short(revealed(&line.arguments))),
            outcome,
            tone,
            took,
            ended: line.end.is_some(),
        }
    }
}

/// Charts and figures of the last hour.
#[derive(Debug)]
pub(crate) struct HourStats {
    pub(crate) charts: ChartSet,
    pub(crate) calls_now: u64,
    pub(crate) calls_highest: u64,
    pub(crate) errors_share: String,
    pub(crate) errors_count: u64,
    pub(crate) p50: String,
    pub(crate) p95: String,
    open: usize,
}

impl HourStats {
    pub(crate) fn of(overview: &Overview) -> HourStats {
        let (all, failed) = overview
            .minutes
            .iter()
            .fold((0, 0), |(calls, errors), minute| (calls + minute.calls, errors + minute.errors));
        let last = overview.minutes.last();
        let this_minute = overview.now.as_second().div_euclid(60);
        let is_now = |at: Timestamp| at.as_second().div_euclid(60) == this_minute;
        HourStats {
            charts: ChartSet::of(overview.now, HOUR_SECONDS, 60, &overview.minutes),
            calls_now: last.filter(|minute| is_now(minute.at)).map_or(0, |minute| minute.calls),
            calls_highest: overview.minutes.iter().map(|minute| minute.calls).max().unwrap_or(0),
            errors_share: share(failed, all),
            errors_count: failed,
            p50: last.map_or_else(|| "–".to_owned(), |minute| took(minute.p50_us)),
            p95: last.map_or_else(|| "–".to_owned(), |minute| took(minute.p95_us)),
            open: overview.calls_open,
        }
    }

    /// The same for the page script, by the `data-chart` and `data-figure` names of the page.
    pub(crate) fn to_json(&self) -> Value {
        let ChartSet { slots, ticks, calls, errors, latency, .. } = &self.charts;
        json!({
            "charts": { "calls": calls, "errors": errors, "latency": latency },
            "slots": slots,
            "ticks": ticks,
            "figures": {
                "calls": self.calls_now.to_string(),
                "calls_top": self.calls_highest.to_string(),
                "errors": self.errors_share,
                "errors_count": self.errors_count.to_string(),
                "p50": self.p50,
                "p95": self.p95,
                "open": self.open.to_string(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_ops::desk::PeriodSummary;
    use std::collections::BTreeMap;

    fn overview(minutes: Vec<PeriodSummary>) -> Overview {
        let now: Timestamp = "2026-11-16T08:00:30Z".parse().unwrap();
        Overview {
            version: String::new(),
            started: now,
            now,
            ready: true,
            parts: Vec::new(),
            alerts: Vec::new(),
            approvals_waiting: 0,
            scripts_waiting: None,
            servers: Vec::new(),
            sessions: BTreeMap::new(),
            calls_open: 0,
            minutes,
        }
    }

    fn minute(at: &str, calls: u64, errors: u64) -> PeriodSummary {
        PeriodSummary { at: at.parse().unwrap(), calls, errors, p50_us: 1500, p95_us: 9000 }
    }

    #[test]
    fn the_figures_are_of_the_last_hour_and_the_last_minute() {
        let hour = HourStats::of(&overview(vec![
            minute("2026-11-16T07:00:00Z", 99, 0),
            minute("2026-11-16T07:01:00Z", 5, 5),
            minute("2026-11-16T08:00:00Z", 10, 0),
        ]));
        assert_eq!((hour.calls_now, hour.calls_highest), (10, 99));
        assert_eq!(hour.errors_share, "4.4");
        assert_eq!((hour.p50.as_str(), hour.p95.as_str()), ("1.5 ms", "9.0 ms"));
    }

    #[test]
    fn an_hour_in_which_nothing_happened_has_no_figures() {
        let hour = HourStats::of(&overview(Vec::new()));
        assert_eq!((hour.calls_now, hour.errors_share.as_str(), hour.p50.as_str()), (0, "0", "–"));
    }
}
