//! A text as its reader would understand it, with the way back to where each part came from.

use super::index::is_base64;

/// Some bytes that were made from others.
#[derive(Default)]
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    parts: Vec<Part>,
    /// Whatever is found is found in all of it.
    whole: bool,
}

/// From `view` on, every `made` bytes come from `taken` bytes of the source, which begin at `source`.
///
/// Numbers are narrow, because a text can have as many parts as bytes; the budget ends far below their limit.
struct Part {
    view: u32,
    source: u32,
    made: u32,
    taken: u32,
}

impl View {
    /// What is pushed from now on comes from `source`, where `taken` bytes make `made`.
    pub(super) fn part(&mut self, source: usize, taken: usize, made: usize) {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (view, source) = (narrow(self.bytes.len()), narrow(source));
        self.parts.push(Part { view, source, made: narrow(made), taken: narrow(taken) });
    }

    /// Bytes that were made from `taken` bytes of the source together.
    pub(super) fn of_all(source: usize, taken: usize, bytes: Vec<u8>) -> View {
        let mut view = View::default();
        view.part(source, taken, bytes.len().max(1));
        view.bytes = bytes;
        view.into_whole()
    }

    /// Adds bytes as they stand in the source.
    pub(super) fn copy(&mut self, source: &[u8], from: usize, to: usize) {
        if from < to {
            self.part(from, 1, 1);
            self.bytes.extend_from_slice(&source[from..to]);
        }
    }

    /// Adds what is near the beginning or the end of a part of the source, up to the next space.
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
            // Nothing goes on across what is left out.
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

    /// Whether this part of the view stands in the source as it is.
    pub(super) fn is_copied(&self, start: usize, end: usize) -> bool {
        let number = self.parts.partition_point(|part| part.view as usize <= start);
        let ends_at = self.parts.get(number).map_or(self.bytes.len(), |part| part.view as usize);
        let part = self.parts.get(number.saturating_sub(1));
        end <= ends_at && part.is_some_and(|part| part.made == 1 && part.taken == 1)
    }

    pub(super) fn into_whole(mut self) -> View {
        self.whole = true;
        self
    }

    /// Returns the part of the source that became this part of the view.
    pub(super) fn source_of(&self, start: usize, end: usize) -> (usize, usize) {
        let (start, end) = if self.whole { (0, self.bytes.len()) } else { (start, end) };
        let place =
            |part: &Part| (part.view as usize, part.source as usize, part.made as usize, part.taken as usize);
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

/// Bytes are looked through in pieces of this size for one that may begin an escape.
pub(super) const PIECE: usize = 64;
/// As long as the longest token: what goes on after `reach` is taken up to its end.
const WORD_BYTES_MAX: usize = 4096;
const ENTITY_BYTES_MAX: usize = 10;

/// What must be kept together for the secrets to be seen.
pub(super) struct Near {
    /// How far from an escape the rest of the same secret may stand.
    reach: usize,
    /// The bytes that secrets have.
    bytes: [bool; 256],
}

impl Near {
    /// How much longer a part of a secret can be that has no escapes, but is encoded otherwise.
    const REACH_TIMES: usize = 4;
    /// Enough for what stands around a token.
    const REACH_MIN: usize = 256;
    /// A line that was broken is at least so long.
    const LINE_BYTES_MIN: usize = 7;

    pub(super) fn new<'v>(values: impl Iterator<Item = &'v str>) -> Near {
        let mut near = Near { reach: Near::REACH_MIN, bytes: [false; 256] };
        for value in values {
            near.reach = near.reach.max(value.len() * Near::REACH_TIMES);
            value.bytes().for_each(|byte| near.bytes[byte as usize] = true);
        }
        near
    }

    /// Whether no secret goes on across an escape for `byte`, which stands between `start` and `end`.
    fn ends_at(&self, byte: u8, text: &[u8], start: usize, end: usize) -> bool {
        if self.bytes[byte as usize] {
            return false;
        }
        match byte {
            b'"' | b'\'' | b'<' | b'>' => true,
            b'\n' | b'\r' | b'\t' => {
                let broken = |byte: &u8| is_base64(*byte) || *byte == b'=';
                let line = text[..start].last_chunk::<{ Near::LINE_BYTES_MIN }>();
                let next = text[end..].iter().find(|byte| **byte != b' ');
                // Where another escape follows, that one is looked at in its turn.
                !(line.is_some_and(|line| line.iter().all(broken))
                    && next.is_some_and(|byte| broken(byte) || *byte == b'\\'))
            }
            _ => false,
        }
    }
}

/// Returns the text with its escapes undone: of URLs, JSON and most languages, HTML. Nothing, if it has none.
///
/// What is further than `reach` from any escape is left out, and so are escapes that no secret can go across.
pub(super) fn unescaped(text: &[u8], near: &Near) -> Option<View> {
    let begins = |byte: u8| u8::from(byte == b'%') | u8::from(byte == b'\\') | u8::from(byte == b'&');
    let (mut view, mut copied) = (View::default(), 0);
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
                && let Meaning::Byte(byte) = meaning
                && near.ends_at(byte, text, at, at + 1 + taken)
            {
                continue;
            }
            view.copy_near(text, copied, at, near.reach);
            copied = at + 1 + taken;
            match meaning {
                Meaning::Byte(byte) => view.put_byte(byte, at, taken + 1),
                Meaning::Character(character) => view.put(character, at, taken + 1),
                Meaning::Nothing => {}
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

/// Whether any byte fits. Without a way out of the loop the compiler compares many of them at once.
#[inline]
pub(super) fn any_of(piece: &[u8; PIECE], fits: impl Fn(u8) -> u8) -> bool {
    piece.iter().fold(0, |any, byte| any | fits(*byte)) != 0
}

enum Meaning {
    Byte(u8),
    Character(char),
    Nothing,
}

/// What is meant, and how many bytes after the first one say so.
type Escape = Option<(Meaning, usize)>;

fn percent(rest: &[u8]) -> Escape {
    if let [b'u' | b'U', digits @ ..] = rest {
        let code = number(digits.get(..4)?, 16)?;
        return Some((Meaning::Character(char::from_u32(code)?), 5));
    }
    Some((Meaning::Byte(number(rest.get(..2)?, 16)? as u8), 2))
}

fn backslash(rest: &[u8]) -> Escape {
    let plain = |byte: u8| Some((Meaning::Byte(byte), 1));
    match *rest {
        [b'n', ..] => plain(b'\n'),
        [b't', ..] => plain(b'\t'),
        [b'r', ..] => plain(b'\r'),
        [c, ..] if c == b' ' || c.is_ascii_punctuation() => plain(c),
        [b'\n', ..] => Some((Meaning::Nothing, 1)),
        [b'b', ..] => plain(8),
        [b'f', ..] => plain(12),
        [b'x', a, b, ..] => Some((Meaning::Byte(number(&[a, b], 16)? as u8), 3)),
        [b'u', b'{', ref digits @ ..] => {
            let length = digits.iter().take(7).position(|byte| *byte == b'}')?;
            Some((Meaning::Character(char::from_u32(number(&digits[..length], 16)?)?), length + 3))
        }
        [b'u', ref digits @ ..] => {
            let unit = number(digits.get(..4)?, 16)?;
            if let (0xD800..0xDC00, Some([b'\\', b'u', low @ ..])) = (unit, digits.get(4..10))
                && let Some(low @ 0xDC00..0xE000) = number(low, 16)
            {
                let code = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                return Some((Meaning::Character(char::from_u32(code)?), 11));
            }
            Some((Meaning::Character(char::from_u32(unit)?), 5))
        }
        [b'U', ref digits @ ..] => {
            Some((Meaning::Character(char::from_u32(number(digits.get(..8)?, 16)?)?), 9))
        }
        [a @ b'0'..=b'3', b, c, ..] => Some((Meaning::Byte(number(&[a, b, c], 8)? as u8), 3)),
        _ => None,
    }
}

fn entity(rest: &[u8]) -> Escape {
    let length = rest.iter().take(ENTITY_BYTES_MAX).position(|byte| *byte == b';')?;
    let name = &rest[..length];
    let code = match name {
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
        [b'#', digits @ ..] => number(digits, 10)?,
        _ => u32::from(*ENTITIES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, byte)| byte)?),
    };
    let meaning = match u8::try_from(code) {
        Ok(byte) if byte.is_ascii() => Meaning::Byte(byte),
        _ => Meaning::Character(char::from_u32(code)?),
    };
    Some((meaning, length + 1))
}

/// The names that HTML has for ASCII characters; a value has no letters that need one.
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
    // `from_str_radix` would also take a sign.
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    digits
        .iter()
        .try_fold(0_u32, |sum, byte| sum.checked_mul(base)?.checked_add(char::from(*byte).to_digit(base)?))
}

/// Returns the text without characters that do not show, wide ones made narrow, and marks put on their letters.
pub(super) fn shown(text: &[u8]) -> Option<View> {
    let (mut view, mut copied, mut at) = (View::default(), 0, 0);
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

/// Whether a character begins with the byte that [`shown`] would change.
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

/// Returns the letter before `at` with the mark on it, and how many bytes that letter takes.
fn composed_of(text: &[u8], at: usize, mark: char) -> Option<(char, usize)> {
    let start = text[..at].iter().rposition(|byte| !(0x80..0xC0).contains(byte))?;
    let letter = character_at(&text[start..at])?;
    let (_, plain, marked) = MARKS.iter().find(|(known, ..)| *known == mark)?;
    let place = plain.chars().position(|c| c == letter)?;
    Some((marked.chars().nth(place)?, at - start))
}

/// Marks, letters, and the same letters with that mark: those of European languages.
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

/// Returns the text with marks put on their letters.
pub(super) fn composed(text: &str) -> String {
    let view = if text.is_ascii() { None } else { shown(text.as_bytes()) };
    view.and_then(|view| String::from_utf8(view.bytes).ok()).unwrap_or_else(|| text.to_owned())
}
