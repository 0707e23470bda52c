//! View models of calls and of the last hour, shared by the page and its live stream.

use super::formatting::{hour, label, short, tone_of_outcome, took};
use super::html_escaper::{revealed, visible};
use super::plot::{Plot, top_of};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_ops::desk::{CallView, MinuteSummary, Overview};
use serde::Serialize;
use serde_json::{Value, json};

/// Minutes that a plot shows.
const MINUTES: usize = 60;

/// One call. Invisible characters in its texts are already marked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CallRow {
    pub(crate) call: u64,
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
            None => ("Running".to_owned(), "on", String::new()),
        };
        CallRow {
            call: line.call,
            time: hour(line.at, zone),
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

/// Plots and figures of the last hour.
#[derive(Debug, Default)]
pub(crate) struct HourStats {
    pub(crate) calls: Plot,
    pub(crate) errors: Plot,
    pub(crate) p50_plot: Plot,
    pub(crate) p95_plot: Plot,
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
        let at = |minute: &MinuteSummary| minutes_before(overview.now, minute.at);
        let series = |value: fn(&MinuteSummary) -> f64| {
            let mut values = [0.0; MINUTES];
            for minute in &overview.minutes {
                if let Some(place) = at(minute).and_then(|before| values.get_mut(MINUTES - 1 - before)) {
                    *place = value(minute);
                }
            }
            values
        };
        let calls = series(|minute| minute.calls as f64);
        let errors =
            series(|minute| if minute.calls == 0 { 0.0 } else { minute.errors as f64 / minute.calls as f64 });
        let (p50, p95) = (series(|minute| minute.p50_us as f64), series(|minute| minute.p95_us as f64));
        let latency_top = top_of(&p95);
        let (all, failed) = overview
            .minutes
            .iter()
            .fold((0, 0), |(calls, errors), minute| (calls + minute.calls, errors + minute.errors));
        let last = overview.minutes.last();
        HourStats {
            calls: Plot::of(&calls, top_of(&calls)),
            errors: Plot::of(&errors, 1.0),
            p50_plot: Plot::of(&p50, latency_top),
            p95_plot: Plot::of(&p95, latency_top),
            calls_now: last.filter(|minute| at(minute) == Some(0)).map_or(0, |minute| minute.calls),
            calls_highest: overview.minutes.iter().map(|minute| minute.calls).max().unwrap_or(0),
            errors_share: share(failed, all),
            errors_count: failed,
            p50: last.map_or_else(|| "–".to_owned(), |minute| took(minute.p50_us)),
            p95: last.map_or_else(|| "–".to_owned(), |minute| took(minute.p95_us)),
            open: overview.calls_open,
        }
    }

    /// The same for the page script, by the `data-plot` and `data-figure` names of the page.
    pub(crate) fn to_json(&self) -> Value {
        let path =
            |plot: &Plot, second: &str| json!({ "line": plot.line, "area": plot.area, "second": second });
        json!({
            "plots": {
                "calls": path(&self.calls, ""),
                "errors": path(&self.errors, ""),
                "latency": path(&self.p50_plot, &self.p95_plot.line),
            },
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

/// Returns how many minutes ago a minute was, if it is within the last hour.
fn minutes_before(now: Timestamp, then: Timestamp) -> Option<usize> {
    let before = now.as_second().div_euclid(60) - then.as_second().div_euclid(60);
    usize::try_from(before).ok().filter(|before| *before < MINUTES)
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        "0".to_owned()
    } else {
        format!("{:.1}", part as f64 * 100.0 / whole as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn overview(minutes: Vec<MinuteSummary>) -> Overview {
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

    fn minute(at: &str, calls: u64, errors: u64) -> MinuteSummary {
        MinuteSummary { at: at.parse().unwrap(), calls, errors, p50_us: 1500, p95_us: 9000 }
    }

    #[test]
    fn minutes_stand_where_they_were() {
        let hour = HourStats::of(&overview(vec![
            minute("2026-11-16T07:00:00Z", 99, 0),
            minute("2026-11-16T07:01:00Z", 5, 5),
            minute("2026-11-16T08:00:00Z", 10, 0),
        ]));
        // The first is over an hour ago, so the second is at the left edge.
        assert!(hour.errors.line.starts_with("M0.0 2.0L4.1 40.0"), "{}", hour.errors.line);
        assert_eq!((hour.calls_now, hour.calls_highest), (10, 99));
        assert_eq!(hour.errors_share, "4.4");
        assert_eq!((hour.p50.as_str(), hour.p95.as_str()), ("1.5 ms", "9.0 ms"));
    }

    #[test]
    fn an_hour_in_which_nothing_happened_is_flat() {
        let hour = HourStats::of(&overview(Vec::new()));
        assert!(!hour.calls.line.contains("2.0L"));
        assert_eq!((hour.calls_now, hour.errors_share.as_str(), hour.p50.as_str()), (0, "0", "–"));
    }
}
