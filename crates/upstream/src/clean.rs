//! Taking out of a stranger's text what nobody sees: it is there for the model, or for the terminal.
//!
//! Only what is written for readers is changed. A name, a value or a pattern means what it says to the letter: a
//! definition in which one of those hides something is not taken at all.
//!
//! A few such characters are part of what people do see, and stay exactly there: the joiners of emoji and of scripts
//! that join letters, the selector behind an emoji, and the three flags that are written with tags.

use portcullis_core::json::{is_invisible, printable};
use portcullis_wire::params::Fields;
use serde_json::Value;
use serde_json::value::RawValue;

const ZERO_WIDTH_NON_JOINER: char = '\u{200C}';
const ZERO_WIDTH_JOINER: char = '\u{200D}';
const BLACK_FLAG: char = '\u{1F3F4}';
/// The flags of England, Scotland and Wales, in tags behind a black flag.
const FLAGS: [&str; 3] = ["gbeng", "gbsct", "gbwls"];

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
fn exact(text: &str) -> Result<(), String> {
    if text.chars().any(is_hidden) && clean_text(&mut text.replace('\r', "")) {
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
    if !text.chars().any(is_hidden) {
        return false;
    }
    let chars: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let flag = flag_length(&chars[at..]);
        if flag > 0 {
            kept.extend(&chars[at..at + flag]);
            at += flag;
            continue;
        }
        let (before, after) = (kept.chars().next_back(), chars.get(at + 1).copied());
        if !is_hidden(chars[at]) || belongs(before, chars[at], after) {
            kept.push(chars[at]);
        }
        at += 1;
    }
    let changed = kept != *text;
    *text = kept;
    changed
}

/// Returns whether a character is there without being seen.
pub(crate) fn is_hidden(c: char) -> bool {
    let is_noncharacter = (c as u32) & 0xFFFE == 0xFFFE || ('\u{FDD0}'..='\u{FDEF}').contains(&c);
    (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c) || is_noncharacter
}

/// How many characters a flag that is written with tags takes here.
fn flag_length(chars: &[char]) -> usize {
    let tag = |c: char| char::from_u32(0xE0000 + c as u32);
    let matches = |flag: &&str| {
        chars.first() == Some(&BLACK_FLAG)
            && flag.chars().chain(['\u{7F}']).enumerate().all(|(at, c)| chars.get(at + 1).copied() == tag(c))
    };
    FLAGS.into_iter().find(matches).map_or(0, |flag| flag.len() + 2)
}

/// Returns whether a character that is not seen itself is part of what is seen around it.
fn belongs(before: Option<char>, c: char, after: Option<char>) -> bool {
    let (Some(before), after) = (before, after.unwrap_or('\0')) else { return false };
    match c {
        ZERO_WIDTH_JOINER if is_emoji(before) || is_emoji_part(before) => is_emoji(after),
        ZERO_WIDTH_JOINER | ZERO_WIDTH_NON_JOINER => joins(before) && joins(after),
        // One selector behind what has two looks; a second one would say something else.
        '\u{FE0E}' | '\u{FE0F}' => is_emoji(before) || (is_keycap(before) && after == '\u{20E3}'),
        _ => false,
    }
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{A9}' | '\u{AE}' | '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2194}'..='\u{21AA}'
        | '\u{231A}'..='\u{27BF}' | '\u{2934}'..='\u{2935}' | '\u{2B05}'..='\u{2B55}' | '\u{3030}' | '\u{303D}'
        | '\u{3297}' | '\u{3299}' | '\u{1F000}'..='\u{1FAFF}')
}

/// What may stand between an emoji and the joiner behind it. The colours of skin are emoji themselves.
fn is_emoji_part(c: char) -> bool {
    c == '\u{FE0F}'
}

fn is_keycap(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '#' | '*')
}

/// Returns whether a letter is of a script in which joiners change how letters look.
fn joins(c: char) -> bool {
    c.is_alphabetic()
        && matches!(c, '\u{0600}'..='\u{08FF}' | '\u{0900}'..='\u{0DFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{18AF}')
        || matches!(
            c,
            '\u{094D}'
                | '\u{09CD}'
                | '\u{0A4D}'
                | '\u{0ACD}'
                | '\u{0B4D}'
                | '\u{0BCD}'
                | '\u{0C4D}'
                | '\u{0CCD}'
                | '\u{0D4D}'
                | '\u{0DCA}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cleaned(text: &str) -> String {
        let mut text = text.to_owned();
        clean_text(&mut text);
        text
    }

    #[test]
    fn what_people_see_stays() {
        for text in [
            "Family 👨\u{200d}👩\u{200d}👧\u{200d}👦, 🏳\u{fe0f}\u{200d}🌈, 👩🏽\u{200d}🚀, 1\u{fe0f}\u{20e3}, ☀\u{fe0f}",
            "flag 🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
            "می\u{200c}خواهم क्\u{200d}ष עברית العربية 日本語",
            "two\nlines\tand a tab",
        ] {
            assert_eq!(cleaned(text), text);
        }
    }

    #[test]
    fn what_nobody_sees_goes() {
        for (text, expected) in [
            ("a\u{200d}b", "ab"),
            ("\u{200d}👩", "👩"),
            ("👩\u{200d}x", "👩x"),
            ("☀\u{fe0f}\u{fe0f}", "☀\u{fe0f}"),
            ("😀\u{e0162}\u{e0155}", "😀"),
            ("🏴\u{e0072}\u{e0065}\u{e0061}\u{e0064}\u{e007f}", "🏴"),
            ("\u{1b}[31mred\u{7}\u{9b}1A\r", "[31mred1A"),
            ("a\u{2028}b\u{202e}c\u{fffe}\u{feff}", "abc"),
        ] {
            assert_eq!(cleaned(text), expected);
        }
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
