//! Parses the `VEVENT`s of a calendar.

use super::calendar_time::{CalendarTime, duration, span};
use super::calendar_zones::CalendarZones;
use super::content_lines::{ContentLine, lines};
use super::rrule::RecurrenceRule;
use jiff::SignedDuration;
use jiff::tz::TimeZone;

/// Events of one calendar. A lifetime of appointments is a fifth of it.
const EVENTS_MAX: usize = 100_000;
/// Recurrence rules of one event; nearly all have one.
const RULES_MAX: usize = 4;
/// A longer text is left out, not truncated, because redaction would not recognize half a secret.
const TEXT_CHARS_MAX: usize = 2_000;

/// One `VEVENT`: a single event, a series, or an override of one instance of a series.
#[derive(Debug, Clone)]
pub(super) struct CalendarEvent {
    /// Of the whole series; empty if there is none.
    pub(super) uid: String,
    /// The instance that this overrides, if it does.
    pub(super) recurrence: Option<RecurrenceId>,
    /// Among several versions the highest counts.
    pub(super) sequence: i64,
    pub(super) start: CalendarTime,
    pub(super) span: SignedDuration,
    pub(super) rules: Vec<RecurrenceRule>,
    /// `RDATE`s, with a length if it differs.
    pub(super) more: Vec<(CalendarTime, Option<SignedDuration>)>,
    pub(super) except: Vec<CalendarTime>,
    pub(super) status: EventStatus,
    pub(super) title: String,
    pub(super) location: Option<String>,
    pub(super) description: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct RecurrenceId {
    pub(super) id: CalendarTime,
    /// Whether all later instances change too (`RANGE=THISANDFUTURE`).
    pub(super) and_future: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventStatus {
    Confirmed,
    Tentative,
    Cancelled,
}

/// The content of a calendar file.
#[derive(Debug, Default)]
pub(super) struct ParsedCalendar {
    pub(super) events: Vec<CalendarEvent>,
    /// Events whose start or rule cannot be parsed.
    pub(super) unreadable: usize,
    /// Whether the file has more events than the limit.
    pub(super) cut: bool,
}

/// Parses a calendar file; `None` if it is not one.
pub(super) fn read(text: &str, home: &TimeZone) -> Option<ParsedCalendar> {
    let zones = CalendarZones::of(text);
    let mut contents = ParsedCalendar::default();
    let mut draft: Option<EventDraft> = None;
    let mut is_calendar = false;
    for line in lines(text) {
        let begins = line.is("BEGIN");
        let is_event = || line.value().trim().eq_ignore_ascii_case("VEVENT");
        if begins && line.value().trim().eq_ignore_ascii_case("VCALENDAR") {
            is_calendar = true;
        } else if begins && is_event() {
            draft = Some(EventDraft::default());
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

/// An event that is being parsed.
#[derive(Default)]
struct EventDraft {
    /// Nesting depth within the event: alarms, for example, have their own summary.
    depth: usize,
    uid: String,
    recurrence: Option<RecurrenceId>,
    sequence: i64,
    start: Option<CalendarTime>,
    end: Option<CalendarTime>,
    duration: Option<SignedDuration>,
    rules: Vec<RecurrenceRule>,
    bad_rule: bool,
    more: Vec<(CalendarTime, Option<SignedDuration>)>,
    except: Vec<CalendarTime>,
    status: Option<EventStatus>,
    title: Option<String>,
    location: Option<String>,
    description: Option<String>,
}

impl EventDraft {
    fn take(&mut self, line: &ContentLine<'_>, zones: &CalendarZones) {
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
                self.recurrence = zones.when(line, value).map(|id| RecurrenceId { id, and_future });
            }
            "RRULE" if self.rules.len() < RULES_MAX => match RecurrenceRule::parse(value) {
                Some(rule) => self.rules.push(rule),
                None => self.bad_rule = true,
            },
            "RDATE" => self.more.extend(value.split(',').filter_map(|value| period(line, value, zones))),
            "EXDATE" => self.except.extend(value.split(',').filter_map(|value| zones.when(line, value))),
            "STATUS" => {
                self.status = match value.trim().to_ascii_uppercase().as_str() {
                    "CANCELLED" => Some(EventStatus::Cancelled),
                    "TENTATIVE" => Some(EventStatus::Tentative),
                    _ => Some(EventStatus::Confirmed),
                };
            }
            "SUMMARY" => self.title = visible_text(line),
            "LOCATION" => self.location = visible_text(line),
            "DESCRIPTION" => self.description = visible_text(line),
            _ => {}
        }
    }

    fn finish(mut self, zones: &CalendarZones, home: &TimeZone) -> Option<CalendarEvent> {
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
        Some(CalendarEvent {
            span: span(&start, length),
            uid: self.uid,
            recurrence: self.recurrence,
            sequence: self.sequence,
            start,
            rules: self.rules,
            more: self.more,
            except: self.except,
            status: self.status.unwrap_or(EventStatus::Confirmed),
            title: self.title.unwrap_or_else(|| "(no title)".to_owned()),
            location: self.location,
            description: self.description,
        })
    }
}

/// Parses an `RDATE`: a start, or a period with an end or a length.
fn period(
    line: &ContentLine<'_>,
    value: &str,
    zones: &CalendarZones,
) -> Option<(CalendarTime, Option<SignedDuration>)> {
    let Some((start, end)) = value.split_once('/') else { return Some((zones.when(line, value)?, None)) };
    let start = zones.when(line, start)?;
    let length = match end.trim().starts_with(['P', 'p', '+', '-']) {
        true => duration(end)?,
        false => zones.when(line, end)?.wall.duration_since(start.wall),
    };
    let length = span(&start, Some(length));
    Some((start, Some(length)))
}

/// Returns a text without hidden characters, or `None` if it is empty.
fn visible_text(line: &ContentLine<'_>) -> Option<String> {
    // Unescaping only makes it shorter.
    if line.value().len() > 16 * TEXT_CHARS_MAX {
        return Some("(too long to be shown)".to_owned());
    }
    let text = line.text();
    let shown = portcullis_core::hidden_chars::strip_hidden(&text).replace('\t', "");
    let shown = shown.trim();
    match shown.chars().nth(TEXT_CHARS_MAX) {
        _ if shown.is_empty() => None,
        Some(_) => Some("(too long to be shown)".to_owned()),
        None => Some(shown.to_owned()),
    }
}
