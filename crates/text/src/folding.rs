//! Folding: which spellings are the same word.

use icu_normalizer::DecomposingNormalizerBorrowed;

/// What does not distinguish two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folding {
    /// `Öl` and `öl` are the same, `ol` is another.
    Case,
    /// `Café`, `CAFE` and `café` with a combining accent are the same, `ﬁn` and `fin`, `Straße` and `strasse`.
    CaseAndAccents,
}

impl Folding {
    /// Folds a text, keeping everything between the words.
    pub fn fold(self, text: &str) -> String {
        if text.is_ascii() {
            return text.to_ascii_lowercase();
        }
        let mut folded = String::with_capacity(text.len());
        self.each(text, |c| folded.push(c));
        folded
    }

    /// Calls `push` for every character of the folded text.
    pub(crate) fn each(self, text: &str, mut push: impl FnMut(char)) {
        const DECOMPOSED: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizerBorrowed::new_nfkd();
        match self {
            Folding::Case => text.chars().flat_map(char::to_lowercase).for_each(push),
            Folding::CaseAndAccents => {
                for c in DECOMPOSED.normalize_iter(text.chars()).filter(|c| !is_accent(*c)) {
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
        }
    }
}

/// Combining marks of alphabets. Not those of other scripts, which are vowels.
pub(crate) fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_alone_keeps_accents() {
        assert_eq!(Folding::Case.fold("Ärger, ÉTÉ Straße"), "ärger, été straße");
        assert_eq!(Folding::CaseAndAccents.fold("Ärger, ÉTÉ Straße"), "arger, ete strasse");
    }
}
