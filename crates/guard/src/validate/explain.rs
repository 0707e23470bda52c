//! Readable validation errors: what is wrong, and what is expected.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{JsonType, ValidationError};
use portcullis_core::json::printable;
use serde_json::Value;

/// Bound on listed enum values. More is a list to look up, not to read in an error.
const OPTIONS_SHOWN_MAX: usize = 12;
/// Minimum similarity of a proposed name, from 0 (none) to 1 (equal).
const ALIKE_MIN: f64 = 0.7;

/// Bounds on the names compared with a wrong one, because an untrusted schema can have any number.
const NAMES_COMPARED_MAX: usize = 200;
const NAME_BYTES_MAX: usize = 100;

/// Returns the errors, one sentence each.
pub(super) fn misfits(error: &ValidationError<'_>, schema: &Value) -> Vec<String> {
    let place = place(error.instance_path());
    let value = error.instance();
    let is = |expected: String| vec![format!("{place} is {}, expected {expected}", shown(value))];
    let has = |count: usize, what: &str, expected: String| {
        vec![format!("{place} has {count} {what}, expected {expected}")]
    };
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known = known_fields(error, schema);
            let unexpected = unexpected.iter().take(super::MISFITS_COUNTED_MAX);
            unexpected.map(|name| unknown_field(error.instance_path(), name, &known)).collect()
        }
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            vec![format!("`{}` is missing", joined(error.instance_path(), Some(name)))]
        }
        Kind::Type { kind } => is(types(kind)),
        Kind::Minimum { .. } | Kind::Maximum { .. } => is(range(error, schema)),
        Kind::ExclusiveMinimum { limit } => is(format!("more than {limit}")),
        Kind::ExclusiveMaximum { limit } => is(format!("less than {limit}")),
        Kind::MultipleOf { multiple_of } => is(format!("a multiple of {multiple_of}")),
        Kind::Enum { options } => vec![one_of(&place, value, options)],
        Kind::Constant { expected_value } => is(shown(expected_value)),
        Kind::MinLength { limit } => has(chars(value), "characters", format!("at least {limit}")),
        Kind::MaxLength { limit } => has(chars(value), "characters", format!("at most {limit}")),
        Kind::MinItems { limit } => has(items(value), "items", format!("at least {limit}")),
        Kind::MaxItems { limit } => has(items(value), "items", format!("at most {limit}")),
        Kind::AdditionalItems { limit } => has(items(value), "items", format!("at most {limit}")),
        Kind::MinProperties { limit } => has(items(value), "fields", format!("at least {limit}")),
        Kind::MaxProperties { limit } => has(items(value), "fields", format!("at most {limit}")),
        Kind::UniqueItems => vec![format!("{place} has the same item twice")],
        Kind::Pattern { pattern } => is(format!("a match of `{}`", printable(pattern))),
        Kind::Format { format } => is(format!("the format `{}`", printable(format))),
        Kind::FalseSchema => vec![format!("{place} is not allowed")],
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => match nearest_form(error, context) {
            Some(form) => form.iter().flat_map(|error| misfits(error, schema)).collect(),
            None => vec![format!("{place} is {}, which fits none of its allowed forms", shown(value))],
        },
        Kind::OneOfMultipleValid { .. } => {
            vec![format!("{place} is {}, which fits more than one of its forms", shown(value))]
        }
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            vec![format!("{place} could not be compared with its pattern")]
        }
        Kind::Contains
        | Kind::ContentEncoding { .. }
        | Kind::ContentMediaType { .. }
        | Kind::Custom { .. }
        | Kind::FromUtf8 { .. }
        | Kind::Not { .. }
        | Kind::PropertyNames { .. }
        | Kind::UnevaluatedItems { .. }
        | Kind::Referencing(_) => {
            vec![format!("{place} does not fit `{}` of the schema", printable(error.kind().keyword()))]
        }
    }
}

/// Returns the path in the arguments, in backticks.
fn place(path: &Location) -> String {
    if path.is_empty() { "the whole".to_owned() } else { format!("`{}`", joined(path, None)) }
}

fn joined(path: &Location, last: Option<&str>) -> String {
    let mut text = String::new();
    let push_name = |text: &mut String, name: &str| {
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(&printable(name));
    };
    for segment in path.segments() {
        match segment {
            LocationSegment::Property(name) => push_name(&mut text, &name),
            LocationSegment::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    if let Some(name) = last {
        push_name(&mut text, name);
    }
    text
}

/// Returns a value for a message: scalars as they are, other values by type.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("\"{}\"", printable(text)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn chars(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.chars().count())
}

fn items(value: &Value) -> usize {
    value.as_array().map(Vec::len).or_else(|| value.as_object().map(serde_json::Map::len)).unwrap_or_default()
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => type_name(*kind).to_owned(),
        TypeKind::Multiple(kinds) => kinds.iter().map(type_name).collect::<Vec<_>>().join(" or "),
    }
}

fn type_name(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Null => "null",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "an integer",
        JsonType::Number => "a number",
        JsonType::String => "a string",
        JsonType::Array => "an array",
        JsonType::Object => "an object",
    }
}

/// Returns the schema that holds the failed keyword.
fn schema_around<'s>(error: &ValidationError<'_>, schema: &'s Value) -> Option<&'s Value> {
    let path = error.schema_path().as_str();
    schema.pointer(&path[..path.rfind('/')?])
}

fn range(error: &ValidationError<'_>, schema: &Value) -> String {
    let around = schema_around(error, schema);
    let bound = |keyword| around.and_then(|schema| schema.get(keyword));
    match (error.kind(), bound("minimum"), bound("maximum")) {
        (_, Some(min), Some(max)) => format!("{min} to {max}"),
        (Kind::Minimum { limit }, ..) => format!("at least {limit}"),
        (Kind::Maximum { limit }, ..) => format!("at most {limit}"),
        (..) => "another number".to_owned(),
    }
}

fn known_fields<'s>(error: &ValidationError<'_>, schema: &'s Value) -> Vec<&'s str> {
    let properties = schema_around(error, schema).and_then(|schema| schema.get("properties"));
    properties
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|object| object.keys().map(String::as_str))
        .collect()
}

fn unknown_field(path: &Location, name: &str, known: &[&str]) -> String {
    let unknown = format!("`{}` is not an argument", joined(path, Some(name)));
    match nearest(name, known) {
        Some(nearest) => format!("{unknown}; did you mean `{}`?", joined(path, Some(nearest))),
        None if known.is_empty() => format!("{unknown}; none are expected"),
        None => {
            let known: Vec<_> =
                known.iter().take(OPTIONS_SHOWN_MAX).map(|name| format!("`{name}`")).collect();
            format!("{unknown}; expected {}", known.join(", "))
        }
    }
}

pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // The comparison is quadratic, and a name that long is no typo.
    let name = printable(name).to_lowercase();
    let comparable = known.iter().take(NAMES_COMPARED_MAX).filter(|known| known.len() <= NAME_BYTES_MAX);
    let scored = comparable.map(|known| (strsim::jaro_winkler(&name, known), *known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= ALIKE_MIN).then_some(best.1)
}

fn one_of(place: &str, value: &Value, options: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let listed: Vec<_> = options.iter().take(OPTIONS_SHOWN_MAX).map(shown).collect();
    let more = match options.len().saturating_sub(OPTIONS_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!("{place} is {}, expected one of {}{more}", shown(value), listed.join(", "));
    let names: Vec<_> = options.iter().filter_map(Value::as_str).collect();
    match value.as_str().and_then(|text| nearest(text, &names)) {
        Some(nearest) => format!("{text}; did you mean \"{nearest}\"?"),
        None => text,
    }
}

/// Returns the errors of the intended alternative: the only one whose type matches.
///
/// An optional object is `anyOf [object, null]`, and "expected null" would not help.
fn nearest_form<'e>(
    error: &ValidationError<'_>,
    forms: &'e [Vec<ValidationError<'static>>],
) -> Option<&'e [ValidationError<'static>]> {
    let depth = error.instance_path().segments().count();
    let is_other_type = |errors: &[ValidationError<'_>]| {
        errors
            .iter()
            .any(|e| matches!(e.kind(), Kind::Type { .. }) && e.instance_path().segments().count() <= depth)
    };
    let is_null = |errors: &[ValidationError<'_>]| {
        errors.iter().any(|e| matches!(e.kind(), Kind::Type { kind: TypeKind::Single(JsonType::Null) }))
    };
    let mut fitting = forms.iter().filter(|errors| !is_other_type(errors));
    if let (Some(form), None) = (fitting.next(), fitting.next()) {
        return Some(form);
    }
    let mut rest = forms.iter().filter(|errors| !is_null(errors));
    match (rest.next(), rest.next()) {
        (Some(form), None) => Some(form),
        _ => None,
    }
}
