use super::super::corpus_tests::{SeededRandom, WORD, own_secrets, prose, secrets};
use super::*;

fn streamed(redactor: &Redactor, text: &str, mut size: impl FnMut() -> usize) -> String {
    let (mut scrubber, mut out, mut at) = (redactor.scrubber(), Vec::new(), 0);
    while at < text.len() {
        let end = text.len().min(at + size());
        out.extend(scrubber.push(&text.as_bytes()[at..end]));
        at = end;
    }
    out.extend(scrubber.finish());
    String::from_utf8(out).unwrap()
}

#[test]
fn pieces_are_scrubbed_like_the_whole() {
    let known = own_secrets();
    let redactor = Redactor::new(&secrets(&known)).unwrap_or_else(|e| panic!("{e}"));
    let mut dice = SeededRandom(42);
    let mut text = String::new();
    for round in 0..40 {
        text.push_str(&prose(2_000 + dice.roll(6_000), 8));
        text.push_str(&known[round % known.len()].value);
        text.push_str(&format!(" ghp_{} ", dice.text(WORD, 36)));
    }
    let whole = redactor.scrub(&text).into_owned();
    assert_eq!(whole.matches("[REDACTED:").count(), 80);
    for size in [1, 7, 4096, 40_000, 1_000_000] {
        assert_eq!(streamed(&redactor, &text, || size), whole, "{size}");
    }
    assert_eq!(streamed(&redactor, &text, || 1 + dice.roll(50_000)), whole);
    // Control: redacting each chunk alone does not work.
    let alone: String = text
        .as_bytes()
        .chunks(999)
        .map(|piece| redactor.scrub(&String::from_utf8_lossy(piece)).into_owned())
        .collect();
    assert_ne!(alone, whole);
}

#[test]
fn little_is_held_back() {
    let redactor = Redactor::new(&[]).unwrap_or_else(|e| panic!("{e}"));
    let mut scrubber = redactor.scrubber();
    let text = prose(1_000_000, 8);
    let out = scrubber.push(text.as_bytes());
    assert!(text.len() - out.len() <= HELD_BYTES_MIN + GATHERED_BYTES, "{}", out.len());
    assert_eq!([out, scrubber.finish()].concat(), text.as_bytes());
}

#[test]
fn nothing_leaves_after_something_was_withheld() {
    let value = format!("{}b", "a".repeat(4_000));
    let secret = ("KEY".to_owned(), portcullis_core::Secret::new(value));
    let redactor = Redactor::new(&[secret]).unwrap_or_else(|e| panic!("{e}"));
    let mut scrubber = redactor.scrubber();
    let mut out = scrubber.push("a".repeat(1_000_000).as_bytes());
    out.extend(scrubber.push(b"more"));
    out.extend(scrubber.finish());
    assert_eq!(String::from_utf8(out).unwrap(), WITHHELD);
}
