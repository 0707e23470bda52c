//! Finds many literals at once, at the speed of reading.
//!
//! A text is read eight bytes at a time, and only every fourth position is looked up. Each literal is entered with the
//! four grams that such a position can meet, so none is passed over; what the filter lets through is compared in
//! full. An automaton over the same literals has to step through every byte, one after the other.
//!
//! The same reading marks where decoding may be worth while: long runs without spaces, and lists of numbers.

use super::budget::{Budget, OverBudget};
use super::split::Split;
use super::view::{PIECE, any_of};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A literal must be this long, or a looked-up position could miss it.
pub(super) const LITERAL_BYTES_MIN: usize = WINDOW;
/// Bytes of a gram; also the distance between the positions that are looked up.
const GRAM: usize = 4;
/// The part of a literal whose grams are entered: one of any four consecutive positions starts a gram inside it.
pub(super) const WINDOW: usize = 2 * GRAM - 1;
/// The filter has this many bits: 32 KiB, so that it stays in the nearest cache.
const FILTER_BITS_LOG2: u32 = 18;
const FILTER_WORDS: usize = 1 << (FILTER_BITS_LOG2 - 6);
/// What it lets through by chance is looked up in a second one, which is too large to be asked every time.
const SECOND_BITS_LOG2: u32 = 20;
const SECOND_WORDS: usize = 1 << (SECOND_BITS_LOG2 - 6);

/// A shorter run cannot hold an encoded secret that is not looked for as a literal, nor a token. One of so many bytes
/// always has a whole block of eight in it.
pub(super) const RUN_BYTES_MIN: usize = 16;
/// A line of an encoded text that was wrapped; shorter lines are not joined.
pub(super) const WRAPPED_LINE_BYTES_MIN: usize = 40;
/// How much space may stand between two lines of one run, or inside a literal that was wrapped.
const GAP_BYTES_MAX: usize = 16;
/// Eight numbers make the shortest secret; with separators they take at least this much.
const LIST_BYTES_MIN: usize = 15;

pub(super) const ONES: u64 = 0x0101_0101_0101_0101;
pub(super) const HIGHS: u64 = 0x8080_8080_8080_8080;

/// One way in which a secret can be written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Literal {
    pub(super) bytes: Vec<u8>,
    /// Whether the case of ASCII letters counts.
    pub(super) exact: bool,
    /// Whether it is also looked for with its first line broken.
    pub(super) breaks: bool,
}

/// Where something was found, and under which label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) label: u32,
}

/// What one reading of a text found.
#[derive(Default)]
pub(super) struct Sweep {
    pub(super) hits: Vec<Hit>,
    /// Where characters stand together that could be a token or something encoded.
    pub(super) runs: Vec<(usize, usize)>,
    /// Where nothing but numbers stands.
    pub(super) lists: Vec<(usize, usize)>,
    pub(super) ascii: bool,
}

pub(super) struct Index {
    filter: Box<[u64; FILTER_WORDS]>,
    second: Box<[u64]>,
    anchors: HashMap<u32, Vec<Anchor>, BuildHasherDefault<GramHasher>>,
    literals: Vec<(Literal, u32)>,
    split: Split,
}

/// A gram of a literal.
#[derive(Clone, Copy)]
struct Anchor {
    literal: u32,
    at: u32,
    /// Where the window begins that the gram belongs to.
    window: u32,
}

impl Index {
    /// Knows literals as they stand, and values that may be split by separators.
    pub(super) fn new(literals: Vec<(Literal, u32)>, split: Split) -> Index {
        let mut index = Index {
            filter: Box::new([0; FILTER_WORDS]),
            second: vec![0; SECOND_WORDS].into(),
            anchors: HashMap::default(),
            literals: Vec::new(),
            split,
        };
        for (number, (literal, _)) in literals.iter().enumerate() {
            // Of two windows of a literal that was broken into lines, one is still whole.
            for window in [0, WINDOW].into_iter().take(1 + usize::from(literal.breaks)) {
                let Some(bytes) = literal.bytes.get(window..window + WINDOW) else { continue };
                for (at, gram) in bytes.windows(GRAM).enumerate() {
                    let gram = fold(u32::from_le_bytes([gram[0], gram[1], gram[2], gram[3]]));
                    let (word, bit) = slot(gram);
                    index.filter[word] |= bit;
                    let (word, bit) = second_slot(gram);
                    index.second[word] |= bit;
                    let (literal, at, window) = (narrow(number), narrow(window + at), narrow(window));
                    index.anchors.entry(gram).or_default().push(Anchor { literal, at, window });
                }
            }
        }
        index.literals = literals;
        index
    }

    /// Reads the text; looks for split values too, unless it was decoded.
    pub(super) fn sweep(&self, text: &[u8], decoded: bool, budget: &mut Budget) -> Result<Sweep, OverBudget> {
        let mut sweep = Sweep::default();
        let (mut run_end, mut list_end, mut high) = (0, 0, 0);
        // Nothing stands before the first block: no run reaches into it from there.
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

    /// Compares every literal that has `gram`, which stands in the text at `at`.
    #[inline(never)]
    fn compare(
        &self,
        text: &[u8],
        at: usize,
        gram: u32,
        hits: &mut Vec<Hit>,
        budget: &mut Budget,
    ) -> Result<(), OverBudget> {
        let Some(anchors) = self.anchors.get(&gram) else { return Ok(()) };
        let mut last = None;
        for anchor in anchors {
            let Some((literal, label)) = self.literals.get(anchor.literal as usize) else { continue };
            // A literal with a repeated gram meets itself here more than once.
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
                hits.push(Hit { start, end, label: *label });
            }
        }
        Ok(())
    }
}

impl Literal {
    fn same(&self, ours: u8, theirs: u8) -> bool {
        if self.exact { ours == theirs } else { ours.eq_ignore_ascii_case(&theirs) }
    }

    /// Returns where the literal stands, if its byte `offset` is the one at `at` of the text.
    fn at(
        &self,
        text: &[u8],
        at: usize,
        offset: usize,
        budget: &mut Budget,
    ) -> Result<Option<(usize, usize)>, OverBudget> {
        let Some(start) = at.checked_sub(offset) else { return Ok(None) };
        let Some(there) = text.get(start..start + self.bytes.len()) else { return Ok(None) };
        let equal = self.bytes.iter().zip(there).take_while(|(a, b)| self.same(**a, **b)).count();
        budget.compare(equal + 1)?;
        Ok((equal == self.bytes.len()).then_some((start, start + equal)))
    }

    /// Returns where the literal stands with space in it that is not its own, or without its own.
    fn spread_at(
        &self,
        text: &[u8],
        at: usize,
        anchor: &Anchor,
        budget: &mut Budget,
    ) -> Result<Option<(usize, usize)>, OverBudget> {
        let window = anchor.window as usize;
        let Some(start) = at.checked_sub(anchor.at as usize - window) else { return Ok(None) };
        spread_around(&self.bytes, window, text, start, |ours, theirs| self.same(*ours, theirs), budget)
    }
}

/// Something that a byte of a text can fit, where the text may have space in it.
pub(super) trait Fitted {
    /// Whether it is space itself, which may be left out.
    fn is_space(&self) -> bool;
}

impl Fitted for u8 {
    fn is_space(&self) -> bool {
        self.is_ascii_whitespace()
    }
}

/// Returns where all of `ours` stands, with space in it or without its own, if the part of it that begins at `window` stands
/// in one piece at `start`.
pub(super) fn spread_around<T: Fitted>(
    ours: &[T],
    window: usize,
    text: &[u8],
    start: usize,
    fits: impl Fn(&T, u8) -> bool,
    budget: &mut Budget,
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

/// Returns how much of the text it takes to read all of `ours`.
fn walk<'b, T: Fitted + 'b>(
    mut ours: impl Iterator<Item = &'b T>,
    theirs: impl Iterator<Item = &'b u8>,
    fits: impl Fn(&T, u8) -> bool,
    budget: &mut Budget,
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

/// Grams are spread by one multiplication; they are not chosen by an attacker.
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

/// Returns the high bit of each of eight bytes that is a space or a control character.
#[inline]
fn spaces_in(bytes: u64) -> u64 {
    bytes.wrapping_sub(0x21 * ONES) & !bytes & HIGHS
}

/// Whether a block of eight without spaces may be part of a run: enough stands without spaces in the blocks before and
/// after it together. Behind the last one it is not known.
#[inline]
fn has_run(spaces_before: u64, next: Option<&[u8; 8]>) -> bool {
    let spaces_after = next.map_or(0, |next| spaces_in(u64::from_le_bytes(*next)));
    let around = spaces_before.leading_zeros() / 8 + spaces_after.trailing_zeros() / 8;
    around as usize + 8 >= RUN_BYTES_MIN
}

/// Whether no letter above `f` is among eight bytes, and what may be a digit is.
#[inline]
fn may_be_numbers(bytes: u64) -> bool {
    (((bytes & !HIGHS) + 0x19 * ONES) | bytes) & HIGHS == 0 && bytes & (0x10 * ONES) != 0
}

const BASE64: u8 = 1;
const RUN: u8 = 2;
const LIST: u8 = 4;
/// Capitals and digits: all that is encoded has some, and so has every token. Most words have none.
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

/// Returns the range around `at` in which every byte is of the class; empty, if the one at `at` is not.
fn around(text: &[u8], at: usize, class: u8) -> (usize, usize) {
    let fits = |byte: &&u8| CLASSES[**byte as usize] & class != 0;
    let after = text[at..].iter().take_while(fits).count();
    let before = if after == 0 { 0 } else { text[..at].iter().rev().take_while(fits).count() };
    (at - before, at + after)
}

impl Sweep {
    /// Adds what is not found already: where a value stands twice, its end and its beginning make it a third time.
    fn add_new(&mut self, split: Vec<Hit>) {
        let whole = self.hits.len();
        for hit in split {
            // Those that were found stand almost in order.
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

    /// Notes the run around `at`, with the lines that follow it if it was wrapped, and returns where it ends.
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
