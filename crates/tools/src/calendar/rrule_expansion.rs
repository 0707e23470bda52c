//! Expands recurrence rules into start times, within a step budget.
//!
//! A rule is expanded period by period, where the period is its frequency. Periods before the window are skipped
//! arithmetically unless `COUNT` requires counting. Every step is paid for from a budget, because rules are
//! untrusted and some never match.

use super::rrule::{Frequency, RecurrenceRule};
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time, Weekday};

/// The budget of one calendar, in steps of some ten nanoseconds each.
pub(super) const STEPS_MAX: u64 = 2_000_000;
/// The budget of one rule: a daily one with `COUNT` over five hundred years.
const STEPS_PER_RULE_MAX: u64 = 200_000;
/// More than hourly for a year.
const STARTS_MAX: usize = 10_000;

/// The remaining budget of a calendar.
#[derive(Debug)]
pub(super) struct ExpansionBudget {
    left: u64,
}

impl ExpansionBudget {
    pub(super) fn new(steps: u64) -> ExpansionBudget {
        ExpansionBudget { left: steps }
    }

    /// Takes some steps, and returns whether they were available.
    pub(super) fn take(&mut self, steps: u64) -> bool {
        let enough = self.left >= steps;
        self.left = self.left.saturating_sub(steps);
        enough
    }
}

/// The inclusive range of wanted starts, by the rule's wall clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartRange {
    pub(super) from: DateTime,
    pub(super) to: DateTime,
}

/// The result of an expansion.
#[derive(Debug, Default)]
pub(super) struct RuleStarts {
    /// Sorted.
    pub(super) starts: Vec<DateTime>,
    /// Whether the budget ran out.
    pub(super) cut: bool,
}

/// Returns the starts of a series that begins at `start`.
pub(super) fn expand(
    rule: &RecurrenceRule,
    start: DateTime,
    wanted: StartRange,
    budget: &mut ExpansionBudget,
) -> RuleStarts {
    let mut work = RuleExpansion {
        is_plain: is_plain(rule),
        rule: with_defaults(rule, start),
        start,
        wanted,
        counted: 0,
        found: RuleStarts::default(),
        own_budget: STEPS_PER_RULE_MAX,
        budget,
    };
    if wanted.to >= start && work.is_worth(1) {
        // `None` here is the end of the budget, of the range of dates or of the window.
        let _ = if work.rule.frequency >= Frequency::Hourly { work.within_days() } else { work.by_periods() };
    }
    work.found
}

/// Returns whether the rule has only a frequency, without `BY` parts.
fn is_plain(rule: &RecurrenceRule) -> bool {
    let lists = [&rule.months, &rule.weeks, &rule.year_days, &rule.month_days, &rule.hours, &rule.minutes];
    lists.iter().all(|list| list.is_empty())
        && rule.seconds.is_empty()
        && rule.positions.is_empty()
        && rule.weekdays.is_empty()
}

/// Fills what a rule leaves open from its start.
fn with_defaults(rule: &RecurrenceRule, start: DateTime) -> RecurrenceRule {
    let mut rule = rule.clone();
    let names_days = [&rule.weeks, &rule.year_days, &rule.month_days].iter().any(|list| !list.is_empty())
        || !rule.weekdays.is_empty();
    match rule.frequency {
        Frequency::Yearly if !names_days => {
            if rule.months.is_empty() {
                rule.months = vec![start.month().into()];
            }
            rule.month_days = vec![start.day().into()];
        }
        Frequency::Yearly
            if rule.weekdays.is_empty() && rule.year_days.is_empty() && rule.month_days.is_empty() =>
        {
            rule.weekdays = vec![(0, start.weekday())];
        }
        Frequency::Monthly if !names_days => rule.month_days = vec![start.day().into()],
        Frequency::Weekly if !names_days => rule.weekdays = vec![(0, start.weekday())],
        _ => {}
    }
    if rule.frequency > Frequency::Monthly {
        // The ordinal of a weekday has no meaning in a week.
        rule.weekdays.iter_mut().for_each(|(number, _)| *number = 0);
    }
    if rule.hours.is_empty() && rule.frequency < Frequency::Hourly {
        rule.hours = vec![start.hour().into()];
    }
    if rule.minutes.is_empty() && rule.frequency < Frequency::Minutely {
        rule.minutes = vec![start.minute().into()];
    }
    if rule.seconds.is_empty() && rule.frequency < Frequency::Secondly {
        rule.seconds = vec![start.second().into()];
    }
    rule
}

struct RuleExpansion<'a> {
    rule: RecurrenceRule,
    is_plain: bool,
    start: DateTime,
    wanted: StartRange,
    /// Number of matches so far, wanted or not.
    counted: u64,
    found: RuleStarts,
    own_budget: u64,
    budget: &'a mut ExpansionBudget,
}

/// `None` ends the expansion.
type GoOn = Option<()>;

impl RuleExpansion<'_> {
    fn is_worth(&mut self, steps: u64) -> bool {
        let enough = self.own_budget >= steps && self.budget.take(steps);
        self.own_budget = self.own_budget.saturating_sub(steps);
        self.found.cut |= !enough;
        enough
    }

    fn spend(&mut self, steps: u64) -> GoOn {
        self.is_worth(steps).then_some(())
    }

    /// Records a match. Matches come in order.
    fn emit(&mut self, at: DateTime) -> GoOn {
        if at < self.start {
            return Some(());
        }
        self.counted += 1;
        if self.rule.count.is_some_and(|count| self.counted > u64::from(count)) || at > self.wanted.to {
            return None;
        }
        if at >= self.wanted.from {
            if self.found.starts.len() == STARTS_MAX {
                self.found.cut = true;
                return None;
            }
            self.found.starts.push(at);
        }
        Some(())
    }

    /// Returns whether periods before the window can be skipped: without `COUNT`, or if counting is a division.
    fn may_skip(&self) -> bool {
        self.rule.count.is_none()
            || (self.is_plain && !matches!(self.rule.frequency, Frequency::Monthly | Frequency::Yearly))
    }

    /// Expands years, months, weeks and days.
    fn by_periods(&mut self) -> GoOn {
        let times = self.times()?;
        let first = if self.may_skip() { self.period_before(self.wanted.from) } else { 0 };
        if self.is_plain {
            self.counted = u64::try_from(first).unwrap_or_default();
        }
        for number in first.. {
            let days = self.days_of(number)?;
            let size = days.len() * times.len();
            let at =
                |index: usize| Some(days.get(index / times.len())?.to_datetime(times[index % times.len()]));
            if self.rule.positions.is_empty() {
                for index in 0..size {
                    self.spend(1)?;
                    self.emit(at(index)?)?;
                }
                continue;
            }
            let from_end = |position: i16| size.checked_sub(usize::from(position.unsigned_abs()));
            let chosen = self.rule.positions.iter().filter_map(|position| match position {
                1.. => usize::try_from(*position - 1).ok().filter(|index| *index < size),
                _ => from_end(*position),
            });
            let mut chosen: Vec<usize> = chosen.collect();
            chosen.sort_unstable();
            chosen.dedup();
            self.spend(chosen.len() as u64)?;
            for index in chosen {
                self.emit(at(index)?)?;
            }
        }
        Some(())
    }

    /// Returns the times of day of the rule, sorted.
    fn times(&mut self) -> Option<Vec<Time>> {
        let rule = &self.rule;
        let size = rule.hours.len() * rule.minutes.len() * rule.seconds.len();
        self.spend(size as u64)?;
        let mut times = Vec::with_capacity(size);
        for hour in &self.rule.hours {
            for minute in &self.rule.minutes {
                for second in &self.rule.seconds {
                    times.push(clock(*hour, *minute, *second)?);
                }
            }
        }
        Some(times)
    }

    /// Returns a period shortly before `at`.
    fn period_before(&self, at: DateTime) -> i64 {
        let (start, at) = (self.start.date(), at.date());
        let periods = match self.rule.frequency {
            Frequency::Yearly => i64::from(at.year()) - i64::from(start.year()),
            Frequency::Monthly => month_number(at) - month_number(start),
            Frequency::Weekly => days_between(start, at) / 7,
            _ => days_between(start, at),
        };
        (periods / self.rule.interval - 1).max(0)
    }

    /// Returns the matching days of a period; `None` if it is after the window.
    fn days_of(&mut self, number: i64) -> Option<Vec<Date>> {
        let (start, last) = (self.start.date(), self.wanted.to.date());
        let periods = number.checked_mul(self.rule.interval)?;
        match self.rule.frequency {
            Frequency::Yearly => {
                let year = i16::try_from(i64::from(start.year()).checked_add(periods)?).ok()?;
                let first = Date::new(year, 1, 1).ok().filter(|first| *first <= last)?;
                if !self.rule.weeks.is_empty() || !self.rule.year_days.is_empty() {
                    return self.days_from(first, first.days_in_year().unsigned_abs().into());
                }
                let mut days = Vec::new();
                for month in 1..=12_i8 {
                    if self.rule.months.is_empty() || self.rule.months.contains(&month.into()) {
                        days.extend(self.days_in_month(Date::new(year, month, 1).ok()?)?);
                    }
                }
                // A year without matching months must cost a step too.
                self.spend(1)?;
                Some(days)
            }
            Frequency::Monthly => {
                let month = month_number(start).checked_add(periods)?;
                let year = i16::try_from(month.div_euclid(12)).ok()?;
                let month = i8::try_from(month.rem_euclid(12) + 1).ok()?;
                let first = Date::new(year, month, 1).ok().filter(|first| *first <= last)?;
                self.spend(1)?;
                self.days_in_month(first)
            }
            Frequency::Weekly => {
                let into_week = i64::from(start.weekday().since(self.rule.week_start));
                let first = later(start, periods.checked_mul(7)?.checked_sub(into_week)?);
                // The first week may begin before the range of dates.
                let first =
                    first.or_else(|| (number == 0).then_some(start)).filter(|first| *first <= last)?;
                self.days_from(first, 7)
            }
            _ => {
                let day = later(start, periods).filter(|day| *day <= last)?;
                self.days_from(day, 1)
            }
        }
    }

    fn days_from(&mut self, first: Date, count: u64) -> Option<Vec<Date>> {
        self.spend(count)?;
        let days = std::iter::successors(Some(first), |day| day.tomorrow().ok());
        let days = days.take(usize::try_from(count).unwrap_or_default());
        Some(days.filter(|day| self.fits(*day)).collect())
    }

    fn days_in_month(&mut self, first: Date) -> Option<Vec<Date>> {
        let length = i16::from(first.days_in_month());
        if self.rule.month_days.is_empty() {
            return self.days_from(first, length.unsigned_abs().into());
        }
        // Days given by number need no search.
        self.spend(self.rule.month_days.len() as u64)?;
        let of_month = |day: &i16| if *day > 0 { *day } else { length + 1 + *day };
        let mut days: Vec<i16> = self.rule.month_days.iter().map(of_month).collect();
        days.sort_unstable();
        days.dedup();
        let date = |day: i16| Date::new(first.year(), first.month(), i8::try_from(day).ok()?).ok();
        Some(days.into_iter().filter_map(date).filter(|day| self.fits(*day)).collect())
    }

    /// Expands hours, minutes and seconds: day by day, in steps of the interval.
    fn within_days(&mut self) -> GoOn {
        let per_day = match self.rule.frequency {
            Frequency::Hourly => 24,
            Frequency::Minutely => 24 * 60,
            _ => 24 * 60 * 60,
        };
        let unit_secs = 86_400 / per_day;
        let start_unit = seconds_of_day(self.start.time()) / unit_secs;
        let first =
            if self.may_skip() { self.wanted.from.date().max(self.start.date()) } else { self.start.date() };
        let mut day = first;
        loop {
            self.spend(1)?;
            if day > self.wanted.to.date() {
                return None;
            }
            if self.fits(day) {
                let before = days_between(self.start.date(), day) * per_day - start_unit;
                let mut unit = (-before).rem_euclid(self.rule.interval);
                while unit < per_day {
                    self.spend(1)?;
                    if self.is_plain {
                        self.counted =
                            u64::try_from((before + unit) / self.rule.interval).unwrap_or_default();
                    }
                    self.within_unit(day, unit * unit_secs)?;
                    unit += self.rule.interval;
                }
            }
            day = day.tomorrow().ok()?;
        }
    }

    /// Expands one hour, minute or second.
    fn within_unit(&mut self, day: Date, second_of_day: i64) -> GoOn {
        let number = |n: i64| i16::try_from(n).ok();
        let hour = number(second_of_day / 3_600)?;
        let minute = number(second_of_day / 60 % 60)?;
        let second = number(second_of_day % 60)?;
        let frequency = self.rule.frequency;
        let is_one = |list: &[i16], one: i16| list.is_empty() || list.contains(&one);
        let is_minute = frequency >= Frequency::Minutely;
        let is_second = frequency == Frequency::Secondly;
        let fits = is_one(&self.rule.hours, hour)
            && (!is_minute || is_one(&self.rule.minutes, minute))
            && (!is_second || is_one(&self.rule.seconds, second));
        if !fits {
            return Some(());
        }
        if is_second {
            return self.emit_chosen(0, 1, day, clock(hour, minute, second)?);
        }
        let minutes = if is_minute { vec![minute] } else { self.rule.minutes.clone() };
        let seconds = self.rule.seconds.clone();
        let size = minutes.len() * seconds.len();
        self.spend(size as u64)?;
        for index in 0..size {
            let time = clock(hour, minutes[index / seconds.len()], seconds[index % seconds.len()])?;
            self.emit_chosen(index, size, day, time)?;
        }
        Some(())
    }

    /// Records one of `size` matches in a period, if `BYSETPOS` selects it.
    fn emit_chosen(&mut self, index: usize, size: usize, day: Date, time: Time) -> GoOn {
        let (position, last) = (i16::try_from(index).ok()?, i16::try_from(size).ok()?);
        let positions = &self.rule.positions;
        let is_chosen = positions.is_empty()
            || positions.contains(&(position + 1))
            || positions.contains(&(position - last));
        if is_chosen { self.emit(day.to_datetime(time)) } else { Some(()) }
    }

    /// Returns whether a day matches the rule.
    fn fits(&self, day: Date) -> bool {
        let rule = &self.rule;
        let counts = |list: &[i16], number: i16, length: i16| {
            list.is_empty() || list.contains(&number) || list.contains(&(number - length - 1))
        };
        let month_fits = rule.months.is_empty() || rule.months.contains(&day.month().into());
        month_fits
            && counts(&rule.month_days, day.day().into(), day.days_in_month().into())
            && counts(&rule.year_days, day.day_of_year(), day.days_in_year())
            && (rule.weekdays.is_empty() || rule.weekdays.iter().any(|named| self.is_weekday(day, *named)))
            && (rule.weeks.is_empty() || {
                let (number, length) = week(day, rule.week_start);
                counts(&rule.weeks, number, length)
            })
    }

    fn is_weekday(&self, day: Date, (number, weekday): (i16, Weekday)) -> bool {
        if day.weekday() != weekday {
            return false;
        }
        let in_year = self.rule.frequency == Frequency::Yearly && self.rule.months.is_empty();
        let (at, length) = match in_year {
            true => (day.day_of_year(), day.days_in_year()),
            false => (i16::from(day.day()), i16::from(day.days_in_month())),
        };
        match number {
            0 => true,
            1.. => (at - 1) / 7 + 1 == number,
            _ => -((length - at) / 7 + 1) == number,
        }
    }
}

fn clock(hour: i16, minute: i16, second: i16) -> Option<Time> {
    let small = |n: i16| i8::try_from(n).ok();
    Time::new(small(hour)?, small(minute)?, small(second)?, 0).ok()
}

fn seconds_of_day(time: Time) -> i64 {
    i64::from(time.hour()) * 3_600 + i64::from(time.minute()) * 60 + i64::from(time.second())
}

fn month_number(date: Date) -> i64 {
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

fn days_between(from: Date, to: Date) -> i64 {
    to.duration_since(from).as_secs() / 86_400
}

fn later(date: Date, days: i64) -> Option<Date> {
    date.checked_add(SignedDuration::from_secs(days.checked_mul(86_400)?)).ok()
}

/// Returns the week number of a day and the number of weeks in its year. The first week has at least four days.
fn week(day: Date, week_start: Weekday) -> (i16, i16) {
    let length = |year| match (first_week(year, week_start), first_week(year + 1, week_start)) {
        (Some(first), Some(next)) => (first, days_between(first, next) / 7),
        // At the ends of the range of dates.
        _ => (day, 52),
    };
    let mut year = day.year();
    if first_week(year + 1, week_start).is_some_and(|next| day >= next) {
        year += 1;
    } else if first_week(year, week_start).is_some_and(|first| day < first) {
        year -= 1;
    }
    let (first, weeks) = length(year);
    let small = |n: i64| i16::try_from(n).unwrap_or_default();
    (small(days_between(first, day) / 7 + 1), small(weeks))
}

/// Returns the first day of the first week of a year.
fn first_week(year: i16, week_start: Weekday) -> Option<Date> {
    let new_year = Date::new(year, 1, 1).ok()?;
    let into_week = i64::from(new_year.weekday().since(week_start));
    later(new_year, if into_week <= 3 { -into_week } else { 7 - into_week })
}
