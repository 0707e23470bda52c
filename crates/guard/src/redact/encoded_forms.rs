//! The literal forms of a secret: usual encodings that cannot be decoded in place.
//!
//! Escapes and nested encodings are undone by `decoded_view` and `encoded_runs` instead, and scanned again.

use super::decoded_view::{self, SecretWindow};
use super::literal_index::{LITERAL_BYTES_MIN, Literal};
use super::look_alikes::LookAlikes;
use super::split_values;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use data_encoding::HEXLOWER;

/// The encoded form of a shorter secret may be too short a run to be decoded, so it is matched literally.
const SHORT_BYTES: usize = 12;
/// Base58 is quadratic and not used for longer values.
const BASE58_BYTES_MAX: usize = 128;

const ASCII85: u8 = b'!';
pub(super) const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const BASE85: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The encoding of a form. Values of the same shape have the same kinds.
pub(super) type FormKind = u8;
const KIND_ASCII85: FormKind = 14;
const KIND_BASE85: FormKind = 15;
const KIND_BASE58: FormKind = 16;

pub(super) fn forms_of(value: &str) -> Vec<Literal> {
    let mut forms: Vec<Literal> = forms_by_kind(value).into_iter().map(|(_, form)| form).collect();
    // A weak secret only in counted forms: any other form would be an uncounted oracle for guesses.
    if !LookAlikes::covers(value) {
        forms.extend(more_forms(value));
    } else if split_values::counted(value).is_some() {
        let text =
            |form: &String| Literal { bytes: form.to_ascii_lowercase().into(), exact: false, breaks: true };
        forms.extend(split_forms(value).iter().map(text));
    }
    // Longest first: a match hides those within it.
    forms.sort_unstable_by(|a, b| b.bytes.len().cmp(&a.bytes.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

/// Returns the additional forms of strong secrets.
fn more_forms(value: &str) -> Vec<Literal> {
    let text = |text: &str| Literal { bytes: text.to_ascii_lowercase().into(), exact: false, breaks: true };
    let odd = |bytes: Vec<u8>, exact| Literal { bytes, exact, breaks: false };
    let mut forms = Vec::new();
    forms.extend(base85_forms(value.as_bytes(), 4).map(|form| odd(form, true)));
    forms.extend(base85_forms(STANDARD_NO_PAD.encode(value).as_bytes(), 1).map(|form| odd(form, true)));
    if value.len() <= BASE58_BYTES_MAX {
        let engines = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD];
        forms.extend(engines.map(|engine| odd(base58(engine.encode(value).as_bytes()), true)));
        let hex = HEXLOWER.encode(value.as_bytes());
        forms.push(odd(base58(hex.as_bytes()), true));
    }
    forms.extend(quoted(value).iter().map(|form| text(form)));
    forms.extend(split_forms(value).iter().map(|form| text(form)));
    forms.retain(|form| form.bytes.len() >= LITERAL_BYTES_MIN);
    forms
}

/// Returns every counted form, with its kind.
pub(super) fn forms_by_kind(value: &str) -> Vec<(FormKind, Literal)> {
    let text = |text: &str| Literal { bytes: text.to_ascii_lowercase().into(), exact: false, breaks: true };
    let odd = |bytes: Vec<u8>, exact| Literal { bytes, exact, breaks: false };
    let numbered = |first: FormKind, forms: Vec<Literal>| (first..).zip(forms);
    let mut forms = Vec::new();
    let written =
        [value.to_owned(), value.to_lowercase(), value.to_uppercase(), decoded_view::composed(value)];
    forms.extend(numbered(0, written.iter().map(|written| text(written)).collect()));
    forms.extend(numbered(4, written.iter().map(|written| text(&written.replace(' ', "+"))).collect()));
    // A value is often trimmed in transit. What looks like an escape in it is undone together with real escapes, and a
    // trailing backslash then consumes the next character.
    forms.extend(numbered(8, [value.trim(), value.trim_end_matches('\\')].map(text).into()));
    if let Some(undone) = decoded_view::unescaped(value.as_bytes(), &SecretWindow::new([value].into_iter())) {
        forms.push((10, text(&String::from_utf8_lossy(&undone.bytes))));
    }
    // The rest must still be more than a word.
    forms.retain(|(_, form)| form.bytes.len() >= super::VALUE_BYTES_MIN);

    let hex = HEXLOWER.encode(value.as_bytes());
    forms.push((11, text(&hex)));
    forms.push((12, text(&value.chars().rev().collect::<String>())));
    forms.push((13, odd(value.bytes().map(rotated).collect(), false)));
    forms.push((KIND_ASCII85, odd(base85(value.as_bytes(), |digit| ASCII85 + digit), true)));
    forms.push((KIND_BASE85, odd(base85(value.as_bytes(), |digit| BASE85[digit as usize % 85]), true)));
    if value.len() <= BASE58_BYTES_MAX {
        forms.push((KIND_BASE58, odd(base58(value.as_bytes()), true)));
    }
    forms.extend(numbered(20, base64_forms(value.as_bytes()).collect()));
    // Also those long enough to be decoded: in lower case they look like words, which are not decoded.
    let base32 = (0..5).map(|offset| odd(base32_inner(value.as_bytes(), offset), false));
    forms.extend(numbered(50, base32.collect()));
    if value.len() < SHORT_BYTES {
        forms.extend(numbered(30, base64_forms(STANDARD.encode(value).as_bytes()).collect()));
        forms.extend(numbered(40, base64_forms(STANDARD_NO_PAD.encode(value).as_bytes()).collect()));
    }
    forms.retain(|(_, form)| form.bytes.len() >= LITERAL_BYTES_MIN);
    forms
}

fn base64_forms(value: &[u8]) -> impl Iterator<Item = Literal> {
    let form = |bytes: String| Literal { bytes: bytes.into_bytes(), exact: true, breaks: true };
    let offsets = (0..3).flat_map(move |offset| {
        [base64_inner(&STANDARD_NO_PAD, value, offset), base64_inner(&URL_SAFE_NO_PAD, value, offset)]
    });
    offsets.map(form)
}

/// Returns the Base64 characters that depend on `value` alone, with `offset` other bytes before it.
fn base64_inner(engine: &impl Engine, value: &[u8], offset: usize) -> String {
    let bytes = [&[0; 2][..offset], value].concat();
    let encoded = engine.encode(&bytes);
    // The first characters also depend on the bytes before, the last one on those after.
    let skipped = [0, 2, 3][offset];
    let kept_to = if bytes.len().is_multiple_of(3) { encoded.len() } else { encoded.len() - 1 };
    encoded[skipped..kept_to].to_owned()
}

fn rotated(byte: u8) -> u8 {
    let byte = byte.to_ascii_lowercase();
    if byte.is_ascii_lowercase() { (byte - b'a' + 13) % 26 + b'a' } else { byte }
}

/// Returns the Base32 characters that depend on `value` alone, with `offset` other bytes before it.
fn base32_inner(value: &[u8], offset: usize) -> Vec<u8> {
    let bytes = [&[0; 4][..offset], value].concat();
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let digit = |number: usize| (0..5).fold(0, |digit, at| digit << 1 | bit(number * 5 + at));
    let digits = (offset * 8).div_ceil(5)..bytes.len() * 8 / 5;
    digits.map(|number| b"abcdefghijklmnopqrstuvwxyz234567"[digit(number) as usize]).collect()
}

/// Returns the value as escaped inside quotes in shells, SQL and CSV; and in quoted-printable mail.
fn quoted(value: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for quote in [r"'\''", r#"'"'"'"#, "''"] {
        let form = value.replace('\'', quote);
        let broken = form.replace('\n', r"'$'\n''").replace('\t', r"'$'\t''").replace('\r', r"'$'\r''");
        forms.extend([form, broken]);
    }
    forms.push(value.replace('"', "\"\""));
    let printable = |byte: u8| (byte.is_ascii_graphic() && byte != b'=') || byte == b' ';
    let in_mail = |byte: u8| if printable(byte) { char::from(byte).into() } else { format!("={byte:02x}") };
    forms.push(value.bytes().map(in_mail).collect());
    forms.retain(|form| form != value);
    forms
}

/// Returns the value without its separators, and the usual ways to split it unless `split` finds those by the digits.
fn split_forms(value: &str) -> Vec<String> {
    let kept = split_values::kept_of(value);
    if !split_values::is_splittable(&kept) {
        return Vec::new();
    }
    let mut forms = Vec::new();
    if split_values::anchor_of(&kept).is_none() {
        let characters: Vec<char> = value.chars().collect();
        let groups = |length: usize, between: &str| {
            let groups = characters.chunks(length).map(|group| group.iter().collect::<String>());
            groups.collect::<Vec<_>>().join(between)
        };
        forms.extend([" ", "-", "_", ".", ", "].map(|between| groups(1, between)));
        forms.extend((2..=8).flat_map(|length| [" ", "-"].map(|between| groups(length, between))));
    }
    if kept.len() < value.len() {
        forms.extend(String::from_utf8(kept));
    }
    forms
}

/// Returns the complete groups of the value in both kinds of Base85, with fewer than `offsets` other bytes before it.
fn base85_forms(value: &[u8], offsets: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..offsets).flat_map(move |offset| {
        let inner = value.get((4 - offset) % 4..).unwrap_or_default();
        [base85(inner, |digit| ASCII85 + digit), base85(inner, |digit| BASE85[digit as usize % 85])]
    })
}

/// Returns the complete groups of the value in Base85.
fn base85(value: &[u8], character: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut encoded = Vec::new();
    for group in value.as_chunks::<4>().0 {
        let number = u32::from_be_bytes(*group);
        encoded.extend((0..5).rev().map(|place| character((number / 85_u32.pow(place) % 85) as u8)));
    }
    encoded
}

fn base58(value: &[u8]) -> Vec<u8> {
    let mut digits: Vec<u8> = Vec::new();
    for byte in value {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            (*digit, carry) = ((carry % 58) as u8, carry / 58);
        }
        while carry > 0 {
            digits.push((carry % 58) as u8);
            carry /= 58;
        }
    }
    digits.iter().rev().map(|digit| BASE58[*digit as usize]).collect()
}

/// Returns whether nearly any character may occur at any position of this form, so that only decoding identifies it.
pub(super) fn is_dense(kind: FormKind) -> bool {
    matches!(kind, KIND_ASCII85 | KIND_BASE85 | KIND_BASE58)
}

/// Returns the start of a dense form that can be decoded alone.
pub(super) fn group_of(kind: FormKind, form: &[u8]) -> Option<&[u8]> {
    if kind == KIND_BASE58 { None } else { form.get(..5) }
}

/// Decodes a dense form.
pub(super) fn decoded(kind: FormKind, form: &[u8]) -> Option<Vec<u8>> {
    let place = |alphabet: &[u8], byte: u8| alphabet.iter().position(|known| *known == byte);
    let in_groups = |digit: &dyn Fn(u8) -> Option<u64>| {
        let mut bytes = Vec::new();
        for group in form.chunks(5) {
            let number = group.iter().try_fold(0, |number, byte| Some(number * 85 + digit(*byte)?))?;
            bytes.extend_from_slice(&u32::try_from(number).ok()?.to_be_bytes());
        }
        Some(bytes)
    };
    match kind {
        KIND_ASCII85 => {
            in_groups(&|byte| byte.checked_sub(ASCII85).filter(|digit| *digit < 85).map(u64::from))
        }
        KIND_BASE85 => in_groups(&|byte| place(BASE85, byte).map(|digit| digit as u64)),
        KIND_BASE58 => {
            // Least significant first.
            let mut bytes: Vec<u8> = Vec::new();
            for byte in form {
                let mut carry = u32::try_from(place(BASE58, *byte)?).ok()?;
                for byte in &mut bytes {
                    carry += u32::from(*byte) * 58;
                    (*byte, carry) = (carry as u8, carry >> 8);
                }
                while carry > 0 {
                    bytes.push(carry as u8);
                    carry >>= 8;
                }
            }
            bytes.reverse();
            Some(bytes)
        }
        _ => None,
    }
}
