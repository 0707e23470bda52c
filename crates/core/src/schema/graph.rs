//! A schema as a graph of subschemas, with references resolved.
//!
//! Input of [`super::cost`]. Where dialects differ or a reference depends on the dynamic scope, the graph has an edge to every
//! possible target: the count may be too high, never too low.

use super::pattern_weight::PatternWeight;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Index of a subschema in the graph.
pub(super) type SchemaNodeId = usize;

/// How a subschema is applied to the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    /// Always; its errors are errors of the parent.
    Always,
    /// Like `Always`, by reference.
    Referenced,
    /// As an alternative; tested before its errors are collected.
    Alternative,
    /// Only tested.
    Tested,
}

/// One subschema.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The resource (`$id`) it belongs to; 0 for the root resource.
    pub(super) resource: usize,
    /// The number of keywords that compare something.
    pub(super) keywords: u64,
    /// The number of `enum` values, and how many of them are arrays or objects.
    pub(super) options: u64,
    pub(super) nested_options: u64,
    /// The size of the schema parts that an error copies.
    pub(super) repeated: u64,
    pub(super) pattern: Option<PatternWeight>,
    pub(super) reads_text: bool,
    pub(super) unique_items: bool,
    /// References the meta-schema.
    pub(super) meta: bool,
    pub(super) in_place: Vec<(Applied, SchemaNodeId)>,
    pub(super) dependent: Vec<(String, SchemaNodeId)>,
    pub(super) properties: HashMap<String, SchemaNodeId>,
    pub(super) pattern_properties: Vec<(PatternWeight, SchemaNodeId)>,
    pub(super) additional_properties: Option<SchemaNodeId>,
    pub(super) property_names: Option<SchemaNodeId>,
    pub(super) prefix_items: Vec<SchemaNodeId>,
    /// Applied to all items, or those after the prefix.
    pub(super) items: Vec<SchemaNodeId>,
    pub(super) contains: Option<SchemaNodeId>,
    pub(super) unevaluated_properties: Option<SchemaNodeId>,
    pub(super) unevaluated_items: Option<SchemaNodeId>,
}

impl Node {
    /// Returns the direct subschemas.
    pub(super) fn parts(&self) -> impl Iterator<Item = SchemaNodeId> {
        let in_place = self.in_place.iter().filter(|(applied, _)| *applied != Applied::Referenced);
        let dependent = self.dependent.iter().map(|(_, id)| id);
        let of_members = self.properties.values().chain(self.pattern_properties.iter().map(|(_, id)| id));
        let of_members = of_members.chain(&self.additional_properties).chain(&self.property_names);
        let of_items = self.prefix_items.iter().chain(&self.items).chain(&self.contains);
        let of_rest = self.unevaluated_properties.iter().chain(&self.unevaluated_items);
        in_place.map(|(_, id)| id).chain(dependent).chain(of_members).chain(of_items).chain(of_rest).copied()
    }

    /// Returns the referenced subschemas.
    pub(super) fn references(&self) -> impl Iterator<Item = SchemaNodeId> {
        self.in_place.iter().filter(|(applied, _)| *applied == Applied::Referenced).map(|(_, id)| *id)
    }

    /// Returns the subschemas applied to the same value.
    pub(super) fn on_same_value(&self) -> impl Iterator<Item = SchemaNodeId> {
        self.in_place.iter().map(|(_, id)| *id).chain(self.dependent.iter().map(|(_, id)| *id))
    }

    pub(super) fn has_unevaluated(&self) -> bool {
        self.unevaluated_properties.is_some() || self.unevaluated_items.is_some()
    }
}

/// Returns all subschemas reachable from the root, which is first.
pub(super) fn graph(schema: &Value) -> Result<Vec<Node>, String> {
    let mut builder = Builder { document: Document::of(schema), known: HashMap::new(), found: Vec::new() };
    builder.node(schema);
    let mut nodes = Vec::new();
    // A work list, not recursion: chains of references can be as long as the text.
    while let Some(schema) = builder.found.get(nodes.len()) {
        let node = builder.read(schema)?;
        nodes.push(node);
    }
    Ok(nodes)
}

/// The resources and anchors of a document.
struct Document<'s> {
    root: &'s Value,
    resources: Vec<&'s Value>,
    /// By the last segment of its URI.
    named: HashMap<String, Vec<&'s Value>>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    /// The resource of each object outside the root resource.
    within: HashMap<*const Value, &'s Value>,
    /// The parent resource of each resource.
    around: HashMap<*const Value, &'s Value>,
    /// Whether an `$id` has several equivalent spellings. Then references by URI are not resolved.
    has_odd_address: bool,
}

impl<'s> Document<'s> {
    fn of(root: &'s Value) -> Document<'s> {
        let mut document = Document {
            root,
            resources: Vec::new(),
            named: HashMap::new(),
            anchors: HashMap::new(),
            within: HashMap::new(),
            around: HashMap::new(),
            has_odd_address: false,
        };
        let ids: &[&str] = if says_draft_4(root) { &["$id", "id"] } else { &["$id"] };
        let mut left = vec![(root, root)];
        while let Some((value, around)) = left.pop() {
            let Value::Object(words) = value else {
                left.extend(value.as_array().into_iter().flatten().map(|item| (item, around)));
                continue;
            };
            let mut resource = around;
            // `id` is from draft 4. Where both could apply, both are recorded.
            for id in ids.iter().filter_map(|word| words.get(*word)?.as_str()) {
                let (address, anchor) = id.split_once('#').unwrap_or((id, ""));
                if !address.is_empty() {
                    document.has_odd_address |= is_odd(address);
                    document.resources.push(value);
                    document.named.entry(last_part(address)).or_default().push(value);
                    resource = value;
                }
                document.anchors.entry(anchor).or_default().push(value);
            }
            let anchors = ["$anchor", "$dynamicAnchor"].into_iter();
            for name in anchors.filter_map(|word| words.get(word)?.as_str()) {
                document.anchors.entry(name).or_default().push(value);
            }
            if !std::ptr::eq(resource, root) {
                document.within.insert(value, resource);
            }
            if !std::ptr::eq(resource, around) {
                document.around.insert(resource, around);
            }
            left.extend(words.values().map(|value| (value, resource)));
        }
        document
    }

    /// Returns all possible targets of a reference, up to one more than [`MEANINGS_MAX`].
    fn resolve(&self, word: &str, reference: &str, from: &'s Value) -> Vec<&'s Value> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let first = |all: &[&'s Value]| all.iter().take(MEANINGS_MAX + 1).copied().collect::<Vec<_>>();
        let mut resources = vec![self.root];
        if word == "$recursiveRef" {
            resources.extend(first(&self.resources));
        } else if address.is_empty() {
            let mut resource = self.within.get(&std::ptr::from_ref(from));
            while let Some(found) = resource {
                resources.push(found);
                resource = self.around.get(&std::ptr::from_ref(*found));
            }
        } else if self.has_odd_address || is_odd(address) {
            return Vec::new();
        } else {
            resources = self.named.get(&last_part(address)).map(|named| first(named)).unwrap_or_default();
        }
        let mut targets: Vec<&Value> = match fragment {
            "" => resources,
            pointer if pointer.starts_with('/') => {
                let Some(pointer) = decoded(pointer) else { return Vec::new() };
                resources.into_iter().filter_map(|resource| resource.pointer(&pointer)).collect()
            }
            anchor if anchor.contains('%') => Vec::new(),
            anchor => self.anchors.get(anchor).map(|anchored| first(anchored)).unwrap_or_default(),
        };
        targets.sort_unstable_by_key(|target| std::ptr::from_ref(*target));
        targets.dedup_by(|a, b| std::ptr::eq(*a, *b));
        targets
    }
}

/// Maximum number of targets of one reference over all dialects. Nearly always it is one.
const MEANINGS_MAX: usize = 16;

/// Returns whether any part of a schema declares draft 4, in which `id` sets the URI.
fn says_draft_4(root: &Value) -> bool {
    let mut left = vec![root];
    while let Some(value) = left.pop() {
        if value.get("$schema").and_then(Value::as_str).is_some_and(|dialect| dialect.contains("draft-04")) {
            return true;
        }
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => left.extend(members.values()),
            _ => {}
        }
    }
    false
}

/// Returns the last segment of a URI, which all spellings of one URI share.
fn last_part(address: &str) -> String {
    let address = address.trim_end_matches('/');
    address.rsplit(['/', ':']).next().unwrap_or_default().to_lowercase()
}

/// Returns whether normalization could change a URI.
fn is_odd(address: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/@$!+,;=".contains(c);
    let mut parts = address.trim_end_matches('/').split('/');
    !address.chars().all(is_plain)
        || last_part(address).is_empty()
        || parts.any(|part| part == "." || part == "..")
}

/// Percent-decodes a JSON pointer; `None` if it is ambiguous.
fn decoded(pointer: &str) -> Option<String> {
    let mut pieces = pointer.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    let pointer = String::from_utf8(bytes).ok()?;
    let is_odd_index = |part: &str| {
        let digits = part.strip_prefix(['+', '0']).filter(|digits| !digits.is_empty());
        digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    (!pointer.split('/').any(is_odd_index)).then_some(pointer)
}

struct Builder<'s> {
    document: Document<'s>,
    known: HashMap<*const Value, SchemaNodeId>,
    found: Vec<&'s Value>,
}

impl<'s> Builder<'s> {
    fn node(&mut self, schema: &'s Value) -> SchemaNodeId {
        *self.known.entry(schema).or_insert_with(|| {
            self.found.push(schema);
            self.found.len() - 1
        })
    }

    fn each(&mut self, schemas: &'s Value) -> Vec<SchemaNodeId> {
        schemas.as_array().into_iter().flatten().map(|schema| self.node(schema)).collect()
    }

    fn read(&mut self, schema: &'s Value) -> Result<Node, String> {
        let within = self.document.within.get(&std::ptr::from_ref(schema));
        let resource = within.map_or(0, |resource| std::ptr::from_ref(*resource).addr());
        let mut node = Node { resource, ..Node::default() };
        let Value::Object(words) = schema else { return Ok(node) };
        for (word, says) in words {
            self.read_word(&mut node, schema, word, says)?;
        }
        Ok(node)
    }

    fn read_word(
        &mut self,
        node: &mut Node,
        schema: &'s Value,
        word: &str,
        says: &'s Value,
    ) -> Result<(), String> {
        let members = |says: &'s Value| says.as_object().into_iter().flat_map(Map::iter);
        match word {
            "title" | "description" | "default" | "examples" | "$comment" | "$defs" | "definitions"
            | "$id" | "$anchor" | "$dynamicAnchor" => {}
            "$schema" => {
                // The validator accepts a custom dialect from the schema itself, whose keywords are not counted here.
                let dialect = says.as_str().unwrap_or_default();
                if !is_dialect(dialect) {
                    return Err(format!("its dialect `{}` is not known", crate::json::printable(dialect)));
                }
            }
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let reference = says.as_str().unwrap_or_default();
                let targets = self.document.resolve(word, reference, schema);
                node.meta |= is_meta(reference);
                if targets.is_empty() && !is_meta(reference) {
                    let shown = crate::json::printable(reference);
                    return Err(format!("it refers to `{shown}`, which it does not hold"));
                }
                if targets.len() > MEANINGS_MAX {
                    let shown = crate::json::printable(reference);
                    return Err(format!("it refers to `{shown}`, which could be too many things"));
                }
                for target in targets {
                    let target = self.node(target);
                    node.in_place.push((Applied::Referenced, target));
                }
            }
            "allOf" => node.in_place.extend(self.each(says).into_iter().map(|id| (Applied::Always, id))),
            "anyOf" | "oneOf" => {
                node.in_place.extend(self.each(says).into_iter().map(|id| (Applied::Alternative, id)));
            }
            "not" | "if" => {
                node.repeated += if word == "not" { weight(says) } else { 0 };
                node.in_place.push((Applied::Tested, self.node(says)));
            }
            "then" | "else" => node.in_place.push((Applied::Always, self.node(says))),
            "dependentSchemas" | "dependencies" => {
                for (name, says) in members(says) {
                    node.dependent.push((name.clone(), self.node(says)));
                }
            }
            "properties" => {
                for (name, says) in members(says) {
                    node.properties.insert(name.clone(), self.node(says));
                }
            }
            "patternProperties" => {
                for (pattern, says) in members(says) {
                    node.pattern_properties.push((PatternWeight::of(pattern), self.node(says)));
                }
            }
            "additionalProperties" => node.additional_properties = Some(self.node(says)),
            "propertyNames" => node.property_names = Some(self.node(says)),
            "prefixItems" => node.prefix_items.extend(self.each(says)),
            "items" if says.is_array() => node.prefix_items.extend(self.each(says)),
            "items" | "additionalItems" => node.items.push(self.node(says)),
            "contains" => node.contains = Some(self.node(says)),
            "unevaluatedProperties" => node.unevaluated_properties = Some(self.node(says)),
            "unevaluatedItems" => node.unevaluated_items = Some(self.node(says)),
            "enum" => {
                let options = says.as_array().map(Vec::as_slice).unwrap_or_default();
                node.keywords += 1;
                node.options += options.len() as u64;
                node.nested_options += options.iter().filter(|option| is_nested(option)).count() as u64;
                node.repeated += weight(says);
            }
            "const" => {
                node.keywords += 1;
                node.options += 1;
                node.nested_options += u64::from(is_nested(says));
                node.repeated += weight(says);
            }
            "pattern" => {
                node.keywords += 1;
                node.pattern = says.as_str().map(PatternWeight::of);
            }
            "minLength" | "maxLength" | "contentEncoding" | "contentMediaType" => {
                node.keywords += 1;
                node.reads_text = true;
            }
            "uniqueItems" => {
                node.keywords += 1;
                node.unique_items = says != &Value::Bool(false);
            }
            "required" | "dependentRequired" => node.keywords += weight(says),
            _ => node.keywords += 1,
        }
        Ok(())
    }
}

pub(super) fn is_nested(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

/// Returns whether a reference is to a published meta-schema, which every validator has built in.
fn is_meta(reference: &str) -> bool {
    let address = reference.split_once("://").map_or(reference, |(_, rest)| rest);
    address.starts_with("json-schema.org/draft")
}

/// Returns whether a URI names a supported dialect.
fn is_dialect(address: &str) -> bool {
    let address = address.strip_suffix('#').unwrap_or(address);
    let path = ["https://", "http://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    path.and_then(|path| path.strip_prefix("json-schema.org/")).is_some_and(|path| DIALECTS.contains(&path))
}

const DIALECTS: [&str; 6] = [
    "schema",
    "draft/2020-12/schema",
    "draft/2019-09/schema",
    "draft-07/schema",
    "draft-06/schema",
    "draft-04/schema",
];

/// Returns the size of a value: one per node, more for long texts.
pub(super) fn weight(value: &Value) -> u64 {
    let (mut sum, mut left) = (0, vec![value]);
    while let Some(value) = left.pop() {
        sum += 1;
        match value {
            Value::String(text) => sum += text.len() as u64 / BYTES_PER_STEP,
            Value::Array(items) => left.extend(items),
            Value::Object(members) => {
                sum += members.keys().map(|name| 1 + name.len() as u64 / BYTES_PER_STEP).sum::<u64>();
                left.extend(members.values());
            }
            _ => {}
        }
    }
    sum
}

/// Bytes of text copied or scanned in the time of one step.
pub(super) const BYTES_PER_STEP: u64 = 64;
