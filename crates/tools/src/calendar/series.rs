//! From events to the times at which they take place.

use super::event::{Event, Status};
use super::recur::{Budget, Wanted, expand};
use super::when::{Place, When};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Times of all events of one calendar.
const INSTANCES_MAX: usize = 50_000;
/// Clocks of two places are never further apart.
const SLACK: SignedDuration = SignedDuration::from_hours(48);

/// Something that takes place.
#[derive(Debug)]
pub(super) struct Instance<'a> {
    pub(super) event: &'a Event,
    pub(super) start: When,
    pub(super) end: When,
    /// When that is, to compare with others.
    pub(super) at: Timestamp,
}

/// The time that is asked for; its end does not belong to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// What takes place within a window.
#[derive(Debug, Default)]
pub(super) struct Instances<'a> {
    pub(super) instances: Vec<Instance<'a>>,
    /// Whether a bound was reached before all was found.
    pub(super) cut: bool,
}

/// Returns what takes place within `window`, in order, without what was cancelled.
pub(super) fn instances<'a>(
    events: &'a [Event],
    window: Window,
    home: &TimeZone,
    budget: &mut Budget,
) -> Instances<'a> {
    // By identity, each with the events that make it up, in the order of the file.
    let mut series: Vec<Vec<&Event>> = Vec::new();
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
    let mut found = Instances::default();
    for parts in &series {
        let mut work = Work { window, home, budget, found: &mut found };
        // `None` is a time that no calendar counts; the rest of the series went before it.
        let _ = work.series(parts);
        if found.instances.len() >= INSTANCES_MAX {
            found.cut = true;
            break;
        }
    }
    found.instances.sort_by(|a, b| (a.at, &a.event.title).cmp(&(b.at, &b.event.title)));
    found
}

struct Work<'a, 'b> {
    window: Window,
    home: &'b TimeZone,
    budget: &'b mut Budget,
    found: &'b mut Instances<'a>,
}

/// A change to one time of a series.
struct Change<'a> {
    event: &'a Event,
    taken: bool,
    and_future: bool,
    /// By how much it was moved.
    moved: SignedDuration,
}

impl<'a> Work<'a, '_> {
    fn series(&mut self, parts: &[&'a Event]) -> Option<()> {
        let mut core: Option<&'a Event> = None;
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
                    // A day that is left out leaves out all that begins on it.
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

    /// Returns the changes of a series by the time that each replaces.
    fn changes(&self, parts: &[&'a Event], core: Option<&'a Event>) -> BTreeMap<Timestamp, Change<'a>> {
        let mut changes: BTreeMap<Timestamp, Change<'a>> = BTreeMap::new();
        for event in parts {
            let Some(recurrence) = &event.recurrence else { continue };
            let id = core.map_or_else(|| recurrence.id.clone(), |core| recurrence.id.aligned(&core.start));
            let Some(at) = id.instant(self.home) else { continue };
            if changes.get(&at).is_some_and(|known| known.event.sequence >= event.sequence) {
                continue;
            }
            let moved = id.until(&event.start, self.home).unwrap_or_default();
            changes.insert(at, Change { event, taken: false, and_future: recurrence.and_future, moved });
        }
        changes
    }

    /// Returns when a series takes place, before exceptions, and how long each is if not like the others.
    fn starts(
        &mut self,
        core: &Event,
        changes: &BTreeMap<Timestamp, Change<'a>>,
    ) -> BTreeMap<Timestamp, (When, Option<SignedDuration>)> {
        let mut starts = BTreeMap::new();
        let mut add = |start: When, length| {
            if let Some(at) = start.instant(self.home) {
                starts.entry(at).or_insert((start, length));
            }
        };
        for (more, length) in &core.more {
            add(more.aligned(&core.start), *length);
        }
        // What changed for good may be longer, or moved, so that others reach into the window.
        let mut wanted_before = core.span;
        let mut wanted_after = SignedDuration::ZERO;
        for change in changes.values().filter(|change| change.and_future) {
            wanted_before = wanted_before.max(change.event.span.saturating_add(change.moved));
            wanted_after = wanted_after.max(-change.moved);
        }
        let wall = |at: Timestamp| TimeZone::UTC.to_datetime(at);
        let wanted = Wanted {
            from: wall(self.window.from).saturating_sub(SLACK).saturating_sub(wanted_before),
            to: wall(self.window.to).saturating_add(SLACK).saturating_add(wanted_after),
        };
        let mut ended = !core.rules.is_empty();
        for rule in &core.rules {
            // An end that no calendar counts is none.
            let until = rule.until.as_ref().and_then(|until| self.until(until, &core.start));
            // Whoever begins after the end of all rules never was.
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

    /// Returns the last moment of a rule.
    fn until(&self, until: &When, start: &When) -> Option<Timestamp> {
        let aligned = if until.is_day() && !start.is_day() {
            // A day where a time is wanted means its beginning, in UTC where the series has a zone.
            match start.place {
                Place::Zone(_) => When { place: Place::Zone(TimeZone::UTC), ..until.clone() },
                _ => start.at(until.wall),
            }
        } else {
            until.aligned(start)
        };
        aligned.instant(self.home)
    }

    /// Takes note of something that takes place, if it is within the window.
    fn emit(&mut self, event: &'a Event, start: When, span: SignedDuration) {
        if event.status == Status::Cancelled {
            return;
        }
        let end = start.wall.checked_add(span).ok().map(|wall| start.at(wall));
        let moments = end.and_then(|end| Some((start.instant(self.home)?, end.instant(self.home)?, end)));
        let Some((at, until, end)) = moments else { return };
        let window = self.window;
        let is_within = at < window.to && (window.from < until || (at >= until && at >= window.from));
        if is_within {
            self.found.instances.push(Instance { event, start, end, at });
        }
    }
}
