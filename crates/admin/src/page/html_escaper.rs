//! HTML escaping that also makes invisible characters visible.
//!
//! Most text on a page is untrusted: it comes from agents and upstream servers. Every template value passes
//! [`HtmlEscaper`], the default escaper of all templates (`askama.toml`). It prevents XSS, and it replaces invisible and
//! bidirectional control characters by their code point, `⟦U+202E⟧`. [`marked`] also wraps the code point in an element,
//! for places that hold text only.

use askama::filters::{Escaper, Html, Safe};
use portcullis_core::hidden_chars::is_invisible;
use std::fmt::{self, Write};

/// Combining marks shown per letter. No written language uses more.
const COMBINING_MAX: usize = 4;
/// Consecutive wide or non-breaking spaces that count as typography.
const SPACES_MAX: usize = 1;
/// Characters of a hidden message that are spelt out.
const SPELT_CHARS_MAX: usize = 200;

/// The escaper of every template.
#[derive(Debug, Clone, Copy, Default)]
pub struct HtmlEscaper;

impl Escaper for HtmlEscaper {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        pieces(text, |piece| match piece {
            Piece::Plain(plain) => Html.write_escaped_str(&mut dest, plain),
            // May be inside an attribute, so without an element.
            Piece::Hidden(hidden) => Html.write_escaped_str(&mut dest, &hidden.label()),
        })
    }
}

/// Replaces hidden characters by plain labels, for the live stream, which is no template.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let written = pieces(text, |piece| match piece {
        Piece::Plain(plain) => shown.write_str(plain),
        Piece::Hidden(hidden) => shown.write_str(&hidden.label()),
    });
    debug_assert!(written.is_ok(), "a string takes everything");
    shown
}

/// Returns HTML in which hidden characters are elements that describe them.
pub(crate) fn marked(text: impl AsRef<str>) -> Safe<String> {
    let text = text.as_ref();
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    let written = pieces(text, |piece| match piece {
        Piece::Plain(plain) => Html.write_escaped_str(&mut shown, plain),
        Piece::Hidden(hidden) => {
            shown.write_str("<mark class=\"hidden\" title=\"")?;
            Html.write_escaped_str(&mut shown, &hidden.title())?;
            shown.write_str("\">")?;
            Html.write_escaped_str(&mut shown, &hidden.label())?;
            shown.write_str("</mark>")
        }
    });
    debug_assert!(written.is_ok(), "a string takes everything");
    Safe(shown)
}

/// Decodes JSON escapes of hidden characters, so that they are marked like literal ones instead of passing as `\u…`.
/// A literal backslash is doubled in JSON, so escapes are unambiguous.
pub(crate) fn revealed(json: impl AsRef<str>) -> String {
    let mut rest = json.as_ref();
    let mut shown = String::with_capacity(rest.len());
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        shown.push_str(before);
        let length = match hidden_escape(escape) {
            Some((c, length)) => {
                shown.push(c);
                length
            }
            // Copied with the next character, so the second of two backslashes does not start an escape.
            None => {
                let length = escape.char_indices().nth(2).map_or(escape.len(), |(at, _)| at);
                shown.push_str(escape.get(..length).unwrap_or_default());
                length
            }
        };
        rest = escape.get(length..).unwrap_or_default();
    }
    shown.push_str(rest);
    shown
}

/// Decodes an escape at the start of `text`, if it is of a hidden character, and returns its length.
fn hidden_escape(text: &str) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = text.get(from..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let short = [("\\b", '\u{8}'), ("\\f", '\u{c}'), ("\\r", '\r')];
    if let Some((_, c)) = short.into_iter().find(|(escape, _)| text.starts_with(escape)) {
        // CRLF is an ordinary line end.
        return (!text.starts_with("\\r\\n")).then_some((c, 2));
    }
    let (c, length) = match text.strip_prefix("\\u{").and_then(|rest| rest.split_once('}')) {
        Some((digits, _)) => {
            (u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?, digits.len() + 4)
        }
        None => {
            let first = unit(0)?;
            let units = [first, unit(6).filter(|_| (0xd800..0xdc00).contains(&first)).unwrap_or_default()];
            let c = char::decode_utf16(units).next()?.ok()?;
            (c, c.len_utf16() * 6)
        }
    };
    let is_hidden = (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c);
    is_hidden.then_some((c, length))
}

/// Renders a message of the hub, with backticks as `<code>`. The quoted parts may be untrusted.
pub(crate) fn sentence(text: impl AsRef<str>) -> Safe<String> {
    let text = text.as_ref();
    let mut shown = String::with_capacity(text.len() + 32);
    // An unpaired backtick is text.
    let pairs = text.matches('`').count() / 2 * 2;
    for (at, part) in text.splitn(pairs + 1, '`').enumerate() {
        let Safe(part) = marked(part);
        if at % 2 == 1 {
            shown.push_str("<code>");
            shown.push_str(&part);
            shown.push_str("</code>");
        } else {
            shown.push_str(&part);
        }
    }
    Safe(shown)
}

/// Escapes HTML only, for form fields whose contents are submitted again.
pub(crate) fn exact(text: impl AsRef<str>) -> Safe<String> {
    let text = text.as_ref();
    let mut shown = String::with_capacity(text.len());
    let written = Html.write_escaped_str(&mut shown, text);
    debug_assert!(written.is_ok(), "a string takes everything");
    Safe(shown)
}

/// A run of visible or hidden characters.
enum Piece<'a> {
    Plain(&'a str),
    Hidden(HiddenRun),
}

/// A run of hidden characters of one kind.
struct HiddenRun {
    sort: HiddenKind,
    first: char,
    count: usize,
    /// The ASCII that tag characters or variation selectors spell.
    spelt: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HiddenKind {
    /// One character, repeated.
    Same(char),
    /// Tag characters: invisible copies of ASCII.
    Tags,
    /// Variation selectors, which can carry a byte each.
    Selectors,
}

impl HiddenRun {
    fn label(&self) -> String {
        let first = u32::from(self.first);
        match (self.sort, self.count, self.spelt.is_empty()) {
            (HiddenKind::Same(_), 1, _) => format!("⟦U+{first:04X}⟧"),
            (HiddenKind::Same(_), count, _) => format!("⟦U+{first:04X}×{count}⟧"),
            (HiddenKind::Selectors, 1, _) => format!("⟦U+{first:04X}⟧"),
            (_, count, true) => format!("⟦U+{first:04X} and {} like it⟧", count.saturating_sub(1)),
            (HiddenKind::Tags, _, false) => format!("⟦tags: {}⟧", self.spelt),
            (HiddenKind::Selectors, _, false) => format!("⟦selectors: {}⟧", self.spelt),
        }
    }

    fn title(&self) -> String {
        let what = match self.sort {
            HiddenKind::Tags => "invisible copies of letters",
            HiddenKind::Selectors => "invisible variation selectors",
            HiddenKind::Same(c) => name(c),
        };
        format!("{what}: {} character{}", self.count, if self.count == 1 { "" } else { "s" })
    }
}

fn name(c: char) -> &'static str {
    match c {
        '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}' | '\u{061C}' => {
            "changes the text direction"
        }
        '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FEFF}' => "zero width",
        '\u{00AD}' => "soft hyphen",
        '\u{1b}' => "terminal escape character",
        '\u{2028}' | '\u{2029}' => "line separator",
        c if is_wide_space(c) => "looks like a space",
        c if is_combining(c) => "combining mark",
        c if c.is_control() => "control character",
        _ => "invisible",
    }
}

/// Splits a text into visible and hidden runs.
fn pieces<'a>(text: &'a str, mut take: impl FnMut(Piece<'a>) -> fmt::Result) -> fmt::Result {
    let mut plain_from = 0;
    let mut combining = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        // Fast path.
        if c.is_ascii_graphic() || matches!(c, ' ' | '\n' | '\t') {
            combining = 0;
            continue;
        }
        combining = if is_combining(c) { combining + 1 } else { 0 };
        let Some(sort) = sort(c, combining, rest.peek().map(|(_, next)| *next)) else { continue };
        if plain_from < at {
            take(Piece::Plain(text.get(plain_from..at).unwrap_or_default()))?;
        }
        let mut hidden = HiddenRun { sort, first: c, count: 1, spelt: String::new() };
        spell(&mut hidden, c);
        while let Some((_, next)) = rest.next_if(|(_, next)| belongs(sort, *next)) {
            hidden.count += 1;
            spell(&mut hidden, next);
        }
        take(Piece::Hidden(hidden))?;
        plain_from = rest.peek().map_or(text.len(), |(at, _)| *at);
    }
    match text.get(plain_from..) {
        Some(plain) if !plain.is_empty() => take(Piece::Plain(plain)),
        _ => Ok(()),
    }
}

fn sort(c: char, combining: usize, next: Option<char>) -> Option<HiddenKind> {
    match c {
        '\u{E0000}'..='\u{E007F}' => Some(HiddenKind::Tags),
        '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}' => Some(HiddenKind::Selectors),
        c if c.is_control() || is_invisible(c) || is_no_character(c) => Some(HiddenKind::Same(c)),
        c if combining > COMBINING_MAX => Some(HiddenKind::Same(c)),
        // One is typography; several can push text out of sight.
        c if is_wide_space(c) && SPACES_MAX == 1 && next == Some(c) => Some(HiddenKind::Same(c)),
        _ => None,
    }
}

fn belongs(sort: HiddenKind, next: char) -> bool {
    match sort {
        HiddenKind::Same(c) => next == c,
        HiddenKind::Tags => matches!(next, '\u{E0000}'..='\u{E007F}'),
        HiddenKind::Selectors => matches!(next, '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}'),
    }
}

/// Adds the ASCII character that a hidden character encodes, if any.
fn spell(hidden: &mut HiddenRun, c: char) {
    let code = u32::from(c);
    let spelt = match hidden.sort {
        HiddenKind::Tags => char::from_u32(code & 0x7f),
        HiddenKind::Selectors if code >= 0xE0100 => char::from_u32(code - 0xE0100 + 16),
        HiddenKind::Selectors => None,
        HiddenKind::Same(_) => return,
    };
    let spelt = spelt.filter(|c| c.is_ascii_graphic() || *c == ' ');
    if let Some(spelt) = spelt
        && hidden.spelt.len() < SPELT_CHARS_MAX
    {
        hidden.spelt.push(spelt);
    }
}

fn is_combining(c: char) -> bool {
    matches!(c, '\u{0300}'..='\u{036F}' | '\u{0483}'..='\u{0489}' | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}'
        | '\u{20D0}'..='\u{20FF}' | '\u{FE20}'..='\u{FE2F}')
}

fn is_wide_space(c: char) -> bool {
    matches!(c, '\u{00A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}')
}

/// Noncharacters, and private use characters, which can look like anything.
fn is_no_character(c: char) -> bool {
    let code = u32::from(c);
    code & 0xfffe == 0xfffe || matches!(c, '\u{FDD0}'..='\u{FDEF}' | '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        HtmlEscaper.write_escaped_str(&mut out, text).unwrap();
        out
    }

    #[test]
    fn nothing_becomes_markup_and_nothing_hides() {
        for (text, expected) in [
            (
                "plain, with ümlaut & 日本語\n\tand \"quotes\"",
                "plain, with ümlaut &#38; 日本語\n\tand &#34;quotes&#34;",
            ),
            ("<script>alert(1)</script>", "&#60;script&#62;alert(1)&#60;/script&#62;"),
            ("safe \u{202e}evil\u{202c}", "safe ⟦U+202E⟧evil⟦U+202C⟧"),
            ("re\u{200b}ad", "re⟦U+200B⟧ad"),
            ("\u{1b}[31mred\u{7}", "⟦U+001B⟧[31mred⟦U+0007⟧"),
            ("x\u{e0072}\u{e0065}\u{e0061}\u{e0064}y", "x⟦tags: read⟧y"),
            ("😀\u{e0162}\u{e0155}\u{e0151}\u{e0154}", "😀⟦selectors: read⟧"),
            ("one\u{a0}two", "one\u{a0}two"),
            ("one\u{a0}\u{a0}\u{a0}two", "one⟦U+00A0×3⟧two"),
            ("\u{fffe}\u{ffff}", "⟦U+FFFE⟧⟦U+FFFF⟧"),
            ("\r\n", "⟦U+000D⟧\n"),
            ("", ""),
        ] {
            assert_eq!(escaped(text), expected, "{text:?}");
        }
        let stack = format!("a{}b", "\u{301}".repeat(100));
        assert_eq!(escaped(&stack), format!("a{}⟦U+0301×96⟧b", "\u{301}".repeat(4)));
    }

    #[test]
    fn what_is_spelt_out_by_hidden_letters_is_no_markup_either() {
        let hidden: String = "<b>".chars().filter_map(|c| char::from_u32(0xE0000 + u32::from(c))).collect();
        assert_eq!(escaped(&hidden), "⟦tags: &#60;b&#62;⟧");
        assert!(!marked(&hidden).0.contains("<b>"));
    }

    #[test]
    fn a_mark_says_what_it_stands_for() {
        assert_eq!(
            marked("a\u{202e}<").0,
            "a<mark class=\"hidden\" title=\"changes the text direction: 1 character\">⟦U+202E⟧</mark>&#60;"
        );
    }

    #[test]
    fn a_sentence_shows_what_it_quotes() {
        assert_eq!(
            sentence("client `a<b` may run `x`").0,
            "client <code>a&#60;b</code> may run <code>x</code>"
        );
        assert_eq!(sentence("one ` alone").0, "one ` alone");
        assert_eq!(sentence("`a` and ` alone").0, "<code>a</code> and ` alone");
    }

    #[test]
    fn a_field_gives_back_what_it_was_given() {
        assert_eq!(exact("a\u{202e}\"<").0, "a\u{202e}&#34;&#60;");
    }

    #[test]
    fn what_is_hidden_behind_escapes_is_marked_too() {
        for (json, expected) in [
            (r#"{"a":"x\u202ey"}"#, "{\"a\":\"x\u{202e}y\"}"),
            (r#"{"a":"x\u{202e}y\u0007"}"#, "{\"a\":\"x\u{202e}y\u{7}\"}"),
            (r#""\udb40\udc72\udb40\udc65""#, "\"\u{e0072}\u{e0065}\""),
            // What is meant as it stands stays, and so does what is seen, and what is no character.
            (
                r#""a\\u202e \u0041 \n \" \ud83d\ude00 \udb40 \u20""#,
                r#""a\\u202e \u0041 \n \" \ud83d\ude00 \udb40 \u20""#,
            ),
            (r"\u{110000} \u{} \", r"\u{110000} \u{} \"),
            (r#""evil\b\bgood\r over\r\n""#, "\"evil\u{8}\u{8}good\r over\\r\\n\""),
            ("\\ä\\u{202", "\\ä\\u{202"),
        ] {
            assert_eq!(revealed(json), expected, "{json}");
        }
        assert!(marked(revealed(r#""\udb40\udc72\udb40\udc65""#)).0.contains("⟦tags: re⟧"));
    }

    /// The corpus of strings that look like something else, where it is.
    #[test]
    fn no_string_of_the_corpus_reaches_the_page_as_it_is() {
        let shared = std::env::var("PORTCULLIS_SHARED")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
        let file = format!("{shared}/fixtures/corpora/unicode_ansi.jsonl");
        let Ok(lines) = std::fs::read_to_string(&file) else {
            println!("skipped: the shared corpora are not here");
            return;
        };
        let raw = |text: &str| {
            text.chars().any(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c))
        };
        let mut weak_lets_through = 0;
        for line in lines.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = value["text"].as_str().unwrap();
            assert!(!raw(&escaped(text)) && !raw(&marked(text).0) && !raw(&visible(text)), "{}", value["id"]);
            assert!(!escaped(text).contains('<'), "{}", value["id"]);
            // The weak variant: what templates do by themselves.
            let mut weak = String::new();
            Html.write_escaped_str(&mut weak, text).unwrap();
            weak_lets_through += usize::from(raw(&weak));
        }
        assert!(weak_lets_through > 0);
    }
}
