//! Entropy estimate of a secret: how many guesses it withstands.
//!
//! Redaction is an oracle: a client that reads back a guess learns whether it is masked. A client can read as
//! much as `limits.result_bytes_max` and `rate_limit` allow, by default 10^8 guesses a second. A value of
//! [`BITS_MIN`] bits withstands that for centuries. The estimate is an upper bound: it knows repetitions and
//! sequences, but no words.

use super::SecretError;

/// Lower values are refused, unless a person insists.
pub const BITS_MIN: u32 = 60;
/// The rest of a longer value is ignored.
const CHARS_MAX: usize = 256;
const GROUP_BYTES: usize = 4;
/// Shorter sequences occur by chance.
const SEQUENCE_CHARS_MIN: usize = 3;
const REPETITION_CHARS_MIN: usize = 4;
/// Bits to encode the source of a repetition, or the direction of a sequence, and its length.
const PATTERN_BITS: f64 = 6.0;
const PUNCTUATION_BITS: f64 = 5.0;
/// A character that occurred before, such as the hyphens of a grouped number.
const AGAIN_BITS: f64 = 1.0;

/// Returns an upper bound of a value's entropy, without the bytes after its last whole group of four:
/// redaction finds only whole groups, because the end of a value in base 85 depends on what follows.
pub fn entropy_bits(value: &str) -> u32 {
    let whole = value.len() / GROUP_BYTES * GROUP_BYTES;
    let in_groups = value.char_indices().take_while(|(at, c)| at + c.len_utf8() <= whole);
    let chars: Vec<char> = in_groups.map(|(_, c)| c).take(CHARS_MAX).collect();
    let alphanumeric_bits = f64::from(alphabet_size(&chars)).log2();
    let bits_of = |at: usize| match chars[at] {
        c if c.is_ascii_alphanumeric() => alphanumeric_bits,
        c if chars[..at].contains(&c) => AGAIN_BITS,
        _ => PUNCTUATION_BITS,
    };
    let (mut bits, mut at) = (0.0, 0);
    while at < chars.len() {
        let (repeated, sequence) = (repeated_from(&chars, at), sequence_from(&chars, at));
        if repeated >= REPETITION_CHARS_MIN.max(sequence) {
            bits += PATTERN_BITS;
            at += repeated;
        } else if sequence >= SEQUENCE_CHARS_MIN {
            bits += bits_of(at) + PATTERN_BITS;
            at += sequence;
        } else {
            bits += bits_of(at);
            at += 1;
        }
    }
    // Below 2,000: 256 characters of less than eight bits.
    bits as u32
}

/// Returns whether a client could guess the value by reading guesses back.
pub fn is_weak(value: &str) -> bool {
    entropy_bits(value) < BITS_MIN
}

/// Refuses a value that a client could guess.
pub fn check_strength(name: &str, value: &str) -> Result<(), SecretError> {
    match entropy_bits(value) {
        bits if bits < BITS_MIN => Err(SecretError::Weak { name: name.to_owned(), bits }),
        _ => Ok(()),
    }
}

/// Estimates the size of the alphabet from the letters and digits that occur.
fn alphabet_size(chars: &[char]) -> u32 {
    let any = |fits: fn(&char) -> bool| chars.iter().any(fits);
    let letters = |has: bool, beyond_f: bool| match (has, beyond_f) {
        (false, _) => 0,
        (true, false) => 6,
        (true, true) => 26,
    };
    let digits = if any(char::is_ascii_digit) { 10 } else { 0 };
    let lower = letters(any(char::is_ascii_lowercase), any(|c| matches!(c, 'g'..='z')));
    let upper = letters(any(char::is_ascii_uppercase), any(|c| matches!(c, 'G'..='Z')));
    (digits + lower + upper).max(1)
}

/// Returns how many characters from `at` on repeat earlier ones.
fn repeated_from(chars: &[char], at: usize) -> usize {
    let same = |from: usize| chars[from..].iter().zip(&chars[at..]).take_while(|(a, b)| a == b).count();
    (0..at).map(same).max().unwrap_or_default()
}

/// Returns how many characters from `at` on are equal, or count up or down.
fn sequence_from(chars: &[char], at: usize) -> usize {
    let step = |at: usize| i64::from(u32::from(chars[at + 1])) - i64::from(u32::from(chars[at]));
    let first = match at + 1 < chars.len() {
        true => step(at),
        false => return 1,
    };
    if first.abs() > 1 {
        return 1;
    }
    1 + (at..chars.len() - 1).take_while(|at| step(*at) == first).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_guessed_is_told_from_what_cannot() {
        let weak = [
            "49382716",
            "1234567890123456789012345678901234567890",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "abcdefghijklmnopqrstuvwxyz",
            "hunter2-hunter2",
            "4938-2716-0593-81",
            "DEADBEEF",
            "deadbeefcafe",
            "sunshine",
            "P4ssw0rd!",
            "aB3xK9mQ2pL",
        ];
        let strong = [
            "ghp_correct-horse-battery-staple",
            "e3b0c44298fc1c14",
            "k9wq2xz7m4tb",
            "aB3xK9mQ2pLz",
            "https://example.com/private-link.ics",
            "9f86d081-884c-4d65-9a2f-eaa0c55ad015",
            "49382716059381472593",
        ];
        let bits = |values: &[&str]| values.iter().map(|value| entropy_bits(value)).collect::<Vec<_>>();
        assert!(weak.iter().all(|value| is_weak(value)), "{:?}", bits(&weak));
        assert!(strong.iter().all(|value| !is_weak(value)), "{:?}", bits(&strong));
        // Random values, for which the true entropy is known.
        for (value, is) in [("49382716", 26..=27), ("e3b0c44298fc1c14", 60..=64), ("aB3xK9mQ2pLz", 70..=72)] {
            assert!(is.contains(&entropy_bits(value)), "{value}: {}", entropy_bits(value));
        }
    }

    #[test]
    fn the_refusal_does_not_repeat_the_value() {
        let refused = check_strength("PIN", "49382716").unwrap_err().to_string();
        assert!(refused.contains("`PIN`") && refused.contains("26 bits"), "{refused}");
        assert!(!refused.contains("4938"), "{refused}");
        check_strength("KEY", "e3b0c44298fc1c14").unwrap();
    }
}
