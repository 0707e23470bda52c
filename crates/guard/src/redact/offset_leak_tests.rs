//! The attack: a server shifts a secret by a few bytes until block-wise reading misses it.

use super::corpus_tests::{KnownSecret, SeededRandom, Tier, WORD, own_leaks, secrets};
use super::leak_tests::tells;
use super::*;

/// Eight blocks, so that every position in a block is tried.
const OFFSETS: usize = 64;
/// The shortest secrets, the lengths at which encodings change form, and longer ones.
const LENGTHS: [usize; 10] = [8, 9, 11, 12, 13, 14, 15, 16, 20, 33];
/// What precedes and follows: the end of the text, or more of it.
const AROUND: [(&str, &str); 4] = [
    (" ", " is what it was said to be"),
    ("\"", "\", \"b\": [1, 2], and more"),
    ("=", ""),
    ("(", ") and so on"),
];

/// Returns a text with `what` at the offset.
fn at_offset(what: &str, offset: usize, (before, after): (&str, &str)) -> String {
    let filler = "ab cd, ef ".chars().cycle().take(offset.saturating_sub(1));
    let before = if offset == 0 { "" } else { before };
    filler.chain(before.chars()).chain(what.chars()).chain(after.chars()).collect()
}

fn short_secrets() -> Vec<KnownSecret> {
    let mut dice = SeededRandom(0x0FF5);
    let known =
        |length: &usize| KnownSecret { name: format!("OF_{length}"), value: dice.text(WORD, *length) };
    LENGTHS.iter().map(known).collect()
}

/// Returns what can be read at some offset. What should be caught may be missed at all offsets, but not at a few.
fn leaks(known: &[KnownSecret], scrub: &dyn Fn(&str) -> String) -> Vec<String> {
    let (mut missed, mut tried, mut never) = (Vec::new(), 0, Vec::new());
    for mut leak in own_leaks(known) {
        if leak.tier == Tier::DocumentedLimit {
            continue;
        }
        // Trailing newlines belong to the encoding, not to the shifted text.
        leak.text.truncate(leak.text.trim_end().len());
        let at =
            |offset: &usize| tells(&leak, &scrub(&at_offset(&leak.text, *offset, AROUND[offset / 8 % 4])));
        let offsets: Vec<usize> = (0..OFFSETS).filter(at).collect();
        tried += OFFSETS;
        if leak.tier == Tier::Should && offsets.len() == OFFSETS {
            never.push(format!("{} as {}", leak.name, leak.encoding));
        } else if !offsets.is_empty() {
            missed.push(format!("{} as {} at {offsets:?}", leak.name, leak.encoding));
        }
    }
    println!("of {tried} places, missed at some offsets: {missed:?}; at all: {never:?}");
    missed
}

/// Control: examines only block-aligned positions.
fn where_blocks_begin(redactor: &Redactor, text: &str) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for word in text.split_inclusive(' ') {
        let scrubbed = if at % 8 == 0 { redactor.scrub(word) } else { word.into() };
        (out, at) = (out + &scrubbed, at + word.len());
    }
    out
}

#[test]
fn no_encoding_hides_a_secret_at_any_offset() {
    let known = short_secrets();
    let ours =
        Redactor::new(&secrets(&known)).unwrap_or_else(|e| panic!("{e}")).with_shapes(TokenShapes::Leave);
    assert_eq!(leaks(&known, &|text| ours.scrub(text).into_owned()), [""; 0]);
    let missed = leaks(&known, &|text| where_blocks_begin(&ours, text));
    assert!(missed.len() > LENGTHS.len(), "a weak redactor passes");
}

/// Returns the offsets at which a token can be read.
fn token_leaks(token: &str, scrub: &dyn Fn(&str) -> String) -> Vec<(usize, usize)> {
    let all = (0..OFFSETS).flat_map(|offset| (0..AROUND.len()).map(move |around| (offset, around)));
    all.filter(|(offset, around)| scrub(&at_offset(token, *offset, AROUND[*around])).contains(token))
        .collect()
}

#[test]
fn no_token_leaks_at_any_offset() {
    let ours = Redactor::new(&[]).unwrap_or_else(|e| panic!("{e}"));
    for (name, token) in super::shape_tests::issued() {
        assert_eq!(token_leaks(&token, &|text| ours.scrub(text).into_owned()), [], "{name}");
        assert!(
            !token_leaks(&token, &|text| where_blocks_begin(&ours, text)).is_empty(),
            "a weak redactor passes"
        );
    }
}
