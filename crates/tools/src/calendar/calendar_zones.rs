//! Time zones of a calendar: IANA names, Windows names, or `VTIMEZONE` definitions.

use super::calendar_time::{CalendarTime, TimeForm, when};
use super::content_lines::{ContentLine, lines};
use super::rrule::RecurrenceRule;
use super::rrule_expansion::{ExpansionBudget, StartRange, expand};
use super::windows_zones::WINDOWS;
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;

/// A calendar of an international team has a dozen.
const ZONES_MAX: usize = 200;
/// UTC offset changes of one definition.
const CHANGES_MAX: usize = 2_000;
/// Expansion steps of all definitions together.
const STEPS_MAX: u64 = 1_000_000;
/// The years in which a rule of a definition is expanded.
const YEARS: (i16, i16) = (1970, 2100);
/// Beyond the offset of any time zone.
const OFFSET_MAX: i32 = 18 * 3_600;

/// Resolves time zone names of one calendar.
#[derive(Debug, Default)]
pub(super) struct CalendarZones {
    defined: HashMap<String, TimeZone>,
    /// The zone of the whole calendar (`X-WR-TIMEZONE`), which some producers mean when they write UTC.
    of_calendar: Option<TimeZone>,
}

impl CalendarZones {
    /// Parses all definitions of a calendar, which may come after their use.
    pub(super) fn of(text: &str) -> CalendarZones {
        let mut zones = CalendarZones::default();
        let mut budget = ExpansionBudget::new(STEPS_MAX);
        let mut definition: Option<ZoneDefinition> = None;
        for line in lines(text) {
            if line.is("BEGIN") && line.value().eq_ignore_ascii_case("VTIMEZONE") {
                definition = Some(ZoneDefinition::default());
            } else if line.is("END") && line.value().eq_ignore_ascii_case("VTIMEZONE") {
                if let Some(done) = definition.take().filter(|_| zones.defined.len() < ZONES_MAX) {
                    zones.defined.extend(done.zone(&mut budget));
                }
            } else if let Some(definition) = &mut definition {
                definition.take(&line);
            } else if line.is("X-WR-TIMEZONE") {
                zones.of_calendar = known(line.value().trim());
            }
        }
        zones
    }

    /// Returns the form of a time in a line.
    fn place(&self, line: &ContentLine<'_>) -> TimeForm {
        match line.parameter("TZID") {
            // An unknown name becomes the reader's own zone, which is better than no event.
            Some(name) => self.find(name).map_or(TimeForm::Floating, TimeForm::Zone),
            None => self.of_calendar.clone().map_or(TimeForm::Floating, TimeForm::Zone),
        }
    }

    /// Parses one time of a line.
    pub(super) fn when(&self, line: &ContentLine<'_>, value: &str) -> Option<CalendarTime> {
        when(value, self.place(line))
    }

    /// Returns a time of a series. UTC there means the zone of the calendar, with its DST.
    pub(super) fn repeating(&self, at: CalendarTime) -> CalendarTime {
        match (&at.place, &self.of_calendar) {
            (TimeForm::Zone(zone), Some(own)) if *zone == TimeZone::UTC => match at.instant(own) {
                Some(moment) => {
                    CalendarTime { wall: own.to_datetime(moment), place: TimeForm::Zone(own.clone()) }
                }
                None => at,
            },
            _ => at,
        }
    }

    fn find(&self, name: &str) -> Option<TimeZone> {
        let name = name.trim();
        if let Some(zone) = known(name.trim_matches('/')) {
            return Some(zone);
        }
        if let Some(zone) = self.defined.get(name) {
            return Some(zone.clone());
        }
        // `/vendor.example/2024a/Europe/Vienna` ends with a known name.
        let names = name.match_indices('/').take(8);
        names.filter_map(|(at, _)| known(&name[at + 1..])).next()
    }
}

/// Returns a time zone by its IANA or Windows name.
fn known(name: &str) -> Option<TimeZone> {
    if name.is_empty() || name.len() > 64 || !name.is_ascii() {
        return None;
    }
    let windows = WINDOWS.binary_search_by(|(windows, _)| (*windows).cmp(name)).ok();
    let name = windows.map_or(name, |at| WINDOWS[at].1);
    TimeZone::get(name).ok()
}

/// One `VTIMEZONE`.
#[derive(Default)]
struct ZoneDefinition {
    name: String,
    /// A known zone, from another line of the definition.
    location: Option<TimeZone>,
    part: Option<ZoneObservance>,
    parts: Vec<ZoneObservance>,
}

/// `STANDARD` or `DAYLIGHT`.
#[derive(Default, Clone)]
struct ZoneObservance {
    start: Option<DateTime>,
    from: Option<i32>,
    to: Option<i32>,
    rules: Vec<RecurrenceRule>,
    dates: Vec<DateTime>,
}

impl ZoneDefinition {
    fn take(&mut self, line: &ContentLine<'_>) {
        let value = line.value().trim();
        let local = |value: &str| when(value, TimeForm::Floating).map(|when| when.wall);
        match (line.name().to_ascii_uppercase().as_str(), &mut self.part) {
            ("BEGIN", _) => self.part = Some(ZoneObservance::default()),
            ("END", part) => {
                if let Some(part) = part.take().filter(|_| self.parts.len() < ZONES_MAX) {
                    self.parts.push(part);
                }
            }
            ("TZID", None) => self.name = value.to_owned(),
            ("X-LIC-LOCATION", None) => self.location = known(value),
            ("DTSTART", Some(part)) => part.start = local(value),
            ("TZOFFSETFROM", Some(part)) => part.from = offset(value),
            ("TZOFFSETTO", Some(part)) => part.to = offset(value),
            ("RRULE", Some(part)) if part.rules.len() < 4 => part.rules.extend(RecurrenceRule::parse(value)),
            ("RDATE", Some(part)) => {
                let room = CHANGES_MAX.saturating_sub(part.dates.len());
                part.dates.extend(value.split(',').filter_map(local).take(room));
            }
            _ => {}
        }
    }

    /// Returns the zone and its name, if the definition is complete.
    fn zone(self, budget: &mut ExpansionBudget) -> Option<(String, TimeZone)> {
        if let Some(location) = self.location {
            return Some((self.name, location));
        }
        let mut changes: Vec<(i64, i32)> = Vec::new();
        let mut earliest: Option<(i64, i32)> = None;
        for part in &self.parts {
            let (Some(start), Some(from), Some(to)) = (part.start, part.from, part.to) else { continue };
            let mut onsets = vec![start];
            onsets.extend(&part.dates);
            for rule in &part.rules {
                let mut wanted = StartRange {
                    from: date(YEARS.0, 1, 1).at(0, 0, 0, 0),
                    to: date(YEARS.1, 1, 1).at(0, 0, 0, 0),
                };
                if let Some(until) = &rule.until {
                    let shift = if until.place == TimeForm::Floating { 0 } else { from };
                    let until = until.wall.saturating_add(SignedDuration::from_secs(shift.into()));
                    wanted.to = wanted.to.min(until);
                }
                onsets.extend(expand(rule, start, wanted, budget).starts);
            }
            for onset in onsets.into_iter().take(CHANGES_MAX) {
                let Ok(utc) = TimeZone::UTC.to_timestamp(onset) else { continue };
                let at = utc.as_second() - i64::from(from);
                changes.push((at, to));
                if earliest.is_none_or(|(first, _)| at < first) {
                    earliest = Some((at, from));
                }
            }
        }
        changes.sort_unstable();
        changes.dedup_by_key(|(at, _)| *at);
        changes.truncate(CHANGES_MAX);
        let (_, before) = earliest?;
        let zone = TimeZone::tzif(&self.name, &tzif(before, &changes)?).ok()?;
        Some((self.name, zone))
    }
}

/// Parses `+0100` or `-033015`.
fn offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    if !matches!(digits.len(), 4 | 6) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |at: usize| digits.get(at..at + 2).map_or(Some(0), |text| text.parse::<i32>().ok());
    let seconds = part(0)? * 3_600 + part(2)? * 60 + part(4)?;
    (seconds <= OFFSET_MAX).then_some(sign * seconds)
}

/// Serializes the offset changes as TZif (RFC 8536), so that jiff can use the zone like any other.
fn tzif(before: i32, changes: &[(i64, i32)]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"LCL\0";
    let mut offsets = vec![before];
    for (_, offset) in changes {
        if !offsets.contains(offset) {
            offsets.push(*offset);
        }
    }
    let kinds = u8::try_from(offsets.len()).ok()?;
    let header = |times: usize, kinds: u8| -> Option<Vec<u8>> {
        let mut header = b"TZif2".to_vec();
        header.extend([0; 15]);
        let counts = [0, 0, 0, u32::try_from(times).ok()?, kinds.into(), u32::try_from(NAME.len()).ok()?];
        counts.iter().for_each(|count| header.extend(count.to_be_bytes()));
        Some(header)
    };
    let kind = |offset: i32| [&offset.to_be_bytes()[..], &[0, 0]].concat();
    // The version 1 block, for old readers.
    let mut file = header(0, 1)?;
    file.extend(kind(before));
    file.extend(NAME);
    file.extend(header(changes.len(), kinds)?);
    for (at, _) in changes {
        // Out of range is an error.
        file.extend(Timestamp::from_second(*at).ok()?.as_second().to_be_bytes());
    }
    for (_, offset) in changes {
        file.push(u8::try_from(offsets.iter().position(|known| known == offset)?).ok()?);
    }
    offsets.iter().for_each(|offset| file.extend(kind(*offset)));
    file.extend(NAME);
    file.extend(b"\n\n");
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIENNA: &str = "BEGIN:VTIMEZONE\nTZID:Our own\nBEGIN:STANDARD\nDTSTART:19701025T030000\nTZOFFSETFROM:+0200\n\
        TZOFFSETTO:+0100\nRRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU\nEND:STANDARD\nBEGIN:DAYLIGHT\nDTSTART:19700329T020000\n\
        TZOFFSETFROM:+0100\nTZOFFSETTO:+0200\nRRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU\nEND:DAYLIGHT\nEND:VTIMEZONE\n";

    #[test]
    fn a_zone_that_a_calendar_defines_is_as_good_as_a_known_one() {
        let ours = CalendarZones::of(VIENNA).find("Our own").unwrap();
        let known = TimeZone::get("Europe/Vienna").unwrap();
        // These rules hold since 1981; compared for every hour of some years.
        let mut wall = date(1999, 1, 1).at(0, 30, 0, 0);
        while wall < date(2003, 1, 1).at(0, 0, 0, 0) {
            let moment = |zone: &TimeZone| zone.to_ambiguous_timestamp(wall).compatible().unwrap();
            assert_eq!(moment(&ours), moment(&known), "{wall}");
            wall = wall.saturating_add(SignedDuration::from_hours(1));
        }
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        let zones = CalendarZones::of(VIENNA);
        let found =
            |name: &str| zones.find(name).map(|zone| zone.iana_name().unwrap_or("defined").to_owned());
        for (name, expected) in [
            ("Europe/Vienna", Some("Europe/Vienna")),
            ("/Europe/Vienna", Some("Europe/Vienna")),
            ("W. Europe Standard Time", Some("Europe/Berlin")),
            ("Pacific Standard Time", Some("America/Los_Angeles")),
            ("/freeassociation.sourceforge.net/Europe/London", Some("Europe/London")),
            (
                "/citadel.org/20210210_1/America/Argentina/Buenos_Aires",
                Some("America/Argentina/Buenos_Aires"),
            ),
            ("Our own", Some("Our own")),
            ("Nowhere/At All", None),
            ("", None),
            ("../../etc/passwd", None),
        ] {
            assert_eq!(found(name).as_deref(), expected, "{name}");
        }
        assert!(WINDOWS.is_sorted_by(|a, b| a.0 < b.0), "for the binary search");
        for (windows, name) in WINDOWS {
            assert!(TimeZone::get(name).is_ok(), "{windows}: {name}");
        }
    }

    #[test]
    fn a_definition_that_makes_no_sense_makes_no_zone() {
        for text in [
            "BEGIN:VTIMEZONE\nTZID:X\nEND:VTIMEZONE\n",
            "BEGIN:VTIMEZONE\nTZID:X\nBEGIN:STANDARD\nDTSTART:19700101T000000\nTZOFFSETFROM:+9900\nTZOFFSETTO:+0100\nEND:STANDARD\nEND:VTIMEZONE\n",
            "BEGIN:VTIMEZONE\nTZID:X\nBEGIN:STANDARD\nTZOFFSETFROM:+0100\nTZOFFSETTO:+0100\nEND:STANDARD\n",
        ] {
            assert!(CalendarZones::of(text).find("X").is_none(), "{text}");
        }
        // Endless rules end.
        let endless = VIENNA.replace("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "FREQ=SECONDLY");
        assert!(CalendarZones::of(&endless.repeat(50)).find("Our own").is_some());
    }
}
