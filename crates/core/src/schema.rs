//! Whether a value plainly fits a JSON schema, and whether a schema is one.
//!
//! A validator has to be made for every schema before it can be used, and takes megabytes with it; nearly every value is
//! right, and nearly every schema says little. This knows only the words that most schemas use. What it does not know it
//! does not vouch for: then a validator decides, and explains.

mod sound;

pub use sound::{compile, is_plainly_sound};

use serde_json::{Map, Value};

/// Returns whether nothing is wrong with a value. `false` says only that a closer look is needed.
pub fn plainly_fits(schema: &Value, value: &Value) -> bool {
    let is_known = match schema.get("$schema") {
        None => true,
        Some(Value::String(dialect)) => {
            dialect.contains("/draft/2020-12/schema") || dialect.contains("/draft-07/schema")
        }
        Some(_) => false,
    };
    match schema {
        Value::Object(words) => {
            is_known && fits_all(words.iter().filter(|(word, _)| *word != "$schema"), words, value)
        }
        schema => schema == &Value::Bool(true),
    }
}

fn fits(schema: &Value, value: &Value) -> bool {
    match schema {
        Value::Object(words) => fits_all(words.iter(), words, value),
        schema => schema == &Value::Bool(true),
    }
}

fn fits_all<'a>(
    mut words: impl Iterator<Item = (&'a String, &'a Value)>,
    all: &Map<String, Value>,
    value: &Value,
) -> bool {
    words.all(|(word, says)| match word.as_str() {
        "title" | "description" | "default" | "examples" | "format" => true,
        "type" => match says {
            Value::Array(types) => types.iter().any(|name| is_of_type(name, value)),
            name => is_of_type(name, value),
        },
        "enum" => says.as_array().is_some_and(|options| options.contains(value)),
        "const" => says == value,
        "minimum" => both(value.as_i64(), says.as_i64(), |value, least| value >= least),
        "maximum" => both(value.as_i64(), says.as_i64(), |value, most| value <= most),
        "minLength" => both(chars(value), says.as_u64(), |chars, least| chars >= least),
        "maxLength" => both(chars(value), says.as_u64(), |chars, most| chars <= most),
        "minItems" => both(items(value), says.as_u64(), |items, least| items >= least),
        "maxItems" => both(items(value), says.as_u64(), |items, most| items <= most),
        "items" => value.as_array().is_some_and(|items| items.iter().all(|item| fits(says, item))),
        "required" => says.as_array().is_some_and(|keys| {
            keys.iter().all(|key| key.as_str().is_some_and(|key| value.get(key).is_some()))
        }),
        // Keys that are not among them are looked at below.
        "properties" => both(value.as_object(), says.as_object(), |members, named| {
            members.iter().all(|(key, member)| named.get(key).is_none_or(|schema| fits(schema, member)))
        }),
        "additionalProperties" => value.as_object().is_some_and(|members| {
            let named = all.get("properties").and_then(Value::as_object);
            let is_named = |key: &String| named.is_some_and(|named| named.contains_key(key));
            members.iter().filter(|(key, _)| !is_named(key)).all(|(_, member)| fits(says, member))
        }),
        _ => false,
    })
}

fn both<T>(value: Option<T>, bound: Option<T>, holds: impl Fn(T, T) -> bool) -> bool {
    value.zip(bound).is_some_and(|(value, bound)| holds(value, bound))
}

fn chars(value: &Value) -> Option<u64> {
    value.as_str().map(|text| text.chars().count() as u64)
}

fn items(value: &Value) -> Option<u64> {
    value.as_array().map(|items| items.len() as u64)
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        // `10.0` is whole too; that is for the closer look.
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_it_does_not_know_it_does_not_vouch_for() {
        assert!(plainly_fits(&json!({ "minimum": 1 }), &json!(1)));
        for words in [
            json!({ "pattern": "x" }),
            json!({ "minimum": 1, "multipleOf": 1 }),
            json!({ "$schema": "https://example.com/mine" }),
            json!({ "properties": 1 }),
            json!(false),
        ] {
            assert!(!plainly_fits(&words, &json!(1)), "{words}");
        }
    }
}
