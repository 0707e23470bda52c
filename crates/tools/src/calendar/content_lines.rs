//! Content lines of an iCalendar file: `NAME;PARAMETER=VALUE:VALUE`, with unfolding.

use std::borrow::Cow;

/// More than producers write; further ones are ignored.
const PARAMETERS_MAX: usize = 32;

/// One unfolded and parsed line.
#[derive(Debug)]
pub(super) struct ContentLine<'a> {
    text: Cow<'a, str>,
    name_end: usize,
    value_start: usize,
}

impl ContentLine<'_> {
    pub(super) fn is(&self, name: &str) -> bool {
        self.text[..self.name_end].eq_ignore_ascii_case(name)
    }

    pub(super) fn name(&self) -> &str {
        &self.text[..self.name_end]
    }

    /// Returns the raw value after the colon.
    pub(super) fn value(&self) -> &str {
        &self.text[self.value_start..]
    }

    /// Returns a parameter without its quotes.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let parameters = self.text.get(self.name_end + 1..self.value_start.checked_sub(1)?)?;
        split_unquoted(parameters, ';').take(PARAMETERS_MAX).find_map(|parameter| {
            let (key, value) = parameter.split_once('=')?;
            key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
        })
    }

    /// Returns the unescaped value.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.value().len());
        let mut chars = self.value().chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('n' | 'N') => text.push('\n'),
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                c => text.push(c),
            }
        }
        text
    }
}

/// Splits at separators outside of quotes.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
}

/// Returns all lines with a name and a value. A folded line continues in the next line that begins with a blank.
pub(super) fn lines(text: &str) -> impl Iterator<Item = ContentLine<'_>> {
    let mut physical = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).peekable();
    std::iter::from_fn(move || {
        let mut line = Cow::Borrowed(physical.next()?);
        while let Some(more) = physical.next_if(|next| next.starts_with([' ', '\t'])) {
            line.to_mut().push_str(&more[1..]);
        }
        Some(line)
    })
    .filter_map(parse)
}

fn parse(text: Cow<'_, str>) -> Option<ContentLine<'_>> {
    let name_end = text.find([':', ';'])?;
    let mut quoted = false;
    let colon = text[name_end..].find(|c: char| {
        quoted ^= c == '"';
        c == ':' && !quoted
    })?;
    let value_start = name_end + colon + 1;
    Some(ContentLine { text, name_end, value_start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_unfolded_and_taken_apart() {
        let text = "BEGIN:VCALENDAR\r\nSUMMARY;LANGUAGE=en;X=\"a:b;c\":A long\r\n  line\\, and\\n an\r\n\tother\r\n\r\nno colon\r\nDTSTART;tzid=Europe/Vienna:20260101T090000\nEMPTY:\n";
        let shown: Vec<String> = lines(text)
            .map(|line| {
                let parameters = ["X", "TZID"].map(|name| line.parameter(name).map(str::to_owned));
                format!("{} {parameters:?} {:?}", line.name(), line.text())
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
        BEGIN [None, None] "VCALENDAR"
        SUMMARY [Some("a:b;c"), None] "A long line, and\n another"
        DTSTART [None, Some("Europe/Vienna")] "20260101T090000"
        EMPTY [None, None] ""
        "#);
    }

    #[test]
    fn broken_lines_are_passed_over() {
        for text in ["", ":", ";", "A;B=\"c:d", "A;B", "\\", "A:\\", " folded first", "A;;;;:x", "\u{0}"] {
            for line in lines(text) {
                let _ = (line.name(), line.value(), line.text(), line.parameter("B"));
            }
        }
    }
}
