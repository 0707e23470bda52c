//! What templates say with: times, sizes, and the tone of a word. Templates call these as `w::NAME`.

use super::difference::Difference;
use crate::desk::{Capabilities, ScriptBrief, TextChange};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::LazyLock;

pub(crate) use super::assets::asset;
pub(crate) use super::visible::{exact, marked, revealed, said};

pub(crate) const EFFECTS: &[&str] = &["read", "create", "write", "destroy"];
pub(crate) const DECISIONS: &[&str] = &["ask", "allow", "deny"];
pub(crate) const REACHES: &[&str] = &["local", "outside"];

/// How much of a text a list shows.
const SHORT_CHARS_MAX: usize = 140;
/// What may stand in one step of a path as it is.
const STEP: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The hub's own zone: whoever looks is usually at the same place.
static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);

/// A time, however often it is referred to: templates borrow what they pass on.
pub(crate) trait Moment {
    fn moment(&self) -> Timestamp;
}

impl Moment for Timestamp {
    fn moment(&self) -> Timestamp {
        *self
    }
}

impl<T: Moment + ?Sized> Moment for &T {
    fn moment(&self) -> Timestamp {
        (**self).moment()
    }
}

/// Returns how long ago something was, in a word or two. The same words as `ago` in `assets/page.js`.
pub(crate) fn ago(then: impl Moment, now: impl Moment) -> String {
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

/// Returns a time with its day.
pub(crate) fn clock(at: impl Moment) -> String {
    at.moment().to_zoned(ZONE.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

/// Returns the time of a day.
pub(crate) fn hour(at: impl Moment) -> String {
    at.moment().to_zoned(ZONE.clone()).strftime("%H:%M:%S").to_string()
}

/// Returns a time of the audit log as [`clock`] does; as it stands there, if it is none.
pub(crate) fn moment(text: impl AsRef<str>) -> String {
    text.as_ref().parse::<Timestamp>().map_or_else(|_| text.as_ref().to_owned(), clock)
}

/// Returns how long something took.
pub(crate) fn took(microseconds: impl Number) -> String {
    let us = microseconds.number();
    match us {
        0..1000 => format!("{us} µs"),
        1000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1000),
        1_000_000..100_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => format!("{} s", us / 1_000_000),
    }
}

/// A number, however often it is referred to.
pub(crate) trait Number {
    fn number(&self) -> u64;
}

impl Number for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl<T: Number + ?Sized> Number for &T {
    fn number(&self) -> u64 {
        (**self).number()
    }
}

/// Returns the beginning of a text, on one line.
pub(crate) fn short(text: impl AsRef<str>) -> String {
    let mut chars = text.as_ref().chars().map(|c| if c == '\n' { ' ' } else { c });
    let mut begin: String = chars.by_ref().take(SHORT_CHARS_MAX).collect();
    if chars.next().is_some() {
        begin.push('…');
    }
    begin
}

/// Returns the beginning of a digest, by which people tell them apart.
pub(crate) fn head(digest: impl AsRef<str>) -> String {
    digest.as_ref().chars().take(12).collect()
}

/// Returns a text as one step of a path or as the value of a query.
pub(crate) fn url(text: impl AsRef<str>) -> String {
    utf8_percent_encode(text.as_ref(), STEP).to_string()
}

/// Returns whether an address that another server chose may become a link. Others could run something.
pub(crate) fn is_web(address: impl AsRef<str>) -> bool {
    let address = address.as_ref();
    address.starts_with("https://") || address.starts_with("http://")
}

/// Returns JSON over several lines.
pub(crate) fn pretty(value: impl serde::Serialize) -> String {
    serde_json::to_string_pretty(&value).unwrap_or_else(|_| "cannot be shown".to_owned())
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

pub(crate) fn compare(change: &TextChange) -> Difference {
    let side = |text: &Option<String>| text.clone().unwrap_or_default();
    Difference::between(&side(&change.before), &side(&change.after))
}

pub(crate) fn is_nothing(capabilities: &Capabilities) -> bool {
    let Capabilities { secrets, hosts, tools } = capabilities;
    secrets.is_empty() && hosts.is_empty() && tools.is_empty()
}

/// Returns everything that a script may use, in one list.
pub(crate) fn uses(script: &ScriptBrief) -> Vec<String> {
    let Capabilities { secrets, hosts, tools } = &script.granted;
    secrets.iter().chain(hosts).chain(tools).cloned().collect()
}

/// Returns what a script asks for, by the names of the form's fields.
pub(crate) fn wanted(script: &ScriptBrief) -> Vec<(&'static str, &[String])> {
    let Capabilities { secrets, hosts, tools } = &script.wanted;
    let all = [("secrets", secrets.as_slice()), ("hosts", hosts), ("tools", tools)];
    all.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

/// Returns the name of a kind of record for people.
pub(crate) fn phase(phase: impl AsRef<str>) -> String {
    match phase.as_ref() {
        "begin" => "It began".to_owned(),
        "end" => "It ended".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the class that gives a word its colour. A word that is not known has none.
pub(crate) fn tone(word: impl AsRef<str>) -> &'static str {
    match word.as_ref() {
        "ok" | "connected" | "approved" | "allow" | "trusted" | "used" => "good",
        "pending"
        | "ask"
        | "starting"
        | "needs_auth"
        | "needs_client_registration"
        | "changed"
        | "new"
        | "write"
        | "create"
        | "needs_approval"
        | "server not trusted"
        | "running" => "wait",
        "read" | "disabled" | "expired" | "cancelled" => "",
        "failed" | "rejected" | "deny" | "denied" | "destroy" | "gone" => "bad",
        _ => "",
    }
}

/// As [`tone`], for how a call ended: whatever is not `ok` did not end well.
pub(crate) fn tone_of_outcome(outcome: &str) -> &'static str {
    match outcome {
        "ok" => "good",
        "needs_approval" => "wait",
        "cancelled" => "",
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
        assert_eq!(moment("not a time"), "not a time");
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
