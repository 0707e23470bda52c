//! Template helpers: times, durations, labels and badge colours. Templates call them as `w::NAME`.

use super::difference::RenderedDiff;
use askama::filters::Safe;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use portcullis_ops::desk::{ScriptBrief, ScriptGrants, TextChange};
use std::borrow::Borrow;

pub(crate) use super::assets::asset;
pub(crate) use super::html_escaper::{exact, marked, revealed, sentence};

pub(crate) const EFFECTS: &[&str] = &["read", "create", "write", "destroy"];
/// The policies of a server, with their labels.
pub(crate) const TRUST_POLICIES: &[(&str, &str)] =
    &[("ask-changes", "ask before changes"), ("allow", "allow everything"), ("ask", "ask always")];
pub(crate) const DECISIONS: &[&str] = &["ask", "allow", "deny"];
pub(crate) const REACHES: &[&str] = &["local", "outside"];

/// Characters of a text that a list shows.
const SHORT_CHARS_MAX: usize = 140;
/// Percent-encoding of one path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A timestamp behind any number of references, because templates borrow their arguments.
pub(crate) trait AsTimestamp {
    fn moment(&self) -> Timestamp;
}

impl AsTimestamp for Timestamp {
    fn moment(&self) -> Timestamp {
        *self
    }
}

impl<T: AsTimestamp + ?Sized> AsTimestamp for &T {
    fn moment(&self) -> Timestamp {
        (**self).moment()
    }
}

/// Formats a relative time. `ago` in `assets/page.js` must format alike.
pub(crate) fn ago(then: impl AsTimestamp, now: impl AsTimestamp) -> String {
    let seconds = now.moment().duration_since(then.moment()).as_secs();
    let amount = match seconds.unsigned_abs() {
        0..=4 => return "now".to_owned(),
        s @ 5..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min", s / 60),
        s @ 3600..86_400 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    };
    if seconds >= 0 { format!("{amount} ago") } else { format!("in {amount}") }
}

/// How a time is shown. `assets/page.js` shows it alike, in the zone of the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeDisplay {
    /// `2026-11-16 09:00:00 CET`; the script leaves out the zone, which is the reader's own.
    Full,
    /// `09:00:00`.
    Second,
    /// `09:00`.
    Minute,
    /// `Mon 16`.
    Day,
}

impl TimeDisplay {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TimeDisplay::Full => "full",
            TimeDisplay::Second => "second",
            TimeDisplay::Minute => "minute",
            TimeDisplay::Day => "day",
        }
    }

    /// Formats a time in the hub's zone.
    pub(crate) fn text(self, at: impl AsTimestamp, zone: &TimeZone) -> String {
        let format = match self {
            TimeDisplay::Full => "%Y-%m-%d %H:%M:%S %Z",
            TimeDisplay::Second => "%H:%M:%S",
            TimeDisplay::Minute => "%H:%M",
            TimeDisplay::Day => "%a %-d",
        };
        at.moment().to_zoned(zone.clone()).strftime(format).to_string()
    }
}

/// Formats a date and time in UTC, for tooltips.
pub(crate) fn utc(at: impl AsTimestamp) -> String {
    TimeDisplay::Full.text(at, &TimeZone::UTC)
}

/// Returns a `<time>` element in the hub's zone, which the script shows in the reader's zone. Its tooltip is in UTC.
pub(crate) fn time(at: impl AsTimestamp, form: impl Borrow<TimeDisplay>, zone: &TimeZone) -> Safe<String> {
    let at = at.moment();
    let form: &TimeDisplay = form.borrow();
    let text = marked(form.text(at, zone));
    Safe(format!(
        "<time datetime=\"{at}\" title=\"{}\" data-local=\"{}\">{}</time>",
        utc(at),
        form.name(),
        text.0
    ))
}

/// Returns a date and time as [`time`] does.
pub(crate) fn clock(at: impl AsTimestamp, zone: &TimeZone) -> Safe<String> {
    time(at, TimeDisplay::Full, zone)
}

/// Returns a timestamp of the audit log as [`clock`] does; returns other text unchanged.
pub(crate) fn moment(text: impl AsRef<str>, zone: &TimeZone) -> Safe<String> {
    text.as_ref().parse::<Timestamp>().map_or_else(|_| marked(text.as_ref()), |at| clock(at, zone))
}

/// Returns a count with its noun.
pub(crate) fn plural(count: impl AsNumber, noun: &str) -> String {
    let count = count.number();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns a part of a whole in percent.
pub(crate) fn share(part: impl AsNumber, whole: impl AsNumber) -> String {
    let (part, whole) = (part.number(), whole.number());
    if whole == 0 || part == 0 {
        "0".to_owned()
    } else {
        format!("{:.1}", part as f64 * 100.0 / whole as f64)
    }
}

/// Formats a duration.
pub(crate) fn took(microseconds: impl AsNumber) -> String {
    let us = microseconds.number();
    match us {
        0..1000 => format!("{us} µs"),
        1000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1000),
        1_000_000..100_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => format!("{} s", us / 1_000_000),
    }
}

/// A number behind any number of references.
pub(crate) trait AsNumber {
    fn number(&self) -> u64;
}

impl AsNumber for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl<T: AsNumber + ?Sized> AsNumber for &T {
    fn number(&self) -> u64 {
        (**self).number()
    }
}

/// Returns a text on one line, truncated.
pub(crate) fn short(text: impl AsRef<str>) -> String {
    let mut chars = text.as_ref().chars().map(|c| if c == '\n' { ' ' } else { c });
    let mut begin: String = chars.by_ref().take(SHORT_CHARS_MAX).collect();
    if chars.next().is_some() {
        begin.push('…');
    }
    begin
}

/// Returns the short form of a digest.
pub(crate) fn head(digest: impl AsRef<str>) -> String {
    digest.as_ref().chars().take(12).collect()
}

/// Percent-encodes a path segment or query value.
pub(crate) fn url(text: impl AsRef<str>) -> String {
    utf8_percent_encode(text.as_ref(), SEGMENT).to_string()
}

/// Returns whether a URL from an upstream server may become a link. Other schemes, such as `javascript:`, could run code.
pub(crate) fn is_web(address: impl AsRef<str>) -> bool {
    let address = address.as_ref();
    address.starts_with("https://") || address.starts_with("http://")
}

/// Returns indented JSON.
pub(crate) fn pretty(value: impl serde::Serialize) -> String {
    serde_json::to_string_pretty(&value).unwrap_or_else(|_| "not representable as JSON".to_owned())
}

pub(crate) fn lines(texts: impl AsRef<[String]>) -> String {
    texts.as_ref().join("\n")
}

pub(crate) fn join(texts: impl AsRef<[String]>) -> String {
    texts.as_ref().join(", ")
}

pub(crate) fn has(texts: impl AsRef<[String]>, text: impl AsRef<str>) -> bool {
    texts.as_ref().iter().any(|one| one == text.as_ref())
}

pub(crate) fn compare(change: &TextChange) -> RenderedDiff {
    let side = |text: &Option<String>| text.clone().unwrap_or_default();
    RenderedDiff::between(&side(&change.before), &side(&change.after))
}

pub(crate) fn is_nothing(capabilities: &ScriptGrants) -> bool {
    let ScriptGrants { secrets, hosts, tools } = capabilities;
    secrets.is_empty() && hosts.is_empty() && tools.is_empty()
}

/// Returns all grants of a script in one list.
pub(crate) fn uses(script: &ScriptBrief) -> Vec<String> {
    let ScriptGrants { secrets, hosts, tools } = &script.granted;
    secrets.iter().chain(hosts).chain(tools).cloned().collect()
}

/// Returns the grants that a script requests, by form field.
pub(crate) fn wanted(script: &ScriptBrief) -> Vec<(&'static str, &[String])> {
    let ScriptGrants { secrets, hosts, tools } = &script.wanted;
    let all = [("secrets", secrets.as_slice()), ("hosts", hosts), ("tools", tools)];
    all.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

/// Returns the heading of an audit record.
pub(crate) fn phase(phase: impl AsRef<str>) -> String {
    match phase.as_ref() {
        "begin" => "Started".to_owned(),
        "end" => "Finished".to_owned(),
        other => label(other),
    }
}

/// Returns a status, outcome or decision as people read it: `rate_limited` is "Rate limited".
pub(crate) fn label(word: impl AsRef<str>) -> String {
    match word.as_ref() {
        "ok" => "OK".to_owned(),
        "needs_auth" => "Needs login".to_owned(),
        "invalid_args" => "Invalid arguments".to_owned(),
        other => {
            let mut chars = other.chars();
            let first = chars.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(chars).map(|c| if c == '_' { ' ' } else { c }).collect()
        }
    }
}

/// Returns the CSS class of a badge; an unknown word has none.
pub(crate) fn tone(word: impl AsRef<str>) -> &'static str {
    match word.as_ref() {
        "connected" | "approved" | "allow" | "trusted" | "used" => "good",
        "pending"
        | "ask"
        | "starting"
        | "needs_auth"
        | "needs_client_registration"
        | "changed"
        | "new"
        | "write"
        | "create"
        | "server not trusted"
        | "running" => "wait",
        "read" | "disabled" | "expired" | "cancelled" => "",
        "failed" | "rejected" | "deny" | "destroy" | "gone" => "bad",
        _ => "",
    }
}

/// Returns the CSS class of the outcome of a call, the same on every page; an unknown outcome is an error. The label of the
/// badge says it too, so the colour is never the only sign.
pub(crate) fn tone_of_outcome(outcome: impl AsRef<str>) -> &'static str {
    match outcome.as_ref() {
        "ok" => "good",
        "needs_approval" => "wait",
        "cancelled" => "",
        "running" => "on",
        _ => "bad",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_like_people_do() {
        let now: Timestamp = "2026-11-16T08:00:00Z".parse().unwrap();
        for (then, said) in [
            ("2026-11-16T07:59:58Z", "now"),
            ("2026-11-16T07:59:30Z", "30 s ago"),
            ("2026-11-16T07:01:00Z", "59 min ago"),
            ("2026-11-15T08:00:01Z", "23 h ago"),
            ("2026-11-01T08:00:00Z", "15 d ago"),
            ("2026-11-16T09:30:00Z", "in 1 h"),
        ] {
            assert_eq!(ago(then.parse::<Timestamp>().unwrap(), now), said, "{then}");
        }
        assert_eq!(moment("not <a> time", &TimeZone::UTC).0, "not &#60;a&#62; time");
        // In the zone of the configuration, wherever the hub runs.
        for (zone, said) in [
            ("Europe/Vienna", ("2026-11-16 09:00:00 CET", "09:00:00")),
            ("Asia/Tokyo", ("2026-11-16 17:00:00 JST", "17:00:00")),
        ] {
            let zone = TimeZone::get(zone).unwrap();
            let element = format!(
                "<time datetime=\"2026-11-16T08:00:00Z\" title=\"2026-11-16 08:00:00 UTC\" data-local=\"full\">{}</time>",
                said.0
            );
            assert_eq!((clock(now, &zone).0, moment(now.to_string(), &zone).0), (element.clone(), element));
            assert_eq!(TimeDisplay::Second.text(now, &zone), said.1);
            assert_eq!(TimeDisplay::Day.text(now, &zone), "Mon 16");
        }
    }

    #[test]
    fn labels_read_like_words() {
        for (word, said) in [
            ("ok", "OK"),
            ("needs_auth", "Needs login"),
            ("rate_limited", "Rate limited"),
            ("connected", "Connected"),
            ("", ""),
        ] {
            assert_eq!(label(word), said);
        }
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        for (us, said) in
            [(7, "7 µs"), (1500, "1.5 ms"), (42_000, "42 ms"), (1_234_567, "1.2 s"), (360_000_000, "360 s")]
        {
            assert_eq!(took(us), said);
        }
    }

    #[test]
    fn a_name_is_one_step_of_a_path() {
        assert_eq!(url("../a b/ü?x#y"), "..%2Fa%20b%2F%C3%BC%3Fx%23y");
        assert!(is_web("https://login.example/") && !is_web("javascript:alert(1)") && !is_web(" https://x"));
        assert_eq!(short("x".repeat(141)), format!("{}…", "x".repeat(140)));
    }
}
