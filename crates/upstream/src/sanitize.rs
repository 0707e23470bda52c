//! Sanitising a server's text: invisible characters, which are there for the model or the terminal, are removed.
//!
//! Only text for readers is changed. A name, a value or a pattern is literal: a definition with a hidden character
//! in one of those is dropped.
//!
//! A few such characters are part of visible text, and stay there (`core::text`).

use portcullis_core::hidden_chars::{escape_hidden, is_unseen, strip_hidden};
use portcullis_core::json::{printable, whole};
use portcullis_wire::params::RawMembers;
use serde_json::Value;
use serde_json::value::RawValue;

/// The longest text of a server that is passed to people. Longer than most stack traces. A longer one is dropped,
/// not cut, because redaction comes later and does not recognise half a secret.
const WORDS_CHARS_MAX: usize = 8_000;

/// The kind of a part of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefinitionPart {
    /// A tool, a prompt, or a schema in it: the names of its members say what they are.
    Definition,
    /// A resource or a template, whose name is only for readers.
    Resource,
    /// Definitions by names that the server chose.
    Named,
    /// Literal values.
    Data,
    /// Text for readers.
    Words,
}

impl DefinitionPart {
    /// Returns the kind of a member.
    fn member(self, key: &str, is_text: bool) -> DefinitionPart {
        match (self, key) {
            (DefinitionPart::Data | DefinitionPart::Words, _) => DefinitionPart::Data,
            (DefinitionPart::Named, _) => DefinitionPart::Definition,
            (_, "title" | "description" | "$comment") | (DefinitionPart::Resource, "name") if is_text => {
                DefinitionPart::Words
            }
            (_, "enum" | "const" | "default" | "examples") => DefinitionPart::Data,
            (_, "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas") => {
                DefinitionPart::Named
            }
            _ => DefinitionPart::Definition,
        }
    }
}

/// Sanitises every text for readers in a value. Returns whether anything was removed, or the literal that hides
/// something.
pub(crate) fn sanitize(value: &mut Value, part: DefinitionPart) -> Result<bool, String> {
    let mut changed = false;
    match value {
        Value::String(text) if part == DefinitionPart::Words => changed = sanitize_text(text),
        Value::String(text) => exact(text)?,
        Value::Array(items) => {
            for item in items {
                changed |= sanitize(item, part)?;
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                exact(key)?;
                changed |= sanitize(member, part.member(key, member.is_string()))?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(changed)
}

/// Checks that a literal text hides nothing. Any line end is allowed: some servers ask which one to write.
pub(crate) fn exact(text: &str) -> Result<(), String> {
    if text.contains(is_unseen) && sanitize_text(&mut text.replace('\r', "")) {
        return Err(format!("`{}` has a hidden character where none can be removed", printable(text)));
    }
    Ok(())
}

/// Writes a value as it came, but for the sanitised texts: every other byte stays.
pub(crate) fn write_sanitized(
    raw: &RawValue,
    part: DefinitionPart,
    into: &mut String,
) -> Result<(), serde_json::Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: RawMembers<'_> = serde_json::from_str(text)?;
            into.push('{');
            for (at, (key, member)) in members.0.iter().enumerate() {
                into.push_str(if at > 0 { "," } else { "" });
                into.push_str(&Value::from(key.as_ref()).to_string());
                into.push(':');
                let part = part.member(key, member.get().starts_with('"'));
                write_sanitized(member, part, into)?;
            }
            into.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            into.push('[');
            for (at, item) in items.into_iter().enumerate() {
                into.push_str(if at > 0 { "," } else { "" });
                write_sanitized(item, part, into)?;
            }
            into.push(']');
        }
        Some(b'"') if part == DefinitionPart::Words => {
            let mut words: String = serde_json::from_str(text)?;
            if sanitize_text(&mut words) {
                into.push_str(&Value::from(words).to_string());
            } else {
                into.push_str(text);
            }
        }
        _ => into.push_str(text),
    }
    Ok(())
}

/// Sanitises one text. Returns whether anything was removed.
pub(crate) fn sanitize_text(text: &mut String) -> bool {
    if !text.contains(is_unseen) {
        return false;
    }
    let kept = strip_hidden(text);
    let changed = kept.len() != text.len();
    *text = kept;
    changed
}

/// Returns a server's text for the client, without invisible characters.
pub(crate) fn words(said: &str) -> String {
    let mut said = whole(said, WORDS_CHARS_MAX).into_owned();
    sanitize_text(&mut said);
    said
}

/// Returns a server's text on one line, with invisible characters escaped: for status and people.
pub(crate) fn one_line(said: &str) -> String {
    escape_hidden(&whole(said, WORDS_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_people_see_stays_and_what_nobody_sees_goes() {
        for (text, expected) in [
            ("می\u{200c}خواهم\n\t👨\u{200d}👩 葛\u{e0100}", "می\u{200c}خواهم\n\t👨\u{200d}👩 葛\u{e0100}"),
            ("a\u{200d}b\r\n😀\u{e0162}\u{e0155}\u{1b}[31m", "ab\n😀[31m"),
        ] {
            assert_eq!(words(text), expected);
        }
        assert_eq!(one_line("a\n\tb\u{200b} ⚠\u{fe0f}"), "a\\u{a}\\u{9}b\\u{200b} ⚠\u{fe0f}");
    }

    #[test]
    fn words_are_told_whole_or_not_at_all() {
        let most = "x".repeat(WORDS_CHARS_MAX);
        assert_eq!([words(&most), one_line(&most)], [most.clone(), most.clone()]);
        let more = most + "\n";
        assert_eq!([words(&more), one_line(&more)], ["[8001 bytes, not shown]"; 2]);
    }

    #[test]
    fn only_words_for_readers_are_changed() {
        let said = r#"{"title":"t\u200b","x":0.12345678901234567890123,"inputSchema":{"properties":{"description":{"enum":["\n","\r\n"],"description":"d\u001b"}}}}"#;
        let mut value: Value = serde_json::from_str(said).unwrap();
        assert_eq!(sanitize(&mut value, DefinitionPart::Definition), Ok(true));
        let (mut text, raw) = (String::new(), RawValue::from_string(said.to_owned()).unwrap());
        write_sanitized(&raw, DefinitionPart::Definition, &mut text).unwrap();
        assert_eq!(text, said.replace("\\u200b", "").replace("\\u001b", ""));
        assert_eq!(sanitize(&mut value, DefinitionPart::Definition), Ok(false));
        for exact in [
            json!({ "properties": { "a\u{200b}": {} } }),
            json!({ "properties": { "title": { "const": "a\u{202e}" } } }),
            json!({ "enum": [{ "description": "a\u{1b}" }] }),
            json!({ "default": "\u{0}" }),
            json!({ "pattern": "\u{2028}" }),
            json!({ "arguments": [{ "name": "a\u{feff}" }] }),
        ] {
            let why = sanitize(&mut exact.clone(), DefinitionPart::Definition).unwrap_err();
            assert!(why.contains("has a hidden character"), "{why}");
        }
        let mut resource = json!({ "name": "a\u{200b}" });
        assert_eq!(sanitize(&mut resource, DefinitionPart::Resource), Ok(true));
    }
}
