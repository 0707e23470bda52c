//! The headers that repeat parts of the body, from 2026-07-28 on.
//!
//! A proxy may decide by a header; the hub decides by the body. The two must agree, or a rule that
//! someone else applied was applied to another call than the one that runs.

use crate::era::mismatch;
use crate::rpc::RpcError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::json::printable;
use serde_json::Value;
use std::borrow::Cow;

/// What stands before a value that a header cannot hold as it is.
const ENCODED: &str = "=?base64?";

/// Checks that a header says what the body says.
pub fn check(name: &str, said: Option<&str>, body: &str) -> Result<(), RpcError> {
    let decoded = said.map(|said| decode(said.trim_matches([' ', '\t'])));
    match decoded {
        Some(Some(text)) if text == body => Ok(()),
        _ => Err(mismatch(name, said, body)),
    }
}

/// Writes a value so that it can stand in a header; [`check`] reads it back.
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let bare = !value.starts_with(' ') && !value.ends_with(' ');
    // What looks like the other form would be taken for it.
    if plain && bare && !value.starts_with(ENCODED) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{ENCODED}{}?=", STANDARD.encode(value)))
}

/// Returns a header's value; `=?base64?…?=` holds what a header cannot.
fn decode(said: &str) -> Option<String> {
    let Some(inner) = said.strip_prefix(ENCODED).and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(said.to_owned());
    };
    let bytes = STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok()
}

/// By which a schema says that an argument is repeated in a header.
const ANNOTATION: &str = "x-mcp-header";
/// How the names of such headers begin.
const PREFIX: &str = "Mcp-Param-";

/// An argument that is repeated in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The way to it, from one object into the next.
    path: Vec<String>,
    header: String,
}

impl Mirror {
    /// Returns the name of the header.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Returns what the header says of these arguments; nothing where they leave it out.
    pub fn value(&self, arguments: &Value) -> Option<String> {
        let value = self.path.iter().try_fold(arguments, |value, name| value.get(name))?;
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Returns whether the tool's schema wants any argument repeated in a header.
pub fn mirrors_arguments(schema: &Value) -> bool {
    let mut properties = schema["properties"].as_object().into_iter().flatten();
    properties.any(|(_, property)| property.get(ANNOTATION).is_some() || mirrors_arguments(property))
}

/// Returns which arguments are repeated in headers. What the schema says of it must make sense, all of it, or nothing can
/// be done: half a mirror would make every call of the tool fail.
pub fn mirrors(schema: &Value) -> Result<Vec<Mirror>, String> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Goes through a schema as deep as that is written.
fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirror>) -> Result<(), String> {
    for (member, value) in schema.as_object().into_iter().flatten() {
        match (member.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    path.push(name.clone());
                    found.extend(mirror(property, path, found)?);
                    collect(property, path, found)?;
                    path.pop();
                }
            }
            // Of an argument it has just been looked at.
            (ANNOTATION, _) if !path.is_empty() => {}
            // Whether there is an argument at all depends on what else is said, in a list or a condition.
            _ if member == ANNOTATION || is_annotated(value) => {
                return Err(format!("`{ANNOTATION}` stands where no argument is"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn mirror(property: &Value, path: &[String], found: &[Mirror]) -> Result<Option<Mirror>, String> {
    let Some(said) = property.get(ANNOTATION) else { return Ok(None) };
    let name = said.as_str().unwrap_or_default();
    let shown = || printable(&path.join("."));
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        return Err(format!("`{}`: `{ANNOTATION}` is not the name of a header", shown()));
    }
    let header = format!("{PREFIX}{name}");
    if found.iter().any(|other| other.header.eq_ignore_ascii_case(&header)) {
        return Err(format!("two arguments want the header `{name}`"));
    }
    if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
        return Err(format!("`{}`: only simple values go into a header", shown()));
    }
    Ok(Some(Mirror { path: path.to_vec(), header }))
}

fn is_annotated(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.contains_key(ANNOTATION) || members.values().any(is_annotated),
        Value::Array(items) => items.iter().any(is_annotated),
        _ => false,
    }
}

/// Checks every argument that the tool's schema wants to see repeated.
pub fn check_arguments<'h>(
    schema: &Value,
    arguments: &Value,
    header: impl Fn(&str) -> Option<&'h str>,
) -> Result<(), RpcError> {
    for mirror in mirrors(schema).unwrap_or_default() {
        if let Some(body) = mirror.value(arguments) {
            check(&mirror.header, header(&mirror.header), &body)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn headers_agree_with_the_body() {
        let cases = [
            ("Hello", Some("Hello"), true),
            ("Hello", Some("  Hello\t"), true),
            ("Hello", Some("=?base64?SGVsbG8=?="), true),
            ("Hello", Some("=?base64?SGVsbG8?="), false),
            ("Hello", Some("=?base64?SGVs!!!bG8=?="), false),
            ("SGVsbG8=", Some("SGVsbG8="), true),
            ("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8="), true),
            ("Hello", Some("hello"), false),
            ("Hello", None, false),
        ];
        for (body, said, agrees) in cases {
            assert_eq!(check("Mcp-Param-X", said, body).is_ok(), agrees, "{body} {said:?}");
        }
    }

    #[test]
    fn arguments_are_found_however_deep_they_are() {
        let region = json!({ "type": "string", "x-mcp-header": "Region" });
        let place = json!({ "type": "object", "properties": { "region": region } });
        let schema = json!({ "type": "object", "properties": { "place": place, "x-mcp-header": { "type": "string" } } });
        assert!(mirrors_arguments(&schema));
        let found = mirrors(&schema).unwrap();
        assert_eq!(
            found,
            [Mirror { path: vec!["place".into(), "region".into()], header: "Mcp-Param-Region".into() }]
        );
        for (arguments, value) in [
            (json!({ "place": { "region": "eu" } }), Some("eu")),
            (json!({ "place": { "region": null } }), None),
            (json!({ "place": {} }), None),
            (json!({ "region": "eu" }), None),
        ] {
            assert_eq!(found[0].value(&arguments).as_deref(), value, "{arguments}");
            assert!(check_arguments(&schema, &arguments, |_| value).is_ok(), "{arguments}");
            assert_eq!(
                check_arguments(&schema, &arguments, |_| None).is_ok(),
                value.is_none(),
                "{arguments}"
            );
        }
        for wrong in [
            json!({ "properties": { "all": { "type": "array", "items": region } } }),
            json!({ "properties": { "one": { "anyOf": [region] } } }),
            json!({ "properties": { "a": region, "b": place } }),
            json!({ "properties": { "a": { "type": "object", "x-mcp-header": "A" } } }),
            json!({ "properties": { "a": { "type": "string", "x-mcp-header": "a b" } } }),
            json!({ "x-mcp-header": "A" }),
            json!({ "$defs": { "a": region } }),
        ] {
            assert!(mirrors(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (value, plain) in [
            ("get_weather", true),
            ("two words", true),
            ("", true),
            (" lead", false),
            ("trail ", false),
            ("tab\t", false),
            ("größe", false),
            ("line\r\nX-Evil: 1", false),
            ("=?base64?SGVsbG8=?=", false),
        ] {
            let written = encode(value);
            assert_eq!(written == value, plain, "{value:?}");
            assert!(written.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{written}");
            assert!(check("Mcp-Name", Some(&written), value).is_ok(), "{value:?} {written}");
        }
    }
}
