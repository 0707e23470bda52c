//! A status line on stderr, redrawn in place and cleared at the end.

use crate::commands::environment;
use crate::print;
use std::ffi::OsStr;
use std::io::IsTerminal;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;
/// To the start of the line, which is erased.
const ERASE: &str = "\r\u{1b}[2K";

/// The status line of a command. Dropping it clears it.
pub(crate) struct StatusLine(());

impl StatusLine {
    /// Opens a status line, if stderr is a terminal that can erase a line.
    pub(crate) fn open() -> Option<StatusLine> {
        let term = environment("TERM").filter(|term| !term.is_empty() && term != OsStr::new("dumb"));
        // Made only then: one that is dropped clears the line.
        (term.is_some() && std::io::stderr().is_terminal()).then(|| StatusLine(()))
    }

    /// Replaces the text of the line.
    pub(crate) fn show(&self, text: &str) {
        // Redacted before it is cut: half a secret is not recognised.
        print::control(&format!("{ERASE}{}", cut(&print::redaction().text(text), columns())));
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        print::control(ERASE);
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// Returns the text on one line that no terminal of this width wraps. A character that is not ASCII may take two columns.
fn cut(text: &str, columns: usize) -> String {
    let width = |c: char| if c.is_ascii() { 1 } else { 2 };
    // The last column stays free: some terminals wrap once it is written. The one before is for the mark.
    let most = columns.saturating_sub(2);
    let (mut line, mut used) = (String::new(), 0);
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        used += width(c);
        if used > most {
            line.push('…');
            return line;
        }
        line.push(c);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn the_line_is_as_wide_as_the_terminal_at_most() {
        for (text, columns, expected) in [
            ("npm: handshake, 3 s", 80, "npm: handshake, 3 s"),
            ("npm: handshake, 3 s", 21, "npm: handshake, 3 s"),
            ("npm: handshake, 3 s", 20, "npm: handshake, 3 …"),
            ("a\nb\tc", 80, "a b c"),
            ("データ", 7, "デー…"),
            ("npm", 0, "…"),
        ] {
            assert_eq!(cut(text, columns), expected, "{text:?} {columns}");
        }
    }
}
