//! Event instances: recurrence, `RDATE`, `EXDATE` and overrides of a series.

use super::calendar_time::{CalendarTime, TimeForm};
use super::event::{CalendarEvent, EventStatus};
use super::rrule_expansion::{ExpansionBudget, StartRange, expand};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Instances of one calendar.
const INSTANCES_MAX: usize = 50_000;
/// More than the difference between any two time zones.
const SLACK: SignedDuration = SignedDuration::from_hours(48);

/// One instance of an event.
#[derive(Debug)]
pub(super) struct EventInstance<'a> {
    pub(super) event: &'a CalendarEvent,
    pub(super) start: CalendarTime,
    pub(super) end: CalendarTime,
    /// The start as an instant, for sorting.
    pub(super) at: Timestamp,
}

/// The requested window; its end is exclusive.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeWindow {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// The instances in a window.
#[derive(Debug, Default)]
pub(super) struct EventInstances<'a> {
    pub(super) instances: Vec<EventInstance<'a>>,
    /// Whether a limit was reached.
    pub(super) cut: bool,
}

/// Returns the instances in `window`, sorted, without cancelled ones.
pub(super) fn instances<'a>(
    events: &'a [CalendarEvent],
    window: TimeWindow,
    home: &TimeZone,
    budget: &mut ExpansionBudget,
) -> EventInstances<'a> {
    // Events grouped by UID, in the order of the file.
    let mut series: Vec<Vec<&CalendarEvent>> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for event in events {
        match known.get(event.uid.as_str()) {
            Some(at) if !event.uid.is_empty() => series[*at].push(event),
            _ => {
                known.insert(&event.uid, series.len());
                series.push(vec![event]);
            }
        }
    }
    let mut found = EventInstances::default();
    for parts in &series {
        let mut work = SeriesExpansion { window, home, budget, found: &mut found };
        // `None` is a time out of range; the series up to it has been added.
        let _ = work.series(parts);
        if found.instances.len() >= INSTANCES_MAX {
            found.cut = true;
            break;
        }
    }
    found.instances.sort_by(|a, b| (a.at, &a.event.title).cmp(&(b.at, &b.event.title)));
    found
}

struct SeriesExpansion<'a, 'b> {
    window: TimeWindow,
    home: &'b TimeZone,
    budget: &'b mut ExpansionBudget,
    found: &'b mut EventInstances<'a>,
}

/// An override of one instance.
struct InstanceOverride<'a> {
    event: &'a CalendarEvent,
    taken: bool,
    and_future: bool,
    /// By how much it was moved.
    moved: SignedDuration,
}

impl<'a> SeriesExpansion<'a, '_> {
    fn series(&mut self, parts: &[&'a CalendarEvent]) -> Option<()> {
        let mut core: Option<&'a CalendarEvent> = None;
        for event in parts.iter().filter(|event| event.recurrence.is_none()) {
            if core.is_none_or(|known| event.sequence > known.sequence) {
                core = Some(event);
            }
        }
        let mut changes = self.changes(parts, core);
        let mut excepted = HashSet::new();
        let mut excepted_days = HashSet::new();
        if let Some(core) = core {
            for except in &core.except {
                let aligned = except.aligned(&core.start);
                if aligned.is_day() {
                    // An excluded date excludes every instance on that day.
                    excepted_days.insert(aligned.wall.date());
                }
                excepted.extend(aligned.instant(self.home));
            }
            self.found.cut |= !self.budget.take(core.except.len() as u64 / 8);
            for (id, (start, length)) in self.starts(core, &changes) {
                if excepted.contains(&id) || excepted_days.contains(&start.wall.date()) {
                    continue;
                }
                if let Some(change) = changes.get_mut(&id) {
                    change.taken = true;
                    let event = change.event;
                    self.emit(event, event.start.clone(), event.span);
                    continue;
                }
                let last = changes.range(..id).rev().find(|(_, change)| change.and_future);
                match last {
                    Some((_, change)) => {
                        let (event, moved) = (change.event, change.moved);
                        let wall = start.wall.checked_add(moved).ok()?;
                        self.emit(event, start.at(wall), length.unwrap_or(event.span));
                    }
                    None => self.emit(core, start, length.unwrap_or(core.span)),
                }
            }
        }
        for (id, change) in changes {
            if !change.taken && !excepted.contains(&id) {
                self.emit(change.event, change.event.start.clone(), change.event.span);
            }
        }
        Some(())
    }

    /// Returns the overrides of a series by the instant that each replaces.
    fn changes(
        &self,
        parts: &[&'a CalendarEvent],
        core: Option<&'a CalendarEvent>,
    ) -> BTreeMap<Timestamp, InstanceOverride<'a>> {
        let mut changes: BTreeMap<Timestamp, InstanceOverride<'a>> = BTreeMap::new();
        for event in parts {
            let Some(recurrence) = &event.recurrence else { continue };
            let id = core.map_or_else(|| recurrence.id.clone(), |core| recurrence.id.aligned(&core.start));
            let Some(at) = id.instant(self.home) else { continue };
            if changes.get(&at).is_some_and(|known| known.event.sequence >= event.sequence) {
                continue;
            }
            let moved = id.until(&event.start, self.home).unwrap_or_default();
            changes.insert(
                at,
                InstanceOverride { event, taken: false, and_future: recurrence.and_future, moved },
            );
        }
        changes
    }

    /// Returns the starts of a series before exclusions, each with a length if it differs.
    fn starts(
        &mut self,
        core: &CalendarEvent,
        changes: &BTreeMap<Timestamp, InstanceOverride<'a>>,
    ) -> BTreeMap<Timestamp, (CalendarTime, Option<SignedDuration>)> {
        let mut starts = BTreeMap::new();
        let mut add = |start: CalendarTime, length| {
            if let Some(at) = start.instant(self.home) {
                starts.entry(at).or_insert((start, length));
            }
        };
        for (more, length) in &core.more {
            add(more.aligned(&core.start), *length);
        }
        // A this-and-future override may be longer or moved, so other instances can reach into the window.
        let mut wanted_before = core.span;
        let mut wanted_after = SignedDuration::ZERO;
        for change in changes.values().filter(|change| change.and_future) {
            wanted_before = wanted_before.max(change.event.span.saturating_add(change.moved));
            wanted_after = wanted_after.max(-change.moved);
        }
        let wall = |at: Timestamp| TimeZone::UTC.to_datetime(at);
        let wanted = StartRange {
            from: wall(self.window.from).saturating_sub(SLACK).saturating_sub(wanted_before),
            to: wall(self.window.to).saturating_add(SLACK).saturating_add(wanted_after),
        };
        let mut ended = !core.rules.is_empty();
        for rule in &core.rules {
            // An `UNTIL` out of range is ignored.
            let until = rule.until.as_ref().and_then(|until| self.until(until, &core.start));
            // A start after the end of all rules is no instance.
            ended &= until.is_some_and(|until| core.start.instant(self.home) > Some(until));
            let expanded = expand(rule, core.start.wall, wanted, self.budget);
            self.found.cut |= expanded.cut;
            for start in expanded.starts {
                let start = core.start.at(start);
                if until.is_none_or(|until| start.instant(self.home) <= Some(until)) {
                    add(start, None);
                }
            }
        }
        if !ended {
            add(core.start.clone(), None);
        }
        starts
    }

    /// Returns the last instant of a rule.
    fn until(&self, until: &CalendarTime, start: &CalendarTime) -> Option<Timestamp> {
        let aligned = if until.is_day() && !start.is_day() {
            // A date where a time is expected means its beginning, in UTC if the series has a zone.
            match start.place {
                TimeForm::Zone(_) => CalendarTime { place: TimeForm::Zone(TimeZone::UTC), ..until.clone() },
                _ => start.at(until.wall),
            }
        } else {
            until.aligned(start)
        };
        aligned.instant(self.home)
    }

    /// Records an instance if it is in the window.
    fn emit(&mut self, event: &'a CalendarEvent, start: CalendarTime, span: SignedDuration) {
        if event.status == EventStatus::Cancelled {
            return;
        }
        let end = start.wall.checked_add(span).ok().map(|wall| start.at(wall));
        let moments = end.and_then(|end| Some((start.instant(self.home)?, end.instant(self.home)?, end)));
        let Some((at, until, end)) = moments else { return };
        let window = self.window;
        let is_within = at < window.to && (window.from < until || (at >= until && at >= window.from));
        if is_within {
            self.found.instances.push(EventInstance { event, start, end, at });
        }
    }
}
