//! SVG paths of the plots of the last hour. The page and the live stream use the same paths.

use serde::Serialize;
use std::fmt::Write as _;

pub(crate) const WIDTH: f64 = 240.0;
pub(crate) const HEIGHT: f64 = 40.0;

/// A line through the values, and the area below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Plot {
    pub(crate) line: String,
    pub(crate) area: String,
}

impl Plot {
    /// Draws values from left to right; `top` is the top of the axis.
    pub(crate) fn of(values: &[f64], top: f64) -> Plot {
        let mut line = String::new();
        let step = WIDTH / (values.len().max(2) - 1) as f64;
        for (at, value) in values.iter().enumerate() {
            let x = step * at as f64;
            let part = if top > 0.0 && value.is_finite() { (value / top).clamp(0.0, 1.0) } else { 0.0 };
            let y = HEIGHT - part * (HEIGHT - 2.0);
            let command = if at == 0 { 'M' } else { 'L' };
            let written = write!(line, "{command}{x:.1} {y:.1}");
            debug_assert!(written.is_ok(), "a string takes everything");
        }
        let area =
            if line.is_empty() { String::new() } else { format!("{line}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z") };
        Plot { line, area }
    }
}

/// Returns a round number for the top of the axis.
pub(crate) fn top_of(values: &[f64]) -> f64 {
    let highest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    if highest <= 0.0 {
        return 1.0;
    }
    let magnitude = 10f64.powf(highest.log10().floor());
    let rounded = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * magnitude).find(|top| *top >= highest);
    rounded.unwrap_or(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_stays_in_its_frame() {
        let plot = Plot::of(&[0.0, 5.0, f64::NAN, 50.0], 10.0);
        assert_eq!(plot.line, "M0.0 40.0L80.0 21.0L160.0 40.0L240.0 2.0");
        assert_eq!(plot.area, format!("{}L240 40L0 40Z", plot.line));
        assert_eq!(Plot::of(&[], 1.0), Plot::default());
        assert_eq!(Plot::of(&[1.0], 0.0).line, "M0.0 40.0");
    }

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (values, top) in
            [(&[][..], 1.0), (&[0.0], 1.0), (&[3.0, 7.0], 10.0), (&[0.3], 0.5), (&[120.0], 200.0)]
        {
            assert_eq!(top_of(values), top, "{values:?}");
        }
    }
}
