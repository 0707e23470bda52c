//! Search for split values: spelled letter by letter, or in groups, with separators between.
//!
//! Only letters, digits and non-ASCII bytes are compared. At every byte that would cost more than the rest of the scan, so a
//! value is searched where its digits begin and a separator follows soon: groups of up to eight are always found. A value
//! without digits is matched in the usual groups, as a literal.

use super::budget::{OverBudget, ScanBudget};
use super::literal_index::{GramHasher, HIGHS, ONES, SecretMatch};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Maximum separators between two characters of a value: within the first few, and within all.
const SEPARATORS_FEW: usize = 3;
const SEPARATORS_MAX: usize = 12;
/// Shorter values occur in ordinary text by chance.
const KEPT_MIN: usize = 8;
/// The same for digits only, which occur in tables.
const DIGITS_MIN: usize = 12;
/// How many characters select the values to compare.
const GRAM: usize = 4;
const FILTER_BITS_LOG2: u32 = 16;

pub(super) struct Split {
    values: Vec<(Vec<u8>, u32)>,
    /// The value of each gram, and its position in it.
    anchors: HashMap<u32, Vec<(u32, u32)>, BuildHasherDefault<GramHasher>>,
    filter: Vec<u64>,
    /// Whether some value starts at a digit that follows another digit.
    within: bool,
}

impl Split {
    pub(super) fn new<'v>(values: impl Iterator<Item = (&'v str, u32)>) -> Split {
        let mut split = Split {
            values: Vec::new(),
            anchors: HashMap::default(),
            filter: vec![0; 1 << (FILTER_BITS_LOG2 - 6)],
            within: false,
        };
        for (value, label) in values {
            let kept = kept_of(value);
            let Some(place) = anchor_of(&kept) else { continue };
            split.within |= place == 0 || kept[place - 1].is_ascii_digit();
            split.enter(&kept[place..place + GRAM], place);
            split.values.push((kept, label));
        }
        split
    }

    fn enter(&mut self, gram: &[u8], place: usize) {
        let gram = gram.iter().fold(0, |gram, byte| gram << 8 | u32::from(byte | 0x20));
        let (word, bit) = slot(gram);
        self.filter[word] |= bit;
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.anchors.entry(gram).or_default().push((narrow(self.values.len()), narrow(place)));
    }

    /// Finds the values whose anchor is between `from` and `to`.
    #[inline(never)]
    pub(super) fn find(
        &self,
        text: &[u8],
        from: usize,
        to: usize,
        hits: &mut Vec<SecretMatch>,
        budget: &mut ScanBudget,
    ) -> Result<(), OverBudget> {
        if self.values.is_empty() {
            return Ok(());
        }
        for at in (from..to).step_by(8) {
            let bytes = block_at(text, at);
            let digits = digits_in(bytes) & HIGHS >> (8 * (8 - (to - at).min(8)));
            let mut met = if self.within { digits } else { digits & !(digits << 8) };
            if met == 0 {
                continue;
            }
            // Without a following separator nothing is split.
            let next = separators_in(block_at(text, at + 8));
            let separators = u128::from(separators_in(bytes)) | u128::from(next) << 64;
            while met != 0 {
                let place = met.trailing_zeros() / 8;
                met &= met - 1;
                if separators >> (8 * place) == 0 {
                    continue;
                }
                let at = at + place as usize;
                if let Some((gram, at)) = gram_from(text, at)
                    && self.may_have(gram)
                {
                    self.compare(text, gram, at, hits, budget)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn may_have(&self, gram: u32) -> bool {
        let (word, bit) = slot(gram);
        self.filter[word] & bit != 0
    }

    /// Compares the values that have a gram, which begins at `at`.
    #[inline(never)]
    fn compare(
        &self,
        text: &[u8],
        gram: u32,
        at: usize,
        hits: &mut Vec<SecretMatch>,
        budget: &mut ScanBudget,
    ) -> Result<(), OverBudget> {
        for (number, place) in self.anchors.get(&gram).into_iter().flatten() {
            let Some((value, label)) = self.values.get(*number as usize) else { continue };
            let (before, after) = value.split_at(*place as usize);
            let Some(end) = walk(text, Some(at), after.iter(), next_kept, budget)? else { continue };
            let start = if before.is_empty() {
                Some(at)
            } else {
                walk(text, previous_kept(text, at), before.iter().rev(), previous_kept, budget)?
            };
            if let Some(start) = start {
                hits.push(SecretMatch { start, end: end + 1, label: *label });
            }
        }
        Ok(())
    }
}

/// Returns the compared characters of a value.
pub(super) fn kept_of(value: &str) -> Vec<u8> {
    value.bytes().filter(|byte| is_kept(*byte)).collect()
}

/// Returns whether a value is long enough to be searched without its separators, or with others.
pub(super) fn is_splittable(kept: &[u8]) -> bool {
    kept.len() >= if kept.iter().all(u8::is_ascii_digit) { DIGITS_MIN } else { KEPT_MIN }
}

/// Returns a weak value without its separators, if it is searched split: then split guesses are counted.
pub(super) fn counted(value: &str) -> Option<String> {
    let kept = kept_of(value);
    // Letters alone are in every text.
    let is_counted = is_splittable(&kept) && kept.iter().any(u8::is_ascii_digit);
    is_counted.then(|| String::from_utf8(kept).ok()).flatten()
}

/// Returns a text without its separators, and the position of each byte. A gap longer than a split value may have is kept as
/// one separator.
pub(super) fn joined(text: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    let mut next = text.iter().position(|byte| is_kept(*byte));
    while let Some(at) = next {
        bytes.push(text[at]);
        places.push(at);
        next = next_kept(text, at);
        if next.is_none() {
            next = text[at + 1..].iter().position(|byte| is_kept(*byte)).map(|found| at + 1 + found);
            bytes.push(0);
            places.push(at);
        }
    }
    (bytes, places)
}

/// Returns the digit at which a value is searched: if possible one without a digit before it.
pub(super) fn anchor_of(kept: &[u8]) -> Option<usize> {
    let mut digits = (0..kept.len().saturating_sub(GRAM - 1)).filter(|at| kept[*at].is_ascii_digit());
    let begins = |at: &usize| *at > 0 && !kept[at - 1].is_ascii_digit();
    let place = digits.clone().find(begins).or_else(|| digits.next());
    place.filter(|_| is_splittable(kept))
}

/// Returns the position of the last of `ours`, if all of them follow each other in the text from `at` on.
fn walk<'b>(
    text: &[u8],
    at: Option<usize>,
    ours: impl Iterator<Item = &'b u8>,
    step: fn(&[u8], usize) -> Option<usize>,
    budget: &mut ScanBudget,
) -> Result<Option<usize>, OverBudget> {
    let (mut next, mut last, mut count) = (at, None, 1);
    let mut same = true;
    for byte in ours {
        let Some(here) = next.filter(|here| text[*here].eq_ignore_ascii_case(byte)) else {
            same = false;
            break;
        };
        (last, next, count) = (next, step(text, here), count + 1);
    }
    budget.compare(count)?;
    Ok(last.filter(|_| same))
}

fn is_kept(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// Returns the next non-separator. An escaped line break is a separator.
fn next_kept(text: &[u8], at: usize) -> Option<usize> {
    next_kept_within(text, at, SEPARATORS_MAX)
}

fn next_kept_within(text: &[u8], at: usize, most: usize) -> Option<usize> {
    let mut next = at + 1;
    for _ in 0..=most {
        match text.get(next..)? {
            [b'\\', b'n' | b'r' | b't', ..] => next += 2,
            [byte, ..] if is_kept(*byte) => return Some(next),
            [_, ..] => next += 1,
            [] => return None,
        }
    }
    None
}

fn previous_kept(text: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    for _ in 0..=SEPARATORS_MAX {
        match text.get(..end)? {
            [.., b'\\', b'n' | b'r' | b't'] => end -= 2,
            [.., byte] if is_kept(*byte) => return Some(end - 1),
            [.., _] => end -= 1,
            [] => return None,
        }
    }
    None
}

/// Returns four characters from `at` on, and where they begin.
#[inline]
fn gram_from(text: &[u8], at: usize) -> Option<(u32, usize)> {
    if let Some(together) = text[at..].first_chunk::<GRAM>()
        && together.iter().all(u8::is_ascii_alphanumeric)
    {
        return Some((u32::from_be_bytes(*together) | 0x2020_2020, at));
    }
    let (mut gram, mut here) = (u32::from(text[at] | 0x20), at);
    for _ in 1..GRAM {
        here = next_kept_within(text, here, SEPARATORS_FEW)?;
        gram = gram << 8 | u32::from(text[here] | 0x20);
    }
    Some((gram, at))
}

fn slot(gram: u32) -> (usize, u64) {
    let hash = gram.wrapping_mul(0x9E37_79B1) >> (32 - FILTER_BITS_LOG2);
    ((hash >> 6) as usize, 1 << (hash & 63))
}

/// Returns the eight bytes at `at`; bytes after the end count as separators.
#[inline]
fn block_at(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    if let Some(block) = rest.first_chunk() {
        return u64::from_le_bytes(*block);
    }
    rest.iter().rev().fold(0, |block, byte| block << 8 | u64::from(*byte))
}

/// Returns the high bit of each byte that is a separator.
#[inline]
fn separators_in(bytes: u64) -> u64 {
    let small = (bytes | (0x20 * ONES)) & !HIGHS;
    let letters = (small + 0x1F * ONES) & !(small + 0x05 * ONES);
    !(letters | digits_in(bytes) | bytes) & HIGHS
}

/// Returns the high bit of each byte that is a digit.
#[inline]
fn digits_in(bytes: u64) -> u64 {
    let from_zero = bytes ^ (0x30 * ONES);
    !(((from_zero & !HIGHS) + 0x76 * ONES) | from_zero) & HIGHS
}
