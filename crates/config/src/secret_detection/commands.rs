//! Variables whose values are executed, and truncation of long values.

use portcullis_core::json::visible;

/// Name endings of variables that are executed: `GIT_SSH_COMMAND`, `credential_process`, `BORG_PASSCOMMAND`.
const COMMAND_ENDS: [&str; 8] =
    ["COMMAND", "CMD", "PROCESS", "HELPER", "ASKPASS", "EXEC", "EXECUTABLE", "SCRIPT"];

/// Returns whether a variable's value is executed. It is shown before trust, and never moved to the secret store.
pub fn is_command_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    // `COMMAND2` is executed too.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '_' | '-'));
    COMMAND_ENDS.iter().any(|end| name.ends_with(end))
}

/// How much of a value is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueDisplay {
    /// A row of a table.
    Row,
    /// A screen with one server.
    Screen,
    /// Everything.
    Full,
}

impl ValueDisplay {
    /// Returns the characters shown of the start and end.
    fn ends(self) -> Option<(usize, usize)> {
        match self {
            ValueDisplay::Row => Some((120, 60)),
            ValueDisplay::Screen => Some((600, 300)),
            ValueDisplay::Full => None,
        }
    }
}

/// Returns a value with invisible characters escaped. A long one is truncated to start, end and length.
pub fn shortened(text: &str, extent: ValueDisplay) -> String {
    let count = text.chars().count();
    let Some((head, tail)) = extent.ends().filter(|(head, tail)| count > head + tail) else {
        return visible(text);
    };
    let at = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (&text[..at(head)], &text[at(count - tail)..]);
    let left_out = text.len() - head.len() - tail.len();
    format!("{}[… {left_out} of {} bytes not shown …]{}", visible(head), text.len(), visible(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_are_run_are_known_by_their_name() {
        for name in [
            "GIT_SSH_COMMAND",
            "credential_process",
            "AWS_CREDENTIAL_PROCESS",
            "RESTIC_PASSWORD_COMMAND",
            "BORG_PASSCOMMAND",
            "passCmd",
            "GIT_ASKPASS",
            "token-helper",
            "API_KEY_COMMAND_2",
        ] {
            assert!(is_command_name(name), "{name}");
        }
        for name in ["API_TOKEN", "COMMAND_TOKEN", "PROCESS_API_KEY", "PASSWORD", "SCRIPT_PASSWORD"] {
            assert!(!is_command_name(name), "{name}");
        }
    }

    #[test]
    fn a_long_value_shows_both_ends_and_its_length() {
        let text = format!("first {} last\u{1b}", "é".repeat(2_000));
        let shown = shortened(&text, ValueDisplay::Screen);
        assert!(shown.starts_with("first é") && shown.ends_with("é last\\u{1b}"), "{shown}");
        assert!(shown.contains("of 4012 bytes not shown"), "{shown}");
        assert_eq!(shortened(&text, ValueDisplay::Full), visible(&text));
        let most = "x".repeat(900);
        assert_eq!(shortened(&most, ValueDisplay::Screen), most);
        assert_ne!(shortened(&most, ValueDisplay::Row), most);
    }
}
