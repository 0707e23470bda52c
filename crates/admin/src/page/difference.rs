//! Line and word diff of two texts, for the page.

use similar::{Algorithm, ChangeTag, TextDiff};
use std::time::Duration;

/// Context lines around a change.
const CONTEXT_LINES: usize = 3;
/// Lines of a diff shown. Longer diffs are not read; the full texts are one click away.
const LINES_MAX: usize = 1500;
/// Timeout of the search for a minimal diff; after it, any correct diff will do.
const SEARCH_LIMIT: Duration = Duration::from_millis(150);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenderedDiff {
    pub(crate) lines: Vec<RenderedDiffLine>,
    pub(crate) added: usize,
    pub(crate) cut: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenderedDiffLine {
    pub(crate) sign: DiffSign,
    pub(crate) words: Vec<DiffSpan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiffSign {
    Same,
    Added,
    Cut,
    /// A gap: unchanged lines are not shown.
    Skipped,
}

/// A run of words in a line, all changed or all unchanged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DiffSpan {
    pub(crate) text: String,
    pub(crate) changed: bool,
}

impl DiffSign {
    pub(crate) fn class(self) -> &'static str {
        match self {
            DiffSign::Same => "same",
            DiffSign::Added => "added",
            DiffSign::Cut => "cut",
            DiffSign::Skipped => "skipped",
        }
    }

    pub(crate) fn is_cut(self) -> bool {
        self == DiffSign::Cut
    }

    pub(crate) fn mark(self) -> &'static str {
        match self {
            DiffSign::Added => "+",
            DiffSign::Cut => "−",
            DiffSign::Same | DiffSign::Skipped => " ",
        }
    }

    /// Returns the screen reader prefix of the line.
    pub(crate) fn spoken(self) -> &'static str {
        match self {
            DiffSign::Added => "added: ",
            DiffSign::Cut => "removed: ",
            DiffSign::Same | DiffSign::Skipped => "",
        }
    }
}

impl RenderedDiff {
    pub(crate) fn between(before: &str, after: &str) -> RenderedDiff {
        let mut config = TextDiff::configure();
        config.algorithm(Algorithm::Patience).timeout(SEARCH_LIMIT);
        let diff = config.diff_lines(before, after);
        let mut found = RenderedDiff { lines: Vec::new(), added: 0, cut: 0 };
        for (at, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
            let from = group.first().map_or(0, |op| op.old_range().start);
            if at > 0 || from > 0 {
                found.skip("…");
            }
            for change in group.iter().flat_map(|op| diff.iter_inline_changes(op)) {
                if found.lines.len() >= LINES_MAX {
                    found.skip("Diff truncated.");
                    return found;
                }
                let sign = match change.tag() {
                    ChangeTag::Equal => DiffSign::Same,
                    ChangeTag::Insert => DiffSign::Added,
                    ChangeTag::Delete => DiffSign::Cut,
                };
                found.added += usize::from(sign == DiffSign::Added);
                found.cut += usize::from(sign == DiffSign::Cut);
                let words = change.iter_strings_lossy().map(|(changed, text)| DiffSpan {
                    text: text.trim_end_matches('\n').to_owned(),
                    changed,
                });
                found.lines.push(RenderedDiffLine {
                    sign,
                    words: words.filter(|words| !words.text.is_empty()).collect(),
                });
            }
        }
        found
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn skip(&mut self, text: &str) {
        let words = vec![DiffSpan { text: text.to_owned(), changed: false }];
        self.lines.push(RenderedDiffLine { sign: DiffSign::Skipped, words });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        let line = |line: &RenderedDiffLine| {
            let words: String = line
                .words
                .iter()
                .map(|w| if w.changed { format!("[{}]", w.text) } else { w.text.clone() })
                .collect();
            format!("{}{words}", line.sign.mark())
        };
        RenderedDiff::between(before, after).lines.iter().map(line).collect()
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
        assert!(RenderedDiff::between(&before, &before).is_empty());
    }

    #[test]
    fn a_long_difference_ends() {
        let before: String = (0..9000).map(|n| format!("{n}\n")).collect();
        let difference = RenderedDiff::between(&before, "");
        assert_eq!(difference.lines.len(), LINES_MAX + 1);
        assert_eq!(difference.lines.last().unwrap().sign, DiffSign::Skipped);
    }
}
