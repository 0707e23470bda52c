//! Property: no secret survives redaction, however the text is cut and mixed.

use crate::{PropertyResult, hold};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use portcullis_core::Secret;
use portcullis_guard::Redactor;
use std::sync::OnceLock;

pub const WORDS: &[&str] = &[
    "hunter2-blue-horse",
    "pa%24%24w%C3%B6rd",
    "\\u0068",
    "&#104;",
    "%68",
    "aHVudGVyMi1ibHVlLWhvcnNl",
    "ghp_",
    "eyJhbGciOi",
    "Bearer ",
    "-----BEGIN ",
    "=",
    "\\",
    "%",
    "&",
    "\"",
    "\n",
    "AKIA",
    "68756e746572322d",
    "+/",
    "==",
];
const SECRETS: [(&str, &str); 3] = [
    ("PLAIN", "hunter2-blue-horse"),
    ("MARKS", "<q&a>\"7'\\x/9+z=="),
    ("LONG", "Zk93bGV0IGZsaWVzIGF0IG1pZG5pZ2h0IG92ZXIgdGhlIG9sZCBtaWxs-0451"),
];
/// A mask may grow to its label, and no match is shorter than a secret.
const GROWS_TIMES_MAX: usize = 16;

/// Redacts a text, whole and in chunks. The system under test; tests substitute a weak one.
pub struct RedactorUnderTest {
    pub whole: fn(&str) -> String,
    pub pieces: fn(&[u8], usize) -> Vec<u8>,
}

fn redactor() -> Option<&'static Redactor> {
    static REDACTOR: OnceLock<Option<Redactor>> = OnceLock::new();
    let secrets = SECRETS.map(|(name, value)| (name.to_owned(), Secret::new(value.to_owned())));
    REDACTOR.get_or_init(|| Redactor::new(&secrets).ok()).as_ref()
}

pub fn check(input: &[u8]) -> PropertyResult {
    let whole = |text: &str| redactor().map(|redactor| redactor.scrub(text).into_owned()).unwrap_or_default();
    let pieces = |text: &[u8], size: usize| {
        let Some(mut scrubber) = redactor().map(Redactor::scrubber) else { return Vec::new() };
        let mut out: Vec<u8> = text.chunks(size).flat_map(|piece| scrubber.push(piece)).collect();
        out.extend(scrubber.finish());
        out
    };
    check_with(input, &RedactorUnderTest { whole, pieces })
}

/// The first three bytes select the secret, its encoding and its position; the rest is the text around it.
pub fn check_with(input: &[u8], mask: &RedactorUnderTest) -> PropertyResult {
    let (head, around) = input.split_at(input.len().min(3));
    let byte = |at: usize| usize::from(head.get(at).copied().unwrap_or_default());
    let (_, value) = SECRETS[byte(0) % SECRETS.len()];
    let planted = WAYS[byte(1) % WAYS.len()](value);
    let around = String::from_utf8_lossy(around);
    let at = around.floor_char_boundary(byte(2) * around.len() / 256);
    let (before, after) = around.split_at(at);
    // Separators around the secret: run together with its neighbours, it would be another encoding.
    let text = format!("{before}\n{planted}\n{after}");

    let masked = (mask.whole)(&text);
    hold!(!masked.contains(&planted), "`{planted}` is left in {masked:?}");
    let lower = masked.to_lowercase();
    for (name, value) in SECRETS {
        hold!(!lower.contains(&value.to_lowercase()), "{name} is left in {masked:?}");
    }
    hold!(
        masked.len() <= text.len() * GROWS_TIMES_MAX + 4096,
        "{} bytes grew to {}",
        text.len(),
        masked.len()
    );
    let pieces = (mask.pieces)(text.as_bytes(), 1 + byte(0));
    hold!(
        pieces == masked.as_bytes(),
        "in pieces of {}: {:?}, whole {masked:?}",
        1 + byte(0),
        String::from_utf8_lossy(&pieces)
    );
    Ok(())
}

const WAYS: [fn(&str) -> String; 10] = [
    |value| value.to_owned(),
    str::to_uppercase,
    |value| serde_json::Value::from(value).to_string(),
    |value| value.bytes().map(|byte| format!("%{byte:02X}")).collect(),
    |value| value.bytes().map(|byte| format!("{byte:02x}")).collect(),
    |value| STANDARD.encode(value),
    |value| URL_SAFE_NO_PAD.encode(value),
    |value| STANDARD.encode(format!("user:{value}")),
    |value| value.chars().map(|c| format!("&#{};", u32::from(c))).collect(),
    |value| STANDARD.encode(STANDARD.encode(value)),
];
