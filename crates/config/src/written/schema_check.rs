//! Checks a document against the schema, with readable errors.

use super::foreign_keys::{foreign_form, foreign_key};
use super::reload_class::{RELOAD, RESTART};
use super::written_document::{SCHEMA_KEY, WrittenDocument, insert_sections};
use super::{DecisionName, WrittenConfig, schema_fast_path};
use crate::errors::{ConfigErrors, Finding, PROBLEMS_MAX, join, key_path};
use crate::excerpt::FaultyPart;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use portcullis_family::{Families, sections};
use portcullis_tools::FAMILIES;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// Documented sections that this version does not support.
const LATER: [&str; 1] = ["schedules"];
/// A longer key cannot be a typo of an existing one.
const KEY_BYTES_MAX: usize = 64;
/// Valid keys listed if none is similar.
const KEYS_LISTED_MAX: usize = 16;

/// Returns the JSON schema of the file, for editors.
pub fn schema() -> Value {
    schema_with(FAMILIES)
}

/// Returns the JSON schema of the file of a hub with other families.
pub fn schema_with(families: Families) -> Value {
    let mut schema = annotated_schema(families);
    for section in schema["properties"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        let keys = section.get_mut("properties").and_then(Value::as_object_mut);
        keys.into_iter().flat_map(|all| all.values_mut()).for_each(without_annotation);
        without_annotation(section);
    }
    schema["properties"][SCHEMA_KEY] =
        json!({ "type": "string", "description": "Location of this schema, for editors." });
    schema
}

/// Returns the schema with the annotations of the written form, which are no words of JSON Schema.
pub(super) fn annotated_schema(families: Families) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let declared = sections(families).map(|spec| {
        let mut node = spec.schema(&mut generator);
        node[RELOAD] = RESTART.into();
        (spec.key, node)
    });
    let declared: Vec<_> = declared.collect();
    let mut schema = generator.into_root_schema_for::<WrittenConfig>().to_value();
    insert_sections(&mut schema["properties"], declared.into_iter());
    schema
}

fn without_annotation(node: &mut Value) {
    if let Value::Object(words) = node {
        words.shift_remove(RELOAD);
    }
}

/// Deserializes the valid part of a document, and reports the rest.
///
/// Invalid values are replaced by defaults, so that the rest can be checked too. A result with findings must not be used
/// otherwise.
pub(crate) fn check(
    value: &Value,
    families: Families,
) -> Result<(WrittenDocument, Vec<(Finding, FaultyPart)>), ConfigErrors> {
    if schema_fast_path::matches_schema(value)
        && let Ok(written) = WrittenDocument::read(value.clone(), families)
    {
        return Ok((written, Vec::new()));
    }
    let schema = schema_with(families);
    // Cannot fail because of the file: invalid values were removed.
    let fault = |e: String| ConfigErrors::one("configuration", e);
    let validator = jsonschema::validator_for(&schema).map_err(|e| fault(e.to_string()))?;
    let mut findings: Vec<(Finding, FaultyPart)> = Vec::new();
    let mut rest = value.clone();
    let found = validator.iter_errors(value).flat_map(|error| translate(&schema, &error));
    for (finding, part) in found.take(PROBLEMS_MAX) {
        take_out(&mut rest, &finding.pointer);
        // One value can violate several keywords; the first is enough.
        if findings.iter().all(|(earlier, _)| earlier.pointer != finding.pointer) {
            findings.push((finding, part));
        }
    }
    whole_numbers(&mut rest);
    match WrittenDocument::read(rest, families) {
        Err(_) if !findings.is_empty() => WrittenDocument::read(json!({}), families),
        read => read,
    }
    .map(|written| (written, findings))
    .map_err(|error| fault(error.to_string()))
}

fn translate(schema: &Value, error: &ValidationError<'_>) -> Vec<(Finding, FaultyPart)> {
    let pointer = error.instance_path().as_str();
    // A schema path ends with the violated keyword; its parent describes the expected value.
    let keyword = error.schema_path().as_str();
    let node = keyword.rfind('/').and_then(|end| schema.pointer(&keyword[..end])).unwrap_or(&Value::Null);
    match error.kind() {
        Kind::AdditionalProperties { unexpected } => {
            let keys = unexpected.iter().take(PROBLEMS_MAX);
            keys.map(|key| unknown_key(schema, node, pointer, key)).collect()
        }
        Kind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            let (pointer, node) = (join(pointer, key), &node["properties"][key]);
            let text =
                format!("`{}` is missing, expected {}", key_path(&pointer), described(node, &Value::Null));
            vec![(Finding { pointer, text }, FaultyPart::Key { correct: None })]
        }
        _ if pointer.is_empty() => {
            let text = "expected a table of settings".to_owned();
            vec![(Finding { pointer: String::new(), text }, FaultyPart::Value { correct: None })]
        }
        _ => {
            let value = error.instance();
            let part = FaultyPart::Value { correct: corrected(node, value) };
            let finding = match foreign_form(pointer, value) {
                Some(text) => Finding { pointer: pointer.to_owned(), text },
                None => Finding::unexpected(pointer, value, &described(node, value)),
            };
            vec![(finding, part)]
        }
    }
}

/// Describes the expected value of a schema node.
fn described(node: &Value, got: &Value) -> String {
    if let Some(options) = node["enum"].as_array() {
        return or_list(options.iter().filter_map(Value::as_str));
    }
    match node["type"].as_str() {
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => {
            let range = format!("{} to {}", node["minimum"], node["maximum"]);
            if got.is_number() && !got.is_f64() { range } else { format!("a whole number, {range}") }
        }
        Some("array") => {
            let least = if got == &json!([]) { "at least one entry, in " } else { "" };
            match (node["items"]["enum"].as_array(), &node["examples"][0]) {
                (Some(options), _) => {
                    format!("{least}a list of {}", or_list(options.iter().filter_map(Value::as_str)))
                }
                (None, Value::Null) => format!("{least}a list"),
                (None, example) => format!("{least}a list like {example}"),
            }
        }
        Some("object") => "a table of settings".to_owned(),
        None if node["type"].is_array() => "true, false or a table of settings".to_owned(),
        _ => match node["examples"][0].as_str() {
            Some(example) => format!("text like \"{example}\""),
            None => "text".to_owned(),
        },
    }
}

/// Returns the value that was probably meant.
fn corrected(node: &Value, got: &Value) -> Option<String> {
    match (node["type"].as_str(), got) {
        (_, Value::String(text)) if node["enum"].is_array() => {
            let options = node["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let options: Vec<String> = options.map(str::to_owned).collect();
            nearest(text, &options).map(|option| json!(option).to_string())
        }
        (Some("boolean"), Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some("true".to_owned()),
            "false" | "no" | "off" => Some("false".to_owned()),
            _ => None,
        },
        (Some("boolean"), Value::Number(number)) => match number.as_u64() {
            Some(0) => Some("false".to_owned()),
            Some(1) => Some("true".to_owned()),
            _ => None,
        },
        (Some("integer"), Value::Number(number)) => {
            let (number, minimum, maximum) =
                (number.as_f64()?, node["minimum"].as_f64()?, node["maximum"].as_f64()?);
            let bound = if number < minimum { &node["minimum"] } else { &node["maximum"] };
            (number < minimum || number > maximum).then(|| bound.to_string())
        }
        (Some("integer"), Value::String(text)) => {
            let number = text.trim().parse::<u64>().ok()?;
            let fits = node["minimum"].as_u64()? <= number && number <= node["maximum"].as_u64()?;
            fits.then(|| number.to_string())
        }
        _ => None,
    }
}

fn unknown_key(schema: &Value, node: &Value, pointer: &str, key: &str) -> (Finding, FaultyPart) {
    let inner = join(pointer, key);
    let path = key_path(&inner);
    if pointer.is_empty() && LATER.contains(&key) {
        let text = format!("`{path}` is not supported by this version");
        return (Finding { pointer: inner, text }, FaultyPart::Key { correct: None });
    }
    if let Some((advice, correct)) = foreign_key(pointer, key) {
        let text = format!("`{path}` is not a setting; {advice}");
        return (Finding { pointer: inner, text }, FaultyPart::Key { correct });
    }
    let siblings = keys_of(node);
    let near = nearest(key, &siblings);
    let advice = match near.clone().or_else(|| elsewhere(schema, key)) {
        Some(name) => format!("did you mean `{name}`?"),
        None if siblings.len() <= KEYS_LISTED_MAX => {
            let quoted: Vec<String> = siblings.iter().map(|name| format!("`{name}`")).collect();
            format!("expected {}", or_list(quoted.iter().map(String::as_str)))
        }
        None => "`portcullis init --print` shows all settings".to_owned(),
    };
    let text = format!("`{path}` is not a setting; {advice}");
    (Finding { pointer: inner, text }, FaultyPart::Key { correct: near })
}

fn keys_of(node: &Value) -> Vec<String> {
    let keys = node["properties"].as_object().into_iter().flat_map(|properties| properties.keys());
    keys.filter(|key| *key != SCHEMA_KEY).cloned().collect()
}

/// Returns a similar key: up to two edits away, or one in three letters.
fn nearest(key: &str, among: &[String]) -> Option<String> {
    if key.len() > KEY_BYTES_MAX {
        return None;
    }
    let distance = |name: &String| strsim::damerau_levenshtein(&key.to_lowercase(), name);
    let (distance, name) = among.iter().map(|name| (distance(name), name)).min()?;
    (distance <= 2.max(name.len() / 3) && distance < name.len()).then(|| name.clone())
}

/// Returns the right section of a misplaced key.
fn elsewhere(schema: &Value, key: &str) -> Option<String> {
    let sections = schema["properties"].as_object()?;
    let (section, _) = sections.iter().find(|(_, node)| node["properties"].get(key).is_some())?;
    Some(format!("{section}.{key}"))
}

fn or_list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.as_slice() {
        [] => "nothing".to_owned(),
        [word] => (*word).to_owned(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}

/// Removes an invalid value, so that its default applies.
fn take_out(value: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        *value = Value::Object(serde_json::Map::new());
        return;
    };
    let key = key.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(parent) {
        // The only key without a default.
        Some(Value::Object(members)) if parent.starts_with("/policy/") && key == "decision" => {
            members.insert(key, json!(DecisionName::Deny));
        }
        Some(Value::Object(members)) => {
            members.shift_remove(&key);
        }
        // A table entry is emptied, to keep the indices of the others; a list of plain values is removed as a whole.
        Some(Value::Array(items)) if parent == "/policy" => {
            if let Some(item) = key.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                *item = json!({ "decision": DecisionName::Deny });
            }
        }
        Some(Value::Array(_)) => take_out(value, parent),
        _ => {}
    }
}

/// Turns `10.0` into `10`: the schema accepts both as integers, serde only the second.
fn whole_numbers(value: &mut Value) {
    /// Up to here every integer is exact as a float.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= EXACT_MAX {
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and within the exact range")]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}
