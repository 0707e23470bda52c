//! Dates, times and durations of iCalendar (`DATE`, `DATE-TIME`, `DURATION`).

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Longer than any event; more is a mistake or an attack.
const SPAN_MAX: SignedDuration = SignedDuration::from_hours(24 * 366 * 10);

/// A wall-clock time and its form: date, floating, or with a zone.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CalendarTime {
    pub(super) wall: DateTime,
    pub(super) place: TimeForm,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TimeForm {
    /// A whole day, in the reader's zone.
    Day,
    /// A time of day in the reader's zone.
    Floating,
    Zone(TimeZone),
}

impl CalendarTime {
    pub(super) fn at(&self, wall: DateTime) -> CalendarTime {
        CalendarTime { wall, place: self.place.clone() }
    }

    pub(super) fn is_day(&self) -> bool {
        self.place == TimeForm::Day
    }

    /// Returns the instant, for a reader in the zone `home`. `None` if it is out of range.
    ///
    /// A time in a DST gap moves forward by the gap; one in a fold is the first.
    pub(super) fn instant(&self, home: &TimeZone) -> Option<Timestamp> {
        let zone = match &self.place {
            TimeForm::Zone(zone) => zone,
            TimeForm::Day | TimeForm::Floating => home,
        };
        zone.to_ambiguous_timestamp(self.wall).compatible().ok()
    }

    /// Converts the time to the form of a series that begins at `start`.
    pub(super) fn aligned(&self, start: &CalendarTime) -> CalendarTime {
        match (&start.place, &self.place) {
            (TimeForm::Day, _) => {
                CalendarTime { wall: self.wall.date().to_datetime(Time::midnight()), place: TimeForm::Day }
            }
            (TimeForm::Zone(_) | TimeForm::Floating, TimeForm::Floating)
            | (TimeForm::Floating, TimeForm::Zone(_)) => start.at(self.wall),
            _ => self.clone(),
        }
    }

    /// Returns the duration until `end`: by wall clock if both have the same form.
    pub(super) fn until(&self, end: &CalendarTime, home: &TimeZone) -> Option<SignedDuration> {
        if self.place == end.place
            || !matches!((&self.place, &end.place), (TimeForm::Zone(_), TimeForm::Zone(_)))
        {
            return Some(end.wall.duration_since(self.wall));
        }
        Some(end.instant(home)?.duration_since(self.instant(home)?))
    }
}

/// Parses a date, or a date and time. `zone` is the form that the line gives.
pub(super) fn when(value: &str, zone: TimeForm) -> Option<CalendarTime> {
    let value = value.trim();
    let date = date(value.get(..8)?)?;
    let Some(time) = value.get(8..).filter(|rest| !rest.is_empty()) else {
        return Some(CalendarTime { wall: date.to_datetime(Time::midnight()), place: TimeForm::Day });
    };
    let time = time.strip_prefix(['T', 't'])?;
    let (time, place) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, TimeForm::Zone(TimeZone::UTC)),
        None => (time, zone),
    };
    let number = |range: std::ops::Range<usize>| digits(time.get(range)?);
    if time.len() != 6 {
        return None;
    }
    // A leap second counts as the one before it.
    let second = number(4..6)?.min(59);
    let time = Time::new(small(number(0..2)?)?, small(number(2..4)?)?, small(second)?, 0).ok()?;
    // A `DATE` with a time of day is floating.
    let place = if place == TimeForm::Day { TimeForm::Floating } else { place };
    Some(CalendarTime { wall: date.to_datetime(time), place })
}

fn date(text: &str) -> Option<Date> {
    let year = i16::try_from(digits(text.get(..4)?)?).ok()?;
    Date::new(year, small(digits(text.get(4..6)?)?)?, small(digits(text.get(6..8)?)?)?).ok()
}

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn small(number: u32) -> Option<i8> {
    i8::try_from(number).ok()
}

/// Parses `P1W`, `PT15M`, `-P1DT2H`.
pub(super) fn duration(value: &str) -> Option<SignedDuration> {
    let value = value.trim();
    let (negative, value) = match value.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, value.strip_prefix('+').unwrap_or(value)),
    };
    let mut total = SignedDuration::ZERO;
    let mut number = String::new();
    for c in value.strip_prefix(['P', 'p'])?.chars() {
        let unit: i64 = match c.to_ascii_uppercase() {
            digit if digit.is_ascii_digit() && number.len() < 10 => {
                number.push(digit);
                continue;
            }
            'T' if number.is_empty() => continue,
            'W' => 7 * 86_400,
            'D' => 86_400,
            'H' => 3_600,
            'M' => 60,
            'S' => 1,
            _ => return None,
        };
        let seconds = number.parse::<i64>().ok()?.checked_mul(unit)?;
        total = total.checked_add(SignedDuration::from_secs(seconds))?;
        number.clear();
    }
    number.is_empty().then(|| if negative { -total } else { total })
}

/// Returns the bounded length of an event. Whole-day events last at least one day.
pub(super) fn span(start: &CalendarTime, length: Option<SignedDuration>) -> SignedDuration {
    let length = length.unwrap_or_default().clamp(SignedDuration::ZERO, SPAN_MAX);
    if !start.is_day() {
        return length;
    }
    let days = (length.as_secs() / DAY.as_secs()).max(1);
    SignedDuration::from_secs(days * DAY.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused() {
        let shown = |value: &str| match when(value, TimeForm::Floating) {
            None => "-".to_owned(),
            Some(CalendarTime { wall, place: TimeForm::Day }) => wall.date().to_string(),
            Some(CalendarTime { wall, place: TimeForm::Floating }) => format!("{wall} floating"),
            Some(CalendarTime { wall, .. }) => format!("{wall}Z"),
        };
        for (value, expected) in [
            ("20240229", "2024-02-29"),
            ("20230229", "-"),
            ("20260101T090000", "2026-01-01T09:00:00 floating"),
            ("20260101T090000Z", "2026-01-01T09:00:00Z"),
            ("20161231T235960Z", "2016-12-31T23:59:59Z"),
            ("20260101T0900", "-"),
            ("20260101T250000", "-"),
            ("2026-01-01", "-"),
            ("+2260101", "-"),
            ("", "-"),
            ("ä0260101", "-"),
        ] {
            assert_eq!(shown(value), expected, "{value}");
        }
        let seconds = |value: &str| duration(value).map(|duration| duration.as_secs());
        for (value, expected) in [
            ("PT15M", Some(900)),
            ("P1DT2H", Some(93_600)),
            ("-P1W", Some(-604_800)),
            ("+PT1S", Some(1)),
            ("P", Some(0)),
            ("PT", Some(0)),
            ("P1", None),
            ("15M", None),
            ("PT99999999999S", None),
            ("P1Y", None),
        ] {
            assert_eq!(seconds(value), expected, "{value}");
        }
    }
}
