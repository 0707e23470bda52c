//! The `[[calendars]]` section.
//!
//! The URL of a calendar is a credential. Errors do not quote it, because the file may contain the value itself instead of
//! `secret:NAME`.

use super::{CalendarLocation, CalendarSource, is_calendar_name};
use portcullis_core::Secret;
use portcullis_egress::{PlainHttp, SecretUrl, Url};
use portcullis_family::{AbsentSection, ConfigSection, SectionChecks, hide_value, key_path};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// All calendars are fetched concurrently.
const CALENDARS_MAX: usize = 32;
const HANDLE: &str = "secret:";

/// Calendars for `calendar_read`, which is enabled by the first one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CalendarsSection(Vec<WrittenCalendar>);

/// One calendar: a URL or a file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct WrittenCalendar {
    /// Display name.
    #[schemars(example = &"Personal")]
    name: String,
    /// URL of an iCalendar feed, best as `secret:NAME`; it is never shown.
    #[schemars(example = &"secret:PERSONAL_ICS")]
    url: String,
    /// .ics file instead of a URL; relative to the home folder.
    #[schemars(example = &"personal.ics")]
    file: String,
    /// Allow an unencrypted feed (http://).
    http: bool,
}

impl ConfigSection for CalendarsSection {
    const KEY: &'static str = "calendars";
    const ABSENT: AbsentSection = AbsentSection::Defaults;
    const EXAMPLE: Option<&'static str> = Some(
        r#"[[calendars]]
name = "Personal"
url = "secret:PERSONAL_ICS"    # `portcullis secrets set PERSONAL_ICS`; or file = "personal.ics"
"#,
    );

    /// Empty if there is no calendar tool.
    type Settings = Vec<CalendarSource>;

    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<Vec<CalendarSource>> {
        if self.0.len() > CALENDARS_MAX {
            let expected = format!("at most {CALENDARS_MAX} calendars");
            checks.unexpected_value("/calendars", &json!(self.0.len()), &expected);
        }
        let mut sources: Vec<CalendarSource> = Vec::new();
        for (index, calendar) in self.0.iter().enumerate().take(CALENDARS_MAX) {
            let pointer = format!("/calendars/{index}");
            let name = &calendar.name;
            if !is_calendar_name(name) {
                checks.unexpected(&format!("{pointer}/name"), name, "a name of 1 to 64 characters");
            }
            if sources.iter().any(|known| known.name.to_lowercase() == name.to_lowercase()) {
                checks.unexpected(&format!("{pointer}/name"), name, "a unique name");
            }
            if let Some(place) = calendar.place(&pointer, checks) {
                sources.push(CalendarSource { name: name.clone(), place });
            }
        }
        Some(sources)
    }

    fn hide_values(written: &mut Value) {
        let calendars = written.as_array_mut().into_iter().flatten();
        calendars.filter_map(|calendar| calendar.get_mut("url")).for_each(hide_value);
    }
}

impl WrittenCalendar {
    fn place(&self, pointer: &str, checks: &mut SectionChecks<'_>) -> Option<CalendarLocation> {
        match (self.url.is_empty(), self.file.is_empty()) {
            (true, false) => {
                Some(CalendarLocation::File(checks.path(&format!("{pointer}/file"), &self.file)))
            }
            (false, true) => {
                let plain_http = if self.http { PlainHttp::Allowed } else { PlainHttp::Refused };
                let address = hidden_address(&self.url);
                if address.is_none() {
                    let expected = "a URL like https://example.com/me.ics, or better secret:NAME";
                    checks.unexpected_secret(&format!("{pointer}/url"), expected);
                }
                Some(CalendarLocation::Address { address: address?, plain_http })
            }
            _ => {
                let text = format!("`{}` needs either `url` or `file`", key_path(pointer));
                checks.problem(pointer, text);
                None
            }
        }
    }
}

/// Parses a secret URL, or `secret:NAME`.
fn hidden_address(text: &str) -> Option<SecretUrl> {
    if text.starts_with(HANDLE) {
        return text.parse().ok().map(SecretUrl::Stored);
    }
    let url = Url::parse(text).ok()?;
    let is_feed = matches!(url.scheme(), "https" | "http" | "webcal") && url.has_host();
    is_feed.then(|| SecretUrl::Given(Secret::new(text.to_owned())))
}
