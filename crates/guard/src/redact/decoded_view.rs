//! Decoded views of a text, with a mapping back to source positions.

use super::literal_index::is_base64;

/// Decoded bytes.
#[derive(Default)]
pub(super) struct DecodedView {
    pub(super) bytes: Vec<u8>,
    parts: Vec<ViewSegment>,
    /// Every match maps to the whole source.
    whole: bool,
}

/// From `view` on, every `made` bytes come from `taken` bytes of the source, starting at `source`.
///
/// `u32`, because a text can have as many segments as bytes; the budget is far below the limit.
struct ViewSegment {
    view: u32,
    source: u32,
    made: u32,
    taken: u32,
}

impl DecodedView {
    /// Starts a segment: following bytes come from `source`, where `taken` bytes make `made`.
    pub(super) fn part(&mut self, source: usize, taken: usize, made: usize) {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (view, source) = (narrow(self.bytes.len()), narrow(source));
        self.parts.push(ViewSegment { view, source, made: narrow(made), taken: narrow(taken) });
    }

    /// A view made as a whole from `taken` bytes of the source.
    pub(super) fn of_all(source: usize, taken: usize, bytes: Vec<u8>) -> DecodedView {
        let mut view = DecodedView::default();
        view.part(source, taken, bytes.len().max(1));
        view.bytes = bytes;
        view.into_whole()
    }

    /// Copies bytes of the source.
    pub(super) fn copy(&mut self, source: &[u8], from: usize, to: usize) {
        if from < to {
            self.part(from, 1, 1);
            self.bytes.extend_from_slice(&source[from..to]);
        }
    }

    /// Copies the start and end of a source range, each extended to the next whitespace.
    fn copy_near(&mut self, source: &[u8], from: usize, to: usize, reach: usize) {
        if to - from <= 2 * reach {
            return self.copy(source, from, to);
        }
        let in_word = |byte: &&u8| !byte.is_ascii_whitespace();
        let (first, last) = (from + reach, to - reach);
        let first = first + source[first..last].iter().take(WORD_BYTES_MAX).take_while(in_word).count();
        let last = last - source[first..last].iter().rev().take(WORD_BYTES_MAX).take_while(in_word).count();
        if from > 0 {
            self.copy(source, from, first);
            // Prevents matches across the omitted part.
            self.put_byte(b'\n', first, 0);
        }
        self.copy(source, last, to);
    }

    pub(super) fn put(&mut self, character: char, source: usize, taken: usize) {
        self.part(source, taken, character.len_utf8());
        self.bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    pub(super) fn put_byte(&mut self, byte: u8, source: usize, taken: usize) {
        self.part(source, taken, 1);
        self.bytes.push(byte);
    }

    /// Returns whether this range of the view is copied literally.
    pub(super) fn is_copied(&self, start: usize, end: usize) -> bool {
        let number = self.parts.partition_point(|part| part.view as usize <= start);
        let ends_at = self.parts.get(number).map_or(self.bytes.len(), |part| part.view as usize);
        let part = self.parts.get(number.saturating_sub(1));
        end <= ends_at && part.is_some_and(|part| part.made == 1 && part.taken == 1)
    }

    pub(super) fn into_whole(mut self) -> DecodedView {
        self.whole = true;
        self
    }

    /// Returns the source range of a range of the view.
    pub(super) fn source_of(&self, start: usize, end: usize) -> (usize, usize) {
        let (start, end) = if self.whole { (0, self.bytes.len()) } else { (start, end) };
        let place = |part: &ViewSegment| {
            (part.view as usize, part.source as usize, part.made as usize, part.taken as usize)
        };
        let part_at = |at: usize| {
            let number = self.parts.partition_point(|part| part.view as usize <= at);
            self.parts.get(number.saturating_sub(1)).map(place)
        };
        let from =
            part_at(start).map_or(0, |(view, source, made, taken)| source + (start - view) * taken / made);
        let to = part_at(end.saturating_sub(1))
            .map_or(0, |(view, source, made, taken)| source + ((end - view) * taken).div_ceil(made));
        (from, to.max(from))
    }
}

/// Chunk size of the search for bytes that may begin an escape.
pub(super) const PIECE: usize = 64;
/// The longest token: what continues after `reach` is copied to its end.
const WORD_BYTES_MAX: usize = 4096;
const ENTITY_BYTES_MAX: usize = 10;

/// The context that must be kept for secrets to be found.
pub(super) struct SecretWindow {
    /// How far from an escape the rest of the same secret may be.
    reach: usize,
    /// The bytes that occur in secrets.
    bytes: [bool; 256],
}

impl SecretWindow {
    /// How much longer an otherwise encoded part of a secret can be.
    const REACH_TIMES: usize = 4;
    /// Enough for the context of a token.
    const REACH_MIN: usize = 256;
    /// Minimum length of a wrapped line.
    const LINE_BYTES_MIN: usize = 7;

    pub(super) fn new<'v>(values: impl Iterator<Item = &'v str>) -> SecretWindow {
        let mut near = SecretWindow { reach: SecretWindow::REACH_MIN, bytes: [false; 256] };
        for value in values {
            near.reach = near.reach.max(value.len() * SecretWindow::REACH_TIMES);
            value.bytes().for_each(|byte| near.bytes[byte as usize] = true);
        }
        near
    }

    /// Returns whether no secret continues across an escape for `byte`, which is between `start` and `end`.
    fn ends_at(&self, byte: u8, text: &[u8], start: usize, end: usize) -> bool {
        if self.bytes[byte as usize] {
            return false;
        }
        match byte {
            b'"' | b'\'' | b'<' | b'>' => true,
            b'\n' | b'\r' | b'\t' => {
                let broken = |byte: &u8| is_base64(*byte) || *byte == b'=';
                let line = text[..start].last_chunk::<{ SecretWindow::LINE_BYTES_MIN }>();
                let next = text[end..].iter().find(|byte| **byte != b' ');
                // A following escape is checked in its turn.
                !(line.is_some_and(|line| line.iter().all(broken))
                    && next.is_some_and(|byte| broken(byte) || *byte == b'\\'))
            }
            _ => false,
        }
    }
}

/// Undoes the escapes of URLs, JSON, HTML and most languages; `None` if there are none.
///
/// Leaves out text further than `reach` from any escape, and escapes that no secret can span.
pub(super) fn unescaped(text: &[u8], near: &SecretWindow) -> Option<DecodedView> {
    let begins = |byte: u8| u8::from(byte == b'%') | u8::from(byte == b'\\') | u8::from(byte == b'&');
    let (mut view, mut copied) = (DecodedView::default(), 0);
    let (pieces, rest) = text.as_chunks::<PIECE>();
    let pieces = pieces.iter().map(|piece| (&piece[..], any_of(piece, begins)));
    for (number, (piece, may_have)) in pieces.chain([(rest, true)]).enumerate() {
        if !may_have {
            continue;
        }
        for (at, byte) in (number * PIECE..).zip(piece) {
            if begins(*byte) == 0 || at < copied {
                continue;
            }
            let rest = &text[at + 1..];
            let escape = match byte {
                b'%' => percent(rest),
                b'\\' => backslash(rest),
                _ => entity(rest),
            };
            let Some((meaning, taken)) = escape else { continue };
            if *byte != b'%'
                && let EscapeMeaning::Byte(byte) = meaning
                && near.ends_at(byte, text, at, at + 1 + taken)
            {
                continue;
            }
            view.copy_near(text, copied, at, near.reach);
            copied = at + 1 + taken;
            match meaning {
                EscapeMeaning::Byte(byte) => view.put_byte(byte, at, taken + 1),
                EscapeMeaning::Character(character) => view.put(character, at, taken + 1),
                EscapeMeaning::Nothing => {}
            }
        }
    }
    if copied == 0 {
        return None;
    }
    let rest = text[copied..].len().min(2 * near.reach + 2 * WORD_BYTES_MAX);
    view.copy_near(text, copied, copied + rest, near.reach);
    Some(view)
}

/// Returns whether any byte fits. Without an early exit, so that the compiler vectorizes the loop.
#[inline]
pub(super) fn any_of(piece: &[u8; PIECE], fits: impl Fn(u8) -> u8) -> bool {
    piece.iter().fold(0, |any, byte| any | fits(*byte)) != 0
}

enum EscapeMeaning {
    Byte(u8),
    Character(char),
    Nothing,
}

/// The meaning of an escape, and its length after the first byte.
type ParsedEscape = Option<(EscapeMeaning, usize)>;

fn percent(rest: &[u8]) -> ParsedEscape {
    if let [b'u' | b'U', digits @ ..] = rest {
        let code = number(digits.get(..4)?, 16)?;
        return Some((EscapeMeaning::Character(char::from_u32(code)?), 5));
    }
    Some((EscapeMeaning::Byte(number(rest.get(..2)?, 16)? as u8), 2))
}

fn backslash(rest: &[u8]) -> ParsedEscape {
    let plain = |byte: u8| Some((EscapeMeaning::Byte(byte), 1));
    match *rest {
        [b'n', ..] => plain(b'\n'),
        [b't', ..] => plain(b'\t'),
        [b'r', ..] => plain(b'\r'),
        [c, ..] if c == b' ' || c.is_ascii_punctuation() => plain(c),
        [b'\n', ..] => Some((EscapeMeaning::Nothing, 1)),
        [b'b', ..] => plain(8),
        [b'f', ..] => plain(12),
        [b'x', a, b, ..] => Some((EscapeMeaning::Byte(number(&[a, b], 16)? as u8), 3)),
        [b'u', b'{', ref digits @ ..] => {
            let length = digits.iter().take(7).position(|byte| *byte == b'}')?;
            Some((EscapeMeaning::Character(char::from_u32(number(&digits[..length], 16)?)?), length + 3))
        }
        [b'u', ref digits @ ..] => {
            let unit = number(digits.get(..4)?, 16)?;
            if let (0xD800..0xDC00, Some([b'\\', b'u', low @ ..])) = (unit, digits.get(4..10))
                && let Some(low @ 0xDC00..0xE000) = number(low, 16)
            {
                let code = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                return Some((EscapeMeaning::Character(char::from_u32(code)?), 11));
            }
            Some((EscapeMeaning::Character(char::from_u32(unit)?), 5))
        }
        [b'U', ref digits @ ..] => {
            Some((EscapeMeaning::Character(char::from_u32(number(digits.get(..8)?, 16)?)?), 9))
        }
        [a @ b'0'..=b'3', b, c, ..] => Some((EscapeMeaning::Byte(number(&[a, b, c], 8)? as u8), 3)),
        _ => None,
    }
}

fn entity(rest: &[u8]) -> ParsedEscape {
    let length = rest.iter().take(ENTITY_BYTES_MAX).position(|byte| *byte == b';')?;
    let name = &rest[..length];
    let code = match name {
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
        [b'#', digits @ ..] => number(digits, 10)?,
        _ => u32::from(*ENTITIES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, byte)| byte)?),
    };
    let meaning = match u8::try_from(code) {
        Ok(byte) if byte.is_ascii() => EscapeMeaning::Byte(byte),
        _ => EscapeMeaning::Character(char::from_u32(code)?),
    };
    Some((meaning, length + 1))
}

/// The HTML entities of ASCII characters; values have no letters that need one.
const ENTITIES: &[(&str, u8)] = &[
    ("amp", b'&'),
    ("lt", b'<'),
    ("gt", b'>'),
    ("quot", b'"'),
    ("apos", b'\''),
    ("nbsp", b' '),
    ("Tab", b'\t'),
    ("NewLine", b'\n'),
    ("excl", b'!'),
    ("num", b'#'),
    ("dollar", b'$'),
    ("percnt", b'%'),
    ("lpar", b'('),
    ("rpar", b')'),
    ("ast", b'*'),
    ("plus", b'+'),
    ("comma", b','),
    ("period", b'.'),
    ("sol", b'/'),
    ("colon", b':'),
    ("semi", b';'),
    ("equals", b'='),
    ("quest", b'?'),
    ("commat", b'@'),
    ("lsqb", b'['),
    ("lbrack", b'['),
    ("bsol", b'\\'),
    ("rsqb", b']'),
    ("rbrack", b']'),
    ("Hat", b'^'),
    ("lowbar", b'_'),
    ("grave", b'`'),
    ("lcub", b'{'),
    ("lbrace", b'{'),
    ("verbar", b'|'),
    ("vert", b'|'),
    ("rcub", b'}'),
    ("rbrace", b'}'),
];

pub(super) fn number(digits: &[u8], base: u32) -> Option<u32> {
    // `from_str_radix` would also accept a sign.
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    digits
        .iter()
        .try_fold(0_u32, |sum, byte| sum.checked_mul(base)?.checked_add(char::from(*byte).to_digit(base)?))
}

/// Removes invisible characters, narrows full-width ones, and composes marks with their letters.
pub(super) fn shown(text: &[u8]) -> Option<DecodedView> {
    let (mut view, mut copied, mut at) = (DecodedView::default(), 0, 0);
    loop {
        while text.get(at..at + PIECE).is_some_and(<[u8]>::is_ascii) {
            at += PIECE;
        }
        let Some(more) = text[at..].iter().position(|byte| *byte >= 0xC2) else { break };
        at += more;
        let Some(character) = Some(text[at]).filter(may_not_show).and_then(|_| character_at(&text[at..]))
        else {
            at += 1 + text[at + 1..].iter().take_while(|byte| (0x80..0xC0).contains(*byte)).count();
            continue;
        };
        let length = character.len_utf8();
        let put = match character {
            c if is_hidden(c) => None,
            '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{3000}' => Some((' ', 0)),
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(character as u32 - 0xFEE0).map(|c| (c, 0)),
            '\u{300}'..='\u{36f}' => match composed_of(text, at, character) {
                Some((letter, bytes)) if at - bytes >= copied => Some((letter, bytes)),
                _ => {
                    at += length;
                    continue;
                }
            },
            _ => {
                at += length;
                continue;
            }
        };
        let back = put.map_or(0, |(_, back)| back);
        view.copy(text, copied, at - back);
        if let Some((character, _)) = put {
            view.put(character, at - back, length + back);
        }
        at += length;
        copied = at;
    }
    if copied == 0 {
        return None;
    }
    view.copy(text, copied, text.len());
    Some(view)
}

/// Returns whether a byte begins a character that [`shown`] could change.
fn may_not_show(byte: &u8) -> bool {
    matches!(byte, 0xC2 | 0xCC | 0xCD | 0xD8 | 0xE1..=0xE3 | 0xEF | 0xF3)
}

fn character_at(bytes: &[u8]) -> Option<char> {
    let length = match bytes.first()? {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    };
    std::str::from_utf8(bytes.get(..length)?).ok()?.chars().next()
}

fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// Composes the letter before `at` with a mark. Also returns the letter's length in bytes.
fn composed_of(text: &[u8], at: usize, mark: char) -> Option<(char, usize)> {
    let start = text[..at].iter().rposition(|byte| !(0x80..0xC0).contains(byte))?;
    let letter = character_at(&text[start..at])?;
    let (_, plain, marked) = MARKS.iter().find(|(known, ..)| *known == mark)?;
    let place = plain.chars().position(|c| c == letter)?;
    Some((marked.chars().nth(place)?, at - start))
}

/// Marks, letters, and the composed letters, for European languages.
const MARKS: &[(char, &str, &str)] = &[
    ('\u{300}', "AEIOUaeiou", "ÀÈÌÒÙàèìòù"),
    ('\u{301}', "AEIOUYaeiouyCcLlNnRrSsZz", "ÁÉÍÓÚÝáéíóúýĆćĹĺŃńŔŕŚśŹź"),
    ('\u{302}', "AEIOUaeiou", "ÂÊÎÔÛâêîôû"),
    ('\u{303}', "ANOano", "ÃÑÕãñõ"),
    ('\u{304}', "AEIOUaeiou", "ĀĒĪŌŪāēīōū"),
    ('\u{306}', "AaGgИи", "ĂăĞğЙй"),
    ('\u{307}', "IZz", "İŻż"),
    ('\u{308}', "AEIOUaeiouyЕе", "ÄËÏÖÜäëïöüÿЁё"),
    ('\u{30a}', "AaUu", "ÅåŮů"),
    ('\u{30b}', "OoUu", "ŐőŰű"),
    ('\u{30c}', "CcDdEeNnRrSsTtZz", "ČčĎďĚěŇňŘřŠšŤťŽž"),
    ('\u{327}', "CcSsTt", "ÇçŞşŢţ"),
    ('\u{328}', "AaEeIiUu", "ĄąĘęĮįŲų"),
];

/// Returns the text with marks composed.
pub(super) fn composed(text: &str) -> String {
    let view = if text.is_ascii() { None } else { shown(text.as_bytes()) };
    view.and_then(|view| String::from_utf8(view.bytes).ok()).unwrap_or_else(|| text.to_owned())
}
