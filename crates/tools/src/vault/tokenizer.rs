//! The tokenizer of notes and queries.
//!
//! Notes are in any language, so case and accents do not count, nothing is stemmed, and scripts without blanks between
//! words are split into single letters; a run of them in a query becomes a phrase.

use portcullis_text::{Folding, Hangul, Hyphens, TextToken, Tokenizer, UnspacedTerms};

/// Length of a word. A longer one is a key or a drawing, and is found by its prefix.
pub(super) const WORD_BYTES_MAX: usize = 64;

const TOKENIZER: Tokenizer = Tokenizer {
    folding: Folding::CaseAndAccents,
    unspaced: UnspacedTerms::Letters,
    hangul: Hangul::Spaced,
    hyphens: Hyphens::Separate,
    term_bytes_max: WORD_BYTES_MAX,
};

/// Calls `visit` for every word of a text. `buffer` only saves an allocation.
pub(super) fn each_word(text: &str, buffer: &mut String, visit: impl FnMut(TextToken<'_>)) {
    TOKENIZER.each(text, buffer, visit);
}

/// Returns the words of a short text.
pub(super) fn words(text: &str) -> Vec<String> {
    TOKENIZER.words(text)
}

/// Folds a text for comparison, keeping everything between the words.
pub(super) fn fold(text: &str) -> String {
    TOKENIZER.folding.fold(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_however_they_are_written() {
        for (text, expected) in [
            ("Hello, World!", vec!["hello", "world"]),
            ("Café CAFE cafe\u{301} ﬁn", vec!["cafe", "cafe", "cafe", "fin"]),
            ("Straße Łódź Ærø ΟΔΟΣ", vec!["strasse", "lodz", "aero", "οδοσ"]),
            ("snake_case e-mail it's", vec!["snake", "case", "e", "mail", "it", "s"]),
            ("abcé déf", vec!["abce", "def"]),
            ("日本語 abc日", vec!["日", "本", "語", "abc", "日"]),
            ("İstanbul Ⅳ ½", vec!["istanbul", "iv", "12"]),
            ("…—“ \u{301} 🎉", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
        assert_eq!(fold("Projects/Ärger"), "projects/arger");
    }

    #[test]
    fn words_stand_where_they_are() {
        let text = "a Ünïcode-word";
        each_word(text, &mut String::new(), |word| {
            assert!(fold(&text[word.start..]).starts_with(word.folded));
        });
        let long = "é".repeat(200) + &"x".repeat(200);
        each_word(&long, &mut String::new(), |word| {
            assert_eq!(word.start, 0);
            assert!(word.folded.len() <= WORD_BYTES_MAX);
        });
    }
}
