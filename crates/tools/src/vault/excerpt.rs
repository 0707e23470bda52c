//! Excerpts: the lines of a note that match a query.

use super::query::{Condition, Query};
use super::tokenizer::{each_word, words};

/// Lines of one note.
const LINES_MAX: usize = 3;
/// Length of a line: about as much as in a search engine.
const CHARS_MAX: usize = 240;
/// Context before the first match in a long line.
const CHARS_BEFORE: usize = 60;

/// A line of a note.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NoteLine {
    /// 1-based.
    pub(super) number: usize,
    pub(super) text: String,
}

/// The words of a query to find in lines.
pub(super) struct ExcerptTerms {
    words: Vec<String>,
    beginnings: Vec<String>,
}

impl ExcerptTerms {
    pub(super) fn of(query: &Query) -> ExcerptTerms {
        let mut wanted = ExcerptTerms { words: Vec::new(), beginnings: Vec::new() };
        for clause in query.clauses.iter().filter(|clause| !clause.excluded) {
            match &clause.condition {
                Condition::Word(word) => wanted.words.push(word.clone()),
                Condition::Beginning(prefix) => wanted.beginnings.push(prefix.clone()),
                Condition::Phrase(phrase) => wanted.words.extend(phrase.iter().cloned()),
                Condition::Tag(text) | Condition::Link(text) => wanted.words.extend(words(text)),
                Condition::Property(key, value) => {
                    wanted.words.extend(words(key));
                    wanted.words.extend(value.iter().flat_map(|value| words(value)));
                }
            }
        }
        wanted.words.sort();
        wanted.words.dedup();
        wanted
    }

    /// Returns the bit of a wanted word, or 0.
    fn bit(&self, word: &str) -> u64 {
        let exact = self.words.iter().position(|wanted| wanted == word);
        let place = exact.or_else(|| {
            let begins = self.beginnings.iter().position(|prefix| word.starts_with(prefix.as_str()));
            begins.map(|at| self.words.len() + at)
        });
        place.map_or(0, |place| 1 << place.min(63))
    }
}

/// Returns the lines with the most matching words, in order; the first line with text if none matches.
pub(super) fn lines(text: &str, body: usize, wanted: &ExcerptTerms) -> Vec<NoteLine> {
    let mut best: Vec<(u32, usize, &str, usize)> = Vec::new();
    let mut buffer = String::new();
    for (at, line) in text.lines().enumerate() {
        let (mut found, mut first) = (0, None);
        each_word(line, &mut buffer, |word| {
            let bit = wanted.bit(word.folded);
            if bit != 0 {
                found |= bit;
                first.get_or_insert(word.start);
            }
        });
        let Some(first) = first else { continue };
        let count = found.count_ones();
        // Of two lines with equally many words, the earlier one stays.
        if best.len() < LINES_MAX || best.last().is_some_and(|(least, ..)| count > *least) {
            best.truncate(LINES_MAX - usize::from(best.len() == LINES_MAX));
            best.push((count, at, line, first));
            best.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        }
    }
    best.sort_by_key(|(_, at, ..)| *at);
    let shown =
        best.into_iter().map(|(_, at, line, first)| NoteLine { number: at + 1, text: cut(line, first) });
    let shown: Vec<NoteLine> = shown.collect();
    if shown.is_empty() { first_line(text, body).into_iter().collect() } else { shown }
}

/// Returns whether the text contains these words in a row.
pub(super) fn has_phrase(text: &str, phrase: &[String]) -> bool {
    let mut latest: std::collections::VecDeque<String> = std::collections::VecDeque::new();
    let mut found = false;
    each_word(text, &mut String::new(), |word| {
        if found {
            return;
        }
        // Reuses the string that leaves the window.
        let mut kept =
            if latest.len() == phrase.len() { latest.pop_front() } else { None }.unwrap_or_default();
        kept.clear();
        kept.push_str(word.folded);
        latest.push_back(kept);
        found = latest.iter().eq(phrase);
    });
    found
}

fn first_line(text: &str, body: usize) -> Option<NoteLine> {
    let before = text.get(..body).unwrap_or_default().lines().count();
    let mut lines = text.get(body..).unwrap_or_default().lines().enumerate();
    let (at, line) = lines.find(|(_, line)| !line.trim().is_empty())?;
    Some(NoteLine { number: before + at + 1, text: cut(line, 0) })
}

/// Returns a line, truncated around the byte `first` if it is long.
fn cut(line: &str, first: usize) -> String {
    if line.chars().count() <= CHARS_MAX {
        return line.trim().to_owned();
    }
    let before = line.get(..first).unwrap_or_default();
    let start = before.char_indices().rev().nth(CHARS_BEFORE - 1).map_or(0, |(at, _)| at);
    let rest = line.get(start..).unwrap_or_default();
    let end = rest.char_indices().nth(CHARS_MAX).map_or(rest.len(), |(at, _)| at);
    let (left, right) = (if start > 0 { "…" } else { "" }, if end < rest.len() { "…" } else { "" });
    format!("{left}{}{right}", rest.get(..end).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, text: &str) -> Vec<(usize, String)> {
        let body = super::super::note::Note::parse(text).body;
        let shown = lines(text, body, &ExcerptTerms::of(&Query::parse(query).unwrap()));
        shown.into_iter().map(|line| (line.number, line.text)).collect()
    }

    #[test]
    fn the_lines_with_most_words_are_shown() {
        let text = "---\nx: 1\n---\none\n\ntwo apples\nthree pears\napples and pears\nÄpples\n";
        let line = |number, text: &str| (number, text.to_owned());
        assert_eq!(
            check("apples pears", text),
            [line(6, "two apples"), line(7, "three pears"), line(8, "apples and pears")]
        );
        assert_eq!(
            check("appl*", text),
            [line(6, "two apples"), line(8, "apples and pears"), line(9, "Äpples")]
        );
        assert_eq!(check("tag:#nothing", text), [line(4, "one")]);
        assert_eq!(check("nothing", ""), []);
    }

    #[test]
    fn long_lines_are_cut_around_the_word() {
        let text = format!("{} needle {}", "ä".repeat(1_000), "ö".repeat(1_000));
        let shown = check("needle", &text).remove(0).1;
        assert!(shown.starts_with("…ä") && shown.ends_with("ö…") && shown.contains(" needle "), "{shown}");
        assert!(shown.chars().count() <= CHARS_MAX + 2);
    }

    #[test]
    fn phrases_are_words_in_a_row() {
        let phrase = |text: &str| super::super::tokenizer::words(text);
        let text = "To be, or not\nto be: that is the question.";
        for (asked, there) in [
            ("to be or", true),
            ("not to be", true),
            ("be to", false),
            ("question", true),
            ("is question", false),
        ] {
            assert_eq!(has_phrase(text, &phrase(asked)), there, "{asked}");
        }
    }
}
