//! Calendars from everywhere, and what they must not do.

mod hostile;
mod reference;
mod tool;

use super::event;
use super::recur::{Budget, STEPS_MAX};
use super::series::{Instances, Window, instances};
use jiff::tz::TimeZone;

/// Returns what takes place in a calendar between two moments, one line each.
fn shown(text: &str, home: &str, from: &str, to: &str) -> Vec<String> {
    let home = TimeZone::get(home).unwrap();
    let contents = event::read(text, &home).unwrap();
    let window = Window { from: from.parse().unwrap(), to: to.parse().unwrap() };
    lines(&instances(&contents.events, window, &home, &mut Budget::new(STEPS_MAX)), &home)
}

fn lines(found: &Instances<'_>, home: &TimeZone) -> Vec<String> {
    assert!(!found.cut);
    let line = |instance: &super::series::Instance<'_>| {
        let (kind, start, end) = match instance.start.is_day() {
            true => ("day", instance.start.wall.date().to_string(), instance.end.wall.date().to_string()),
            false => ("time", instance.at.to_string(), instance.end.instant(home).unwrap().to_string()),
        };
        format!("{kind} {start} {end} {}", instance.event.title)
    };
    found.instances.iter().map(line).collect()
}
