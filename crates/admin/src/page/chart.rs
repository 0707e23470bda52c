//! Charts of calls over time: SVG paths, axis labels, and a tooltip for each period. The page and the live stream use the same.

use super::formatting::{TimeDisplay, plural, took, utc};
use jiff::Timestamp;
use portcullis_ops::desk::PeriodSummary;
use serde::Serialize;
use std::fmt::Write as _;

/// Size of the drawing, which is stretched to the width of the page.
pub(crate) const WIDTH: f64 = 240.0;
pub(crate) const HEIGHT: f64 = 40.0;
/// Room above the highest value, for half of a line.
const TOP: f64 = 2.0;
/// Labels below a chart.
const TICKS: usize = 5;
/// The top of an error rate is at least this, so that a single error does not fill the chart.
const ERROR_TOP_MIN: f64 = 0.1;

/// Paths and axis of one chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Chart {
    pub(crate) line: String,
    pub(crate) second: String,
    pub(crate) area: String,
    pub(crate) bars: String,
    pub(crate) faulty: String,
    /// Labels of the axis, at its top and in its middle.
    pub(crate) top: String,
    pub(crate) middle: String,
}

/// One period, from left to right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ChartSlot {
    pub(crate) x: String,
    pub(crate) width: String,
    pub(crate) at: String,
    /// What happened in it.
    pub(crate) tip: String,
    /// The same with its time, without the script.
    #[serde(skip)]
    pub(crate) title: String,
}

/// The charts of one range.
#[derive(Debug, Clone)]
pub(crate) struct ChartSet {
    pub(crate) slots: Vec<ChartSlot>,
    pub(crate) ticks: Vec<Timestamp>,
    pub(crate) tick_form: TimeDisplay,
    pub(crate) calls: Chart,
    pub(crate) errors: Chart,
    pub(crate) latency: Chart,
}

impl ChartSet {
    /// Draws the periods of a range that ends now.
    pub(crate) fn of(
        now: Timestamp,
        range_seconds: u64,
        period_seconds: u64,
        periods: &[PeriodSummary],
    ) -> ChartSet {
        let period = i64::try_from(period_seconds.max(1)).unwrap_or(1);
        let count = (range_seconds / period_seconds.max(1)).clamp(1, 1_000);
        let count = usize::try_from(count).unwrap_or(1);
        let last = now.as_second().div_euclid(period);
        let first = last + 1 - i64::try_from(count).unwrap_or(1);
        let mut found: Vec<Option<&PeriodSummary>> = vec![None; count];
        for one in periods.iter().filter(|one| one.calls > 0) {
            let place = usize::try_from(one.at.as_second().div_euclid(period) - first).ok();
            if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
                *slot = Some(one);
            }
        }
        let series = |value: fn(&PeriodSummary) -> f64| -> Vec<Option<f64>> {
            found.iter().map(|one| one.map(value)).collect()
        };
        let at = |number: i64| Timestamp::from_second(number.saturating_mul(period)).unwrap_or(now);
        let step = WIDTH / count as f64;
        let slots = found.iter().zip(first..).enumerate().map(|(place, (one, number))| {
            let tip = one.map_or_else(|| "no calls".to_owned(), facts);
            let began = at(number);
            ChartSlot {
                x: format!("{:.2}", step * place as f64),
                width: format!("{step:.2}"),
                at: began.to_string(),
                title: format!("{}: {tip}", utc(began)),
                tip,
            }
        });
        let ticks = (0..TICKS).map(|tick| {
            let seconds = range_seconds / (TICKS as u64 - 1) * (TICKS - 1 - tick) as u64;
            Timestamp::from_second(now.as_second() - i64::try_from(seconds).unwrap_or_default())
                .unwrap_or(now)
        });
        let calls = series(|one| one.calls as f64);
        let failed = series(|one| one.errors as f64);
        let errors = series(|one| one.errors as f64 / one.calls as f64);
        let (p50, p95) = (series(|one| one.p50_us as f64), series(|one| one.p95_us as f64));
        let (calls_top, latency_top) = (top_of(&calls).max(2.0), top_of(&p95));
        let errors_top = top_of(&errors).clamp(ERROR_TOP_MIN, 1.0);
        let number = |value: f64| format!("{value:.0}");
        let percent = |value: f64| format!("{:.0} %", value * 100.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rounded duration")]
        let latency = |value: f64| took(value as u64);
        let chart = |top: f64, label: &dyn Fn(f64) -> String| Chart {
            top: label(top),
            middle: label(top / 2.0),
            ..Chart::default()
        };
        ChartSet {
            slots: slots.collect(),
            ticks: ticks.collect(),
            tick_form: if range_seconds > 86_400 { TimeDisplay::Day } else { TimeDisplay::Minute },
            calls: Chart {
                bars: bars(&calls, calls_top),
                faulty: bars(&failed, calls_top),
                ..chart(calls_top, &number)
            },
            errors: Chart {
                line: line(&errors, errors_top),
                area: area(&errors, errors_top),
                ..chart(errors_top, &percent)
            },
            latency: Chart {
                line: line(&p50, latency_top),
                second: line(&p95, latency_top),
                ..chart(latency_top, &latency)
            },
        }
    }
}

/// Returns what a period counted, on one line.
fn facts(one: &PeriodSummary) -> String {
    let failed = if one.errors == 0 { String::new() } else { format!(" · {} failed", one.errors) };
    format!("{}{failed} · p50 {} · p95 {}", plural(one.calls, "call"), took(one.p50_us), took(one.p95_us))
}

fn y_of(value: f64, top: f64) -> f64 {
    let part = if top > 0.0 && value.is_finite() { (value / top).clamp(0.0, 1.0) } else { 0.0 };
    HEIGHT - part * (HEIGHT - TOP)
}

/// Visits the points of each run of values, left to right.
fn runs(values: &[Option<f64>], top: f64, mut visit: impl FnMut(&[(f64, f64)])) {
    let step = WIDTH / values.len().max(1) as f64;
    let mut run: Vec<(f64, f64)> = Vec::new();
    for (place, value) in values.iter().enumerate() {
        match value {
            Some(value) => run.push((step * (place as f64 + 0.5), y_of(*value, top))),
            None if !run.is_empty() => {
                visit(&run);
                run.clear();
            }
            None => {}
        }
    }
    if !run.is_empty() {
        visit(&run);
    }
}

fn draw(path: &mut String, points: &[(f64, f64)]) {
    for (place, (x, y)) in points.iter().enumerate() {
        let command = if place == 0 { 'M' } else { 'L' };
        let written = write!(path, "{command}{x:.1} {y:.1}");
        debug_assert!(written.is_ok(), "a string takes everything");
    }
}

/// Draws a line, with a gap where there were no calls. A single point is a dot.
fn line(values: &[Option<f64>], top: f64) -> String {
    let mut path = String::new();
    runs(values, top, |run| {
        draw(&mut path, run);
        if run.len() == 1 {
            path.push_str("h.01");
        }
    });
    path
}

/// Draws the area below the line.
fn area(values: &[Option<f64>], top: f64) -> String {
    let mut path = String::new();
    runs(values, top, |run| {
        if let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) {
            draw(&mut path, run);
            path.push_str(&format!("L{last:.1} {HEIGHT}L{first:.1} {HEIGHT}Z"));
        }
    });
    path
}

/// Draws a bar for each value above zero.
fn bars(values: &[Option<f64>], top: f64) -> String {
    let mut path = String::new();
    let step = WIDTH / values.len().max(1) as f64;
    for (place, value) in values.iter().enumerate() {
        if let Some(value) = value.filter(|value| *value > 0.0) {
            let (x, width, y) = (step * (place as f64 + 0.1), step * 0.8, y_of(value, top));
            path.push_str(&format!("M{x:.1} {HEIGHT}V{y:.1}h{width:.1}V{HEIGHT}Z"));
        }
    }
    path
}

/// Returns a round number for the top of the axis; its half is round too.
fn top_of(values: &[Option<f64>]) -> f64 {
    let highest = values.iter().flatten().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    if highest <= 0.0 {
        return 1.0;
    }
    let magnitude = 10f64.powf(highest.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * magnitude).find(|top| *top >= highest).unwrap_or(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(at: &str, calls: u64, errors: u64) -> PeriodSummary {
        PeriodSummary { at: at.parse().unwrap(), calls, errors, p50_us: 1_500, p95_us: 9_000 }
    }

    #[test]
    fn a_line_stays_in_its_frame_and_has_gaps() {
        let values = [Some(0.0), Some(5.0), None, Some(50.0), None, Some(f64::NAN)];
        assert_eq!(line(&values, 10.0), "M20.0 40.0L60.0 21.0M140.0 2.0h.01M220.0 40.0h.01");
        assert_eq!(
            area(&values, 10.0),
            "M20.0 40.0L60.0 21.0L60.0 40L20.0 40ZM140.0 2.0L140.0 40L140.0 40ZM220.0 40.0L220.0 40L220.0 40Z"
        );
        assert_eq!(bars(&[Some(10.0), None, Some(0.0)], 10.0), "M8.0 40V2.0h64.0V40Z");
        assert_eq!((line(&[], 1.0), bars(&[], 1.0)), (String::new(), String::new()));
    }

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (values, top) in
            [(&[][..], 1.0), (&[0.0], 1.0), (&[3.0, 7.0], 8.0), (&[0.3], 0.4), (&[120.0], 200.0)]
        {
            let values: Vec<_> = values.iter().copied().map(Some).collect();
            assert!((top_of(&values) - top).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn periods_stand_where_they_were() {
        let now: Timestamp = "2026-11-16T08:00:30Z".parse().unwrap();
        let periods = [
            period("2026-11-16T07:00:00Z", 99, 0),
            period("2026-11-16T07:01:00Z", 5, 5),
            period("2026-11-16T08:00:00Z", 1, 0),
        ];
        let set = ChartSet::of(now, 3_600, 60, &periods);
        // The first is over an hour ago, so the second is at the left edge.
        assert_eq!(set.slots.len(), 60);
        let tips: Vec<_> =
            set.slots.iter().filter(|slot| slot.tip != "no calls").map(|slot| &slot.title).collect();
        assert_eq!(
            tips,
            [
                "2026-11-16 07:01:00 UTC: 5 calls · 5 failed · p50 1.5 ms · p95 9.0 ms",
                "2026-11-16 08:00:00 UTC: 1 call · p50 1.5 ms · p95 9.0 ms"
            ]
        );
        assert_eq!((set.slots[0].x.as_str(), set.slots[59].x.as_str()), ("0.00", "236.00"));
        assert_eq!(set.errors.line, "M2.0 2.0h.01M238.0 40.0h.01");
        assert_eq!((set.calls.top.as_str(), set.calls.middle.as_str()), ("6", "3"));
        assert_eq!((set.errors.top.as_str(), set.latency.top.as_str()), ("100 %", "10 ms"));
        let ticks: Vec<_> = set.ticks.iter().map(ToString::to_string).collect();
        assert_eq!(ticks[0], "2026-11-16T07:00:30Z");
        assert_eq!(ticks[4], now.to_string());
    }

    #[test]
    fn a_range_in_which_nothing_happened_is_empty() {
        let set = ChartSet::of(Timestamp::UNIX_EPOCH, 86_400, 900, &[]);
        assert_eq!((set.slots.len(), set.calls.bars.as_str(), set.latency.line.as_str()), (96, "", ""));
    }
}
