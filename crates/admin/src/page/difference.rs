//! What changed between two texts, line by line and word by word.

use similar::{Algorithm, ChangeTag, TextDiff};
use std::time::Duration;

/// How many lines that did not change are shown around one that did.
const CONTEXT_LINES: usize = 3;
/// How many lines of a difference are shown. Nobody reads more of it; the whole texts are one click away.
const LINES_MAX: usize = 1500;
/// How long to look for the shortest difference; after that, any correct one will do.
const SEARCH_LIMIT: Duration = Duration::from_millis(150);

/// What changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) lines: Vec<Line>,
    pub(crate) added: usize,
    pub(crate) cut: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) sign: Sign,
    pub(crate) words: Vec<Words>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Same,
    Added,
    Cut,
    /// Here lines are left out.
    Skipped,
}

/// Some words of a line, which all changed or all did not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) text: String,
    pub(crate) changed: bool,
}

impl Sign {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Sign::Same => "same",
            Sign::Added => "added",
            Sign::Cut => "cut",
            Sign::Skipped => "skipped",
        }
    }

    pub(crate) fn is_cut(self) -> bool {
        self == Sign::Cut
    }

    pub(crate) fn mark(self) -> &'static str {
        match self {
            Sign::Added => "+",
            Sign::Cut => "−",
            Sign::Same | Sign::Skipped => " ",
        }
    }

    /// Returns what a screen reader says before the line.
    pub(crate) fn spoken(self) -> &'static str {
        match self {
            Sign::Added => "added: ",
            Sign::Cut => "removed: ",
            Sign::Same | Sign::Skipped => "",
        }
    }
}

impl Difference {
    pub(crate) fn between(before: &str, after: &str) -> Difference {
        let mut config = TextDiff::configure();
        config.algorithm(Algorithm::Patience).timeout(SEARCH_LIMIT);
        let diff = config.diff_lines(before, after);
        let mut found = Difference { lines: Vec::new(), added: 0, cut: 0 };
        for (at, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
            let from = group.first().map_or(0, |op| op.old_range().start);
            if at > 0 || from > 0 {
                found.skip("…");
            }
            for change in group.iter().flat_map(|op| diff.iter_inline_changes(op)) {
                if found.lines.len() >= LINES_MAX {
                    found.skip("More changed than is shown here.");
                    return found;
                }
                let sign = match change.tag() {
                    ChangeTag::Equal => Sign::Same,
                    ChangeTag::Insert => Sign::Added,
                    ChangeTag::Delete => Sign::Cut,
                };
                found.added += usize::from(sign == Sign::Added);
                found.cut += usize::from(sign == Sign::Cut);
                let words = change
                    .iter_strings_lossy()
                    .map(|(changed, text)| Words { text: text.trim_end_matches('\n').to_owned(), changed });
                found
                    .lines
                    .push(Line { sign, words: words.filter(|words| !words.text.is_empty()).collect() });
            }
        }
        found
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn skip(&mut self, text: &str) {
        let words = vec![Words { text: text.to_owned(), changed: false }];
        self.lines.push(Line { sign: Sign::Skipped, words });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        let line = |line: &Line| {
            let words: String = line
                .words
                .iter()
                .map(|w| if w.changed { format!("[{}]", w.text) } else { w.text.clone() })
                .collect();
            format!("{}{words}", line.sign.mark())
        };
        Difference::between(before, after).lines.iter().map(line).collect()
    }

    #[test]
    fn a_changed_word_is_marked_in_its_line() {
        assert_eq!(
            shown("Reads a file.\nNothing else.\n", "Reads a folder.\nNothing else.\n"),
            ["−Reads a [file.]", "+Reads a [folder.]", " Nothing else."]
        );
    }

    #[test]
    fn what_is_far_from_a_change_is_left_out() {
        let before: String = (0..40).map(|n| format!("{n}\n")).collect();
        let after = before.replace("20\n", "twenty\n");
        let lines = shown(&before, &after);
        assert_eq!(lines.first().map(String::as_str), Some(" …"));
        assert_eq!(lines.len(), 1 + 3 + 2 + 3);
        assert!(Difference::between(&before, &before).is_empty());
    }

    #[test]
    fn a_long_difference_ends() {
        let before: String = (0..9000).map(|n| format!("{n}\n")).collect();
        let difference = Difference::between(&before, "");
        assert_eq!(difference.lines.len(), LINES_MAX + 1);
        assert_eq!(difference.lines.last().unwrap().sign, Sign::Skipped);
    }
}
