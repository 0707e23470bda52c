//! Calendars from many producers, and hostile ones.

mod hostile;
mod reference;
mod tool;

use super::event;
use super::rrule_expansion::{ExpansionBudget, STEPS_MAX};
use super::series::{EventInstances, TimeWindow, instances};
use jiff::tz::TimeZone;

/// Returns the events of a calendar between two instants, one line each.
fn shown(text: &str, home: &str, from: &str, to: &str) -> Vec<String> {
    let home = TimeZone::get(home).unwrap();
    let contents = event::read(text, &home).unwrap();
    let window = TimeWindow { from: from.parse().unwrap(), to: to.parse().unwrap() };
    lines(&instances(&contents.events, window, &home, &mut ExpansionBudget::new(STEPS_MAX)), &home)
}

fn lines(found: &EventInstances<'_>, home: &TimeZone) -> Vec<String> {
    assert!(!found.cut);
    let line = |instance: &super::series::EventInstance<'_>| {
        let (kind, start, end) = match instance.start.is_day() {
            true => ("day", instance.start.wall.date().to_string(), instance.end.wall.date().to_string()),
            false => ("time", instance.at.to_string(), instance.end.instant(home).unwrap().to_string()),
        };
        format!("{kind} {start} {end} {}", instance.event.title)
    };
    found.instances.iter().map(line).collect()
}
