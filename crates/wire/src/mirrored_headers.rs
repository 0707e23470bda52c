//! HTTP headers that mirror parts of the body, from 2026-07-28 on.
//!
//! A proxy may decide by the header; the hub decides by the body. If they differ, the proxy applied its rules to a
//! different call than the one that runs, so the hub rejects the request.

use crate::era::mismatch;
use crate::rpc::RpcError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::json::printable;
use serde_json::Value;
use std::borrow::Cow;

/// Prefix of a base64-encoded header value.
const ENCODED: &str = "=?base64?";

/// Checks that a header has the value from the body.
pub fn check(name: &str, header: Option<&str>, body: &str) -> Result<(), RpcError> {
    let decoded = header.map(|value| decode(value.trim_matches([' ', '\t'])));
    match decoded {
        Some(Some(text)) if text == body => Ok(()),
        _ => Err(mismatch(name, header, body)),
    }
}

/// Encodes a value for a header; [`check`] decodes it.
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let bare = !value.starts_with(' ') && !value.ends_with(' ');
    // A plain value that looks encoded would be decoded by the reader.
    if plain && bare && !value.starts_with(ENCODED) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{ENCODED}{}?=", STANDARD.encode(value)))
}

/// Returns a header's value, decoded from `=?base64?…?=` if it has that form.
fn decode(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix(ENCODED).and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    let bytes = STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok()
}

/// The schema keyword that mirrors an argument in a header.
const ANNOTATION: &str = "x-mcp-header";
/// Prefix of the names of such headers.
const PREFIX: &str = "Mcp-Param-";

/// An argument mirrored in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredArgument {
    /// Its path of property names.
    path: Vec<String>,
    header: String,
}

impl MirroredArgument {
    /// Returns the name of the header.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Returns the header's value for these arguments; `None` if they omit it.
    pub fn value(&self, arguments: &Value) -> Option<String> {
        let value = self.path.iter().try_fold(arguments, |value, name| value.get(name))?;
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Returns whether the tool's schema mirrors any argument in a header.
pub fn mirrors_arguments(schema: &Value) -> bool {
    let mut properties = schema["properties"].as_object().into_iter().flatten();
    properties.any(|(_, property)| property.get(ANNOTATION).is_some() || mirrors_arguments(property))
}

/// Returns the mirrored arguments. A single invalid annotation is an error for the whole schema: with only some headers
/// sent, every call of the tool would fail.
pub fn mirrors(schema: &Value) -> Result<Vec<MirroredArgument>, String> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Walks the schema, to the depth at which it is written.
fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<MirroredArgument>) -> Result<(), String> {
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
            // Already read with its property, above.
            (ANNOTATION, _) if !path.is_empty() => {}
            // Inside an array or a condition it is unclear whether the argument exists.
            _ if member == ANNOTATION || is_annotated(value) => {
                return Err(format!("`{ANNOTATION}` is only allowed on an argument"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn mirror(
    property: &Value,
    path: &[String],
    found: &[MirroredArgument],
) -> Result<Option<MirroredArgument>, String> {
    let Some(annotation) = property.get(ANNOTATION) else { return Ok(None) };
    let name = annotation.as_str().unwrap_or_default();
    let shown = || printable(&path.join("."));
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        return Err(format!("`{}`: `{ANNOTATION}` is not a valid header name", shown()));
    }
    let header = format!("{PREFIX}{name}");
    if found.iter().any(|other| other.header.eq_ignore_ascii_case(&header)) {
        return Err(format!("two arguments are mirrored in the header `{name}`"));
    }
    if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
        return Err(format!("`{}`: only strings, integers and booleans fit in a header", shown()));
    }
    Ok(Some(MirroredArgument { path: path.to_vec(), header }))
}

fn is_annotated(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.contains_key(ANNOTATION) || members.values().any(is_annotated),
        Value::Array(items) => items.iter().any(is_annotated),
        _ => false,
    }
}

/// Checks every argument that the tool's schema mirrors.
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
            [MirroredArgument {
                path: vec!["place".into(), "region".into()],
                header: "Mcp-Param-Region".into()
            }]
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
