//! Strict parsing of untrusted JSON, and escaping of untrusted text.
//!
//! `serde_json` takes the last of two equal keys. A policy that read the first and a tool that got the last would disagree
//! about the request, so a duplicate key is an error at any depth.

use crate::hidden_chars::is_invisible;
use crate::limit::Limit;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::fmt;

/// Maximum nesting depth. Well below `serde_json`'s own 128, and deeper than any real argument.
pub const DEPTH_MAX: usize = 64;

/// Parses `text`; a duplicate key, a number out of range or nesting beyond [`DEPTH_MAX`] is an error.
pub fn parse_strict(text: &str) -> Result<Value, serde_json::Error> {
    parse(text, Digits::InRange)
}

/// Like [`parse_strict`], but keeps all digits of every number, in range or not: for values that are forwarded. Only the
/// spelling of an exponent may change (`1E5` to `1e+5`).
pub fn parse_exact(text: &str) -> Result<Value, serde_json::Error> {
    parse(text, Digits::Kept)
}

/// Returns a name as the least careful parser compares it: some ignore case, and some skip invisible characters or stop at
/// them.
pub fn folded(name: &str) -> String {
    let seen = name.chars().filter(|c| !c.is_control() && !is_invisible(*c));
    seen.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Returns whether a different name could pass for `own` in some parser. With both present, the member that was checked
/// would not be the one used.
pub fn is_confusable(name: &str, own: &str) -> bool {
    name != own && folded(name) == folded(own)
}

/// What becomes of the digits of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    /// The nearest number counts; one out of range is an error.
    InRange,
    Kept,
}

fn parse(text: &str, digits: Digits) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = StrictValueSeed { depth_left: DEPTH_MAX, text, digits }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct StrictValueSeed<'t> {
    depth_left: usize,
    text: &'t str,
    digits: Digits,
}

impl<'t> StrictValueSeed<'t> {
    fn deeper<E: de::Error>(self) -> Result<StrictValueSeed<'t>, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(StrictValueSeed { depth_left, ..self }),
            None => {
                Limit::JsonDepth.hit();
                Err(E::custom(format_args!("nested more than {DEPTH_MAX} levels deep")))
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for StrictValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut next = map.next_key_seed(KeySeed(self.text))?;
        if let Some(Key::OfNumber) = next {
            return number(&map.next_value::<String>()?, self.digits);
        }
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(Key::Name(key)) = next {
            match object.entry(key) {
                Entry::Occupied(first) => {
                    let key = printable(first.key());
                    return Err(de::Error::custom(format_args!("key `{key}` is given twice")));
                }
                Entry::Vacant(place) => place.insert(map.next_value_seed(inner)?),
            };
            next = map.next_key_seed(KeySeed(self.text))?;
        }
        Ok(Value::Object(object))
    }
}

/// A key of an object.
enum Key {
    Name(String),
    /// Not in the text: built with `arbitrary_precision`, `serde_json` presents a number as an object with this one key. If
    /// untrusted input spells out that key, the key lies within the text and is treated as an ordinary one.
    OfNumber,
}

struct KeySeed<'t>(&'t str);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key, E> {
        match self.0.as_bytes().as_ptr_range().contains(&key.as_ptr()) {
            false if key == "$serde_json::private::Number" => Ok(Key::OfNumber),
            _ => Ok(Key::Name(key.to_owned())),
        }
    }

    fn visit_str<E>(self, key: &str) -> Result<Key, E> {
        Ok(Key::Name(key.to_owned()))
    }
}

/// Parses a number that is not a small integer. A large integer keeps its digits; any other number becomes a double unless
/// its digits are kept.
fn number<E: de::Error>(text: &str, digits: Digits) -> Result<Value, E> {
    if digits == Digits::Kept {
        return text.parse().map(Value::Number).map_err(E::custom);
    }
    let is_integer = !text.contains(['.', 'e', 'E']) && text != "-0";
    let double: f64 = text.parse().map_err(E::custom)?;
    let number = if is_integer { text.parse().ok() } else { None };
    let number = number.or_else(|| Number::from_f64(double)).filter(|_| double.is_finite());
    number.map(Value::Number).ok_or_else(|| E::custom("number out of range"))
}

/// Maximum length of untrusted text quoted in an error message. Longer than most paths and URLs.
const QUOTED_CHARS_MAX: usize = 200;

/// Returns `text` for an error message: hidden characters escaped, and complete or not at all. Redaction would not recognize
/// a truncated secret.
pub fn printable(text: &str) -> String {
    visible(&whole(text, QUOTED_CHARS_MAX))
}

/// Returns `text` if it has at most `chars_max` characters, else a placeholder.
pub fn whole(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(format!("[{} bytes, not shown]", text.len())),
    }
}

/// Returns `text` with control and invisible characters escaped, on one line.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // The fast path: nearly all text is ASCII, and every call comes through here.
        if c.is_ascii_graphic() || c == ' ' {
            shown.push(c);
        } else if c.is_control() || is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Like [`visible`], but keeps line ends and tabs.
pub fn visible_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        let plain = part.trim_end_matches(['\n', '\t']);
        shown.push_str(&visible(plain));
        shown.push_str(&part[plain.len()..]);
    }
    shown
}

/// Returns JSON text with control and invisible characters as JSON escapes, which means the same.
///
/// Outside strings JSON allows no such characters except line ends, which are kept.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    let hidden = |c: char| (c.is_control() && c != '\n') || is_invisible(c);
    if !json.contains(hidden) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_an_error_at_any_depth() {
        for text in [r#"{"a":1,"a":2}"#, r#"[{"x":{"b":0,"b":0}}]"#, r#"{"a":1,"\u0061":2}"#] {
            let error = parse_strict(text).unwrap_err().to_string();
            assert!(error.contains("given twice"), "{text}: {error}");
            // `serde_json` accepts it.
            assert!(serde_json::from_str::<Value>(text).is_ok());
        }
    }

    #[test]
    fn nesting_has_a_bound() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse_strict(&nested(DEPTH_MAX)).is_ok());
        assert!(parse_strict(&nested(DEPTH_MAX + 1)).is_err());
        assert!(parse_strict(&nested(100_000)).is_err());
    }

    #[test]
    fn numbers_are_numbers_however_they_are_kept() {
        let value = parse_strict(r#"[1, -2, 1.50, 1e3, -0, 18446744073709551615, {"a": 2.5}]"#).unwrap();
        assert_eq!(value[0].as_u64(), Some(1));
        assert_eq!(value[1].as_i64(), Some(-2));
        let doubles: Vec<f64> = value.as_array().unwrap()[2..5].iter().map(|v| v.as_f64().unwrap()).collect();
        assert_eq!(doubles, [1.5, 1000.0, 0.0]);
        assert_eq!(value[5].as_u64(), Some(u64::MAX));
        assert_eq!(value[6]["a"].as_f64(), Some(2.5));
        assert!(parse_strict("1e400").is_err());
        let exact = "[0.12345678901234567890123,1e+5,1e+400,1.50,-0]";
        assert_eq!(parse_exact(exact).unwrap().to_string(), exact);
        assert!(parse_exact(r#"{"a":1.0,"a":1.0}"#).is_err());
        // The private key of `serde_json` in the input is an ordinary key.
        for text in
            [r#"{"$serde_json::private::Number":"7"}"#, r#"{"\u0024serde_json::private::Number":"7"}"#]
        {
            assert_eq!(parse_strict(text).unwrap().as_object().unwrap().len(), 1, "{text}");
        }
    }

    #[test]
    fn quoted_text_is_short_and_visible() {
        assert_eq!(printable("a\u{202e}b\u{1b}[31m"), "a\\u{202e}b\\u{1b}[31m");
        assert_eq!(printable(&"x".repeat(QUOTED_CHARS_MAX)), "x".repeat(QUOTED_CHARS_MAX));
        assert_eq!(printable(&"x".repeat(QUOTED_CHARS_MAX + 1)), "[201 bytes, not shown]");
    }

    #[test]
    fn json_with_everything_visible_means_the_same() {
        let value = Value::from("a\u{202e}b\u{7f}c\u{e0041}\n\u{1b}[31m");
        let pretty = format!("{:#}", serde_json::json!([value]));
        let shown = visible_json(&pretty);
        assert!(shown.chars().all(|c| c == '\n' || c.is_ascii_graphic() || c == ' '), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), serde_json::json!([value]));
        assert!(matches!(visible_json("[1]"), Cow::Borrowed(_)));
    }
}
