//! Decoding of encoded runs (Base64, Base32, hex) and of lists of numbers.

use super::base58;
use super::decoded_view::{DecodedView, number};
use super::decompression::Packing;
use super::literal_index::{WRAPPED_LINE_BYTES_MIN, has_marks, is_base64};

/// A run this long is decoded even if it does not start as text, which may come later. So is a run of only capitals and
/// digits, which is rare.
const LONG_RUN: usize = 64;
/// In a shorter run, this many characters at the start or the end must decode to ASCII.
const PROBED_CHARS: usize = 16;
/// The fewest numbers that can be a secret.
const NUMBERS_MIN: usize = 8;
/// Minimum hex digits. A hex-encoded plain value is a literal form; this finds one that is encoded twice.
const HEX_DIGITS_MIN: usize = 20;
/// A value of nine bytes. It may be in a path, whose slashes are Base64 digits.
const BASE32_DIGITS_MIN: usize = 15;
/// Bytes needed to recognize compression.
const PACKED_HEAD: usize = 32;
/// The longest [`RunEncoding::group`]; all others divide it.
const GROUP_CHARS_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum RunEncoding {
    Base64,
    Base32,
    Hex,
}

impl RunEncoding {
    fn bits(self) -> u32 {
        match self {
            RunEncoding::Base64 => 6,
            RunEncoding::Base32 => 5,
            RunEncoding::Hex => 4,
        }
    }

    /// Returns the smallest number of characters that is a whole number of bytes, and that number of bytes.
    fn group(self) -> (usize, usize) {
        match self {
            RunEncoding::Base64 => (4, 3),
            RunEncoding::Base32 => (8, 5),
            RunEncoding::Hex => (2, 1),
        }
    }

    fn digits(self) -> &'static [u8; 256] {
        match self {
            RunEncoding::Base64 => &BASE64_DIGITS,
            RunEncoding::Base32 => &BASE32_DIGITS,
            RunEncoding::Hex => &HEX_DIGITS,
        }
    }

    /// Emits decoded bytes until `take` returns false.
    fn decode(self, run: &[u8], mut take: impl FnMut(u8) -> bool) {
        let (digits, mut bits, mut held) = (self.digits(), 0_u32, 0);
        for byte in run {
            let digit = digits[*byte as usize];
            if digit == NO_DIGIT {
                return;
            }
            bits = bits << self.bits() | u32::from(digit);
            held += self.bits();
            if held >= 8 {
                held -= 8;
                if !take((bits >> held) as u8) {
                    return;
                }
            }
        }
    }

    fn is_text(self, run: &[u8]) -> bool {
        let mut text = true;
        self.decode(run, |byte| {
            text = byte.is_ascii();
            text
        });
        text
    }
}

const NO_DIGIT: u8 = 255;
static BASE64_DIGITS: [u8; 256] = digits(&[
    (b'A', b'Z', 0),
    (b'a', b'z', 26),
    (b'0', b'9', 52),
    (b'+', b'+', 62),
    (b'-', b'-', 62),
    (b'/', b'/', 63),
    (b'_', b'_', 63),
]);
static BASE32_DIGITS: [u8; 256] = digits(&[(b'A', b'Z', 0), (b'2', b'7', 26)]);
static HEX_DIGITS: [u8; 256] = digits(&[(b'0', b'9', 0), (b'a', b'f', 10), (b'A', b'F', 10)]);

/// Returns the digit of each byte, from ranges with the digit of their first byte.
const fn digits(ranges: &[(u8, u8, u8)]) -> [u8; 256] {
    let mut digits = [NO_DIGIT; 256];
    let mut number = 0;
    while number < ranges.len() {
        let (first, last, digit) = ranges[number];
        let mut byte = first;
        while byte <= last {
            digits[byte as usize] = digit + byte - first;
            byte += 1;
        }
        number += 1;
    }
    digits
}

/// Emits everything that the run may decode to. At most `most` bytes are decompressed.
pub(super) fn decoded<E>(
    text: &[u8],
    start: usize,
    end: usize,
    most: usize,
    emit: &mut Emit<'_, E>,
) -> Result<(), E> {
    let Some(view) = joined(text, start, end) else {
        return in_pieces(&text[start..end], start, most, emit);
    };
    // Wrapped text is masked as a whole.
    in_pieces(&view.bytes, 0, most, &mut |inner: DecodedView| {
        emit(DecodedView::of_all(start, end - start, inner.bytes))
    })?;
    // Lines that are not one text: a line not aligned with those before it decoded to garbage.
    let (mut at, mut before) = (start, 0);
    for line in text[start..end].split(u8::is_ascii_whitespace) {
        if before % GROUP_CHARS_MAX != 0 {
            in_pieces(line, at, most, emit)?;
        }
        at += line.len() + 1;
        // A non-digit ends a piece, and resets the alignment.
        let digits = line.iter().rev().take_while(|byte| is_base64(**byte)).count();
        before = if digits == line.len() { before + digits } else { digits };
    }
    Ok(())
}

fn in_pieces<E>(text: &[u8], start: usize, most: usize, emit: &mut Emit<'_, E>) -> Result<(), E> {
    let mut at = start;
    for piece in text.split(|byte| !is_base64(*byte)) {
        pieces(piece, at, most, emit)?;
        at += piece.len() + 1;
    }
    Ok(())
}

/// Receives decoded views.
pub(super) type Emit<'e, E> = dyn FnMut(DecodedView) -> Result<(), E> + 'e;

fn joined(text: &[u8], start: usize, end: usize) -> Option<DecodedView> {
    if end - start <= WRAPPED_LINE_BYTES_MIN || !text[start..end].iter().any(u8::is_ascii_whitespace) {
        return None;
    }
    let (mut view, mut at) = (DecodedView::default(), start);
    for line in text[start..end].split(u8::is_ascii_whitespace) {
        view.copy(text, at, at + line.len());
        at += line.len() + 1;
    }
    Some(view)
}

fn pieces<E>(piece: &[u8], at: usize, most: usize, emit: &mut Emit<'_, E>) -> Result<(), E> {
    if piece.len() < PROBED_CHARS - 1 || !has_marks(piece) {
        return Ok(());
    }
    in_code(RunEncoding::Base64, piece, at, most, emit)?;
    in_digits(RunEncoding::Base32, BASE32_DIGITS_MIN, piece, at, most, emit)?;
    in_digits(RunEncoding::Hex, HEX_DIGITS_MIN, piece, at, most, emit)?;
    base58::decoded(piece, at, emit)
}

/// Decodes every part of the run that has only digits of the encoding, and enough of them.
fn in_digits<E>(
    code: RunEncoding,
    least: usize,
    run: &[u8],
    at: usize,
    most: usize,
    emit: &mut Emit<'_, E>,
) -> Result<(), E> {
    let is_digit = |byte: &&u8| code.digits()[**byte as usize] != NO_DIGIT;
    // A part of `least` digits always covers one of the probed positions.
    let mut looked = 0;
    for place in (least - 1..run.len()).step_by(least) {
        if place < looked || !is_digit(&&run[place]) {
            continue;
        }
        let before = run[..place].iter().rev().take_while(is_digit).count();
        looked = place + run[place..].iter().take_while(is_digit).count();
        if looked - (place - before) >= least {
            in_code(code, &run[place - before..looked], at + place - before, most, emit)?;
        }
    }
    Ok(())
}

fn in_code<E>(
    code: RunEncoding,
    run: &[u8],
    at: usize,
    most: usize,
    emit: &mut Emit<'_, E>,
) -> Result<(), E> {
    let (taken, made) = code.group();
    // A repeated character decodes the same at every offset.
    let uniform = run.iter().all(|byte| *byte == run[0]);
    // The start of the encoded text is unknown: other characters may precede it.
    for skipped in 0..if uniform { 1 } else { taken.min(run.len()) } {
        let rest = &run[skipped..];
        let last = rest.len().saturating_sub(PROBED_CHARS) / taken * taken;
        let is_text =
            code.is_text(&rest[..rest.len().min(PROBED_CHARS)]) || (last > 0 && code.is_text(&rest[last..]));
        let packing = packing_of(code, rest, skipped == 0);
        if packing.is_some()
            || is_text
            || (skipped == 0 && (run.len() >= LONG_RUN || code == RunEncoding::Base32))
        {
            let mut view = DecodedView::default();
            view.part(at + skipped, taken, made);
            view.bytes.reserve(rest.len());
            code.decode(rest, |byte| {
                view.bytes.push(byte);
                true
            });
            if let Some(packing) = packing {
                emit(DecodedView::of_all(at + skipped, rest.len(), packing.unpack(&view.bytes, most)))?;
            }
            // All zeros hold nothing.
            if view.bytes.iter().any(|byte| *byte != 0) {
                wide(&view, emit)?;
                emit(view)?;
            }
        }
    }
    Ok(())
}

/// Returns the likely compression format of the run.
fn packing_of(code: RunEncoding, run: &[u8], at_start: bool) -> Option<Packing> {
    let is_base64 = code == RunEncoding::Base64;
    // Other offsets are tried only for Base64, in which framed formats start with known characters.
    let may_begin = is_base64 && matches!(run, [b'H', b'4', ..] | [b'e', ..]);
    if !at_start && !may_begin {
        return None;
    }
    let unframed = at_start && is_base64;
    let (mut head, mut length) = ([0; PACKED_HEAD], 0);
    code.decode(run, |byte| {
        head[length] = byte;
        length += 1;
        length < PACKED_HEAD && Packing::may_begin(&head[..length], unframed)
    });
    if unframed { Packing::of(&head[..length], run.len() / 4 * 3) } else { Packing::framed(&head[..length]) }
}

/// Emits UTF-16 text, if this looks like it.
fn wide<E>(view: &DecodedView, emit: &mut Emit<'_, E>) -> Result<(), E> {
    let zeros = view.bytes.iter().filter(|byte| **byte == 0).count();
    if zeros < NUMBERS_MIN / 2 || zeros * 5 < view.bytes.len() {
        return Ok(());
    }
    for (skipped, big) in [(0, false), (1, false), (0, true), (1, true)] {
        let units = view.bytes[skipped..].as_chunks::<2>().0.iter();
        let units = units.map(|pair| if big { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) });
        let (mut narrow, mut at) = (DecodedView::default(), skipped);
        for character in char::decode_utf16(units) {
            let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
            let (from, to) = view.source_of(at, at + 2 * character.len_utf16());
            narrow.put(character, from, to - from);
            at += 2 * character.len_utf16();
        }
        emit(narrow)?;
    }
    Ok(())
}

/// The notation of a byte or character as a number.
#[derive(Clone, Copy)]
enum Notation {
    Decimal,
    Hex,
    Octal,
    Binary,
}

impl Notation {
    const ALL: [Notation; 4] = [Notation::Decimal, Notation::Hex, Notation::Octal, Notation::Binary];

    fn read(self, token: &[u8]) -> Option<u32> {
        match self {
            Notation::Decimal => number(token, 10).filter(|_| token.len() <= 6),
            Notation::Hex => number(token, 16).filter(|_| token.len() == 2),
            Notation::Octal => number(token, 8).filter(|code| token.len() == 3 && *code < 256),
            Notation::Binary => number(token, 2).filter(|_| token.len() == 8),
        }
    }
}

/// Emits the texts that a list of numbers may represent.
pub(super) fn listed<E>(text: &[u8], start: usize, end: usize, emit: &mut Emit<'_, E>) -> Result<(), E> {
    let mut tokens = Vec::new();
    let mut at = start;
    for token in text[start..end].split(|byte| !byte.is_ascii_alphanumeric()) {
        let digits = token.strip_prefix(b"0x").or(token.strip_prefix(b"0X")).unwrap_or(token);
        if !token.is_empty() {
            tokens.push((at, token.len(), digits));
        }
        at += token.len() + 1;
    }
    if tokens.len() < NUMBERS_MIN {
        return Ok(());
    }
    for notation in Notation::ALL {
        let (mut bytes, mut characters) = (DecodedView::default(), DecodedView::default());
        for &(at, taken, digits) in &tokens {
            if let Some(code) = notation.read(digits) {
                if let Ok(byte) = u8::try_from(code) {
                    bytes.put_byte(byte, at, taken);
                }
                characters.put(char::from_u32(code).unwrap_or_default(), at, taken);
            }
        }
        // They differ where a character takes more than one byte.
        if characters.bytes != bytes.bytes && characters.bytes.len() >= NUMBERS_MIN {
            emit(characters)?;
        }
        if bytes.bytes.len() >= NUMBERS_MIN {
            emit(bytes)?;
        }
    }
    Ok(())
}
