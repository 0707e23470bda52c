//! The headers that repeat parts of the body, from 2026-07-28 on.
//!
//! A proxy may decide by a header; the hub decides by the body. The two must agree, or a rule that
//! someone else applied was applied to another call than the one that runs.

use crate::era::mismatch;
use crate::rpc::RpcError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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

/// Returns whether the tool's schema wants any argument repeated in a header.
pub fn mirrors_arguments(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().any(|(_, schema)| schema.get("x-mcp-header").is_some())
}

/// Checks every argument that the tool's schema wants to see repeated as `Mcp-Param-<name>`.
pub fn check_arguments<'h>(
    schema: &Value,
    arguments: &Value,
    header: impl Fn(&str) -> Option<&'h str>,
) -> Result<(), RpcError> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (property, schema) in properties.into_iter().flatten() {
        let Some(wanted) = schema.get("x-mcp-header").and_then(Value::as_str) else { continue };
        let name = format!("Mcp-Param-{wanted}");
        let body = match arguments.get(property) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        check(&name, header(&name), &body)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
