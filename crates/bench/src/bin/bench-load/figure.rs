//! One line of the table.

use std::fmt;
use std::time::Duration;

/// Something measured, and what it should be.
pub(crate) struct BenchFigure {
    what: String,
    measured: String,
    target: String,
    verdict: Verdict,
}

enum Verdict {
    Pass,
    Fail,
    /// Told because it explains another figure.
    Info,
}

impl BenchFigure {
    pub(crate) fn at_most(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> BenchFigure {
        BenchFigure {
            what: what.into(),
            measured: shown(measured, unit),
            target: format!("≤ {limit} {unit}"),
            verdict: if measured <= limit { Verdict::Pass } else { Verdict::Fail },
        }
    }

    pub(crate) fn at_least(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> BenchFigure {
        BenchFigure {
            what: what.into(),
            measured: shown(measured, unit),
            target: format!("≥ {limit} {unit}"),
            verdict: if measured >= limit { Verdict::Pass } else { Verdict::Fail },
        }
    }

    /// Something told in words, and it should be exactly `target`.
    pub(crate) fn same(what: impl Into<String>, measured: String, target: String) -> BenchFigure {
        let verdict = if measured == target { Verdict::Pass } else { Verdict::Fail };
        BenchFigure { what: what.into(), measured, target, verdict }
    }

    pub(crate) fn info(what: impl Into<String>, measured: impl Into<String>) -> BenchFigure {
        let (what, measured) = (what.into(), measured.into());
        BenchFigure { what, measured, target: String::new(), verdict: Verdict::Info }
    }
}

/// Quotients are told more exactly than amounts.
fn shown(measured: f64, unit: &str) -> String {
    if unit == "×" { format!("{measured:.2} {unit}") } else { format!("{measured:.1} {unit}") }
}

impl fmt::Display for BenchFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Info => "",
        };
        write!(f, "{}\t{}\t{}\t{verdict}", self.what, self.measured, self.target)
    }
}

/// Returns the middle value, which one slow round does not move.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
