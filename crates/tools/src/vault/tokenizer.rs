//! Tokenizer of notes and queries, with case and accent folding.
//!
//! `Café`, `CAFE` and `café` with a combining accent are one word. Scripts without blanks between words are split into
//! single characters; a run of them in a query becomes a phrase.

use icu_normalizer::DecomposingNormalizerBorrowed;

/// Length of a word. A longer one is a key or a drawing, and is found by its prefix.
pub(super) const WORD_BYTES_MAX: usize = 64;

/// A word and its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoldedWord<'a> {
    pub(super) start: usize,
    /// Folded for comparison.
    pub(super) folded: &'a str,
}

/// Calls `visit` for every word of a text. `buffer` only saves an allocation.
pub(super) fn each_word(text: &str, buffer: &mut String, mut visit: impl FnMut(FoldedWord<'_>)) {
    let bytes = text.as_bytes();
    let ascii_run = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count()
    };
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if byte.is_ascii() && !byte.is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        let start = at;
        let end = ascii_run(start);
        // Fast path: most words are ASCII.
        if bytes.get(end).is_none_or(u8::is_ascii) {
            buffer.clear();
            buffer.push_str(&text[start..end.min(start + WORD_BYTES_MAX)]);
            buffer.make_ascii_lowercase();
            visit(FoldedWord { start, folded: buffer });
            at = end;
            continue;
        }
        at = end_of_word(text, start);
        fold_into(&text[start..at], buffer);
        if !buffer.is_empty() {
            visit(FoldedWord { start, folded: buffer });
        }
    }
}

/// Returns the words of a short text.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    each_word(text, &mut String::new(), |word| words.push(word.folded.to_owned()));
    words
}

/// Folds a text for comparison, keeping everything between the words.
pub(super) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut folded = String::with_capacity(text.len());
    fold_chars(text, |c| folded.push(c));
    folded
}

/// Returns the end of a word that begins at `start`. It has at least one character.
fn end_of_word(text: &str, start: usize) -> usize {
    for (at, c) in text[start..].char_indices() {
        let ends = if at == 0 {
            !c.is_alphanumeric() || stands_alone(c)
        } else {
            stands_alone(c) || !(c.is_alphanumeric() || is_accent(c))
        };
        match (ends, at) {
            (true, 0) => return start + c.len_utf8(),
            (true, at) => return start + at,
            (false, _) => {}
        }
    }
    text.len()
}

fn fold_into(word: &str, buffer: &mut String) {
    buffer.clear();
    fold_chars(word, |c| {
        if c.is_alphanumeric() && buffer.len() + c.len_utf8() <= WORD_BYTES_MAX {
            buffer.push(c);
        }
    });
}

fn fold_chars(text: &str, mut push: impl FnMut(char)) {
    const NORMAL: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizerBorrowed::new_nfkd();
    for c in NORMAL.normalize_iter(text.chars()).filter(|c| !is_accent(*c)) {
        match c {
            // Unicode does not decompose letters with a stroke and ligatures.
            'ß' | 'ẞ' => ['s', 's'].into_iter().for_each(&mut push),
            'æ' | 'Æ' => ['a', 'e'].into_iter().for_each(&mut push),
            'œ' | 'Œ' => ['o', 'e'].into_iter().for_each(&mut push),
            'ø' | 'Ø' => push('o'),
            'ł' | 'Ł' => push('l'),
            'đ' | 'Đ' | 'ð' | 'Ð' => push('d'),
            'ħ' | 'Ħ' => push('h'),
            'ı' => push('i'),
            // A final sigma is the same letter.
            'ς' => push('σ'),
            c => c.to_lowercase().filter(|c| !is_accent(*c)).for_each(&mut push),
        }
    }
}

/// Combining marks of alphabets. Not those of other scripts, which are vowels.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// Characters of scripts without blanks between words.
fn stands_alone(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
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
