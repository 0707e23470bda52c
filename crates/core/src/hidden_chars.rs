//! Hidden characters: which characters of a text are invisible, and which of those are legitimate.
//!
//! Invisible characters hide text from people that a model reads (ASCII smuggling), and control characters drive a
//! terminal. Some are legitimate in one position: joiners in emoji and in joining scripts, variation selectors after a
//! character with variants, and tags in three flags. Stripping and escaping share the classification in this module.
//!
//! Invariant: legitimate positions carry little data. Each such character must directly follow (one of them: precede) a
//! character that it can modify, and two in a row are never legitimate. Only an emoji may have its selector and a joiner.

use std::str::Chars;

const ZERO_WIDTH_NON_JOINER: char = '\u{200C}';
const ZERO_WIDTH_JOINER: char = '\u{200D}';
const EMOJI_SELECTOR: char = '\u{FE0F}';
const MONGOLIAN_VOWEL_SEPARATOR: char = '\u{180E}';
const BLACK_FLAG: char = '\u{1F3F4}';
/// The flags of England, Scotland and Wales, as tag sequences after a black flag.
const FLAGS: [&str; 3] = ["gbeng", "gbsct", "gbwls"];

/// Iterates over the characters with whether each is visible or a legitimate part of a visible one.
pub fn visible_chars(text: &str) -> VisibleChars<'_> {
    VisibleChars { rest: text.chars(), before: None, of_flag: 0 }
}

/// The iterator of [`visible_chars`].
#[derive(Debug, Clone)]
pub struct VisibleChars<'t> {
    rest: Chars<'t>,
    /// The preceding character if it was visible: after a hidden one nothing invisible is legitimate.
    before: Option<char>,
    /// How many more characters belong to a flag sequence.
    of_flag: usize,
}

impl Iterator for VisibleChars<'_> {
    type Item = (char, bool);

    fn next(&mut self) -> Option<(char, bool)> {
        let c = self.rest.next()?;
        if c == BLACK_FLAG {
            self.of_flag = flag_length(self.rest.clone());
        } else if self.of_flag > 0 {
            self.of_flag -= 1;
            self.before = Some(c);
            return Some((c, true));
        }
        let is_seen = !is_unseen(c) || belongs(self.before, c, self.rest.clone().next());
        self.before = is_seen.then_some(c);
        Some((c, is_seen))
    }
}

/// Returns the text without hidden characters.
pub fn strip_hidden(text: &str) -> String {
    visible_chars(text).filter(|(_, is_seen)| *is_seen).map(|(c, _)| c).collect()
}

/// Returns `text` with hidden characters escaped, on one line.
pub fn escape_hidden(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (c, is_seen) in visible_chars(text) {
        match is_seen && !c.is_control() {
            true => shown.push(c),
            false => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// Like [`escape_hidden`], but keeps tabs and line ends.
pub fn escape_hidden_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = visible_chars(text).peekable();
    while let Some((c, is_seen)) = rest.next() {
        // CRLF is kept. A lone `\r` would overwrite the line before it in a terminal.
        let ends_line = c == '\r' && matches!(rest.peek(), Some(('\n', _)));
        match is_seen || ends_line {
            true => shown.push(c),
            false => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// Returns whether a character is invisible but changes how text renders: `Default_Ignorable_Code_Point`, format characters
/// without a glyph, and the blank Braille pattern.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}'
        | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{13430}'..='\u{1343F}' | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Returns whether a character is invisible. Tabs and line ends count as visible.
pub fn is_unseen(c: char) -> bool {
    // The fast path for nearly all text.
    if c.is_ascii_graphic() || matches!(c, ' ' | '\n' | '\t') {
        return false;
    }
    let is_noncharacter = (c as u32) & 0xFFFE == 0xFFFE || ('\u{FDD0}'..='\u{FDEF}').contains(&c);
    c.is_control() || is_invisible(c) || is_noncharacter
}

/// Returns how many characters of a tag flag follow the black flag.
fn flag_length(rest: Chars<'_>) -> usize {
    let tag = |c: char| char::from_u32(0xE0000 + c as u32);
    let matches = |flag: &&str| {
        let mut rest = rest.clone();
        flag.chars().chain(['\u{7F}']).all(|c| rest.next() == tag(c))
    };
    FLAGS.into_iter().find(matches).map_or(0, |flag| flag.len() + 1)
}

/// Returns whether an invisible character is a legitimate part of its neighbours.
fn belongs(before: Option<char>, c: char, after: Option<char>) -> bool {
    let (Some(before), after) = (before, after.unwrap_or('\0')) else { return false };
    match c {
        // Skin tones are emoji themselves.
        ZERO_WIDTH_JOINER if is_emoji(before) || before == EMOJI_SELECTOR => is_emoji(after),
        // Legitimate before anything: it selects the joining form of the letter.
        ZERO_WIDTH_JOINER => is_joining_letter(before),
        // A word of another script may take a suffix in a joining script.
        ZERO_WIDTH_NON_JOINER if is_joining(before) => true,
        ZERO_WIDTH_NON_JOINER => !before.is_whitespace() && !is_unseen(before) && is_joining(after),
        '\u{FE0E}' | EMOJI_SELECTOR => is_emoji(before) || (is_keycap(before) && after == '\u{20E3}'),
        '\u{FE00}'..='\u{FE06}' => has_variant(before, c),
        '\u{180B}'..='\u{180D}' | '\u{180F}' => is_mongolian(before),
        MONGOLIAN_VOWEL_SEPARATOR => is_mongolian(before) && is_mongolian(after),
        // No ideograph has more than these 32 variants; the other selectors would only carry hidden data.
        '\u{E0100}'..='\u{E011F}' => is_ideograph(before),
        _ => false,
    }
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{A9}' | '\u{AE}' | '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2194}'..='\u{21AA}'
        | '\u{231A}'..='\u{27BF}' | '\u{2934}'..='\u{2935}' | '\u{2B05}'..='\u{2B55}' | '\u{3030}' | '\u{303D}'
        | '\u{3297}' | '\u{3299}' | '\u{1F000}'..='\u{1FAFF}')
}

fn is_keycap(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '#' | '*')
}

/// Returns whether the standardized variant of a character exists. The one of ASCII zero is excluded, so that nothing can
/// hide after ASCII.
fn has_variant(c: char, selector: char) -> bool {
    let last = match c {
        // Mathematical operators.
        '\u{2200}'..='\u{22FF}' | '\u{2A00}'..='\u{2AFF}' => '\u{FE00}',
        // Position of East Asian punctuation and quotation marks in their cell.
        '\u{2018}'..='\u{2019}' | '\u{201C}'..='\u{201D}' | '\u{3001}'..='\u{3002}' => '\u{FE01}',
        '\u{FF01}' | '\u{FF0C}' | '\u{FF0E}' | '\u{FF1A}'..='\u{FF1B}' | '\u{FF1F}' => '\u{FE01}',
        // Myanmar with dots, and reversed Phags-pa.
        '\u{1000}'..='\u{109F}' | '\u{AA60}'..='\u{AA7F}' | '\u{A840}'..='\u{A87F}' => '\u{FE00}',
        // Rotated hieroglyphs.
        '\u{13000}'..='\u{1342F}' => '\u{FE06}',
        c if is_ideograph(c) => '\u{FE02}',
        _ => return false,
    };
    selector <= last
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3005}'..='\u{3007}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}'
        | '\u{20000}'..='\u{323AF}')
}

fn is_mongolian(c: char) -> bool {
    c.is_alphabetic() && matches!(c, '\u{1820}'..='\u{18AA}')
}

/// Returns whether a letter or digit is of a script in which joiners change the form of letters.
fn is_joining(c: char) -> bool {
    is_joining_letter(c) || (c.is_numeric() && is_of_joining_script(c))
}

/// Like [`is_joining`], for letters and marks on them: a letter without its vowel joins too.
fn is_joining_letter(c: char) -> bool {
    (c.is_alphabetic() && is_of_joining_script(c)) || is_vowel_killer(c) || is_dot(c)
}

fn is_of_joining_script(c: char) -> bool {
    matches!(c,
        // Arabic, Syriac, N'Ko, Mandaic; the scripts of India; Myanmar; Khmer and Mongolian.
        '\u{0600}'..='\u{08FF}' | '\u{0900}'..='\u{0DFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{18AF}'
        // Balinese and Sundanese; Phags-pa; Javanese and more of Myanmar; Adlam.
        | '\u{1B00}'..='\u{1BBF}' | '\u{A840}'..='\u{A87F}' | '\u{A980}'..='\u{A9FF}' | '\u{AA60}'..='\u{AA7F}'
        | '\u{1E900}'..='\u{1E95F}')
}

/// The virama signs, which remove the vowel of a letter.
fn is_vowel_killer(c: char) -> bool {
    matches!(
        c,
        '\u{094D}'
            | '\u{09CD}'
            | '\u{0A4D}'
            | '\u{0ACD}'
            | '\u{0B4D}'
            | '\u{0BCD}'
            | '\u{0C4D}'
            | '\u{0CCD}'
            | '\u{0D3B}'..='\u{0D3C}'
            | '\u{0D4D}'
            | '\u{0DCA}'
            | '\u{1039}'..='\u{103A}'
            | '\u{17D2}'
            | '\u{1B44}'
            | '\u{1BAA}'..='\u{1BAB}'
            | '\u{A9C0}'
    )
}

/// The nukta, which makes a different letter.
fn is_dot(c: char) -> bool {
    matches!(c, '\u{093C}' | '\u{09BC}' | '\u{0A3C}' | '\u{0ABC}' | '\u{0B3C}' | '\u{0CBC}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_see_is_seen() {
        for text in [
            "Family 👨\u{200d}👩\u{200d}👧\u{200d}👦, 🏳\u{fe0f}\u{200d}🌈, 👩🏽\u{200d}🚀, 1\u{fe0f}\u{20e3}, ☀\u{fe0f}",
            "flag 🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}, 🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
            "می\u{200c}خواهم क्\u{200d}ष עברית العربية 日本語",
            // At the end of a word, behind digits, before punctuation, behind a word of another script.
            "അവന\u{0d4d}\u{200d} വന്നു, ന\u{0d4d}\u{200d}",
            "۲۰\u{200c}ساله، «کتاب\u{200c}»، «کتاب»\u{200c}ها، PDF\u{200c}ها",
            "۱۴۰۲ ه\u{200d}.ق",
            // Variants.
            "葛\u{e0100}飾区, 辻\u{e0101}, 邉\u{e011f}, 神\u{fe00}",
            "ᠠ\u{180b}ᠨ\u{180d} ᠬ\u{180f}, ᠨ\u{180e}ᠠ",
            "A ∩\u{fe00} B ⪬\u{fe00} C",
            "two\nlines\tand a tab",
            // Format characters with a glyph.
            "\u{600}۱ \u{6dd} \u{70f} \u{890} \u{8e2} \u{110bd} \u{110cd}",
        ] {
            assert_eq!(strip_hidden(text), text);
            assert_eq!(escape_hidden_lines(text), text);
        }
    }

    #[test]
    fn what_nobody_sees_is_not() {
        for (text, expected) in [
            ("a\u{200d}b\u{200c}c", "abc"),
            ("\u{200d}👩", "👩"),
            ("👩\u{200d}x", "👩x"),
            ("\u{200c}می", "می"),
            (" \u{200c}می", " می"),
            ("☀\u{fe0f}\u{fe0f}", "☀\u{fe0f}"),
            ("1\u{fe0f}2\u{fe0e}", "12"),
            ("😀\u{e0162}\u{e0155}", "😀"),
            ("🏴\u{e0072}\u{e0065}\u{e0061}\u{e0064}\u{e007f}", "🏴"),
            (
                "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}\u{e0067}",
                "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
            ),
            ("\u{1b}[31mred\u{7}\u{9b}1A\r", "[31mred1A"),
            ("a\u{2028}b\u{202e}c\u{fffe}\u{feff}", "abc"),
            ("𓀀\u{13430}𓀁\u{1343c}", "𓀀𓀁"),
        ] {
            assert_eq!(strip_hidden(text), expected);
        }
    }

    /// Runs of selectors and joiners are the carrier of ASCII smuggling.
    #[test]
    fn a_character_has_one_thing_hidden_behind_it_at_most() {
        let hidden: Vec<char> = ('\u{0}'..='\u{E01FF}').filter(|c| is_unseen(*c)).collect();
        for base in "aб1 é。∩神葛ᠠന\u{0d4d}ه۲क်𓀀☀👩🏴".chars() {
            for first in &hidden {
                for again in [*first, '\u{200d}', '\u{200c}', '\u{fe00}', '\u{fe0f}', '\u{e0100}', '\u{180b}']
                {
                    let run = format!("{base}{first}{again}{again}");
                    let left = strip_hidden(&run);
                    assert!(left.chars().count() <= 2, "{run:?}: {left:?}");
                    assert!(!base.is_ascii() || left.chars().count() == 1, "{run:?}: {left:?}");
                    assert_eq!(strip_hidden(&left), left, "the second time as the first");
                    assert_eq!(strip_hidden(&escape_hidden(&run)), escape_hidden(&run));
                }
            }
        }
        // A selector carries at most five bits, and only after an ideograph.
        let carried = |base: char| {
            ('\u{E0100}'..='\u{E01EF}')
                .filter(|c| strip_hidden(&format!("{base}{c}")).len() > base.len_utf8())
                .count()
        };
        assert_eq!(['葛', 'a', '☀', '😀', 'ه', '。'].map(carried), [32, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_shown_is_one_line_or_the_lines_that_there_are() {
        let text = "می\u{200c}خواهم\r\n\ta\u{200b}b\rc\u{1b}[1A";
        assert_eq!(escape_hidden_lines(text), "می\u{200c}خواهم\r\n\ta\\u{200b}b\\u{d}c\\u{1b}[1A");
        assert_eq!(escape_hidden(text), "می\u{200c}خواهم\\u{d}\\u{a}\\u{9}a\\u{200b}b\\u{d}c\\u{1b}[1A");
    }

    /// `Default_Ignorable_Code_Point` and the general category `Cf` of Unicode 16.
    #[test]
    fn whatever_unicode_calls_ignorable_or_format_is_invisible() {
        let ignorable = [
            (0xAD, 0xAD),
            (0x34F, 0x34F),
            (0x61C, 0x61C),
            (0x115F, 0x1160),
            (0x17B4, 0x17B5),
            (0x180B, 0x180F),
            (0x200B, 0x200F),
            (0x202A, 0x202E),
            (0x2060, 0x206F),
            (0x3164, 0x3164),
            (0xFE00, 0xFE0F),
            (0xFEFF, 0xFEFF),
            (0xFFA0, 0xFFA0),
            (0xFFF0, 0xFFF8),
            (0x1BCA0, 0x1BCA3),
            (0x1D173, 0x1D17A),
            (0xE0000, 0xE0FFF),
        ];
        let format = [
            (0xAD, 0xAD),
            (0x61C, 0x61C),
            (0x180E, 0x180E),
            (0x200B, 0x200F),
            (0x202A, 0x202E),
            (0x2060, 0x2064),
            (0x2066, 0x206F),
            (0xFEFF, 0xFEFF),
            (0xFFF9, 0xFFFB),
            (0x13430, 0x1343F),
            (0x1BCA0, 0x1BCA3),
            (0x1D173, 0x1D17A),
            (0xE0001, 0xE0001),
            (0xE0020, 0xE007F),
        ];
        for (first, last) in ignorable.into_iter().chain(format) {
            let missing = (first..=last).filter_map(char::from_u32).find(|c| !is_invisible(*c));
            assert_eq!(missing, None);
        }
        // Format characters that render around or above the following ones.
        let signs = [
            (0x600, 0x605),
            (0x6DD, 0x6DD),
            (0x70F, 0x70F),
            (0x890, 0x891),
            (0x8E2, 0x8E2),
            (0x110BD, 0x110BD),
            (0x110CD, 0x110CD),
        ];
        for (first, last) in signs {
            assert!((first..=last).filter_map(char::from_u32).all(|c| !is_unseen(c)));
        }
    }
}
