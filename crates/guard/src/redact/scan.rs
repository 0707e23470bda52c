//! The scan: finds secrets in a text and in its decoded views, and replaces them by masks.

use super::budget::{OverBudget, ScanBudget};
use super::decoded_view::{self, DecodedView, SecretWindow};
use super::encoded_forms::forms_of;
use super::guesses::{Guesses, Reader};
use super::literal_index::{Literal, LiteralIndex, SecretMatch};
use super::look_alikes::LookAlikes;
use super::split_values::{self, Split};
use super::{RedactError, SECRETS_MAX, TokenShapes, VALUE_BYTES_MIN, encoded_runs, token_shapes};
use portcullis_core::Secret;
use portcullis_store::secrets::ordinary_text::is_structure;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Prefix of every mask.
pub const MASK_BEGINS: &str = "[REDACTED";

/// Maximum depth of nested decoding.
const DEPTH_MAX: usize = 3;
/// A shorter view holds neither a secret nor a token.
const VIEW_BYTES_MIN: usize = VALUE_BYTES_MIN;

pub(super) const WITHHELD: &str = "[WITHHELD: too costly to check for secrets]";

/// The known secrets and their masks.
pub(super) struct Masks {
    index: LiteralIndex,
    /// The mask of each label: first the token shapes, then the secrets.
    labels: Vec<String>,
    near: SecretWindow,
    /// By label: whether look-alikes are counted.
    weak: Vec<bool>,
    weak_values: Vec<Secret<String>>,
    /// Built when a client first reads something: most hubs have no weak secret, and commands have no client.
    look_alikes: OnceLock<LookAlikes>,
    split_look_alikes: OnceLock<LookAlikes>,
    /// The length of the longest secret.
    pub(super) value_bytes_max: usize,
}

impl Masks {
    pub(super) fn new(secrets: &[(String, Secret<String>)]) -> Result<Masks, RedactError> {
        if secrets.len() > SECRETS_MAX {
            return Err(RedactError::TooMany { count: secrets.len() });
        }
        let label = |name: &str| format!("{MASK_BEGINS}:{name}]");
        let mut labels: Vec<String> = token_shapes::SHAPES.iter().map(|shape| label(shape.name)).collect();
        labels.extend(token_shapes::UNPREFIXED.map(label));
        let mark =
            |mark: &[u8]| (Literal { bytes: mark.to_vec(), exact: false, breaks: false }, PRIVATE_KEY_MARK);
        let mut literals: Vec<_> = token_shapes::PRIVATE_KEY_MARKS.map(mark).into();
        let (mut values, mut weak, mut weak_values) = (Vec::new(), vec![false; labels.len()], Vec::new());
        for (name, value) in secrets {
            let value = value.expose();
            // The name is inserted into already escaped JSON.
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
        let near = SecretWindow::new(secrets.iter().map(|(_, value)| value.expose().as_str()));
        let index = LiteralIndex::new(literals, Split::new(values.into_iter()));
        let (look_alikes, split_look_alikes) = (OnceLock::new(), OnceLock::new());
        Ok(Masks { index, labels, near, weak, weak_values, look_alikes, split_look_alikes, value_bytes_max })
    }

    /// Returns the look-alikes of weak secrets, if any.
    fn look_alikes(&self) -> Option<&LookAlikes> {
        let made = || LookAlikes::new(self.weak_values.iter().map(|value| value.expose().as_str()));
        (!self.weak_values.is_empty()).then(|| self.look_alikes.get_or_init(made))
    }

    /// Returns those for text without separators.
    fn split_look_alikes(&self) -> Option<&LookAlikes> {
        let values = || self.weak_values.iter().filter_map(|value| split_values::counted(value.expose()));
        (!self.weak_values.is_empty())
            .then(|| self.split_look_alikes.get_or_init(|| LookAlikes::joined(values())))
            .filter(|look_alikes| !look_alikes.is_empty())
    }

    fn is_weak(&self, hit: &SecretMatch) -> bool {
        self.weak.get(hit.label as usize).copied().unwrap_or_default()
    }

    pub(super) fn label(&self, hit: SecretMatch) -> &str {
        self.labels.get(hit.label as usize).map_or("[REDACTED]", |label| label)
    }
}

/// One scan, with its budget.
pub(super) struct Scan<'m> {
    pub(super) masks: &'m Masks,
    pub(super) shapes: TokenShapes,
    pub(super) budget: ScanBudget,
    /// The reader, and what clients have read before.
    pub(super) counted: Option<(&'m Reader, &'m Guesses)>,
}

impl Scan<'_> {
    /// Returns the redacted text; borrowed if there are no secrets.
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

    /// Returns redacted JSON text: unchanged if it is clean, `None` if it cannot be made clean.
    pub(super) fn scrubbed_raw(&mut self, raw: Box<RawValue>) -> Option<Box<RawValue>> {
        if self.is_clean(raw.get()) {
            return Some(raw);
        }
        let mut value = serde_json::from_str::<Value>(raw.get()).ok()?;
        self.scrub_value(&mut value);
        let scrubbed = serde_json::value::to_raw_value(&value).ok()?;
        self.is_clean(scrubbed.get()).then_some(scrubbed)
    }

    /// Like [`Scan::scrub_value`], for an object. It is rebuilt only if a key changes.
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
            // Character codes.
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

    /// Returns the ranges to mask, sorted and disjoint.
    pub(super) fn regions(&mut self, text: &[u8]) -> Result<Vec<SecretMatch>, OverBudget> {
        self.budget.admit(text.len())?;
        let mut hits = self.look(text, 0, None)?;
        // A message must stay valid whatever is registered: keys, methods and fixed values of the protocol are not secret.
        hits.retain(|hit| !is_structure(text, hit.start, hit.end));
        // A secret among masked look-alikes must not stand out by its label.
        if let Some((reader, guesses)) = self.counted
            && hits.iter().any(|hit| self.masks.is_weak(hit))
            && guesses.is_spent(reader)
        {
            hits.iter_mut().filter(|hit| self.masks.is_weak(hit)).for_each(|hit| hit.label = LOOK_ALIKE);
        }
        if hits.len() > 1 {
            // Of several with the same start, the longest gives the label.
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

    fn look(
        &mut self,
        text: &[u8],
        depth: usize,
        from: Option<&DecodedView>,
    ) -> Result<Vec<SecretMatch>, OverBudget> {
        let sweep = self.masks.index.sweep(text, depth > 0, &mut self.budget)?;
        let mut hits = sweep.hits;
        if let (Some((reader, guesses)), Some(look_alikes)) = (self.counted, self.masks.look_alikes()) {
            look_alikes.find(text, &mut self.budget, |one| {
                if !guesses.admit(reader, &one) {
                    add_look_alike(&mut hits, one.start, one.end);
                }
            })?;
        }
        // As in the sweep: split values are searched in the text itself only.
        if depth == 0
            && let (Some((reader, guesses)), Some(look_alikes)) =
                (self.counted, self.masks.split_look_alikes())
        {
            let (joined, places) = split_values::joined(text);
            self.budget.decode(joined.len())?;
            look_alikes.find(&joined, &mut self.budget, |mut one| {
                // Counted separately from unsplit ones.
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
                token_shapes::private_keys(text, marks.into_iter(), &mut hits, &mut self.budget)?;
            }
        }
        for (start, end) in &sweep.runs {
            token_shapes::find(text, *start, *end, self.shapes, &mut hits, &mut self.budget)?;
        }
        if depth == DEPTH_MAX {
            return Ok(hits);
        }
        let near = &self.masks.near;
        let unpacked_max = self.budget.left_to_decode();
        let mut again = |view: DecodedView| {
            if view.bytes.len() < VIEW_BYTES_MIN {
                return Ok(());
            }
            self.budget.decode(view.bytes.len())?;
            let inner = self.look(&view.bytes, depth + 1, Some(&view))?;
            hits.extend(inner.into_iter().map(|hit| {
                let (start, end) = view.source_of(hit.start, hit.end);
                SecretMatch { start, end, ..hit }
            }));
            Ok(())
        };
        if let Some(view) = decoded_view::unescaped(text, near) {
            again(view)?;
        }
        if !sweep.ascii
            && let Some(view) = decoded_view::shown(text)
        {
            again(view)?;
        }
        // Ranges copied from the source were decoded there.
        let is_new = |range: &(usize, usize)| from.is_none_or(|view| !view.is_copied(range.0, range.1));
        for (start, end) in sweep.runs.into_iter().filter(is_new) {
            encoded_runs::decoded(text, start, end, unpacked_max, &mut again)?;
        }
        for (start, end) in sweep.lists.into_iter().filter(is_new) {
            encoded_runs::listed(text, start, end, &mut again)?;
        }
        Ok(hits)
    }
}

/// Adds a look-alike; overlapping ones are merged, because a text can have as many as bytes.
fn add_look_alike(hits: &mut Vec<SecretMatch>, start: usize, end: usize) {
    match hits.last_mut() {
        Some(last) if last.label == LOOK_ALIKE && (last.start..=last.end).contains(&start) => {
            last.end = last.end.max(end);
        }
        _ => hits.push(SecretMatch { start, end, label: LOOK_ALIKE }),
    }
}

/// Offset of the shapes of split values.
const SPLIT_SHAPES: usize = 1 << 20;
/// A marker, not a label.
const PRIVATE_KEY_MARK: u32 = u32::MAX;
/// An anonymous label: a weak secret or a look-alike.
const LOOK_ALIKE: u32 = u32::MAX - 1;
