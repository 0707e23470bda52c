//! What a row of the table says.

use std::fmt;

/// How a line that holds a figure begins. The fields follow, with tabs between.
pub const MARK: &str = "figure:";

/// Something counted or measured, and what it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct TortureFigure {
    pub what: String,
    pub measured: String,
    pub target: String,
    /// `None` for what only explains another figure.
    pub ok: Option<bool>,
}

impl TortureFigure {
    /// So many, and it should be exactly `target`.
    pub fn exactly(what: impl Into<String>, measured: u64, target: u64) -> TortureFigure {
        TortureFigure::of(what, grouped(measured), grouped(target), Some(measured == target))
    }

    pub fn at_least(what: impl Into<String>, measured: f64, least: f64, unit: &str) -> TortureFigure {
        let show = |value: f64| amount(value, unit);
        TortureFigure::of(what, show(measured), format!("≥ {}", show(least)), Some(measured >= least))
    }

    pub fn at_most(what: impl Into<String>, measured: f64, most: f64, unit: &str) -> TortureFigure {
        let show = |value: f64| amount(value, unit);
        TortureFigure::of(what, show(measured), format!("≤ {}", show(most)), Some(measured <= most))
    }

    pub fn info(what: impl Into<String>, measured: impl Into<String>) -> TortureFigure {
        TortureFigure::of(what, measured.into(), String::new(), None)
    }

    fn of(what: impl Into<String>, measured: String, target: String, ok: Option<bool>) -> TortureFigure {
        TortureFigure { what: what.into(), measured, target, ok }
    }
}

/// What is so many times something else; a tenth is much there.
pub const TIMES: &str = "×";

fn amount(value: f64, unit: &str) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is shown, not computed with"
    )]
    let number = match unit {
        _ if value >= 100.0 => grouped(value.round() as u64),
        TIMES => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    };
    format!("{number} {unit}").trim_end().to_owned()
}

/// Returns a number as people write large ones: `20,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for TortureFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.ok {
            Some(true) => "ok",
            Some(false) => "FAILED",
            None => "",
        };
        write!(f, "{MARK}\t{}\t{}\t{}\t{verdict}", self.what, self.measured, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_one_line() {
        assert_eq!(TortureFigure::exactly("lost", 0, 0).to_string(), "figure:\tlost\t0\t0\tok");
        assert_eq!(
            TortureFigure::exactly("kills", 999, 1000).to_string(),
            "figure:\tkills\t999\t1,000\tFAILED"
        );
        let speed = TortureFigure::at_least("speed", 123_456.7, 100_000.0, "lines/s");
        assert_eq!(speed.to_string(), "figure:\tspeed\t123,457 lines/s\t≥ 100,000 lines/s\tok");
        assert_eq!(
            TortureFigure::at_most("time", 9.5, 10.0, "ms").to_string(),
            "figure:\ttime\t9.5 ms\t≤ 10.0 ms\tok"
        );
        let times = TortureFigure::at_most("memory", 1.104, 1.1, TIMES);
        assert_eq!(times.to_string(), "figure:\tmemory\t1.10 ×\t≤ 1.10 ×\tFAILED");
        assert_eq!(TortureFigure::info("runs", "3").to_string(), "figure:\truns\t3\t\t");
    }
}
