//! Undoes the encodings that a run of characters, or a list of numbers, may be in.

use super::base58;
use super::index::{WRAPPED_LINE_BYTES_MIN, has_marks, is_base64};
use super::packed::Packing;
use super::view::{View, number};

/// A run this long is decoded even if it does not look like text: what matters may come later in it. So is one of
/// capitals and digits alone, which is rare.
const LONG_RUN: usize = 64;
/// So many characters at the beginning or the end must decode to ASCII in a shorter one.
const LOOKED_AT: usize = 16;
/// The fewest numbers that can be a secret.
const NUMBERS_MIN: usize = 8;
/// Hexadecimal digits stand for a value that is itself encoded; a plain one is looked for as it is.
const HEX_DIGITS_MIN: usize = 20;
/// A value of nine bytes. It may stand in a path, whose slashes are digits of base 64.
const BASE32_DIGITS_MIN: usize = 15;
/// So many bytes tell how something is packed.
const PACKED_HEAD: usize = 32;
/// The longest [`Code::group`]; all others divide it.
const GROUP_CHARS_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum Code {
    Base64,
    Base32,
    Hex,
}

impl Code {
    fn bits(self) -> u32 {
        match self {
            Code::Base64 => 6,
            Code::Base32 => 5,
            Code::Hex => 4,
        }
    }

    /// How many characters stand for a whole number of bytes, and for how many.
    fn group(self) -> (usize, usize) {
        match self {
            Code::Base64 => (4, 3),
            Code::Base32 => (8, 5),
            Code::Hex => (2, 1),
        }
    }

    fn digits(self) -> &'static [u8; 256] {
        match self {
            Code::Base64 => &BASE64_DIGITS,
            Code::Base32 => &BASE32_DIGITS,
            Code::Hex => &HEX_DIGITS,
        }
    }

    /// Hands out the decoded bytes until `take` has seen enough.
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

/// Returns what each byte stands for, from ranges with what their first one stands for.
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

/// Hands out everything that the run may stand for. No more than `most` is unpacked.
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
    // What was wrapped is masked as a whole.
    in_pieces(&view.bytes, 0, most, &mut |inner: View| emit(View::of_all(start, end - start, inner.bytes)))?;
    // Lines that are not one text: out of step with those before it, a line was decoded to nothing.
    let (mut at, mut before) = (start, 0);
    for line in text[start..end].split(u8::is_ascii_whitespace) {
        if before % GROUP_CHARS_MAX != 0 {
            in_pieces(line, at, most, emit)?;
        }
        at += line.len() + 1;
        // What is no digit ends a piece, and the next one begins in step with itself.
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

/// Takes what was decoded.
pub(super) type Emit<'e, E> = dyn FnMut(View) -> Result<(), E> + 'e;

fn joined(text: &[u8], start: usize, end: usize) -> Option<View> {
    if end - start <= WRAPPED_LINE_BYTES_MIN || !text[start..end].iter().any(u8::is_ascii_whitespace) {
        return None;
    }
    let (mut view, mut at) = (View::default(), start);
    for line in text[start..end].split(u8::is_ascii_whitespace) {
        view.copy(text, at, at + line.len());
        at += line.len() + 1;
    }
    Some(view)
}

fn pieces<E>(piece: &[u8], at: usize, most: usize, emit: &mut Emit<'_, E>) -> Result<(), E> {
    if piece.len() < LOOKED_AT - 1 || !has_marks(piece) {
        return Ok(());
    }
    in_code(Code::Base64, piece, at, most, emit)?;
    in_digits(Code::Base32, BASE32_DIGITS_MIN, piece, at, most, emit)?;
    in_digits(Code::Hex, HEX_DIGITS_MIN, piece, at, most, emit)?;
    base58::decoded(piece, at, emit)
}

/// Decodes every part of the run that has only digits of the code, and enough of them.
fn in_digits<E>(
    code: Code,
    least: usize,
    run: &[u8],
    at: usize,
    most: usize,
    emit: &mut Emit<'_, E>,
) -> Result<(), E> {
    let is_digit = |byte: &&u8| code.digits()[**byte as usize] != NO_DIGIT;
    // Enough digits cannot all stand between two of the places that are looked at.
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

fn in_code<E>(code: Code, run: &[u8], at: usize, most: usize, emit: &mut Emit<'_, E>) -> Result<(), E> {
    let (taken, made) = code.group();
    // One character again and again means the same wherever it begins.
    let uniform = run.iter().all(|byte| *byte == run[0]);
    // Where the encoded text begins is not known: other characters may stand before it.
    for skipped in 0..if uniform { 1 } else { taken.min(run.len()) } {
        let rest = &run[skipped..];
        let last = rest.len().saturating_sub(LOOKED_AT) / taken * taken;
        let is_text =
            code.is_text(&rest[..rest.len().min(LOOKED_AT)]) || (last > 0 && code.is_text(&rest[last..]));
        let packing = packing_of(code, rest, skipped == 0);
        if packing.is_some() || is_text || (skipped == 0 && (run.len() >= LONG_RUN || code == Code::Base32)) {
            let mut view = View::default();
            view.part(at + skipped, taken, made);
            view.bytes.reserve(rest.len());
            code.decode(rest, |byte| {
                view.bytes.push(byte);
                true
            });
            if let Some(packing) = packing {
                emit(View::of_all(at + skipped, rest.len(), packing.unpack(&view.bytes, most)))?;
            }
            // Nothing but zeros holds nothing.
            if view.bytes.iter().any(|byte| *byte != 0) {
                wide(&view, emit)?;
                emit(view)?;
            }
        }
    }
    Ok(())
}

/// Returns how the run seems to be packed.
fn packing_of(code: Code, run: &[u8], at_start: bool) -> Option<Packing> {
    let is_base64 = code == Code::Base64;
    // Where it begins is only sought in the usual code, in which all with a frame begin alike.
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

/// Hands out the text that was written with two bytes for each character, if this looks like one.
fn wide<E>(view: &View, emit: &mut Emit<'_, E>) -> Result<(), E> {
    let zeros = view.bytes.iter().filter(|byte| **byte == 0).count();
    if zeros < NUMBERS_MIN / 2 || zeros * 5 < view.bytes.len() {
        return Ok(());
    }
    for (skipped, big) in [(0, false), (1, false), (0, true), (1, true)] {
        let units = view.bytes[skipped..].as_chunks::<2>().0.iter();
        let units = units.map(|pair| if big { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) });
        let (mut narrow, mut at) = (View::default(), skipped);
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

/// How a number stands for a byte or a character.
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

/// Hands out the texts that a list of numbers may stand for.
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
        let (mut bytes, mut characters) = (View::default(), View::default());
        for &(at, taken, digits) in &tokens {
            if let Some(code) = notation.read(digits) {
                if let Ok(byte) = u8::try_from(code) {
                    bytes.put_byte(byte, at, taken);
                }
                characters.put(char::from_u32(code).unwrap_or_default(), at, taken);
            }
        }
        // The two differ where a character takes more than one byte.
        if characters.bytes != bytes.bytes && characters.bytes.len() >= NUMBERS_MIN {
            emit(characters)?;
        }
        if bytes.bytes.len() >= NUMBERS_MIN {
            emit(bytes)?;
        }
    }
    Ok(())
}
