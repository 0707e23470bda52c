//! Times as people write them. What does not fit is answered with what would.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use portcullis_guard::{Days, Hours};

/// The zone of the machine.
const SYSTEM: &str = "system";
/// No zone has a longer name.
const ZONE_BYTES_MAX: usize = 64;

/// Finds a time zone by its name.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    if name == SYSTEM {
        return Ok(TimeZone::try_system().unwrap_or(TimeZone::UTC));
    }
    if name.len() <= ZONE_BYTES_MAX {
        if let Ok(zone) = TimeZone::get(name) {
            return Ok(zone);
        }
        let near = |known: &String| strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase());
        let names = jiff::tz::db().available().map(|known| known.as_str().to_owned());
        let nearest = names.map(|known| (near(&known), known)).min();
        if let Some((_, known)) = nearest.filter(|(distance, _)| *distance <= 2.max(name.len() / 3)) {
            return Err(format!("{SYSTEM} or a time zone; did you mean `{known}`?"));
        }
    }
    Err(format!("{SYSTEM} or a time zone like Europe/Vienna"))
}

pub(super) fn hours(text: &str) -> Result<Hours, String> {
    Hours::parse(text).ok_or_else(|| "two different times like \"22:00-06:00\"".to_owned())
}

pub(super) fn days(text: &str) -> Result<Days, String> {
    Days::parse(text).ok_or_else(|| {
        let names = Days::NAMES.join(", ");
        // `Monday` and `Mon` are what people write most.
        let lower = text.to_lowercase();
        let meant = |part: &str| Days::NAMES.into_iter().find(|name| part.trim().starts_with(name));
        let meant = match lower.split_once('-') {
            Some((from, to)) => meant(from).zip(meant(to)).map(|(from, to)| format!("{from}-{to}")),
            None => meant(&lower).map(str::to_owned),
        };
        match meant {
            Some(meant) => format!("one of {names} or a range of them; did you mean `{meant}`?"),
            None => format!("one of {names} or a range like mon-fri"),
        }
    })
}

/// Reads a date with a time. One that names no zone is of the zone that is given.
pub fn moment(text: &str, zone: &TimeZone) -> Result<Timestamp, String> {
    let expected = || "a date and time like 2026-12-31T00:00:00Z or 2026-12-31T00:00".to_owned();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    // A date alone could mean its beginning or its end, and a zone in brackets would be read over.
    let is_plain = text.contains(['T', 't', ' ']) && !text.contains('[');
    let local = text.parse::<DateTime>().ok().filter(|_| is_plain).ok_or_else(expected)?;
    zone.to_timestamp(local).map_err(|_| expected())
}
