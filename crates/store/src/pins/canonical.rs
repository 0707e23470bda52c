//! Canonical JSON of a definition: sorted keys, no whitespace, one form for each string.
//!
//! Like RFC 8785, but numbers stay as written. RFC 8785 takes them for doubles, in which two long numbers can
//! be equal; here any difference counts.

use data_encoding::HEXLOWER;
use portcullis_core::json::DEPTH_MAX;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// Returns the canonical text of a JSON value. A repeated key is an error: two parsers could read two
/// different values.
pub fn canonical(json: &str) -> Result<String, String> {
    let raw: &RawValue = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let mut text = String::with_capacity(json.len());
    write(raw, DEPTH_MAX, &mut text)?;
    Ok(text)
}

/// Returns the SHA-256 of a text as hex digits.
pub fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

fn write(raw: &RawValue, depth_left: usize, out: &mut String) -> Result<(), String> {
    let text = raw.get().trim();
    let deeper =
        || depth_left.checked_sub(1).ok_or_else(|| format!("nested more than {DEPTH_MAX} levels deep"));
    let message = |error: serde_json::Error| error.to_string();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: Members<'_> = serde_json::from_str(text).map_err(message)?;
            out.push('{');
            for (at, (key, value)) in members.0.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(value, deeper()?, out)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(message)?;
            out.push('[');
            for (at, value) in items.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(value, deeper()?, out)?;
            }
            out.push(']');
        }
        Some(b'"') => {
            let string: String = serde_json::from_str(text).map_err(message)?;
            out.push_str(&Value::from(string).to_string());
        }
        _ => out.push_str(text),
    }
    Ok(())
}

struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if members.insert(key, value).is_some() {
                        return Err(A::Error::custom("a key is given twice"));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_space_and_escapes_do_not_matter_and_all_else_does() {
        let one = canonical("{\"b\" : [1, 2.0, \"\\u00e9/\\/\"],\n \"a\":{\"y\":null,\"x\":true}}").unwrap();
        assert_eq!(one, "{\"a\":{\"x\":true,\"y\":null},\"b\":[1,2.0,\"é//\"]}");
        assert_eq!(canonical(&one).unwrap(), one);
        for (left, right) in [
            ("1", "1.0"),
            ("9007199254740992", "9007199254740993"),
            ("\"e\u{301}\"", "\"é\""),
            ("[1,2]", "[2,1]"),
            ("\"a\"", "\"a \""),
        ] {
            assert_ne!(canonical(left).unwrap(), canonical(right).unwrap());
        }
        // The weak variant: as doubles, these two are equal.
        assert_eq!(
            serde_json::from_str::<f64>("9007199254740992").unwrap(),
            serde_json::from_str::<f64>("9007199254740993").unwrap()
        );
    }

    #[test]
    fn what_two_readers_could_take_for_two_things_has_no_one_text() {
        assert!(canonical(r#"{"a":1,"a":2}"#).is_err());
        assert!(canonical(r#"{"x":{"a":1,"\u0061":2}}"#).is_err());
        assert!(canonical("{").is_err());
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(canonical(&deep(DEPTH_MAX)).is_ok());
        assert!(canonical(&deep(DEPTH_MAX + 2)).is_err());
    }
}
