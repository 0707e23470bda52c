//! Tokens recognized by shape: those of providers that mark what they issue.
//!
//! Shapes with a prefix are tried where a word begins inside a long run, if three bytes match. The few with a marker inside
//! are tried from the marker.

use super::TokenShapes;
use super::budget::{OverBudget, ScanBudget};
use super::literal_index::{SecretMatch, is_base64};
pub(super) use super::providers::{OWN, SHAPES};

/// One kind of token.
pub(super) struct Shape {
    /// The name in the mask.
    pub(super) name: &'static str,
    /// The prefix of a token.
    pub(super) prefix: &'static str,
    pub(super) body: ShapeBody,
    /// Whether the prefix ignores case.
    pub(super) any_case: bool,
}

/// What follows the prefix.
pub(super) enum ShapeBody {
    /// Between the two counts of characters of the set, and then a character not of the set.
    Of(CharacterSet, usize, usize),
    /// Exactly that many; anything may follow.
    Exactly(CharacterSet, usize),
    Check(fn(&[u8]) -> Option<usize>),
}

#[derive(Clone, Copy)]
pub(super) enum CharacterSet {
    /// Letters and digits.
    Word,
    /// Letters, digits, `-` and `_`.
    Url,
    Hex,
    Digit,
    Upper,
    /// Letters, digits, `-`, `_` and `.`.
    Dotted,
    /// Letters, digits, `-`, `_`, `.` and `=`.
    Loose,
    /// Letters, digits, `+`, `/`, `-`, `_` and `=`.
    Base64,
}

impl CharacterSet {
    pub(super) fn has(self, byte: u8) -> bool {
        match self {
            CharacterSet::Word => byte.is_ascii_alphanumeric(),
            CharacterSet::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            CharacterSet::Hex => byte.is_ascii_hexdigit(),
            CharacterSet::Digit => byte.is_ascii_digit(),
            CharacterSet::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            CharacterSet::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
            CharacterSet::Loose => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'='),
            CharacterSet::Base64 => is_base64(byte) || byte == b'=',
        }
    }

    pub(super) fn length(self, bytes: &[u8]) -> usize {
        bytes.iter().take_while(|byte| self.has(**byte)).count()
    }
}

/// Bound on a token.
const TOKEN_BYTES_MAX: usize = 4096;
/// A longer run is Base64, not a path.
const BLOB_BYTES: usize = 64;
/// Bound on a word.
const WORD_BYTES_MAX: usize = 24;
/// A private key in PEM; one of 8192 bits takes 6400 bytes.
const PEM_BYTES_MAX: usize = 16 * 1024;

/// The shortest Discord token.
const DISCORD_BYTES_MIN: usize = 24 + 1 + 6 + 1 + 27;

/// The labels of shapes without a prefix, which follow those of `SHAPES`.
pub(super) const UNPREFIXED: [&str; 8] = [
    "TELEGRAM_TOKEN",
    "DISCORD_TOKEN",
    "PRIVATE_KEY",
    "AZURE_SECRET",
    "MAXMIND_KEY",
    "MAILCHIMP_KEY",
    "FACEBOOK_TOKEN",
    "SIDEKIQ_LOGIN",
];
const TELEGRAM: usize = SHAPES.len();
const DISCORD: usize = SHAPES.len() + 1;
const PRIVATE_KEY: usize = SHAPES.len() + 2;
const AZURE: usize = SHAPES.len() + 3;
const MAXMIND: usize = SHAPES.len() + 4;
const MAILCHIMP: usize = SHAPES.len() + 5;
const FACEBOOK: usize = SHAPES.len() + 6;
const SIDEKIQ: usize = SHAPES.len() + 7;

/// Bits for the shapes; several shapes share one.
const BITS: usize = 63;
/// The bit of markers inside a token: the third character of each is distinctive.
const WITHIN: u64 = 1 << BITS;
const MARKS: [&[u8; 3]; 4] = [b":AA", b"0Q~", b"_mm", b"-us"];

/// For each byte, the shapes that have it at the first, second and third position. Shapes 63 apart share a bit.
static PLACES: [[u64; 256]; 3] = {
    let mut places = [[0; 256]; 3];
    let mut number = 0;
    while number < SHAPES.len() {
        let prefix = SHAPES[number].prefix.as_bytes();
        let bit = 1 << (number % BITS);
        let mut place = 0;
        while place < 3 {
            if place < prefix.len() {
                let byte = prefix[place];
                places[place][byte as usize] |= bit;
                if SHAPES[number].any_case {
                    places[place][byte.to_ascii_lowercase() as usize] |= bit;
                    places[place][byte.to_ascii_uppercase() as usize] |= bit;
                }
            } else {
                let mut byte = 0;
                while byte < 256 {
                    places[place][byte] |= bit;
                    byte += 1;
                }
            }
            place += 1;
        }
        number += 1;
    }
    let mut mark = 0;
    while mark < MARKS.len() {
        let mut place = 0;
        while place < 3 {
            places[place][MARKS[mark][place] as usize] |= WITHIN;
            place += 1;
        }
        mark += 1;
    }
    let mut digit = b'0';
    while digit <= b'9' {
        places[0][digit as usize] |= WITHIN;
        digit += 1;
    }
    places
};

/// Finds the tokens in a run; those of other services only if they are to be masked.
pub(super) fn find(
    text: &[u8],
    start: usize,
    end: usize,
    wanted: TokenShapes,
    hits: &mut Vec<SecretMatch>,
    budget: &mut ScanBudget,
) -> Result<(), OverBudget> {
    let all = wanted == TokenShapes::Mask;
    let mut after = start;
    for (at, three) in (start..).zip(text[start..end].windows(3)) {
        let tried =
            PLACES[0][three[0] as usize] & PLACES[1][three[1] as usize] & PLACES[2][three[2] as usize];
        if tried == 0 {
            continue;
        }
        let shapes = tried & !WITHIN;
        if shapes != 0 && at >= after && (at == after || begins_word(text, at)) {
            // Some continue after the run.
            let token = &text[at..text.len().min(at + TOKEN_BYTES_MAX)];
            if let Some((number, length)) = token_at(token, shapes, all, budget)? {
                hits.push(hit(at, at + length, number));
                after = at + length;
            }
        }
        if all && tried & WITHIN != 0 {
            hits.extend(match three {
                b":AA" => telegram(text, start, at, end),
                [b'0'..=b'9', b'Q', b'~'] => azure(text, start, at, end),
                b"_mm" => maxmind(text, start, at, end),
                b"-us" => mailchimp(text, start, at, end),
                _ => None,
            });
        }
    }
    if all && end - start >= DISCORD_BYTES_MIN && text[start..end].contains(&b'.') {
        discord(text, start, end, hits);
    }
    if all {
        hits.extend(facebook(text, start, end));
        hits.extend(sidekiq(text, start, end));
    }
    Ok(())
}

/// Returns whether the text before is not part of the same word; an escape is not.
fn begins_word(text: &[u8], at: usize) -> bool {
    match text[..at] {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        // A path, unless it is so long that these are Base64 digits.
        [.., b'/' | b'+'] => {
            !text[..at].last_chunk::<BLOB_BYTES>().is_some_and(|blob| blob.iter().all(|b| is_base64(*b)))
        }
        [.., before] => !before.is_ascii_alphanumeric(),
        [] => true,
    }
}

fn hit(start: usize, end: usize, number: usize) -> SecretMatch {
    SecretMatch { start, end, label: u32::try_from(number).unwrap_or(u32::MAX) }
}

/// Returns the matching shape at the start, and its length.
fn token_at(
    text: &[u8],
    mut tried: u64,
    all: bool,
    budget: &mut ScanBudget,
) -> Result<Option<(usize, usize)>, OverBudget> {
    while tried != 0 {
        let bit = tried.trailing_zeros() as usize;
        tried &= tried - 1;
        for number in (bit..SHAPES.len()).step_by(BITS) {
            if number >= OWN && !all {
                continue;
            }
            let shape = &SHAPES[number];
            let Some((prefix, rest)) = text.split_at_checked(shape.prefix.len()) else { continue };
            let begins = prefix == shape.prefix.as_bytes()
                || (shape.any_case && prefix.eq_ignore_ascii_case(shape.prefix.as_bytes()));
            if !begins {
                continue;
            }
            budget.compare(CharacterSet::Dotted.length(rest))?;
            let length = match shape.body {
                ShapeBody::Exactly(set, count) => {
                    rest.get(..count).filter(|b| set.length(b) == count).map(<[u8]>::len)
                }
                ShapeBody::Of(set, min, max) => {
                    let length = set.length(rest);
                    // Trailing dots end a sentence.
                    let ends = length > max && rest[max..length].iter().all(|byte| *byte == b'.');
                    let length = if ends { max } else { length };
                    ((min..=max).contains(&length) && is_random(&rest[..length])).then_some(length)
                }
                ShapeBody::Check(check) => check(rest),
            };
            if let Some(length) = length {
                return Ok(Some((number, shape.prefix.len() + length)));
            }
        }
    }
    Ok(None)
}

/// Returns whether the characters look random: names are lower case with separators, and placeholders repeat.
pub(super) fn is_random(body: &[u8]) -> bool {
    let distinct = body.iter().fold(0_u128, |seen, b| seen | 1 << (b & 127)).count_ones() as usize;
    let one_word = || body.len() >= WORD_BYTES_MAX && body.iter().all(u8::is_ascii_alphabetic);
    distinct >= 8.min(body.len() / 2)
        && (body.iter().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase()) || one_word())
}

/// A bot's number, a colon, and 35 characters that begin with `AA`.
fn telegram(text: &[u8], start: usize, colon: usize, end: usize) -> Option<SecretMatch> {
    let digits = text[start..colon].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let key = &text[colon + 1..end];
    let fits = (8..=10).contains(&digits) && key.starts_with(b"AA") && CharacterSet::Url.length(key) == 35;
    fits.then(|| hit(colon - digits, colon + 1 + 35, TELEGRAM))
}

/// Three characters, a digit, `Q~`, and 31 to 34 more.
fn azure(text: &[u8], start: usize, digit: usize, end: usize) -> Option<SecretMatch> {
    let has = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'~' | b'.');
    let before = text[start..digit].iter().rev().take_while(has).count();
    let after = text[digit + 3..end].iter().take_while(|b| has(b) || **b == b'-').count();
    // A final dot may end the sentence.
    let fits = before >= 3
        && begins_word(text, digit - 3)
        && (31..=35).contains(&after)
        && is_random(&text[digit + 3..digit + 3 + after]);
    fits.then(|| hit(digit - 3, digit + 3 + after.min(34), AZURE))
}

/// Six characters, `_`, 29 more, and `_mmk`.
fn maxmind(text: &[u8], start: usize, mark: usize, end: usize) -> Option<SecretMatch> {
    let from = mark.checked_sub(36).filter(|from| *from >= start)?;
    let (id, key) = (&text[from..from + 6], &text[from + 7..mark]);
    let fits =
        CharacterSet::Word.length(id) == 6 && text[from + 6] == b'_' && CharacterSet::Word.length(key) == 29;
    (fits && text[mark..end].starts_with(b"_mmk") && begins_word(text, from))
        .then(|| hit(from, mark + 4, MAXMIND))
}

/// 32 hexadecimal digits, `-us`, and a number.
fn mailchimp(text: &[u8], start: usize, mark: usize, end: usize) -> Option<SecretMatch> {
    let key = text[start..mark].iter().rev().take_while(|b| CharacterSet::Hex.has(**b)).count();
    let number = CharacterSet::Word.length(&text[mark + 3..end]);
    let digits = CharacterSet::Digit.length(&text[mark + 3..end]);
    let fits =
        key == 32 && (1..=2).contains(&digits) && digits == number && is_random(&text[mark - 32..mark]);
    fits.then(|| hit(mark - 32, mark + 3 + digits, MAILCHIMP))
}

/// An app id, `|` (or the rest of its percent-encoding in a URL), and the secret.
fn facebook(text: &[u8], start: usize, end: usize) -> Option<SecretMatch> {
    let number = text[..start].strip_suffix(b"|").or(text[..start].strip_suffix(b"%"))?;
    let digits = number.iter().rev().take(17).take_while(|b| b.is_ascii_digit()).count();
    let key = CharacterSet::Url.length(&text[start..end]);
    let fits =
        (15..=16).contains(&digits) && (27..=42).contains(&key) && is_random(&text[start..start + key]);
    fits.then(|| hit(number.len() - digits, start + key, FACEBOOK))
}

/// The login in the URL of a paid package, before its host.
fn sidekiq(text: &[u8], start: usize, end: usize) -> Option<SecretMatch> {
    let host = text[end..].strip_prefix(b"@")?;
    let known = |name: &[u8]| host.get(..name.len()).is_some_and(|host| host.eq_ignore_ascii_case(name));
    let login = text[start..end].last_chunk::<17>()?;
    let fits = login[8] == b':'
        && CharacterSet::Hex.length(&login[..8]) == 8
        && CharacterSet::Hex.length(&login[9..]) == 8;
    let is_known = known(b"gems.contribsys.com") || known(b"enterprise.contribsys.com");
    (fits && is_known).then(|| hit(end - 17, end, SIDEKIQ))
}

/// Three parts joined by dots, the first a number in Base64.
fn discord(text: &[u8], start: usize, end: usize, hits: &mut Vec<SecretMatch>) {
    for (at, _) in text[start..end].iter().enumerate().filter(|(_, byte)| **byte == b'.') {
        let dot = start + at;
        let id = text[start..dot].iter().rev().take_while(|b| CharacterSet::Word.has(**b)).count();
        // The letter of an escape is not part of it.
        let id = id - usize::from(id > 0 && text[..dot - id].last() == Some(&b'\\'));
        let Some(rest) = text[dot + 1..end].split_at_checked(7) else { continue };
        let key = CharacterSet::Url.length(rest.1);
        let shaped = (24..=28).contains(&id) && CharacterSet::Url.length(rest.0) == 6 && rest.0[6] == b'.';
        if shaped && (27..=40).contains(&key) && is_number_in_base64(&text[dot - id..dot]) {
            hits.push(hit(dot - id, dot + 1 + 7 + key, DISCORD));
        }
    }
}

fn is_number_in_base64(text: &[u8]) -> bool {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD_NO_PAD;
    engine.decode(text).is_ok_and(|id| id.len() >= 17 && id.iter().all(u8::is_ascii_digit))
}

/// Finds private keys in PEM. One without an end is masked as far as it goes.
pub(super) fn private_keys(
    text: &[u8],
    marks: impl Iterator<Item = usize>,
    hits: &mut Vec<SecretMatch>,
    budget: &mut ScanBudget,
) -> Result<(), OverBudget> {
    const FRAME: &[u8] = b"PRIVATE KEY";
    const RULE: &[u8] = b"-----";
    // The kind of key precedes its marker.
    const HEAD_BYTES_MAX: usize = 128;
    let is = |window: &[u8], text: &[u8]| window.eq_ignore_ascii_case(text);
    let mut at = 0;
    for mark in marks {
        let from = mark.saturating_sub(HEAD_BYTES_MAX).max(at);
        let Some(head) = text.get(from..mark) else { continue };
        let Some(begin) = head.windows(RULE.len() + 5).rposition(|w| is(w, b"-----BEGIN")) else { continue };
        let start = from + begin;
        if head[begin + RULE.len()..].windows(RULE.len()).any(|w| w == RULE) {
            continue;
        }
        let body = &text[mark..text.len().min(start + PEM_BYTES_MAX)];
        budget.compare(body.len())?;
        let end = body.windows(9).position(|w| is(w, b"-----END "));
        let end = end.and_then(|end| {
            let last = body[end + 9..].windows(RULE.len()).position(|w| w == RULE)?;
            Some(end + 9 + last + RULE.len())
        });
        // The marker alone, as in a manual, is not a key.
        let key = body.iter().skip(FRAME.len()).take(end.unwrap_or(body.len()));
        if key.filter(|b| CharacterSet::Base64.has(**b)).count() < 40 + RULE.len() * 4 {
            continue;
        }
        let end = end.unwrap_or_else(|| {
            let fits = |b: &u8| {
                CharacterSet::Base64.has(*b) || b.is_ascii_whitespace() || matches!(b, b'\\' | b':' | b',')
            };
            FRAME.len() + body[FRAME.len()..].iter().take_while(|b| fits(b)).count()
        });
        hits.push(hit(start, mark + end, PRIVATE_KEY));
        at = mark + end;
    }
    Ok(())
}

/// Markers of private keys, searched together with the secrets.
pub(super) const PRIVATE_KEY_MARKS: [&[u8]; 2] = [b"private key-----", b"private key block-----"];
