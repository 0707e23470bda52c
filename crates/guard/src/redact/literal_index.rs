//! Multi-pattern search for literals, at the speed of reading.
//!
//! The text is read eight bytes at a time, and only every fourth position is probed in a bitmap filter. Each literal is entered
//! with the four grams that such a position can meet, so none is missed; candidates are compared in full. An Aho-Corasick
//! automaton would have to step through every byte.
//!
//! The same pass marks candidates for decoding: long runs without spaces, and lists of numbers.

use super::budget::{OverBudget, ScanBudget};
use super::decoded_view::{PIECE, any_of};
use super::split_values::Split;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Minimum length of a literal; a shorter one could lie between two probed positions.
pub(super) const LITERAL_BYTES_MIN: usize = WINDOW;
/// Bytes of a gram, and the distance between probed positions.
const GRAM: usize = 4;
/// The part of a literal whose grams are entered: one of any four consecutive positions starts a gram inside it.
pub(super) const WINDOW: usize = 2 * GRAM - 1;
/// Size of the filter: 32 KiB, to stay in the L1 cache.
const FILTER_BITS_LOG2: u32 = 18;
const FILTER_WORDS: usize = 1 << (FILTER_BITS_LOG2 - 6);
/// False positives are probed in a second filter, too large to be probed every time.
const SECOND_BITS_LOG2: u32 = 20;
const SECOND_WORDS: usize = 1 << (SECOND_BITS_LOG2 - 6);

/// A shorter run holds neither a token nor an encoded secret that is not matched as a literal. A run of this length always
/// contains an aligned block of eight.
pub(super) const RUN_BYTES_MIN: usize = 16;
/// Minimum length of a line of wrapped encoded text; shorter lines are not joined.
pub(super) const WRAPPED_LINE_BYTES_MIN: usize = 40;
/// Bound on whitespace between two lines of one run, or inside a wrapped literal.
const GAP_BYTES_MAX: usize = 16;
/// Eight numbers make the shortest secret; with separators they take at least this much.
const LIST_BYTES_MIN: usize = 15;

pub(super) const ONES: u64 = 0x0101_0101_0101_0101;
pub(super) const HIGHS: u64 = 0x8080_8080_8080_8080;

/// One form of a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Literal {
    pub(super) bytes: Vec<u8>,
    /// Whether ASCII case is significant.
    pub(super) exact: bool,
    /// Whether it is also matched if a line break splits its start.
    pub(super) breaks: bool,
}

/// A match with its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SecretMatch {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) label: u32,
}

/// The result of one pass.
#[derive(Default)]
pub(super) struct SweepResult {
    pub(super) hits: Vec<SecretMatch>,
    /// Runs of characters that could be a token or encoded.
    pub(super) runs: Vec<(usize, usize)>,
    /// Ranges of numbers only.
    pub(super) lists: Vec<(usize, usize)>,
    pub(super) ascii: bool,
}

pub(super) struct LiteralIndex {
    filter: Box<[u64; FILTER_WORDS]>,
    second: Box<[u64]>,
    anchors: HashMap<u32, Vec<GramAnchor>, BuildHasherDefault<GramHasher>>,
    literals: Vec<(Literal, u32)>,
    split: Split,
}

/// A gram of a literal.
#[derive(Clone, Copy)]
struct GramAnchor {
    literal: u32,
    at: u32,
    /// The start of the gram's window.
    window: u32,
}

impl LiteralIndex {
    /// Indexes literals, and values that may be split by separators.
    pub(super) fn new(literals: Vec<(Literal, u32)>, split: Split) -> LiteralIndex {
        let mut index = LiteralIndex {
            filter: Box::new([0; FILTER_WORDS]),
            second: vec![0; SECOND_WORDS].into(),
            anchors: HashMap::default(),
            literals: Vec::new(),
            split,
        };
        for (number, (literal, _)) in literals.iter().enumerate() {
            // If a literal is broken into lines, one of its two windows is still intact.
            for window in [0, WINDOW].into_iter().take(1 + usize::from(literal.breaks)) {
                let Some(bytes) = literal.bytes.get(window..window + WINDOW) else { continue };
                for (at, gram) in bytes.windows(GRAM).enumerate() {
                    let gram = fold(u32::from_le_bytes([gram[0], gram[1], gram[2], gram[3]]));
                    let (word, bit) = slot(gram);
                    index.filter[word] |= bit;
                    let (word, bit) = second_slot(gram);
                    index.second[word] |= bit;
                    let (literal, at, window) = (narrow(number), narrow(window + at), narrow(window));
                    index.anchors.entry(gram).or_default().push(GramAnchor { literal, at, window });
                }
            }
        }
        index.literals = literals;
        index
    }

    /// Scans the text; also for split values, unless it was decoded.
    pub(super) fn sweep(
        &self,
        text: &[u8],
        decoded: bool,
        budget: &mut ScanBudget,
    ) -> Result<SweepResult, OverBudget> {
        let mut sweep = SweepResult::default();
        let (mut run_end, mut list_end, mut high) = (0, 0, 0);
        // No run extends before the first block.
        let mut spaces_before = HIGHS;
        let (blocks, rest) = text.as_chunks::<8>();
        let (pieces, last) = text.as_chunks::<PIECE>();
        let is_digit = |byte: u8| u8::from(byte.is_ascii_digit());
        let pieces = pieces.iter().map(|piece| (&piece[..], any_of(piece, is_digit))).chain([(last, true)]);
        let mut split = Vec::new();
        let mut number = 0;
        for (piece, has_digits) in pieces {
            if has_digits && !decoded {
                self.split.find(text, number * 8, number * 8 + piece.len(), &mut split, budget)?;
            }
            for block in piece.as_chunks::<8>().0 {
                let bytes = u64::from_le_bytes(*block);
                high |= bytes;
                let folded = bytes | (0x20 * ONES);
                let (low, top) = (folded as u32, (folded >> 32) as u32);
                let (in_low, in_top) = (self.may_begin(low), self.may_begin(top));
                if in_low | in_top {
                    if in_low && self.is_likely(low) {
                        self.compare(text, number * 8, low, &mut sweep.hits, budget)?;
                    }
                    if in_top && self.is_likely(top) {
                        self.compare(text, number * 8 + GRAM, top, &mut sweep.hits, budget)?;
                    }
                }
                let spaces = spaces_in(bytes);
                if spaces == 0
                    && number * 8 >= run_end
                    && has_run(spaces_before, blocks.get(number + 1))
                    && block.iter().fold(RUN, |all, byte| all & CLASSES[*byte as usize]) != 0
                {
                    run_end = sweep.run_around(text, number * 8);
                }
                spaces_before = spaces;
                if has_digits && may_be_numbers(bytes) && number * 8 >= list_end {
                    let (start, end) = around(text, number * 8, LIST);
                    list_end = end;
                    if end - start >= LIST_BYTES_MIN {
                        sweep.lists.push((start, end));
                    }
                }
                number += 1;
            }
        }
        if let [a, b, c, d, ..] = *rest {
            let gram = fold(u32::from_le_bytes([a, b, c, d]));
            if self.may_begin(gram) {
                self.compare(text, blocks.len() * 8, gram, &mut sweep.hits, budget)?;
            }
        }
        sweep.add_new(split);
        sweep.ascii = high & HIGHS == 0 && rest.is_ascii();
        Ok(sweep)
    }

    #[inline]
    fn may_begin(&self, gram: u32) -> bool {
        let (word, bit) = slot(gram);
        self.filter[word] & bit != 0
    }

    #[inline]
    fn is_likely(&self, gram: u32) -> bool {
        let (word, bit) = second_slot(gram);
        self.second[word] & bit != 0
    }

    /// Compares every literal that has `gram`, which is at `at`.
    #[inline(never)]
    fn compare(
        &self,
        text: &[u8],
        at: usize,
        gram: u32,
        hits: &mut Vec<SecretMatch>,
        budget: &mut ScanBudget,
    ) -> Result<(), OverBudget> {
        let Some(anchors) = self.anchors.get(&gram) else { return Ok(()) };
        let mut last = None;
        for anchor in anchors {
            let Some((literal, label)) = self.literals.get(anchor.literal as usize) else { continue };
            // A literal with a repeated gram occurs more than once here.
            if last == Some(anchor.literal) {
                continue;
            }
            if hits.last().is_some_and(|hit| hit.label == *label && hit.start <= at && at + GRAM <= hit.end) {
                continue;
            }
            let found = literal.at(text, at, anchor.at as usize, budget)?;
            let found = match found {
                None => literal.spread_at(text, at, anchor, budget)?,
                found => found,
            };
            if let Some((start, end)) = found {
                last = Some(anchor.literal);
                hits.push(SecretMatch { start, end, label: *label });
            }
        }
        Ok(())
    }
}

impl Literal {
    fn same(&self, own: u8, other: u8) -> bool {
        if self.exact { own == other } else { own.eq_ignore_ascii_case(&other) }
    }

    /// Returns the range of the literal, if its byte `offset` is at `at`.
    fn at(
        &self,
        text: &[u8],
        at: usize,
        offset: usize,
        budget: &mut ScanBudget,
    ) -> Result<Option<(usize, usize)>, OverBudget> {
        let Some(start) = at.checked_sub(offset) else { return Ok(None) };
        let Some(there) = text.get(start..start + self.bytes.len()) else { return Ok(None) };
        let equal = self.bytes.iter().zip(there).take_while(|(a, b)| self.same(**a, **b)).count();
        budget.compare(equal + 1)?;
        Ok((equal == self.bytes.len()).then_some((start, start + equal)))
    }

    /// Returns the range of the literal with additional or missing whitespace.
    fn spread_at(
        &self,
        text: &[u8],
        at: usize,
        anchor: &GramAnchor,
        budget: &mut ScanBudget,
    ) -> Result<Option<(usize, usize)>, OverBudget> {
        let window = anchor.window as usize;
        let Some(start) = at.checked_sub(anchor.at as usize - window) else { return Ok(None) };
        spread_around(&self.bytes, window, text, start, |ours, theirs| self.same(*ours, theirs), budget)
    }
}

/// An element of a pattern that matches one byte, in text that may have extra whitespace.
pub(super) trait Fitted {
    /// Returns whether it is whitespace itself, which may be missing.
    fn is_space(&self) -> bool;
}

impl Fitted for u8 {
    fn is_space(&self) -> bool {
        self.is_ascii_whitespace()
    }
}

/// Returns the range of `ours` with additional or missing whitespace, if its part from `window` on is contiguous at `start`.
pub(super) fn spread_around<T: Fitted>(
    ours: &[T],
    window: usize,
    text: &[u8],
    start: usize,
    fits: impl Fn(&T, u8) -> bool,
    budget: &mut ScanBudget,
) -> Result<Option<(usize, usize)>, OverBudget> {
    let whole = text
        .get(start..start + WINDOW)
        .is_some_and(|there| ours[window..].iter().zip(there).all(|(ours, theirs)| fits(ours, *theirs)));
    if !whole {
        return Ok(None);
    }
    let after = walk(ours[window..].iter(), text[start..].iter(), &fits, budget)?;
    let before = walk(ours[..window].iter().rev(), text[..start].iter().rev(), &fits, budget)?;
    Ok(before.zip(after).map(|(before, after)| (start - before, start + after)))
}

/// Returns how many bytes of the text match all of `ours`.
fn walk<'b, T: Fitted + 'b>(
    mut ours: impl Iterator<Item = &'b T>,
    theirs: impl Iterator<Item = &'b u8>,
    fits: impl Fn(&T, u8) -> bool,
    budget: &mut ScanBudget,
) -> Result<Option<usize>, OverBudget> {
    let (mut wanted, mut gap, mut read) = (ours.next(), 0, 0);
    for byte in theirs {
        while wanted.is_some_and(|w| w.is_space() && !fits(w, *byte)) && !byte.is_ascii_whitespace() {
            wanted = ours.next();
        }
        let Some(byte_wanted) = wanted else { break };
        read += 1;
        if fits(byte_wanted, *byte) {
            (wanted, gap) = (ours.next(), 0);
        } else if byte.is_ascii_whitespace() && gap < GAP_BYTES_MAX {
            gap += 1;
        } else {
            break;
        }
        if wanted.is_none() {
            break;
        }
    }
    budget.compare(read + 1)?;
    let rest_is_space = wanted.is_none_or(Fitted::is_space) && ours.all(Fitted::is_space);
    Ok(rest_is_space.then_some(read))
}

fn fold(gram: u32) -> u32 {
    gram | 0x2020_2020
}

#[inline]
fn slot(gram: u32) -> (usize, u64) {
    let hash = gram.wrapping_mul(0x9E37_79B1) >> (32 - FILTER_BITS_LOG2);
    ((hash >> 6) as usize, 1 << (hash & 63))
}

#[inline]
fn second_slot(gram: u32) -> (usize, u64) {
    let hash = gram.wrapping_mul(0x85EB_CA6B) >> (32 - SECOND_BITS_LOG2);
    ((hash >> 6) as usize, 1 << (hash & 63))
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A multiplicative hash; an attacker does not choose the grams.
#[derive(Default)]
pub(super) struct GramHasher(u64);

impl Hasher for GramHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

/// Returns the high bit of each byte that is a space or a control character.
#[inline]
fn spaces_in(bytes: u64) -> u64 {
    bytes.wrapping_sub(0x21 * ONES) & !bytes & HIGHS
}

/// Returns whether a block without spaces may be part of a run, by the spaces in its neighbours. After the last block that
/// is unknown.
#[inline]
fn has_run(spaces_before: u64, next: Option<&[u8; 8]>) -> bool {
    let spaces_after = next.map_or(0, |next| spaces_in(u64::from_le_bytes(*next)));
    let around = spaces_before.leading_zeros() / 8 + spaces_after.trailing_zeros() / 8;
    around as usize + 8 >= RUN_BYTES_MIN
}

/// Returns whether the eight bytes have no letter above `f`, and a possible digit.
#[inline]
fn may_be_numbers(bytes: u64) -> bool {
    (((bytes & !HIGHS) + 0x19 * ONES) | bytes) & HIGHS == 0 && bytes & (0x10 * ONES) != 0
}

const BASE64: u8 = 1;
const RUN: u8 = 2;
const LIST: u8 = 4;
/// Capitals and digits: everything encoded and every token has some. Most words have none.
const MARKED: u8 = 8;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_') {
            classes[byte] |= BASE64;
        }
        if classes[byte] != 0 || matches!(b, b'=' | b'.' | b':' | b'~') {
            classes[byte] |= RUN;
        }
        if b.is_ascii_uppercase() || b.is_ascii_digit() {
            classes[byte] |= MARKED;
        }
        if b.is_ascii_hexdigit() || matches!(b, b'x' | b'X' | b',' | b':' | b';' | b'-' | b'|' | b'"' | b'\'')
        {
            classes[byte] |= LIST;
        }
        if b.is_ascii_whitespace() || matches!(b, b'[' | b']' | b'(' | b')' | b'{' | b'}') {
            classes[byte] |= LIST;
        }
        byte += 1;
    }
    classes
};

pub(super) fn is_base64(byte: u8) -> bool {
    CLASSES[byte as usize] & BASE64 != 0
}

pub(super) fn has_marks(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| CLASSES[*byte as usize] & MARKED != 0)
}

/// Returns the range around `at` whose bytes are all of the class; empty if the one at `at` is not.
fn around(text: &[u8], at: usize, class: u8) -> (usize, usize) {
    let fits = |byte: &&u8| CLASSES[**byte as usize] & class != 0;
    let after = text[at..].iter().take_while(fits).count();
    let before = if after == 0 { 0 } else { text[..at].iter().rev().take_while(fits).count() };
    (at - before, at + after)
}

impl SweepResult {
    /// Adds new matches: a value that occurs twice in a row also matches across the boundary.
    fn add_new(&mut self, split: Vec<SecretMatch>) {
        let whole = self.hits.len();
        for hit in split {
            // Matches are almost sorted.
            let over = |at: usize| {
                let after = self.hits[..whole].partition_point(|known| known.start <= at);
                let near = self.hits[after.saturating_sub(4)..after].iter();
                near.filter(|known| known.label == hit.label && at < known.end).map(|known| known.end).max()
            };
            let known_to =
                over(hit.start).map(|end| if end < hit.end { over(end).unwrap_or(end) } else { end });
            if known_to.is_none_or(|end| end < hit.end) {
                self.hits.push(hit);
            }
        }
    }

    /// Records the run around `at`, with the following lines if it was wrapped, and returns its end.
    #[inline(never)]
    fn run_around(&mut self, text: &[u8], at: usize) -> usize {
        let (start, mut end) = around(text, at, RUN);
        let mut line = start;
        while end - line >= WRAPPED_LINE_BYTES_MIN {
            let gap = text[end..].iter().take(GAP_BYTES_MAX).take_while(|b| b.is_ascii_whitespace()).count();
            let next = around(text, (end + gap).min(text.len()), RUN).1;
            if !text[end..end + gap].contains(&b'\n') || next == end + gap {
                break;
            }
            (line, end) = (end + gap, next);
        }
        if end - start >= RUN_BYTES_MIN && has_marks(&text[start..end]) {
            self.runs.push((start, end));
        }
        end
    }
}
