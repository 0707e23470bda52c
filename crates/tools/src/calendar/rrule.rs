//! Parses recurrence rules (`RRULE`).

use super::calendar_time::{CalendarTime, TimeForm, when};
use jiff::civil::Weekday;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Frequency {
    Yearly,
    Monthly,
    Weekly,
    Daily,
    Hourly,
    Minutely,
    Secondly,
}

/// A rule. Every list is sorted, unique and within its range, so none is longer than a year has days.
#[derive(Debug, Clone)]
pub(super) struct RecurrenceRule {
    pub(super) frequency: Frequency,
    pub(super) interval: i64,
    pub(super) count: Option<u32>,
    pub(super) until: Option<CalendarTime>,
    pub(super) months: Vec<i16>,
    pub(super) weeks: Vec<i16>,
    pub(super) year_days: Vec<i16>,
    pub(super) month_days: Vec<i16>,
    /// Weekdays, with their ordinal in the month or year if not 0.
    pub(super) weekdays: Vec<(i16, Weekday)>,
    pub(super) hours: Vec<i16>,
    pub(super) minutes: Vec<i16>,
    pub(super) seconds: Vec<i16>,
    pub(super) positions: Vec<i16>,
    pub(super) week_start: Weekday,
}

impl RecurrenceRule {
    /// Parses a rule. `None` if it is invalid.
    pub(super) fn parse(text: &str) -> Option<RecurrenceRule> {
        let mut frequency = None;
        let mut rule = RecurrenceRule {
            frequency: Frequency::Yearly,
            interval: 1,
            count: None,
            until: None,
            months: Vec::new(),
            weeks: Vec::new(),
            year_days: Vec::new(),
            month_days: Vec::new(),
            weekdays: Vec::new(),
            hours: Vec::new(),
            minutes: Vec::new(),
            seconds: Vec::new(),
            positions: Vec::new(),
            week_start: Weekday::Monday,
        };
        for part in text.trim().split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            let value = value.trim();
            match name.trim().to_ascii_uppercase().as_str() {
                "FREQ" => frequency = Some(parse_frequency(value)?),
                // A larger interval of the shortest frequency exceeds three years.
                "INTERVAL" => rule.interval = value.parse().ok().filter(|n| (1..=100_000_000).contains(n))?,
                "COUNT" => rule.count = Some(value.parse().ok()?),
                "UNTIL" => rule.until = Some(when(value, TimeForm::Floating)?),
                "WKST" => rule.week_start = parse_weekday(value)?,
                "BYDAY" => rule.weekdays = parse_weekdays(value)?,
                "BYMONTH" => rule.months = numbers(value, 1, 12, Sign::Positive)?,
                "BYWEEKNO" => rule.weeks = numbers(value, 1, 53, Sign::Either)?,
                "BYYEARDAY" => rule.year_days = numbers(value, 1, 366, Sign::Either)?,
                "BYMONTHDAY" => rule.month_days = numbers(value, 1, 31, Sign::Either)?,
                "BYHOUR" => rule.hours = numbers(value, 0, 23, Sign::Positive)?,
                "BYMINUTE" => rule.minutes = numbers(value, 0, 59, Sign::Positive)?,
                "BYSECOND" => rule.seconds = numbers(value, 0, 59, Sign::Positive)?,
                "BYSETPOS" => rule.positions = numbers(value, 1, 366, Sign::Either)?,
                // Unknown parts may be ignored, but not a rule for another calendar system.
                "RSCALE" if !value.eq_ignore_ascii_case("gregorian") => return None,
                _ => {}
            }
        }
        Some(RecurrenceRule { frequency: frequency?, ..rule })
    }
}

fn parse_frequency(text: &str) -> Option<Frequency> {
    Some(match text.to_ascii_uppercase().as_str() {
        "YEARLY" => Frequency::Yearly,
        "MONTHLY" => Frequency::Monthly,
        "WEEKLY" => Frequency::Weekly,
        "DAILY" => Frequency::Daily,
        "HOURLY" => Frequency::Hourly,
        "MINUTELY" => Frequency::Minutely,
        "SECONDLY" => Frequency::Secondly,
        _ => return None,
    })
}

fn parse_weekday(text: &str) -> Option<Weekday> {
    Some(match text.to_ascii_uppercase().as_str() {
        "MO" => Weekday::Monday,
        "TU" => Weekday::Tuesday,
        "WE" => Weekday::Wednesday,
        "TH" => Weekday::Thursday,
        "FR" => Weekday::Friday,
        "SA" => Weekday::Saturday,
        "SU" => Weekday::Sunday,
        _ => return None,
    })
}

fn parse_weekdays(text: &str) -> Option<Vec<(i16, Weekday)>> {
    let mut days = Vec::new();
    for day in text.split(',') {
        let day = day.trim();
        let (number, name) = day.split_at_checked(day.len().checked_sub(2)?)?;
        let number = match number {
            "" => 0,
            number => number.parse().ok().filter(|n: &i16| (1..=53).contains(&n.abs()))?,
        };
        days.push((number, parse_weekday(name)?));
    }
    days.sort_by_key(|(number, day)| (*number, day.to_monday_zero_offset()));
    days.dedup();
    Some(days)
}

#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Positive,
    Either,
}

fn numbers(text: &str, least: i16, most: i16, sign: Sign) -> Option<Vec<i16>> {
    let mut found = Vec::new();
    for number in text.split(',') {
        let number: i16 = number.trim().parse().ok()?;
        let fits = (least..=most).contains(&number)
            || (sign == Sign::Either && (least..=most).contains(&number.checked_neg()?));
        // A leap second counts as the one before it.
        match number {
            60 if most == 59 => found.push(59),
            number if fits => found.push(number),
            _ => return None,
        }
    }
    found.sort_unstable();
    found.dedup();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        for good in [
            "FREQ=DAILY",
            "freq=weekly;byday=mo,we;wkst=su",
            "FREQ=MONTHLY;BYDAY=-1FR;BYSETPOS=-1",
            "FREQ=YEARLY;UNTIL=99991231T235959Z;COUNT=1000000000",
            "FREQ=DAILY;X-UNKNOWN=1",
        ] {
            assert!(RecurrenceRule::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "DAILY",
            "FREQ=FORTNIGHTLY",
            "FREQ=DAILY;INTERVAL=0",
            "FREQ=DAILY;INTERVAL=-1",
            "FREQ=DAILY;COUNT=-1",
            "FREQ=DAILY;COUNT=99999999999",
            "FREQ=DAILY;BYMONTH=13",
            "FREQ=DAILY;BYMONTH=-1",
            "FREQ=DAILY;BYMONTHDAY=0",
            "FREQ=MONTHLY;BYDAY=54MO",
            "FREQ=MONTHLY;BYDAY=XX",
            "FREQ=MONTHLY;BYDAY=ä",
            "FREQ=DAILY;UNTIL=soon",
            "FREQ=DAILY;BYHOUR=24",
            "FREQ=YEARLY;RSCALE=CHINESE",
        ] {
            assert!(RecurrenceRule::parse(bad).is_none(), "{bad}");
        }
        let many = format!("FREQ=SECONDLY;BYSECOND={}", vec!["7"; 100_000].join(","));
        assert_eq!(RecurrenceRule::parse(&many).unwrap().seconds, [7]);
    }
}
