//! Base58 decoding of words. A value encoded alone is found as a literal; this finds it encoded together with other text.

use super::decoded_view::DecodedView;
use super::decompression::is_text;
use super::encoded_forms::BASE58;
use super::encoded_runs::Emit;

/// At least eleven bytes.
const DIGITS_MIN: usize = 15;
/// The conversion is quadratic; longer words would take too long.
const DIGITS_MAX: usize = 1400;
/// Ten digits are below 2^59.
const DIGITS_AT_ONCE: usize = 10;

const NO_DIGIT: u8 = 255;
static DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < BASE58.len() {
        digits[BASE58[digit] as usize] = digit as u8;
        digit += 1;
    }
    digits
};

/// Emits the decoded text of each base58 word of a piece.
pub(super) fn decoded<E>(piece: &[u8], mut at: usize, emit: &mut Emit<'_, E>) -> Result<(), E> {
    for word in piece.split(|byte| !byte.is_ascii_alphanumeric()) {
        if (DIGITS_MIN..=DIGITS_MAX).contains(&word.len()) && is_mixed(word) {
            let bytes = number(word);
            if bytes.iter().copied().all(is_text) {
                emit(DecodedView::of_all(at, word.len(), bytes))?;
            }
        }
        at += word.len() + 1;
    }
    Ok(())
}

/// Returns whether a word has base58 digits only, of all kinds, unlike ordinary words and numbers.
fn is_mixed(word: &[u8]) -> bool {
    let mut kinds = 0;
    for byte in word {
        match DIGITS[*byte as usize] {
            NO_DIGIT => return false,
            0..9 => kinds |= 1,
            9..33 => kinds |= 2,
            _ => kinds |= 4,
        }
    }
    kinds == 7
}

fn number(word: &[u8]) -> Vec<u8> {
    let mut limbs: Vec<u32> = Vec::with_capacity(word.len() / 5 + 1);
    for digits in word.chunks(DIGITS_AT_ONCE) {
        let (mut carry, mut scale) = (0, 1);
        for byte in digits {
            carry = carry * 58 + u128::from(DIGITS[*byte as usize]);
            scale *= 58;
        }
        for limb in &mut limbs {
            carry += u128::from(*limb) * scale;
            (*limb, carry) = (carry as u32, carry >> 32);
        }
        while carry > 0 {
            limbs.push(carry as u32);
            carry >>= 32;
        }
    }
    let bytes = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes());
    bytes.skip_while(|byte| *byte == 0).collect()
}
