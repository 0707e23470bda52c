//! Events of a calendar, as they are written.

use super::lines::{Line, lines};
use super::rule::Rule;
use super::when::{When, duration, span};
use super::zone::Zones;
use jiff::SignedDuration;
use jiff::tz::TimeZone;

/// Events of one calendar. A lifetime of appointments is a fifth of it.
const EVENTS_MAX: usize = 100_000;
/// Rules of one event; nearly all have one.
const RULES_MAX: usize = 4;
/// A text is told whole or not at all, because half a secret would not be recognised.
const TEXT_CHARS_MAX: usize = 2_000;

/// One `VEVENT`: something that happens once or again and again, or one time of it that is different.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Of the whole series; empty if it has none.
    pub(super) uid: String,
    /// Which time of the series this is, if it is one.
    pub(super) recurrence: Option<Recurrence>,
    /// Among several of the same the highest counts.
    pub(super) sequence: i64,
    pub(super) start: When,
    pub(super) span: SignedDuration,
    pub(super) rules: Vec<Rule>,
    /// More times, and how long each is if not like the others.
    pub(super) more: Vec<(When, Option<SignedDuration>)>,
    pub(super) except: Vec<When>,
    pub(super) status: Status,
    pub(super) title: String,
    pub(super) location: Option<String>,
    pub(super) description: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Recurrence {
    pub(super) id: When,
    /// Whether all that come after it change in the same way.
    pub(super) and_future: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Confirmed,
    Tentative,
    Cancelled,
}

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) events: Vec<Event>,
    /// Events without a start, or with a rule, that cannot be read.
    pub(super) unreadable: usize,
    /// Whether there were more events than are read.
    pub(super) cut: bool,
}

/// Reads a calendar file; `None` if it is none.
pub(super) fn read(text: &str, home: &TimeZone) -> Option<Contents> {
    let zones = Zones::of(text);
    let mut contents = Contents::default();
    let mut draft: Option<Draft> = None;
    let mut is_calendar = false;
    for line in lines(text) {
        let begins = line.is("BEGIN");
        let is_event = || line.value().trim().eq_ignore_ascii_case("VEVENT");
        if begins && line.value().trim().eq_ignore_ascii_case("VCALENDAR") {
            is_calendar = true;
        } else if begins && is_event() {
            draft = Some(Draft::default());
        } else if line.is("END") && is_event() {
            let Some(done) = draft.take() else { continue };
            if contents.events.len() == EVENTS_MAX {
                contents.cut = true;
                break;
            }
            let bad_rule = done.bad_rule;
            let event = done.finish(&zones, home);
            contents.unreadable += usize::from(event.is_none() || bad_rule);
            contents.events.extend(event);
        } else if let Some(draft) = &mut draft {
            draft.take(&line, &zones);
        }
    }
    is_calendar.then_some(contents)
}

/// An event that is being read.
#[derive(Default)]
struct Draft {
    /// How deep we are in parts of the event, such as alarms, which have a summary of their own.
    depth: usize,
    uid: String,
    recurrence: Option<Recurrence>,
    sequence: i64,
    start: Option<When>,
    end: Option<When>,
    duration: Option<SignedDuration>,
    rules: Vec<Rule>,
    bad_rule: bool,
    more: Vec<(When, Option<SignedDuration>)>,
    except: Vec<When>,
    status: Option<Status>,
    title: Option<String>,
    location: Option<String>,
    description: Option<String>,
}

impl Draft {
    fn take(&mut self, line: &Line<'_>, zones: &Zones) {
        let value = line.value();
        let name = line.name().to_ascii_uppercase();
        match name.as_str() {
            "BEGIN" => self.depth += 1,
            "END" => self.depth = self.depth.saturating_sub(1),
            _ if self.depth > 0 => {}
            "UID" => self.uid = value.trim().to_owned(),
            "SEQUENCE" => self.sequence = value.trim().parse().unwrap_or_default(),
            "DTSTART" => self.start = zones.when(line, value),
            "DTEND" => self.end = zones.when(line, value),
            "DURATION" => self.duration = duration(value),
            "RECURRENCE-ID" => {
                let and_future =
                    line.parameter("RANGE").is_some_and(|range| range.eq_ignore_ascii_case("THISANDFUTURE"));
                self.recurrence = zones.when(line, value).map(|id| Recurrence { id, and_future });
            }
            "RRULE" if self.rules.len() < RULES_MAX => match Rule::parse(value) {
                Some(rule) => self.rules.push(rule),
                None => self.bad_rule = true,
            },
            "RDATE" => self.more.extend(value.split(',').filter_map(|value| period(line, value, zones))),
            "EXDATE" => self.except.extend(value.split(',').filter_map(|value| zones.when(line, value))),
            "STATUS" => {
                self.status = match value.trim().to_ascii_uppercase().as_str() {
                    "CANCELLED" => Some(Status::Cancelled),
                    "TENTATIVE" => Some(Status::Tentative),
                    _ => Some(Status::Confirmed),
                };
            }
            "SUMMARY" => self.title = told(line),
            "LOCATION" => self.location = told(line),
            "DESCRIPTION" => self.description = told(line),
            _ => {}
        }
    }

    fn finish(mut self, zones: &Zones, home: &TimeZone) -> Option<Event> {
        let mut start = self.start?;
        if !self.rules.is_empty() || !self.more.is_empty() {
            start = zones.repeating(start);
            self.end = self.end.map(|end| zones.repeating(end));
            self.more = self.more.into_iter().map(|(more, length)| (zones.repeating(more), length)).collect();
        }
        let length = match (&self.end, self.duration) {
            (Some(end), _) => start.until(end, home),
            (None, duration) => duration,
        };
        Some(Event {
            span: span(&start, length),
            uid: self.uid,
            recurrence: self.recurrence,
            sequence: self.sequence,
            start,
            rules: self.rules,
            more: self.more,
            except: self.except,
            status: self.status.unwrap_or(Status::Confirmed),
            title: self.title.unwrap_or_else(|| "(no title)".to_owned()),
            location: self.location,
            description: self.description,
        })
    }
}

/// Reads one of the times that come besides the rule: a start, or a start with an end or a length.
fn period(line: &Line<'_>, value: &str, zones: &Zones) -> Option<(When, Option<SignedDuration>)> {
    let Some((start, end)) = value.split_once('/') else { return Some((zones.when(line, value)?, None)) };
    let start = zones.when(line, start)?;
    let length = match end.trim().starts_with(['P', 'p', '+', '-']) {
        true => duration(end)?,
        false => zones.when(line, end)?.wall.duration_since(start.wall),
    };
    let length = span(&start, Some(length));
    Some((start, Some(length)))
}

/// Returns a text without what a reader would not see, or `None` if there is nothing or too much of it.
fn told(line: &Line<'_>) -> Option<String> {
    // Escapes only make it shorter.
    if line.value().len() > 16 * TEXT_CHARS_MAX {
        return Some("(too long to be shown)".to_owned());
    }
    let text = line.text();
    let shown = portcullis_core::text::cleaned(&text).replace('\t', "");
    let shown = shown.trim();
    match shown.chars().nth(TEXT_CHARS_MAX) {
        _ if shown.is_empty() => None,
        Some(_) => Some("(too long to be shown)".to_owned()),
        None => Some(shown.to_owned()),
    }
}
