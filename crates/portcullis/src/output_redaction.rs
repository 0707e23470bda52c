//! Redaction of stdout and stderr: output, errors, logs, panics. Secrets and terminal control characters are removed.
//!
//! A hub uses its live redactor. Other commands read the store of their home before the first output, if that needs no
//! prompt; otherwise only tokens are recognised, by their shape.

use crate::config::{Config, LogFormat};
use crate::home::Home;
use parking_lot::{Mutex, MutexGuard};
use portcullis_core::hidden_chars::escape_hidden_lines;
use portcullis_core::json::{visible, visible_json};
use portcullis_core::{Scrub, Secret, SystemClock};
use portcullis_guard::Redactor;
use portcullis_ops::secret_store;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::panic::PanicHookInfo;
use std::sync::Arc;

static KNOWN: Mutex<RedactionState> = Mutex::new(RedactionState { redactor: None, unread: None });

struct RedactionState {
    redactor: Option<Redactor>,
    /// The home whose store is read.
    unread: Option<(Home, Config)>,
}

fn known() -> MutexGuard<'static, RedactionState> {
    KNOWN.lock()
}

/// Sets the home whose secrets are redacted.
pub(crate) fn set_home(home: &Home, config: &Config) {
    known().unread = Some((home.clone(), config.clone()));
}

/// Uses the hub's redactor from now on.
pub(crate) fn use_redactor(redactor: &Redactor) {
    *known() = RedactionState { redactor: Some(redactor.clone()), unread: None };
}

/// Returns the redactor.
fn redactor() -> Option<Redactor> {
    let unread = known().unread.take();
    if let Some((home, config)) = unread {
        // Without the lock: opening the store may print, which passes through here.
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
    let values: Vec<(String, Secret<String>)> =
        secret_store::open_quietly(home, config, Arc::new(SystemClock))
            .and_then(|s| s.all().ok())
            .unwrap_or_default();
    let redactor = Redactor::new(&values).or_else(|_| Redactor::new(&[])).ok()?;
    redactor.set_shapes(config.redaction.token_shapes);
    Some(redactor)
}

fn scrubbed(text: &str) -> Cow<'_, str> {
    match redactor() {
        // In two steps, because the result must not borrow from the redactor.
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

/// Printed if nothing could be redacted; unreachable, because a redactor without secrets can always be built.
const WITHHELD: &str = "[WITHHELD]";

/// Returns redacted text for people; line breaks, combining marks and emoji sequences are kept.
pub(crate) fn text(text: &str) -> String {
    escape_hidden_lines(&scrubbed(text))
}

/// Returns text that a person decides by, such as a server's command line, without redaction: an attacker who can choose a
/// secret must not choose what is hidden here. `secret_detection` has masked private parts before.
pub(crate) fn configured_text(text: &str) -> String {
    escape_hidden_lines(text)
}

/// JSON members with server configuration.
const CONFIGURED: [&str; 6] = ["command", "args", "cwd", "url", "env", "headers"];

/// Returns redacted JSON, except for these members.
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
            // A change of command or URL.
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

/// Returns redacted text, except for one value that was just created, such as a token.
pub(crate) fn text_showing(text: &str, shown: &str) -> String {
    if shown.is_empty() {
        return self::text(text);
    }
    text.split(shown).map(self::text).collect::<Vec<_>>().join(shown)
}

/// Returns redacted JSON.
pub(crate) fn value(value: &Value) -> String {
    let mut value = value.clone();
    scrub_value(&mut value);
    visible_json(&format!("{value:#}")).into_owned()
}

/// Returns redacted JSON, except for the given members.
pub(crate) fn value_showing(value: &Value, shown: &[(&str, Option<&str>)]) -> String {
    let mut value = value.clone();
    scrub_value(&mut value);
    for (key, thing) in shown {
        value[*key] = (*thing).into();
    }
    visible_json(&format!("{value:#}")).into_owned()
}

/// Returns one redacted line of JSON from a file.
pub(crate) fn json_line(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(mut value) => {
            scrub_value(&mut value);
            visible_json(&value.to_string()).into_owned()
        }
        Err(_) => visible(&scrubbed(line)),
    }
}

/// Returns a log event as one redacted line.
pub(crate) fn log_line(event: &str, format: LogFormat) -> String {
    let event = event.strip_suffix('\n').unwrap_or(event);
    match format {
        LogFormat::Text => visible(&scrubbed(event)) + "\n",
        LogFormat::Json if serde_json::from_str::<Value>(event).is_ok() => json_line(event) + "\n",
        LogFormat::Json => format!("{}\n", json!({ "level": "ERROR", "message": text(event) })),
    }
}

/// Installs a panic hook that redacts.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic_message(panic);
        let backtrace = std::backtrace::Backtrace::capture();
        let captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        match (tracing::dispatcher::has_been_set(), captured) {
            (true, false) => tracing::error!(target: "panic", "{said}"),
            (true, true) => tracing::error!(target: "panic", %backtrace, "{said}"),
            (false, false) => crate::print::note(said),
            (false, true) => crate::print::note(format!("{said}\n{backtrace}")),
        }
    }));
}

fn panic_message(panic: &PanicHookInfo<'_>) -> String {
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
        use_redactor(&redactor);
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
                        .contains(|c: char| c.is_control() || portcullis_core::hidden_chars::is_invisible(c)),
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
        use_redactor(&Redactor::new(&[("KEY".to_owned(), Secret::new(value.to_owned()))]).unwrap());
        let told = Arc::new(Mutex::new(String::new()));
        let into = told.clone();
        std::panic::set_hook(Box::new(move |panic| {
            *into.lock() = log_line(&panic_message(panic), LogFormat::Text)
        }));
        let _ = std::panic::catch_unwind(|| panic!("no {value}\u{1b}[2K"));
        let _ = std::panic::take_hook();
        let told = told.lock();
        assert!(
            told.starts_with("panicked at ") && told.ends_with(": no [REDACTED:KEY]\\u{1b}[2K\n"),
            "{told}"
        );
    }
}
