//! The ways in which a secret is written where it usually travels.
//!
//! Only what cannot be decoded in place is listed here: escapes, and encodings of encodings, are undone by `view` and
//! `runs` and then looked at again.

use super::index::{LITERAL_BYTES_MIN, Literal};
use super::look_alikes::LookAlikes;
use super::split;
use super::view::{self, Near};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

/// The encoded form of a shorter secret may be too short a run to be decoded, so it is looked for as it is.
const SHORT_BYTES: usize = 12;
/// Base 58 is a division of the whole; nobody writes a longer value in it.
const BASE58_BYTES_MAX: usize = 128;

const ASCII85: u8 = b'!';
pub(super) const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const BASE85: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// In which of the ways below something is written. Two values of the same shape have the same ways.
pub(super) type FormKind = u8;
const KIND_ASCII85: FormKind = 14;
const KIND_BASE85: FormKind = 15;
const KIND_BASE58: FormKind = 16;

pub(super) fn forms_of(value: &str) -> Vec<Literal> {
    let mut forms: Vec<Literal> = forms_by_kind(value).into_iter().map(|(_, form)| form).collect();
    // Of a weak secret only what is counted: another form would tell for nothing which guess is right.
    if !LookAlikes::covers(value) {
        forms.extend(more_forms(value));
    } else if split::counted(value).is_some() {
        let text =
            |form: &String| Literal { bytes: form.to_ascii_lowercase().into(), exact: false, breaks: true };
        forms.extend(split_forms(value).iter().map(text));
    }
    // The longest first: one that is found hides those within it.
    forms.sort_unstable_by(|a, b| b.bytes.len().cmp(&a.bytes.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

/// Returns the forms that strong secrets alone are looked for in.
fn more_forms(value: &str) -> Vec<Literal> {
    let text = |text: &str| Literal { bytes: text.to_ascii_lowercase().into(), exact: false, breaks: true };
    let odd = |bytes: Vec<u8>, exact| Literal { bytes, exact, breaks: false };
    let mut forms = Vec::new();
    forms.extend(base85_forms(value.as_bytes(), 4).map(|form| odd(form, true)));
    forms.extend(base85_forms(STANDARD_NO_PAD.encode(value).as_bytes(), 1).map(|form| odd(form, true)));
    if value.len() <= BASE58_BYTES_MAX {
        let engines = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD];
        forms.extend(engines.map(|engine| odd(base58(engine.encode(value).as_bytes()), true)));
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        forms.push(odd(base58(hex.as_bytes()), true));
    }
    forms.extend(quoted(value).iter().map(|form| text(form)));
    forms.extend(split_forms(value).iter().map(|form| text(form)));
    forms.retain(|form| form.bytes.len() >= LITERAL_BYTES_MIN);
    forms
}

/// Returns every form that is counted, with its kind.
pub(super) fn forms_by_kind(value: &str) -> Vec<(FormKind, Literal)> {
    let text = |text: &str| Literal { bytes: text.to_ascii_lowercase().into(), exact: false, breaks: true };
    let odd = |bytes: Vec<u8>, exact| Literal { bytes, exact, breaks: false };
    let numbered = |first: FormKind, forms: Vec<Literal>| (first..).zip(forms);
    let mut forms = Vec::new();
    let written = [value.to_owned(), value.to_lowercase(), value.to_uppercase(), view::composed(value)];
    forms.extend(numbered(0, written.iter().map(|written| text(written)).collect()));
    forms.extend(numbered(4, written.iter().map(|written| text(&written.replace(' ', "+"))).collect()));
    // A value is often trimmed on its way. What seems to be an escape in it is undone together with real ones, and
    // a backslash at its end then takes what follows.
    forms.extend(numbered(8, [value.trim(), value.trim_end_matches('\\')].map(text).into()));
    if let Some(undone) = view::unescaped(value.as_bytes(), &Near::new([value].into_iter())) {
        forms.push((10, text(&String::from_utf8_lossy(&undone.bytes))));
    }
    // What is left must still be more than a word.
    forms.retain(|(_, form)| form.bytes.len() >= super::VALUE_BYTES_MIN);

    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.push((11, text(&hex)));
    forms.push((12, text(&value.chars().rev().collect::<String>())));
    forms.push((13, odd(value.bytes().map(rotated).collect(), false)));
    forms.push((KIND_ASCII85, odd(base85(value.as_bytes(), |digit| ASCII85 + digit), true)));
    forms.push((KIND_BASE85, odd(base85(value.as_bytes(), |digit| BASE85[digit as usize % 85]), true)));
    if value.len() <= BASE58_BYTES_MAX {
        forms.push((KIND_BASE58, odd(base58(value.as_bytes()), true)));
    }
    forms.extend(numbered(20, base64_forms(value.as_bytes()).collect()));
    // Also those that would be decoded: in small letters they look like words, which are not.
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

/// Returns the Base64 characters that stand for `value` alone, where `offset` other bytes come before it.
fn base64_inner(engine: &impl Engine, value: &[u8], offset: usize) -> String {
    let bytes = [&[0; 2][..offset], value].concat();
    let encoded = engine.encode(&bytes);
    // The first characters mix in what comes before, the last one what comes after.
    let skipped = [0, 2, 3][offset];
    let kept_to = if bytes.len().is_multiple_of(3) { encoded.len() } else { encoded.len() - 1 };
    encoded[skipped..kept_to].to_owned()
}

fn rotated(byte: u8) -> u8 {
    let byte = byte.to_ascii_lowercase();
    if byte.is_ascii_lowercase() { (byte - b'a' + 13) % 26 + b'a' } else { byte }
}

/// Returns the characters of base 32 that stand for `value` alone, where `offset` other bytes come before it.
fn base32_inner(value: &[u8], offset: usize) -> Vec<u8> {
    let bytes = [&[0; 4][..offset], value].concat();
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let digit = |number: usize| (0..5).fold(0, |digit, at| digit << 1 | bit(number * 5 + at));
    let digits = (offset * 8).div_ceil(5)..bytes.len() * 8 / 5;
    digits.map(|number| b"abcdefghijklmnopqrstuvwxyz234567"[digit(number) as usize]).collect()
}

/// Returns the value as it stands between quotes: in shells, in SQL and tables, where its own are written otherwise; and
/// in mail.
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

/// Returns the value without its separators; and the usual ways to split it, if it is not looked for by its digits.
fn split_forms(value: &str) -> Vec<String> {
    let kept = split::kept_of(value);
    if !split::is_splittable(&kept) {
        return Vec::new();
    }
    let mut forms = Vec::new();
    if split::anchor_of(&kept).is_none() {
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

/// Returns the whole groups of the value in both kinds of base 85, where fewer than `offsets` other bytes come before it.
fn base85_forms(value: &[u8], offsets: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..offsets).flat_map(move |offset| {
        let inner = value.get((4 - offset) % 4..).unwrap_or_default();
        [base85(inner, |digit| ASCII85 + digit), base85(inner, |digit| BASE85[digit as usize % 85])]
    })
}

/// Returns the whole groups of the value in base 85.
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

/// Whether nearly any character can stand nearly anywhere in this form, so that only decoding tells what it is.
pub(super) fn is_dense(kind: FormKind) -> bool {
    matches!(kind, KIND_ASCII85 | KIND_BASE85 | KIND_BASE58)
}

/// Returns the beginning of a dense form that can be decoded alone.
pub(super) fn group_of(kind: FormKind, form: &[u8]) -> Option<&[u8]> {
    if kind == KIND_BASE58 { None } else { form.get(..5) }
}

/// Returns what a dense form stands for.
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
