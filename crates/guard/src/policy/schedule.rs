//! Schedules of rules: hours of the day, days of the week, and an end.
//!
//! Hours and days are local time in the policy's time zone. An hour skipped by daylight saving time does not occur, and a
//! repeated one occurs twice. A window that crosses midnight belongs to the day on which it began: `days = ["fri"]` with
//! `hours = "22:00-06:00"` ends on Saturday at six.

use super::RuleCondition;
use jiff::civil::{DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use std::cell::OnceCell;
use std::fmt;

const MINUTES_PER_DAY: u16 = 24 * 60;
/// Hours and days repeat after a week; one more day covers a window that began yesterday.
const DAYS_AHEAD: i64 = 8;
const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// The time of a decision. The local time is computed only if a rule needs it.
pub(super) struct DecisionTime<'z> {
    now: Timestamp,
    zone: &'z TimeZone,
    local: OnceCell<DateTime>,
}

impl<'z> DecisionTime<'z> {
    pub(super) fn new(now: Timestamp, zone: &'z TimeZone) -> DecisionTime<'z> {
        DecisionTime { now, zone, local: OnceCell::new() }
    }

    fn local(&self) -> DateTime {
        *self.local.get_or_init(|| self.zone.to_datetime(self.now))
    }
}

/// A half-open range of the day, which may cross midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    from: u16,
    /// At most the minutes of a day.
    to: u16,
}

impl Hours {
    /// Parses `22:00-06:00`. `None` if malformed or empty.
    pub fn parse(text: &str) -> Option<Hours> {
        let (from, to) = text.split_once('-')?;
        let (from, to) = (minutes(from.trim())?, minutes(to.trim())?);
        (from < MINUTES_PER_DAY && from != to).then_some(Hours { from, to })
    }

    /// Returns the weekday on which the window containing this time began, if any.
    fn began(self, local: DateTime) -> Option<Weekday> {
        // Both are small and never negative.
        let minute = u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        let today = local.weekday();
        if self.from < self.to {
            return (self.from..self.to).contains(&minute).then_some(today);
        }
        if minute >= self.from { Some(today) } else { (minute < self.to).then(|| today.previous()) }
    }
}

/// Returns the minutes from midnight to `HH:MM`; 24:00 is the end of the day.
fn minutes(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        let plain = lengths.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (hour, minute) = (number(hour, 1..=2)?, number(minute, 2..=2)?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= MINUTES_PER_DAY).then_some(minutes)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hours { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

/// A set of weekdays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days(u8);

impl Days {
    pub const NONE: Days = Days(0);
    pub const NAMES: [&str; 7] = DAY_NAMES;

    /// Parses a day, `mon`, or a range, `mon-fri`; `sat-mon` wraps around.
    pub fn parse(text: &str) -> Option<Days> {
        let number = |name: &str| DAY_NAMES.iter().position(|day| *day == name.trim());
        let (from, to) = match text.split_once('-') {
            None => (number(text)?, number(text)?),
            Some((from, to)) => (number(from)?, number(to)?),
        };
        let length = (to + 7 - from) % 7;
        Some(Days((0..=length).fold(0, |days, step| days | 1 << ((from + step) % 7))))
    }

    #[must_use]
    pub fn with(self, other: Days) -> Days {
        Days(self.0 | other.0)
    }

    fn contains(self, day: Weekday) -> bool {
        self.0 & (1 << day.to_monday_zero_offset()) != 0
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = DAY_NAMES.iter().enumerate().filter(|(at, _)| self.0 & (1 << at) != 0);
        f.write_str(&names.map(|(_, name)| *name).collect::<Vec<_>>().join(","))
    }
}

/// When a rule is in force: while all given conditions hold. Always, if none is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleSchedule {
    pub hours: Option<Hours>,
    /// The days on which the hours begin, or whole days without hours.
    pub days: Option<Days>,
    /// When the rule expires.
    pub until: Option<Timestamp>,
}

impl RuleSchedule {
    pub fn is_always(&self) -> bool {
        *self == RuleSchedule::default()
    }

    /// Returns the condition that does not hold at this time.
    pub(super) fn mismatch(&self, moment: &DecisionTime<'_>) -> Option<RuleCondition> {
        if self.until.is_some_and(|until| until <= moment.now) {
            return Some(RuleCondition::Until);
        }
        let began = match (self.hours, self.days) {
            (None, None) => return None,
            (None, Some(_)) => moment.local().weekday(),
            (Some(hours), _) => match hours.began(moment.local()) {
                None => return Some(RuleCondition::Hours),
                Some(began) => began,
            },
        };
        self.days.is_some_and(|days| !days.contains(began)).then_some(RuleCondition::Days)
    }

    fn holds(&self, now: Timestamp, zone: &TimeZone) -> bool {
        self.mismatch(&DecisionTime::new(now, zone)).is_none()
    }

    /// Returns the first time after `now` at which the state changes.
    pub(super) fn next_change(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.until.is_some_and(|until| until <= now) {
            return None;
        }
        let holds = self.holds(now, zone);
        let mut moments = self.turns(now, zone);
        moments.extend(self.until);
        moments.sort_unstable();
        moments.into_iter().find(|moment| *moment > now && self.holds(*moment, zone) != holds)
    }

    /// Returns all times in the coming week at which the state may change.
    fn turns(&self, now: Timestamp, zone: &TimeZone) -> Vec<Timestamp> {
        let minutes = match (self.hours, self.days) {
            (None, None) => return Vec::new(),
            (None, Some(_)) => vec![0],
            (Some(hours), _) => vec![hours.from, hours.to % MINUTES_PER_DAY],
        };
        let mut turns = Vec::new();
        let today = zone.to_datetime(now).date();
        for ahead in 0..=DAYS_AHEAD {
            // The calendar ends in the year 9999.
            let Ok(day) = today.checked_add(ahead.days()) else { break };
            for minute in &minutes {
                let midnight = day.to_datetime(Time::midnight());
                let Ok(turn) = midnight.checked_add(i64::from(*minute).minutes()) else { continue };
                // A repeated local time is two moments.
                let both = zone.to_ambiguous_timestamp(turn);
                turns.extend(both.earlier().into_iter().chain(both.later()));
            }
        }
        // A window boundary within a skipped hour takes effect at the clock change.
        let horizon =
            now.saturating_add(SignedDuration::from_hours(24 * DAYS_AHEAD)).unwrap_or(Timestamp::MAX);
        turns.extend(zone.following(now).map(|put| put.timestamp()).take_while(|put| *put < horizon));
        turns
    }
}
