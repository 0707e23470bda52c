//! What this process says on its standard streams: output, errors, logs, panics. All of it passes here, and leaves
//! without secrets and without characters that a terminal would obey.
//!
//! A process that is a hub knows what its redactor knows, live. Any other command looks into the store of its home
//! before it first says something, if that works without asking anyone; else only tokens are known, by their shape.

use crate::config::{Config, LogFormat};
use crate::home::Home;
use crate::secrets;
use portcullis_core::json::{visible, visible_json};
use portcullis_core::text::shown_lines;
use portcullis_core::{Scrub, Secret, SystemClock};
use portcullis_guard::Redactor;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::panic::PanicHookInfo;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static KNOWN: Mutex<Known> = Mutex::new(Known { redactor: None, unread: None });

struct Known {
    redactor: Option<Redactor>,
    /// Whose store is to be looked into.
    unread: Option<(Home, Config)>,
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says whose secrets this process may come across.
pub(crate) fn works_on(home: &Home, config: &Config) {
    known().unread = Some((home.clone(), config.clone()));
}

/// Knows what the redactor of a hub knows, from now on.
pub(crate) fn follows(redactor: &Redactor) {
    *known() = Known { redactor: Some(redactor.clone()), unread: None };
}

/// Returns what takes secrets out.
fn redactor() -> Option<Redactor> {
    let unread = known().unread.take();
    if let Some((home, config)) = unread {
        // Without the lock: to open the store may have to be told, and that passes here too.
        let read = read(&home, &config);
        known().redactor = read;
    }
    let mut known = known();
    if known.redactor.is_none() {
        known.redactor = Redactor::new(&[]).ok();
    }
    known.redactor.clone()
}

fn read(home: &Home, config: &Config) -> Option<Redactor> {
    let values: Vec<(String, Secret<String>)> = secrets::open_quietly(home, config, Arc::new(SystemClock))
        .and_then(|s| s.all().ok())
        .unwrap_or_default();
    let redactor = Redactor::new(&values).or_else(|_| Redactor::new(&[])).ok()?;
    redactor.set_shapes(config.redaction.token_shapes);
    Some(redactor)
}

fn scrubbed(text: &str) -> Cow<'_, str> {
    match redactor() {
        // In two steps, because what is borrowed must not be of the redactor.
        Some(redactor) => match redactor.scrub(text) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(scrubbed) => Cow::Owned(scrubbed),
        },
        None => Cow::Borrowed(WITHHELD),
    }
}

fn scrub_value(value: &mut Value) {
    match redactor() {
        Some(redactor) => redactor.scrub_value(value),
        None => *value = WITHHELD.into(),
    }
}

/// Stands where nothing could be checked, which cannot happen: a redactor without secrets can always be made.
const WITHHELD: &str = "[WITHHELD]";

/// Returns text for people: lines stay lines, and what is part of a letter or of an emoji stays with it.
pub(crate) fn text(text: &str) -> String {
    shown_lines(&scrubbed(text))
}

/// Returns what a person is to decide about, such as a server's command line: as it is configured, whatever is registered as a
/// secret. Whoever could choose a secret must not choose what is not shown here. What is private in it is masked in its own field
/// before, by `private`.
pub(crate) fn configured_text(text: &str) -> String {
    shown_lines(text)
}

/// Members that repeat the configuration of a server, in what commands print for programs.
const CONFIGURED: [&str; 6] = ["command", "args", "cwd", "url", "env", "headers"];

/// Returns a value for programs in which these members are as they are configured.
pub(crate) fn configured_value(value: &Value) -> String {
    let mut clean = value.clone();
    scrub_value(&mut clean);
    restore_configured(&mut clean, value);
    visible_json(&format!("{clean:#}")).into_owned()
}

fn restore_configured(clean: &mut Value, raw: &Value) {
    match (clean, raw) {
        (Value::Array(clean), Value::Array(raw)) => {
            clean.iter_mut().zip(raw).for_each(|(clean, raw)| restore_configured(clean, raw));
        }
        (Value::Object(clean), Value::Object(raw)) => {
            // A change of how a server is reached, word for word.
            if raw.get("kind").is_some_and(|kind| kind == "identity")
                && raw.get("name").and_then(Value::as_str).is_some_and(|name| CONFIGURED.contains(&name))
            {
                clean.clone_from(raw);
                return;
            }
            for (key, raw) in raw {
                match clean.get_mut(key) {
                    Some(clean) if CONFIGURED.contains(&key.as_str()) => *clean = raw.clone(),
                    Some(clean) => restore_configured(clean, raw),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

/// Returns text for people in which one thing is shown that would be masked: the token that someone just asked for.
pub(crate) fn text_showing(text: &str, shown: &str) -> String {
    if shown.is_empty() {
        return self::text(text);
    }
    text.split(shown).map(self::text).collect::<Vec<_>>().join(shown)
}

/// Returns a value for programs, and for people who read it.
pub(crate) fn value(value: &Value) -> String {
    let mut value = value.clone();
    scrub_value(&mut value);
    visible_json(&format!("{value:#}")).into_owned()
}

/// Returns a value with things that are shown although they would be masked, each by its key.
pub(crate) fn value_showing(value: &Value, shown: &[(&str, Option<&str>)]) -> String {
    let mut value = value.clone();
    scrub_value(&mut value);
    for (key, thing) in shown {
        value[*key] = (*thing).into();
    }
    visible_json(&format!("{value:#}")).into_owned()
}

/// Returns one line of JSON as it is written to a file, for programs.
pub(crate) fn json_line(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(mut value) => {
            scrub_value(&mut value);
            visible_json(&value.to_string()).into_owned()
        }
        Err(_) => visible(&scrubbed(line)),
    }
}

/// Returns one event of the log as one line, whatever is in it.
pub(crate) fn log_line(event: &str, format: LogFormat) -> String {
    let event = event.strip_suffix('\n').unwrap_or(event);
    match format {
        LogFormat::Text => visible(&scrubbed(event)) + "\n",
        LogFormat::Json if serde_json::from_str::<Value>(event).is_ok() => json_line(event) + "\n",
        LogFormat::Json => format!("{}\n", json!({ "level": "ERROR", "message": text(event) })),
    }
}

/// Lets panics be told as everything else is.
pub(crate) fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let said = said(panic);
        let backtrace = std::backtrace::Backtrace::capture();
        let told = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        match (tracing::dispatcher::has_been_set(), told) {
            (true, false) => tracing::error!(target: "panic", "{said}"),
            (true, true) => tracing::error!(target: "panic", %backtrace, "{said}"),
            (false, false) => crate::print::note(said),
            (false, true) => crate::print::note(format!("{said}\n{backtrace}")),
        }
    }));
}

fn said(panic: &PanicHookInfo<'_>) -> String {
    let what = panic.payload_as_str().unwrap_or("with something that is not text");
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    format!("panicked{place}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because what a process knows is one thing.
    #[test]
    fn what_is_said_holds_no_secret_and_nothing_to_obey() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
        assert_eq!(text(&format!("a {token}")), "a [REDACTED:GITHUB_TOKEN]", "before anyone is known");
        let value = "hunter2\nhunter2-ключ";
        let secret = ("KEY".to_owned(), Secret::new(value.to_owned()));
        let redactor = Redactor::new(&[secret]).unwrap();
        follows(&redactor);
        assert_eq!(
            text(&format!("{value}\r\n\t{token}\u{1b}[1A\rx")),
            "[REDACTED:KEY]\r\n\t[REDACTED:GITHUB_TOKEN]\\u{1b}[1A\\u{d}x"
        );
        let seen = "👨\u{200d}👩 1\u{fe0f}\u{20e3} می\u{200c}خواهم 🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}";
        assert_eq!(text(seen), seen);
        assert_eq!(text("a\u{200d}b 😀\u{e0162}\u{e0155}"), "a\\u{200d}b 😀\\u{e0162}\\u{e0155}");
        let event = |text: &str| {
            json!({ "level": "INFO", "fields": { "message": text, "who": "a\u{202e}b" } }).to_string() + "\n"
        };
        for (format, event) in [
            (LogFormat::Text, format!(" INFO mcp: {value}\n{token}\n")),
            (LogFormat::Json, event(value)),
            (LogFormat::Json, value.to_owned()),
        ] {
            let line = log_line(&event, format);
            assert!(line.contains("[REDACTED:KEY]") && !line.contains("hunter2"), "{line}");
            assert!(
                line.ends_with('\n')
                    && !line
                        .trim_end()
                        .contains(|c: char| c.is_control() || portcullis_core::text::is_invisible(c)),
                "{line}"
            );
            assert!(format == LogFormat::Text || serde_json::from_str::<Value>(&line).is_ok(), "{line}");
        }
        assert_eq!(
            text_showing(&format!("{token} for {value}"), &token),
            format!("{token} for [REDACTED:KEY]")
        );
        let shown = value_showing(&json!({ "name": value }), &[("token", Some(&token))]);
        assert_eq!(
            serde_json::from_str::<Value>(&shown).unwrap(),
            json!({ "name": "[REDACTED:KEY]", "token": token })
        );
        assert_eq!(configured_text(&format!("sh -c {value}\u{1b}")), format!("sh -c {value}\\u{{1b}}"));
        let shown = configured_value(&json!([{ "args": [value], "why": value }]));
        assert_eq!(
            serde_json::from_str::<Value>(&shown).unwrap(),
            json!([{ "args": [value], "why": "[REDACTED:KEY]" }])
        );
        // A change of what the hub knows is known here.
        redactor.replace(&[]).unwrap();
        redactor.set_shapes(portcullis_guard::TokenShapes::Leave);
        assert_eq!(text(&token), token);
    }

    #[test]
    fn a_panic_is_told_without_its_secrets() {
        let value = "correct horse battery staple";
        follows(&Redactor::new(&[("KEY".to_owned(), Secret::new(value.to_owned()))]).unwrap());
        let told = Arc::new(Mutex::new(String::new()));
        let into = told.clone();
        std::panic::set_hook(Box::new(move |panic| {
            *into.lock().unwrap() = log_line(&said(panic), LogFormat::Text)
        }));
        let _ = std::panic::catch_unwind(|| panic!("no {value}\u{1b}[2K"));
        let _ = std::panic::take_hook();
        let told = told.lock().unwrap();
        assert!(
            told.starts_with("panicked at ") && told.ends_with(": no [REDACTED:KEY]\\u{1b}[2K\n"),
            "{told}"
        );
    }
}
