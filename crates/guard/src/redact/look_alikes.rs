//! Look-alikes of weak secrets: texts of the same shape, which could be guesses.
//!
//! A client that reads back guesses learns from the mask which one is right (an oracle). `guesses` bounds how many look-alikes
//! a client reads; this module finds them, in every form in which the secret itself would be found. Strong secrets do not
//! need it. Secrets of letters only are excluded: their look-alikes are ordinary words.

use super::budget::{OverBudget, ScanBudget};
use super::encoded_forms::{self, FormKind, forms_by_kind};
use super::literal_index::{Fitted, WINDOW, spread_around};
use portcullis_store::secrets::is_weak;
use std::collections::BTreeMap;

/// Bound on weak secrets with look-alikes; a store should have none.
const SECRETS_MAX: usize = 64;
/// Samples of the same shape written in all forms, to learn which bytes can occur where. A byte with probability 1/26 is
/// missed once in ten million times.
const SAMPLES: usize = 400;
/// A position with more distinct bytes is assumed to allow others too.
const OPEN_SET: u32 = 24;
/// Bound on the guesses that one look-alike counts as.
const GUESSES_MAX: usize = 1_000;
/// How much of a value a form leaves out at most, at each end.
const ENDS_BYTES: usize = 3;
/// How many bytes the filter examines.
const FILTER_BYTES: usize = 4;
/// The unencoded value.
const PLAIN: FormKind = 0;
/// How many entries fit in one filter.
const FILTER_ENTRIES: usize = 64;

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }

    fn bytes(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |byte| self.contains(*byte))
    }

    /// Adds bytes that the samples may have missed.
    fn close(&mut self) {
        if self.0.iter().map(|word| word.count_ones()).sum::<u32>() <= OPEN_SET {
            return;
        }
        let printable = self.bytes().any(|byte| !byte.is_ascii_alphanumeric());
        let more = (b'!'..=b'~').filter(|byte| printable || byte.is_ascii_alphanumeric());
        more.for_each(|byte| self.insert(byte));
    }
}

impl Fitted for ByteSet {
    fn is_space(&self) -> bool {
        self.bytes().all(|byte| byte.is_ascii_whitespace())
    }
}

/// The common shape of all look-alikes of a secret in one form.
#[derive(Debug, Clone)]
struct Shape {
    sets: Vec<ByteSet>,
    exact: bool,
    breaks: bool,
    /// How many values one look-alike represents: some forms leave out bits that depend on the surrounding text.
    guesses: usize,
    /// For dense forms: the text is decoded and compared with the shape of the value.
    decoded: Option<(FormKind, Vec<ByteSet>)>,
}

impl Shape {
    /// Returns the sort key that identifies the shape.
    fn common(&self) -> impl Ord + '_ {
        (&self.sets, self.exact, self.decoded.as_ref())
    }

    /// Returns the range and the normalized text of a look-alike, if its part from `window` on is at `at`.
    fn around(
        &self,
        window: usize,
        text: &[u8],
        at: usize,
        budget: &mut ScanBudget,
    ) -> Result<Option<(usize, usize, Vec<u8>)>, OverBudget> {
        let is_value = |decoded: Option<Vec<u8>>, shape: &[ByteSet]| {
            let fits = |bytes: Vec<u8>| bytes.iter().zip(shape).all(|(byte, set)| set.contains(*byte));
            decoded.is_some_and(fits)
        };
        // Most matches of a dense form are ordinary text, which the first group reveals.
        if let Some((kind, value)) = &self.decoded
            && let Some(group) = encoded_forms::group_of(*kind, &text[at..])
            && !is_value(encoded_forms::decoded(*kind, group), value)
        {
            budget.compare(group.len())?;
            return Ok(None);
        }
        let fits = |set: &ByteSet, byte| set.contains(byte);
        let Some((start, end)) = spread_around(&self.sets, window, text, at, fits, budget)? else {
            return Ok(None);
        };
        let said: Vec<u8> = text[start..end]
            .iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .map(|byte| if self.exact { *byte } else { byte.to_ascii_lowercase() })
            .collect();
        let of_value =
            |(kind, value): &(FormKind, Vec<ByteSet>)| is_value(encoded_forms::decoded(*kind, &said), value);
        let found = self.decoded.as_ref().is_none_or(of_value);
        Ok(found.then_some((start, end, said)))
    }
}

/// A look-alike in a text.
pub(super) struct LookAlike<'t> {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its shape and its normalized text.
    pub(super) said: (usize, &'t [u8]),
    /// How many guesses it counts as.
    pub(super) guesses: usize,
}

/// The look-alikes of all weak secrets.
#[derive(Default)]
pub(super) struct LookAlikes {
    shapes: Vec<Shape>,
    filters: Vec<Filter>,
}

/// Which entries can begin with which bytes: one bit per entry.
struct Filter {
    starts: Box<[[u64; 256]; FILTER_BYTES]>,
    /// The index of a shape, and the start of the window in it.
    entries: Vec<(usize, usize)>,
}

impl LookAlikes {
    /// Returns whether look-alikes of a value are counted.
    pub(super) fn covers(value: &str) -> bool {
        is_weak(value) && !value.bytes().all(|byte| byte.is_ascii_alphabetic())
    }

    pub(super) fn new<'v>(values: impl Iterator<Item = &'v str>) -> LookAlikes {
        LookAlikes::of(values.take(SECRETS_MAX).flat_map(|value| shapes_of(value, |_| true)).collect())
    }

    /// For text without its separators: the unencoded form only.
    pub(super) fn joined(values: impl Iterator<Item = String>) -> LookAlikes {
        let plain = |value: String| shapes_of(&value, |kind| kind == PLAIN);
        LookAlikes::of(values.take(SECRETS_MAX).flat_map(plain).collect())
    }

    fn of(mut shapes: Vec<Shape>) -> LookAlikes {
        // Two forms with the same shape, as forwards and backwards, are two guesses.
        shapes.sort_unstable_by(|a, b| a.common().cmp(&b.common()));
        shapes.dedup_by(|next, kept| {
            let same = next.common() == kept.common();
            if same {
                kept.guesses += next.guesses;
                kept.breaks |= next.breaks;
            }
            same
        });
        // As in the index: if a form is broken into lines, one of its two windows is still intact.
        let windows = |(number, shape): (usize, &Shape)| {
            let second = shape.breaks && shape.sets.len() >= 2 * WINDOW;
            [Some((number, 0)), second.then_some((number, WINDOW))].into_iter().flatten()
        };
        let entries: Vec<_> = shapes.iter().enumerate().flat_map(windows).collect();
        let filters = entries.chunks(FILTER_ENTRIES).map(|entries| Filter::new(&shapes, entries)).collect();
        LookAlikes { shapes, filters }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Emits every look-alike in a text.
    pub(super) fn find(
        &self,
        text: &[u8],
        budget: &mut ScanBudget,
        mut found: impl FnMut(LookAlike<'_>),
    ) -> Result<(), OverBudget> {
        for filter in &self.filters {
            for (at, bytes) in text.windows(FILTER_BYTES).enumerate() {
                let mut fits = bytes
                    .iter()
                    .zip(&*filter.starts)
                    .fold(u64::MAX, |fits, (byte, starts)| fits & starts[usize::from(*byte)]);
                while fits != 0 {
                    let (number, window) = filter.entries[fits.trailing_zeros() as usize];
                    fits &= fits - 1;
                    let shape = &self.shapes[number];
                    if let Some((start, end, said)) = shape.around(window, text, at, budget)? {
                        let guesses = shape.guesses.min(GUESSES_MAX);
                        found(LookAlike { start, end, said: (number, &said), guesses });
                    }
                }
            }
        }
        Ok(())
    }
}

impl Filter {
    fn new(shapes: &[Shape], entries: &[(usize, usize)]) -> Filter {
        let mut starts = Box::new([[0; 256]; FILTER_BYTES]);
        for (bit, (number, window)) in entries.iter().enumerate() {
            for (starts, set) in starts.iter_mut().zip(&shapes[*number].sets[*window..]) {
                set.bytes().for_each(|byte| starts[usize::from(byte)] |= 1 << bit);
            }
        }
        Filter { starts, entries: entries.to_vec() }
    }
}

/// Learns the shapes: writes many samples of the same shape in every form, and collects the bytes of each position.
fn shapes_of(value: &str, is_wanted: impl Fn(FormKind) -> bool) -> Vec<Shape> {
    let mut shapes = BTreeMap::new();
    let mut shape_of_value = vec![ByteSet::default(); value.len()];
    let samples = (0..SAMPLES).map(|number| sample(value, number));
    for sample in samples.chain([value.to_owned()]) {
        for (set, byte) in shape_of_value.iter_mut().zip(sample.bytes()) {
            set.insert(byte);
        }
        for (kind, form) in forms_by_kind(&sample).into_iter().filter(|(kind, _)| is_wanted(*kind)) {
            let shape = shapes.entry((kind, form.bytes.len())).or_insert_with(|| Shape {
                sets: vec![ByteSet::default(); form.bytes.len()],
                exact: form.exact,
                breaks: form.breaks,
                guesses: 0,
                decoded: None,
            });
            for (set, byte) in shape.sets.iter_mut().zip(&form.bytes) {
                set.insert(*byte);
                if !form.exact {
                    set.insert(byte.to_ascii_lowercase());
                    set.insert(byte.to_ascii_uppercase());
                }
            }
        }
    }
    let guesses = guesses_of(value);
    let finished = shapes.into_iter().map(|((kind, _), mut shape)| {
        shape.sets.iter_mut().for_each(ByteSet::close);
        shape.guesses = guesses.get(&kind).copied().unwrap_or_default();
        shape.decoded = encoded_forms::is_dense(kind).then(|| (kind, shape_of_value.clone()));
        shape
    });
    finished.collect()
}

/// Returns how many values of the same shape share this value's form, by kind. Identical forms of this value count once.
fn guesses_of(value: &str) -> BTreeMap<FormKind, usize> {
    let own = forms_by_kind(value);
    let mut guesses = BTreeMap::new();
    for (number, (kind, form)) in own.iter().enumerate() {
        let is_known = own[..number].iter().any(|(_, earlier)| earlier.bytes == form.bytes);
        guesses.insert(*kind, usize::from(!is_known));
    }
    // Only the ends of a value share characters of a form with the surrounding text.
    let at_ends = |at: usize| at < ENDS_BYTES || at + ENDS_BYTES >= value.len();
    for (at, c) in value.char_indices().filter(|(at, c)| c.is_ascii_alphanumeric() && at_ends(*at)) {
        let others = match c {
            '0'..='9' => '0'..='9',
            'a'..='z' => 'a'..='z',
            _ => 'A'..='Z',
        };
        let mut same: BTreeMap<FormKind, usize> = BTreeMap::new();
        for other in others {
            let varied = format!("{}{other}{}", &value[..at], &value[at + 1..]);
            for (kind, form) in forms_by_kind(&varied) {
                let is_same = own.iter().any(|(known, own)| *known == kind && *own == form);
                *same.entry(kind).or_default() += usize::from(is_same);
            }
        }
        for (kind, count) in &mut guesses {
            let times = same.get(kind).copied().unwrap_or_default().max(1);
            *count = count.saturating_mul(times).min(GUESSES_MAX);
        }
    }
    guesses
}

/// Returns a value with its digits and letters replaced. Depends on the shape of the value only.
fn sample(value: &str, number: usize) -> String {
    let other = |(at, c): (usize, char)| {
        let random = mixed((number * 0x1_0000 + at) as u64);
        let pick = |first: u8, count: u64| char::from(first + (random % count) as u8);
        match c {
            '0'..='9' => pick(b'0', 10),
            'a'..='z' | 'A'..='Z' if random >> 63 == 0 => pick(b'a', 26),
            'a'..='z' | 'A'..='Z' => pick(b'A', 26),
            other => other,
        }
    };
    value.chars().enumerate().map(other).collect()
}

/// The finalizer of SplitMix64.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
