//! Taking out of a stranger's text what nobody sees: it is there for the model, or for the terminal.
//!
//! Only what is written for readers is changed. A name, a value or a pattern means what it says to the letter: a
//! definition in which one of those hides something is not taken at all.
//!
//! A few such characters are part of what people do see, and stay exactly there (`core::text`).

use portcullis_core::json::{printable, whole};
use portcullis_core::text::{cleaned, is_unseen, shown};
use portcullis_wire::params::Fields;
use serde_json::Value;
use serde_json::value::RawValue;

/// How long what a server says of itself, or of a call, may be for it to be told. Longer than most traces of a stack; what
/// is longer is not told at all, because whoever takes secrets out sees it only later.
const WORDS_CHARS_MAX: usize = 8_000;

/// What a part of a definition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A tool, a prompt, or a schema in it: what some of its members are is known by their names.
    Definition,
    /// A resource or a template, whose name is only there to be read.
    Resource,
    /// Definitions by names that somebody chose.
    Named,
    /// Values that are sent or compared as they are.
    Data,
    /// Words for whoever reads them.
    Words,
}

impl Part {
    /// Returns what a member of this part is.
    fn member(self, key: &str, is_text: bool) -> Part {
        match (self, key) {
            (Part::Data | Part::Words, _) => Part::Data,
            (Part::Named, _) => Part::Definition,
            (_, "title" | "description" | "$comment") | (Part::Resource, "name") if is_text => Part::Words,
            (_, "enum" | "const" | "default" | "examples") => Part::Data,
            (_, "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas") => {
                Part::Named
            }
            _ => Part::Definition,
        }
    }
}

/// Cleans every word for readers in a value. Returns whether anything was taken out, or what hides something in a place
/// where nothing may be changed.
pub(crate) fn clean(value: &mut Value, part: Part) -> Result<bool, String> {
    let mut changed = false;
    match value {
        Value::String(text) if part == Part::Words => changed = clean_text(text),
        Value::String(text) => exact(text)?,
        Value::Array(items) => {
            for item in items {
                changed |= clean(item, part)?;
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                exact(key)?;
                changed |= clean(member, part.member(key, member.is_string()))?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(changed)
}

/// Says whether a text may stay to the letter. Any line end is what it is: some servers ask which one to write.
pub(crate) fn exact(text: &str) -> Result<(), String> {
    if text.contains(is_unseen) && clean_text(&mut text.replace('\r', "")) {
        return Err(format!("`{}` holds what nobody sees, where it cannot be taken out", printable(text)));
    }
    Ok(())
}

/// Writes a value as it came, but for the words in it that are cleaned: every other byte of it stays.
pub(crate) fn write_cleaned(raw: &RawValue, part: Part, into: &mut String) -> Result<(), serde_json::Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: Fields<'_> = serde_json::from_str(text)?;
            into.push('{');
            for (at, (key, member)) in members.0.iter().enumerate() {
                into.push_str(if at > 0 { "," } else { "" });
                into.push_str(&Value::from(key.as_ref()).to_string());
                into.push(':');
                let part = part.member(key, member.get().starts_with('"'));
                write_cleaned(member, part, into)?;
            }
            into.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            into.push('[');
            for (at, item) in items.into_iter().enumerate() {
                into.push_str(if at > 0 { "," } else { "" });
                write_cleaned(item, part, into)?;
            }
            into.push(']');
        }
        Some(b'"') if part == Part::Words => {
            let mut words: String = serde_json::from_str(text)?;
            if clean_text(&mut words) {
                into.push_str(&Value::from(words).to_string());
            } else {
                into.push_str(text);
            }
        }
        _ => into.push_str(text),
    }
    Ok(())
}

/// Cleans one text. Returns whether anything was taken out.
pub(crate) fn clean_text(text: &mut String) -> bool {
    if !text.contains(is_unseen) {
        return false;
    }
    let kept = cleaned(text);
    let changed = kept.len() != text.len();
    *text = kept;
    changed
}

/// Returns a server's own words for whoever called it, as they were said but for what nobody sees.
pub(crate) fn words(said: &str) -> String {
    let mut said = whole(said, WORDS_CHARS_MAX).into_owned();
    clean_text(&mut said);
    said
}

/// Returns a server's own words on one line, with everything in them visible: for how it stands, and for people.
pub(crate) fn one_line(said: &str) -> String {
    shown(&whole(said, WORDS_CHARS_MAX))
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
        assert_eq!(clean(&mut value, Part::Definition), Ok(true));
        let (mut text, raw) = (String::new(), RawValue::from_string(said.to_owned()).unwrap());
        write_cleaned(&raw, Part::Definition, &mut text).unwrap();
        assert_eq!(text, said.replace("\\u200b", "").replace("\\u001b", ""));
        assert_eq!(clean(&mut value, Part::Definition), Ok(false));
        for exact in [
            json!({ "properties": { "a\u{200b}": {} } }),
            json!({ "properties": { "title": { "const": "a\u{202e}" } } }),
            json!({ "enum": [{ "description": "a\u{1b}" }] }),
            json!({ "default": "\u{0}" }),
            json!({ "pattern": "\u{2028}" }),
            json!({ "arguments": [{ "name": "a\u{feff}" }] }),
        ] {
            let why = clean(&mut exact.clone(), Part::Definition).unwrap_err();
            assert!(why.contains("holds what nobody sees"), "{why}");
        }
        let mut resource = json!({ "name": "a\u{200b}" });
        assert_eq!(clean(&mut resource, Part::Resource), Ok(true));
    }
}
