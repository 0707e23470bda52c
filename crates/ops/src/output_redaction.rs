//! Redaction of stdout and stderr: output, errors, logs, panics. Secrets and terminal control characters are removed.
//!
//! A hub uses its live redactor. Other commands read the store of their home before the first output, if that needs no
//! prompt; otherwise only tokens are recognised, by their shape.

use crate::config::{Config, LogFormat};
use crate::home::Home;
use crate::secret_store;
use parking_lot::Mutex;
use portcullis_core::hidden_chars::escape_hidden_lines;
use portcullis_core::json::{visible, visible_json};
use portcullis_core::{Scrub, Secret, SystemClock};
use portcullis_guard::Redactor;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::panic::PanicHookInfo;
use std::sync::Arc;

/// What is known of secrets in this process. Clones share it.
#[derive(Clone, Default)]
pub struct OutputRedaction(Arc<Mutex<RedactionState>>);

#[derive(Default)]
struct RedactionState {
    redactor: Option<Redactor>,
    /// The home whose store is read.
    unread: Option<(Home, Config)>,
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

/// Printed if nothing could be redacted; unreachable, because a redactor without secrets can always be built.
const WITHHELD: &str = "[WITHHELD]";

/// JSON members with server configuration.
const CONFIGURED: [&str; 6] = ["command", "args", "cwd", "url", "env", "headers"];

impl OutputRedaction {
    /// Sets the home whose secrets are redacted.
    pub fn set_home(&self, home: &Home, config: &Config) {
        self.0.lock().unread = Some((home.clone(), config.clone()));
    }

    /// Uses the hub's redactor from now on.
    pub fn use_redactor(&self, redactor: &Redactor) {
        *self.0.lock() = RedactionState { redactor: Some(redactor.clone()), unread: None };
    }

    /// Returns the redactor.
    fn redactor(&self) -> Option<Redactor> {
        let unread = self.0.lock().unread.take();
        if let Some((home, config)) = unread {
            // Without the lock: opening the store may print, which passes through here.
            let read = read(&home, &config);
            self.0.lock().redactor = read;
        }
        let mut known = self.0.lock();
        if known.redactor.is_none() {
            known.redactor = Redactor::new(&[]).ok();
        }
        known.redactor.clone()
    }

    fn scrubbed<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redactor() {
            // In two steps, because the result must not borrow from the redactor.
            Some(redactor) => match redactor.scrub(text) {
                Cow::Borrowed(_) => Cow::Borrowed(text),
                Cow::Owned(scrubbed) => Cow::Owned(scrubbed),
            },
            None => Cow::Borrowed(WITHHELD),
        }
    }

    fn scrub_value(&self, value: &mut Value) {
        match self.redactor() {
            Some(redactor) => redactor.scrub_value(value),
            None => *value = WITHHELD.into(),
        }
    }

    /// Returns redacted text for people; line breaks, combining marks and emoji sequences are kept.
    pub fn text(&self, text: &str) -> String {
        escape_hidden_lines(&self.scrubbed(text))
    }

    /// Returns redacted JSON, except for the members with server configuration.
    pub fn configured_value(&self, value: &Value) -> String {
        let mut clean = value.clone();
        self.scrub_value(&mut clean);
        restore_configured(&mut clean, value);
        visible_json(&format!("{clean:#}")).into_owned()
    }

    /// Returns redacted text, except for one value that was just created, such as a token.
    pub fn text_showing(&self, text: &str, shown: &str) -> String {
        if shown.is_empty() {
            return self.text(text);
        }
        text.split(shown).map(|part| self.text(part)).collect::<Vec<_>>().join(shown)
    }

    /// Returns redacted JSON.
    pub fn value(&self, value: &Value) -> String {
        self.value_showing(value, &[])
    }

    /// Returns redacted JSON, except for the given members.
    pub fn value_showing(&self, value: &Value, shown: &[(&str, Option<&str>)]) -> String {
        let mut value = value.clone();
        self.scrub_value(&mut value);
        for (key, thing) in shown {
            value[*key] = (*thing).into();
        }
        visible_json(&format!("{value:#}")).into_owned()
    }

    /// Returns one redacted line of JSON from a file.
    pub fn json_line(&self, line: &str) -> String {
        match serde_json::from_str::<Value>(line) {
            Ok(mut value) => {
                self.scrub_value(&mut value);
                visible_json(&value.to_string()).into_owned()
            }
            Err(_) => visible(&self.scrubbed(line)),
        }
    }

    /// Returns a log event as one redacted line.
    pub fn log_line(&self, event: &str, format: LogFormat) -> String {
        let event = event.strip_suffix('\n').unwrap_or(event);
        match format {
            LogFormat::Text => visible(&self.scrubbed(event)) + "\n",
            LogFormat::Json if serde_json::from_str::<Value>(event).is_ok() => self.json_line(event) + "\n",
            LogFormat::Json => format!("{}\n", json!({ "level": "ERROR", "message": self.text(event) })),
        }
    }
}

/// Returns text that a person decides by, such as a server's command line, without redaction: an attacker who can choose a
/// secret must not choose what is hidden here. `secret_detection` has masked private parts before.
pub fn configured_text(text: &str) -> String {
    escape_hidden_lines(text)
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

/// Returns what a panic said, and where.
pub fn panic_message(panic: &PanicHookInfo<'_>) -> String {
    let what = panic.payload_as_str().unwrap_or("with something that is not text");
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    format!("panicked{place}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_holds_no_secret_and_nothing_to_obey() {
        let known = OutputRedaction::default();
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
        assert_eq!(known.text(&format!("a {token}")), "a [REDACTED:GITHUB_TOKEN]", "before anyone is known");
        let value = "hunter2\nhunter2-ключ";
        let secret = ("KEY".to_owned(), Secret::new(value.to_owned()));
        let redactor = Redactor::new(&[secret]).unwrap();
        known.use_redactor(&redactor);
        assert_eq!(
            known.text(&format!("{value}\r\n\t{token}\u{1b}[1A\rx")),
            "[REDACTED:KEY]\r\n\t[REDACTED:GITHUB_TOKEN]\\u{1b}[1A\\u{d}x"
        );
        let seen = "👨\u{200d}👩 1\u{fe0f}\u{20e3} می\u{200c}خواهم 🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}";
        assert_eq!(known.text(seen), seen);
        assert_eq!(known.text("a\u{200d}b 😀\u{e0162}\u{e0155}"), "a\\u{200d}b 😀\\u{e0162}\\u{e0155}");
        let event = |text: &str| {
            json!({ "level": "INFO", "fields": { "message": text, "who": "a\u{202e}b" } }).to_string() + "\n"
        };
        for (format, event) in [
            (LogFormat::Text, format!(" INFO mcp: {value}\n{token}\n")),
            (LogFormat::Json, event(value)),
            (LogFormat::Json, value.to_owned()),
        ] {
            let line = known.log_line(&event, format);
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
            known.text_showing(&format!("{token} for {value}"), &token),
            format!("{token} for [REDACTED:KEY]")
        );
        let shown = known.value_showing(&json!({ "name": value }), &[("token", Some(&token))]);
        assert_eq!(
            serde_json::from_str::<Value>(&shown).unwrap(),
            json!({ "name": "[REDACTED:KEY]", "token": token })
        );
        assert_eq!(configured_text(&format!("sh -c {value}\u{1b}")), format!("sh -c {value}\\u{{1b}}"));
        let shown = known.configured_value(&json!([{ "args": [value], "why": value }]));
        assert_eq!(
            serde_json::from_str::<Value>(&shown).unwrap(),
            json!([{ "args": [value], "why": "[REDACTED:KEY]" }])
        );
        // A change of what the hub knows is known here.
        redactor.replace(&[]).unwrap();
        redactor.set_shapes(portcullis_guard::TokenShapes::Leave);
        assert_eq!(known.text(&token), token);
    }

    #[test]
    fn a_panic_is_told_without_its_secrets() {
        let value = "correct horse battery staple";
        let known = OutputRedaction::default();
        known.use_redactor(&Redactor::new(&[("KEY".to_owned(), Secret::new(value.to_owned()))]).unwrap());
        let told = Arc::new(Mutex::new(String::new()));
        let into = told.clone();
        std::panic::set_hook(Box::new(move |panic| {
            *into.lock() = known.log_line(&panic_message(panic), LogFormat::Text)
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
