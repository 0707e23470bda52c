//! Whether output is coloured, and how.
//!
//! Colour is added to lines whose parts this program wrote, after redaction: that escapes the control characters of what
//! strangers wrote, so nothing but this module can colour anything.

use portcullis_config::Environment;

/// A style of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextStyle {
    Bold,
    Red,
    Yellow,
    Green,
}

impl TextStyle {
    fn code(self) -> &'static str {
        match self {
            TextStyle::Bold => "1",
            TextStyle::Red => "1;31",
            TextStyle::Yellow => "33",
            TextStyle::Green => "32",
        }
    }

    /// Returns the text in this style, without control characters if `on` is false.
    pub(crate) fn paint(self, text: &str, on: bool) -> String {
        if on && !text.is_empty() {
            format!("\u{1b}[{}m{text}\u{1b}[0m", self.code())
        } else {
            text.to_owned()
        }
    }

    /// Paints the beginning of a text, if it begins so.
    pub(crate) fn paint_start(self, text: &str, start: &str, on: bool) -> String {
        match text.strip_prefix(start) {
            Some(rest) => format!("{}{rest}", self.paint(start, on)),
            None => text.to_owned(),
        }
    }
}

/// Returns whether to colour, by the conventions of NO_COLOR, CLICOLOR_FORCE, CLICOLOR and TERM, in this order.
pub(crate) fn is_wanted(env: Environment<'_>, is_terminal: bool) -> bool {
    let text = |name: &str| env(name).map(|value| value.to_string_lossy().into_owned());
    let is_set = |name: &str| text(name).is_some_and(|value| !value.is_empty());
    if is_set("NO_COLOR") {
        return false;
    }
    if is_set("CLICOLOR_FORCE") && text("CLICOLOR_FORCE").as_deref() != Some("0") {
        return true;
    }
    let is_able = is_set("TERM") && text("TERM").as_deref() != Some("dumb");
    is_terminal && is_able && text("CLICOLOR").as_deref() != Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn the_environment_decides() {
        for (set, at_terminal, elsewhere) in [
            (&[][..], false, false),
            (&[("TERM", "xterm")], true, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "1")], false, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "")], true, false),
            (&[("CLICOLOR_FORCE", "1")], true, true),
            (&[("TERM", "xterm"), ("CLICOLOR_FORCE", "0")], true, false),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false),
            (&[("TERM", "xterm"), ("CLICOLOR", "0")], false, false),
            (&[("TERM", "dumb")], false, false),
            (&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], true, true),
        ] {
            let env =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
            assert_eq!((is_wanted(&env, true), is_wanted(&env, false)), (at_terminal, elsewhere), "{set:?}");
        }
    }

    #[test]
    fn only_the_beginning_is_painted() {
        let paint = |text: &str, on| TextStyle::Red.paint_start(text, "error:", on);
        assert_eq!(paint("error: error: x", true), "\u{1b}[1;31merror:\u{1b}[0m error: x");
        assert_eq!(paint("error: x", false), "error: x");
        assert_eq!(paint("fine", true), "fine");
    }
}
