//! A simple mutator: the changes that find most without coverage guidance.

use portcullis_bench::torture::SplitMix64;

/// The longest input. What grows with the input has its own bounds, which other tests reach.
pub const INPUT_BYTES_MAX: usize = 4096;
/// Changes per input.
const CHANGES_MAX: usize = 6;

/// Makes an input from others.
pub fn mutated(corpus: &[Vec<u8>], words: &[&str], random: &mut SplitMix64) -> Vec<u8> {
    let mut input = random.pick(corpus).cloned().unwrap_or_default();
    for _ in 0..=random.below(CHANGES_MAX) {
        change(&mut input, corpus, words, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str], random: &mut SplitMix64) {
    let at = random.below(input.len() + 1);
    let to = at + random.below((input.len() - at + 1).min(64));
    match random.below(8) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = u8::try_from(random.below(256)).unwrap_or_default();
            }
        }
        2 => input.truncate(at),
        3 => drop(input.drain(at..to)),
        4 => {
            let piece = input.get(at..to).unwrap_or_default().repeat(1 + random.below(8));
            input.splice(at..at, piece);
        }
        5 | 6 => {
            let word = random.pick(words).copied().unwrap_or_default();
            input.splice(at..at, word.bytes());
        }
        _ => {
            let other = random.pick(corpus).cloned().unwrap_or_default();
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(other.get(from..).unwrap_or_default());
        }
    }
}
