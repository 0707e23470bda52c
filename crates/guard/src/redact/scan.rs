//! Looks through a text, and through what it may mean, for what must not leave.

use super::budget::{Budget, OverBudget};
use super::forms::forms_of;
use super::guesses::{Guesses, Reader};
use super::index::{Hit, Index, Literal};
use super::look_alikes::LookAlikes;
use super::split::{self, Split};
use super::view::{self, Near, View};
use super::{RedactError, SECRETS_MAX, TokenShapes, VALUE_BYTES_MIN, runs, shapes};
use portcullis_core::Secret;
use portcullis_store::secrets::vocabulary::is_structure;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// How everything begins that stands instead of a secret.
pub const MASK_BEGINS: &str = "[REDACTED";

/// How often what was decoded is decoded again.
const DEPTH_MAX: usize = 3;
/// A shorter view holds neither a secret nor a token.
const VIEW_BYTES_MIN: usize = VALUE_BYTES_MIN;

pub(super) const WITHHELD: &str = "[WITHHELD: it costs too much to check it for secrets]";

/// Everything that is known of what must not leave.
pub(super) struct Masks {
    index: Index,
    /// What stands in place of each kind: first the shapes, then the secrets.
    labels: Vec<String>,
    near: Near,
    /// By label: whether its look-alikes are counted.
    weak: Vec<bool>,
    weak_values: Vec<Secret<String>>,
    /// Made when a client first reads something: most hubs have no weak secret, and commands have no client.
    look_alikes: OnceLock<LookAlikes>,
    split_look_alikes: OnceLock<LookAlikes>,
    /// How many bytes the longest secret has.
    pub(super) value_bytes_max: usize,
}

impl Masks {
    pub(super) fn new(secrets: &[(String, Secret<String>)]) -> Result<Masks, RedactError> {
        if secrets.len() > SECRETS_MAX {
            return Err(RedactError::TooMany { count: secrets.len() });
        }
        let label = |name: &str| format!("{MASK_BEGINS}:{name}]");
        let mut labels: Vec<String> = shapes::SHAPES.iter().map(|shape| label(shape.name)).collect();
        labels.extend(shapes::UNPREFIXED.map(label));
        let mark =
            |mark: &[u8]| (Literal { bytes: mark.to_vec(), exact: false, breaks: false }, PRIVATE_KEY_MARK);
        let mut literals: Vec<_> = shapes::PRIVATE_KEY_MARKS.map(mark).into();
        let (mut values, mut weak, mut weak_values) = (Vec::new(), vec![false; labels.len()], Vec::new());
        for (name, value) in secrets {
            let value = value.expose();
            // The name is written into JSON that is already escaped.
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if name.is_empty() || !name.chars().all(fits) {
                return Err(RedactError::BadName { name: portcullis_core::json::printable(name) });
            }
            if value.len() < VALUE_BYTES_MIN {
                return Err(RedactError::TooShort { name: name.clone(), bytes: value.len() });
            }
            let number = u32::try_from(labels.len()).unwrap_or(u32::MAX);
            literals.extend(forms_of(value).into_iter().map(|form| (form, number)));
            labels.push(label(name));
            let is_weak = LookAlikes::covers(value);
            weak.push(is_weak);
            if is_weak {
                weak_values.push(Secret::new(value.clone()));
            }
            values.push((value.as_str(), number));
        }
        let value_bytes_max = secrets.iter().map(|(_, value)| value.expose().len()).max().unwrap_or_default();
        let near = Near::new(secrets.iter().map(|(_, value)| value.expose().as_str()));
        let index = Index::new(literals, Split::new(values.into_iter()));
        let (look_alikes, split_look_alikes) = (OnceLock::new(), OnceLock::new());
        Ok(Masks { index, labels, near, weak, weak_values, look_alikes, split_look_alikes, value_bytes_max })
    }

    /// Returns the look-alikes of weak secrets, if there are such.
    fn look_alikes(&self) -> Option<&LookAlikes> {
        let made = || LookAlikes::new(self.weak_values.iter().map(|value| value.expose().as_str()));
        (!self.weak_values.is_empty()).then(|| self.look_alikes.get_or_init(made))
    }

    /// Returns those that are looked for in a text without its separators.
    fn split_look_alikes(&self) -> Option<&LookAlikes> {
        let values = || self.weak_values.iter().filter_map(|value| split::counted(value.expose()));
        (!self.weak_values.is_empty())
            .then(|| self.split_look_alikes.get_or_init(|| LookAlikes::joined(values())))
            .filter(|look_alikes| !look_alikes.is_empty())
    }

    fn is_weak(&self, hit: &Hit) -> bool {
        self.weak.get(hit.label as usize).copied().unwrap_or_default()
    }

    pub(super) fn label(&self, hit: Hit) -> &str {
        self.labels.get(hit.label as usize).map_or("[REDACTED]", |label| label)
    }
}

/// One look at something that leaves, with what may be spent on it.
pub(super) struct Scan<'m> {
    pub(super) masks: &'m Masks,
    pub(super) shapes: TokenShapes,
    pub(super) budget: Budget,
    /// Who reads it, and what clients have read before.
    pub(super) counted: Option<(&'m Reader, &'m Guesses)>,
}

impl Scan<'_> {
    /// Returns the text without secrets; the same text, if there are none.
    pub(super) fn scrub<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        match self.regions(text.as_bytes()) {
            Ok(regions) if regions.is_empty() => Cow::Borrowed(text),
            Ok(regions) => {
                if let Some((reader, _)) = self.counted {
                    reader.trail.masked.fetch_add(regions.len(), Ordering::Relaxed);
                }
                let (mut scrubbed, mut copied) = (String::new(), 0);
                for hit in regions {
                    let start = text.floor_char_boundary(hit.start).max(copied);
                    scrubbed.push_str(&text[copied..start]);
                    scrubbed.push_str(self.masks.label(hit));
                    copied = text.ceil_char_boundary(hit.end);
                }
                scrubbed.push_str(&text[copied..]);
                Cow::Owned(scrubbed)
            }
            Err(OverBudget) => Cow::Owned(WITHHELD.to_owned()),
        }
    }

    pub(super) fn is_clean(&mut self, text: &str) -> bool {
        self.regions(text.as_bytes()).is_ok_and(|regions| regions.is_empty())
    }

    pub(super) fn scrub_in_place(&mut self, text: &mut String) {
        if let Cow::Owned(scrubbed) = self.scrub(text) {
            *text = scrubbed;
        }
    }

    /// Returns a JSON text without secrets: every byte of it where it holds none, and nothing where it cannot be made clean.
    pub(super) fn scrubbed_raw(&mut self, raw: Box<RawValue>) -> Option<Box<RawValue>> {
        if self.is_clean(raw.get()) {
            return Some(raw);
        }
        let mut value = serde_json::from_str::<Value>(raw.get()).ok()?;
        self.scrub_value(&mut value);
        let scrubbed = serde_json::value::to_raw_value(&value).ok()?;
        self.is_clean(scrubbed.get()).then_some(scrubbed)
    }

    /// As [`Scan::scrub_value`], for an object. It is rebuilt only where a key changes.
    pub(super) fn scrub_members(&mut self, members: &mut Map<String, Value>) {
        if members.keys().all(|key| self.is_clean(key)) {
            return members.values_mut().for_each(|value| self.scrub_value(value));
        }
        for (key, mut value) in std::mem::take(members) {
            self.scrub_value(&mut value);
            members.insert(self.scrub(&key).into_owned(), value);
        }
    }

    pub(super) fn scrub_value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.scrub_in_place(text),
            // The codes of characters, one by one.
            Value::Array(items) if items.len() >= VALUE_BYTES_MIN && items.iter().all(Value::is_u64) => {
                if let Cow::Owned(scrubbed) = self.scrub(&value.to_string()) {
                    *value = Value::String(scrubbed);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub_value(item)),
            Value::Object(members) => self.scrub_members(members),
            // A secret of digits can be sent as a number.
            Value::Number(number) => {
                if let Cow::Owned(scrubbed) = self.scrub(&number.to_string()) {
                    *value = Value::String(scrubbed);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Returns what must be masked, in order and apart from each other.
    pub(super) fn regions(&mut self, text: &[u8]) -> Result<Vec<Hit>, OverBudget> {
        self.budget.admit(text.len())?;
        let mut hits = self.look(text, 0, None)?;
        // Whatever is registered, a message stays one: keys, methods and fixed values are no secret of anybody's.
        hits.retain(|hit| !is_structure(text, hit.start, hit.end));
        // A secret among masked look-alikes must not stand out by its name.
        if let Some((reader, guesses)) = self.counted
            && hits.iter().any(|hit| self.masks.is_weak(hit))
            && guesses.is_spent(reader)
        {
            hits.iter_mut().filter(|hit| self.masks.is_weak(hit)).for_each(|hit| hit.label = LOOK_ALIKE);
        }
        if hits.len() > 1 {
            // Where several begin, the longest is named.
            hits.sort_unstable_by_key(|hit| (hit.start, std::cmp::Reverse(hit.end)));
            hits.dedup_by(|next, kept| {
                let within = next.start < kept.end;
                if within {
                    kept.end = kept.end.max(next.end);
                }
                within
            });
        }
        Ok(hits)
    }

    fn look(&mut self, text: &[u8], depth: usize, from: Option<&View>) -> Result<Vec<Hit>, OverBudget> {
        let sweep = self.masks.index.sweep(text, depth > 0, &mut self.budget)?;
        let mut hits = sweep.hits;
        if let (Some((reader, guesses)), Some(look_alikes)) = (self.counted, self.masks.look_alikes()) {
            look_alikes.find(text, &mut self.budget, |one| {
                if !guesses.admit(reader, &one) {
                    add_look_alike(&mut hits, one.start, one.end);
                }
            })?;
        }
        // As in the sweep: what is split is looked for in the text itself.
        if depth == 0
            && let (Some((reader, guesses)), Some(look_alikes)) =
                (self.counted, self.masks.split_look_alikes())
        {
            let (joined, places) = split::joined(text);
            self.budget.decode(joined.len())?;
            look_alikes.find(&joined, &mut self.budget, |mut one| {
                // Apart from those that are not split.
                one.said.0 += SPLIT_SHAPES;
                if !guesses.admit(reader, &one) {
                    add_look_alike(&mut hits, places[one.start], places[one.end - 1] + 1);
                }
            })?;
        }
        if hits.iter().any(|hit| hit.label == PRIVATE_KEY_MARK) {
            let marks = hits.extract_if(.., |hit| hit.label == PRIVATE_KEY_MARK).map(|hit| hit.start);
            let marks: Vec<usize> = marks.collect();
            if self.shapes == TokenShapes::Mask {
                shapes::private_keys(text, marks.into_iter(), &mut hits, &mut self.budget)?;
            }
        }
        for (start, end) in &sweep.runs {
            shapes::find(text, *start, *end, self.shapes, &mut hits, &mut self.budget)?;
        }
        if depth == DEPTH_MAX {
            return Ok(hits);
        }
        let near = &self.masks.near;
        let unpacked_max = self.budget.left_to_decode();
        let mut again = |view: View| {
            if view.bytes.len() < VIEW_BYTES_MIN {
                return Ok(());
            }
            self.budget.decode(view.bytes.len())?;
            let inner = self.look(&view.bytes, depth + 1, Some(&view))?;
            hits.extend(inner.into_iter().map(|hit| {
                let (start, end) = view.source_of(hit.start, hit.end);
                Hit { start, end, ..hit }
            }));
            Ok(())
        };
        if let Some(view) = view::unescaped(text, near) {
            again(view)?;
        }
        if !sweep.ascii
            && let Some(view) = view::shown(text)
        {
            again(view)?;
        }
        // What stands in the source as it does here was decoded there.
        let is_new = |range: &(usize, usize)| from.is_none_or(|view| !view.is_copied(range.0, range.1));
        for (start, end) in sweep.runs.into_iter().filter(is_new) {
            runs::decoded(text, start, end, unpacked_max, &mut again)?;
        }
        for (start, end) in sweep.lists.into_iter().filter(is_new) {
            runs::listed(text, start, end, &mut again)?;
        }
        Ok(hits)
    }
}

/// Adds a look-alike; those that overlap become one, because a text can have as many as bytes.
fn add_look_alike(hits: &mut Vec<Hit>, start: usize, end: usize) {
    match hits.last_mut() {
        Some(last) if last.label == LOOK_ALIKE && (last.start..=last.end).contains(&start) => {
            last.end = last.end.max(end);
        }
        _ => hits.push(Hit { start, end, label: LOOK_ALIKE }),
    }
}

/// The shapes of what is split are counted from here.
const SPLIT_SHAPES: usize = 1 << 20;
/// Stands for no label.
const PRIVATE_KEY_MARK: u32 = u32::MAX;
/// Has no name of its own: it may be a secret, or look like one.
const LOOK_ALIKE: u32 = u32::MAX - 1;
