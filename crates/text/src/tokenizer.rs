//! Tokenizer: splits a text into words, each folded for comparison.

use crate::folding::{Folding, is_accent};

/// How a text becomes terms. A search has one for its documents and its queries.
#[derive(Debug, Clone, Copy)]
pub struct Tokenizer {
    pub folding: Folding,
    pub unspaced: UnspacedTerms,
    pub hangul: Hangul,
    pub hyphens: Hyphens,
    /// Length of a folded word. A longer one is cut, so that it is found by its prefix.
    pub term_bytes_max: usize,
}

/// The terms of scripts without spaces between words: Han, Kana, Thai, Lao, Burmese, Khmer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnspacedTerms {
    /// Every letter, for a search that has phrases: those of a run are in a row.
    Letters,
    /// Every two neighbours (bigrams), for a search without phrases. A letter by itself is a term if it has none.
    Pairs,
}

/// What Korean is, which has spaces, but particles attached to its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangul {
    /// Like Latin: a word ends at a space.
    Spaced,
    /// Like Han: a word is found without its particle too.
    Unspaced,
}

/// What a hyphen between letters is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hyphens {
    /// The end of a word: `e-mail` is two words.
    Separate,
    /// A part of the word as written; it is not in the folded word.
    Join,
}

/// A word and its position.
#[derive(Debug, Clone, Copy)]
pub struct TextToken<'t> {
    /// Offset in the text, in bytes.
    pub start: usize,
    pub written: &'t str,
    /// Letters and digits only, folded for comparison.
    pub folded: &'t str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptClass {
    Spaced,
    Unspaced,
}

impl Tokenizer {
    /// Calls `visit` for every word of a text. `buffer` only saves an allocation.
    pub fn each(&self, text: &str, buffer: &mut String, mut visit: impl FnMut(TextToken<'_>)) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if byte.is_ascii() && !byte.is_ascii_alphanumeric() {
                at += 1;
                continue;
            }
            let start = at;
            let letters = bytes.iter().skip(start).take_while(|byte| byte.is_ascii_alphanumeric()).count();
            let end = start + letters;
            // Fast path: most words are ASCII.
            if bytes.get(end).is_none_or(|byte| byte.is_ascii() && !self.joins(char::from(*byte))) {
                buffer.clear();
                buffer.push_str(&text[start..start + letters.min(self.term_bytes_max)]);
                buffer.make_ascii_lowercase();
                visit(TextToken { start, written: &text[start..end], folded: buffer });
                at = end;
                continue;
            }
            let (class, run) = self.run(&text[start..]);
            at = start + run.len();
            match class {
                None => {}
                Some(ScriptClass::Spaced) => {
                    self.fold(start, run.trim_end_matches('-'), buffer, &mut visit);
                }
                Some(ScriptClass::Unspaced) => self.fold_unspaced(start, run, buffer, &mut visit),
            }
        }
    }

    /// Returns the folded words of a text.
    pub fn words(&self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        self.each(text, &mut String::new(), |token| words.push(token.folded.to_owned()));
        words
    }

    /// Returns whether a character is of a script without spaces.
    pub fn is_unspaced(&self, c: char) -> bool {
        is_unspaced(c) || self.hangul == Hangul::Unspaced && is_hangul(c)
    }

    /// Returns the characters at the beginning that belong together, at least one. They have no class if they are no
    /// letters.
    fn run<'t>(&self, text: &'t str) -> (Option<ScriptClass>, &'t str) {
        let mut chars = text.char_indices();
        let class = chars.next().and_then(|(_, first)| self.class(first));
        let belongs = |c: char| match class {
            None => false,
            Some(ScriptClass::Spaced) => self.class(c) == class || is_accent(c) || self.joins(c),
            Some(ScriptClass::Unspaced) => self.class(c) == class,
        };
        let end = chars.find(|(_, c)| !belongs(*c)).map_or(text.len(), |(at, _)| at);
        (class, &text[..end])
    }

    fn class(&self, c: char) -> Option<ScriptClass> {
        if self.is_unspaced(c) {
            Some(ScriptClass::Unspaced)
        } else {
            c.is_alphanumeric().then_some(ScriptClass::Spaced)
        }
    }

    fn joins(&self, c: char) -> bool {
        c == '-' && self.hyphens == Hyphens::Join
    }

    fn fold_unspaced(
        &self,
        start: usize,
        run: &str,
        buffer: &mut String,
        visit: &mut impl FnMut(TextToken<'_>),
    ) {
        let letters = match self.unspaced {
            UnspacedTerms::Letters => 1,
            UnspacedTerms::Pairs => 2.min(run.chars().count()),
        };
        let ends = run.char_indices().map(|(at, c)| at + c.len_utf8()).skip(letters - 1);
        for ((from, _), to) in run.char_indices().zip(ends) {
            self.fold(start + from, &run[from..to], buffer, visit);
        }
    }

    fn fold(&self, start: usize, written: &str, buffer: &mut String, visit: &mut impl FnMut(TextToken<'_>)) {
        // A vowel sign that stands alone says nothing, but in a pair it does.
        let counts =
            |c: char| c.is_alphanumeric() || self.unspaced == UnspacedTerms::Pairs && self.is_unspaced(c);
        buffer.clear();
        self.folding.each(written, |c| {
            if counts(c) && buffer.len() + c.len_utf8() <= self.term_bytes_max {
                buffer.push(c);
            }
        });
        if !buffer.is_empty() {
            visit(TextToken { start, written, folded: buffer });
        }
    }
}

fn is_unspaced(c: char) -> bool {
    c >= '\u{e01}'
        && matches!(c, '\u{e01}'..='\u{e3a}' | '\u{e40}'..='\u{e4e}' | '\u{e81}'..='\u{ecd}'
            | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17d3}'
            | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}'
            | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}'
            | '\u{ff66}'..='\u{ff9d}'
            | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}')
}

fn is_hangul(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{ac00}'..='\u{d7af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHRASES: Tokenizer = Tokenizer {
        folding: Folding::CaseAndAccents,
        unspaced: UnspacedTerms::Letters,
        hangul: Hangul::Spaced,
        hyphens: Hyphens::Separate,
        term_bytes_max: 8,
    };
    const PAIRS: Tokenizer = Tokenizer {
        folding: Folding::Case,
        unspaced: UnspacedTerms::Pairs,
        hangul: Hangul::Unspaced,
        hyphens: Hyphens::Join,
        term_bytes_max: usize::MAX,
    };

    #[test]
    fn the_options_of_a_search_decide_what_its_words_are() {
        for (text, phrases, pairs) in [
            ("Café, cafe\u{301}!", "cafe cafe", "café cafe"),
            ("日本語 abc日", "日 本 語 abc 日", "日本 本語 abc 日"),
            ("กินข้าว", "ก ิ น ข า ว", "กิ ิน นข ข้ ้า าว"),
            ("an e-mail -- read-only- a--b", "an e mail read only a b", "an email readonly ab"),
            ("-a 天-b", "a 天 b", "a 天 b"),
            ("abcdefghij éclairéclair", "abcdefgh eclairec", "abcdefghij éclairéclair"),
            ("ﾃｽﾄ ๑๒", "テ ス ト ๑๒", "ﾃｽ ｽﾄ ๑๒"),
            ("…—“ \u{301} 🎉", "", ""),
        ] {
            assert_eq!(PHRASES.words(text).join(" "), phrases, "{text}");
            assert_eq!(PAIRS.words(text).join(" "), pairs, "{text}");
        }
        assert_eq!(PHRASES.words("날씨를 雨").len(), 2);
        assert_eq!(PAIRS.words("날씨를 雨"), ["날씨", "씨를", "雨"]);
    }
}
