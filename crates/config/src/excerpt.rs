//! The faulty line of a configuration file, as a person is shown it, and its correction.
//!
//! A configuration may hold a secret in clear, and a faulty one is not understood well enough to know where. So a value is
//! shown only if the message quotes it already; other values become `…`.

use portcullis_core::json::printable;
use std::fmt;
use std::ops::Range;

/// A longer line is not shown: its caret would be out of sight.
const LINE_CHARS_MAX: usize = 160;
const HIDDEN: &str = "…";

/// The place of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    /// `None` if the parser reports no more than the line.
    pub(crate) spans: Option<KeySpans>,
}

/// Byte offsets of a key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeySpans {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// What is wrong at a place, and how it is written correctly, if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FaultyPart {
    Key { correct: Option<String> },
    Value { correct: Option<String> },
}

/// Returns the place of a line's text, counted from one.
pub(crate) fn line_span(text: &str, line: usize) -> Option<Range<usize>> {
    let start = match line.checked_sub(2) {
        None => 0,
        Some(before) => text.match_indices('\n').nth(before)?.0 + 1,
    };
    let line = text.get(start..)?.split('\n').next().unwrap_or_default();
    let indent = line.len() - line.trim_start().len();
    Some(start + indent..start + line.trim_end().len().max(indent))
}

/// A line of the file, the place of the error in it, and the corrected line if it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigExcerpt {
    line: usize,
    text: String,
    /// In characters.
    caret: Range<usize>,
    correction: Option<String>,
}

impl ConfigExcerpt {
    /// Returns the line of a place in a text. `message` is what is said of it.
    pub(crate) fn of(
        text: &str,
        place: &Range<usize>,
        message: &str,
        correct: Option<&str>,
    ) -> Option<ConfigExcerpt> {
        let start = text.get(..place.start)?.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = text.get(start..)?;
        let whole = rest.split('\n').next()?.trim_end_matches('\r');
        let end = start + whole.len();
        let within = |range: &Range<usize>| {
            range.start.saturating_sub(start)..range.end.min(end).saturating_sub(start)
        };
        let line = ShownLine::of(whole, message);
        let caret = line.columns(&within(place));
        if line.text.chars().count() > LINE_CHARS_MAX {
            return None;
        }
        let corrected = correct.filter(|_| place.end <= end).and_then(|new| {
            let at = within(place);
            let corrected = format!("{}{new}{}", whole.get(..at.start)?, whole.get(at.end..)?);
            Some(ShownLine::of(&corrected, &format!("{message} {new}")).text.trim().to_owned())
        });
        let number = 1 + text.get(..start)?.matches('\n').count();
        Some(ConfigExcerpt { line: number, text: line.text, caret, correction: corrected })
    }

    /// Returns the corrected line.
    pub fn correction(&self) -> Option<&str> {
        self.correction.as_deref()
    }

    pub fn line(&self) -> usize {
        self.line
    }
}

/// The line with its number, and a caret below.
impl fmt::Display for ConfigExcerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let (gap, before) = (" ".repeat(number.len()), " ".repeat(self.caret.start));
        let carets = "^".repeat(self.caret.len().max(1));
        write!(f, "{number} | {}\n{gap} | {before}{carets}", self.text)
    }
}

/// A line in which only keys, and values that the message quotes, are shown.
struct ShownLine {
    text: String,
    /// The column of each byte of the original, and of its end.
    columns: Vec<usize>,
}

impl ShownLine {
    fn of(line: &str, message: &str) -> ShownLine {
        let mut shown = ShownLine { text: String::new(), columns: Vec::with_capacity(line.len() + 1) };
        let is_heading = line.trim_start().starts_with('[');
        let mut at = 0;
        let mut column = 0;
        while let Some(token) = line.get(at..).and_then(next_token) {
            let after = line.get(at + token.len()..).unwrap_or_default().trim_start();
            let inner = token.trim_matches(['"', '\'']);
            let is_quoted = token.starts_with(['"', '\'']);
            let is_key = after.starts_with(['=', ':']) || (is_heading && !is_quoted);
            let text = match token {
                _ if token.chars().all(|c| SEPARATORS.contains(c) || c.is_whitespace()) => {
                    token.replace(|c: char| c.is_whitespace(), " ")
                }
                // A comment says nothing about the error.
                _ if token.starts_with('#') => String::new(),
                _ if is_key || is_plain(inner) || message.contains(inner) => printable(token),
                _ if is_quoted => format!("{0}{HIDDEN}{0}", &token[..1]),
                _ => HIDDEN.to_owned(),
            };
            let width = text.chars().count();
            // Within a token that is shown as it is, each character has its column.
            let is_same = text == token;
            for (offset, _) in token.bytes().enumerate() {
                let chars = token.get(..offset).map_or(0, |before| before.chars().count());
                shown.columns.push(column + if is_same { chars } else { 0 });
            }
            shown.text.push_str(&text);
            (at, column) = (at + token.len(), column + width);
        }
        shown.columns.push(column);
        shown.text.truncate(shown.text.trim_end().len());
        shown
    }

    fn columns(&self, bytes: &Range<usize>) -> Range<usize> {
        let last = self.columns.last().copied().unwrap_or_default();
        let column = |at: usize| self.columns.get(at).copied().unwrap_or(last);
        let start = column(bytes.start);
        start..column(bytes.end).max(start + 1)
    }
}

const SEPARATORS: &str = "=:,[]{}";

/// Returns the first token: separators and spaces, a string with its quotes, a comment, or a word.
fn next_token(text: &str) -> Option<&str> {
    let first = text.chars().next()?;
    let is_gap = |c: char| SEPARATORS.contains(c) || c.is_whitespace();
    let end = match first {
        '#' => text.len(),
        '"' | '\'' => end_of_string(text, first),
        _ if is_gap(first) => text.find(|c: char| !is_gap(c)).unwrap_or(text.len()),
        _ => text.find(|c: char| is_gap(c) || "\"'#".contains(c)).unwrap_or(text.len()),
    };
    text.get(..end)
}

fn end_of_string(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if quote == '"' => is_escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns whether a value is no secret by its form: a small number or a truth value.
fn is_plain(value: &str) -> bool {
    const DIGITS_MAX: usize = 9;
    let is_number =
        value.len() <= DIGITS_MAX && value.chars().all(|c| c.is_ascii_digit() || "._-+".contains(c));
    is_number || matches!(value, "true" | "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, part: &str, message: &str) -> String {
        let text = format!("first = 1\n{line}\r\nlast = 2\n");
        let start = text.find(part).unwrap();
        ConfigExcerpt::of(&text, &(start..start + part.len()), message, None).unwrap().to_string()
    }

    #[test]
    fn only_what_the_message_quotes_is_shown() {
        for (line, part, message, shown) in [
            ("brust = 20", "brust", "`rate_limit.brust` is not a setting", "2 | brust = 20\n  | ^^^^^"),
            (
                "listen = \"nowhere\" # at home",
                "\"nowhere\"",
                "`http.listen` is \"nowhere\", expected",
                "2 | listen = \"nowhere\"\n  |          ^^^^^^^^^",
            ),
            (
                "\tenvironment = { API_KEY = \"hunter2\", 'B' = 'x\\', C = 1 }",
                "environment",
                "`mcp.x.environment` is not a setting",
                "2 |  environment = { API_KEY = \"…\", 'B' = '…', C = 1 }\n  |  ^^^^^^^^^^^",
            ),
            // Not even TOML.
            ("token = hunter2", "hunter2", "string values must be quoted", "2 | token = …\n  |         ^"),
            ("token = \"hunter2", "\"hunter2", "invalid basic string", "2 | token = \"…\"\n  |         ^^^"),
            ("  \"hunter2\", 12345678901", "\"hunter2\"", "unexpected", "2 |   \"…\", …\n  |   ^^^"),
            ("[mcp.github]", "mcp", "expected", "2 | [mcp.github]\n  |  ^^^"),
        ] {
            assert_eq!(check(line, part, message), shown, "{line}");
        }
    }

    #[test]
    fn a_correction_is_the_whole_line() {
        let text = "[rate_limit]\n  brust = 20 # many\n";
        let key = 15..20;
        let excerpt = ConfigExcerpt::of(text, &key, "`brust`", Some("burst")).unwrap();
        assert_eq!((excerpt.line(), excerpt.correction()), (2, Some("burst = 20")));
        // A value over several lines has none.
        let excerpt = ConfigExcerpt::of(text, &(15..34), "`brust`", Some("burst")).unwrap();
        assert_eq!(excerpt.correction(), None);
        let long = format!("a = {}", "[1],".repeat(60));
        assert_eq!(ConfigExcerpt::of(&long, &(0..1), "", None), None);
    }
}
