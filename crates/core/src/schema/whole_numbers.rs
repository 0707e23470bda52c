//! Integers that are written as floating-point numbers: `14.0` is an integer in JSON Schema, and none for `serde`.

use serde_json::{Number, Value};

/// The largest number up to which every integer has a floating-point number of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// The keywords whose subschemas apply to the value itself.
const SAME_VALUE: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// Writes every number as an integer that is one and that the schema declares as one, at any depth.
pub fn write_whole_numbers(schema: &Value, value: &mut Value) {
    if declares_integer(schema)
        && let Some(whole) = whole(value)
    {
        *value = Value::Number(whole);
    }
    for keyword in SAME_VALUE {
        for form in schema[keyword].as_array().into_iter().flatten() {
            write_whole_numbers(form, value);
        }
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let declared = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                write_whole_numbers(declared, member);
            }
        }
        Value::Array(items) => {
            let first = schema["prefixItems"].as_array();
            for (at, item) in items.iter_mut().enumerate() {
                let declared = first.and_then(|first| first.get(at)).unwrap_or(&schema["items"]);
                write_whole_numbers(declared, item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn declares_integer(schema: &Value) -> bool {
    match &schema["type"] {
        Value::String(name) => name == "integer",
        Value::Array(names) => names.iter().any(|name| name == "integer"),
        _ => false,
    }
}

/// Returns the integer that a number is, if it is not written as one.
fn whole(value: &Value) -> Option<Number> {
    if value.is_i64() || value.is_u64() {
        return None;
    }
    let number = value.as_f64()?;
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT_MAX;
    // Exact, by the check before.
    is_whole.then(|| Number::from(number as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_are_written_as_such_where_the_schema_declares_them() {
        let integer = json!({ "type": "integer" });
        let schema = json!({
            "properties": {
                "days": integer,
                "none": { "type": ["integer", "null"] },
                "ratio": { "type": "number" },
                "any": true,
                "list": { "items": integer },
                "pair": { "prefixItems": [integer, { "type": "number" }] },
                "deep": { "anyOf": [{ "properties": { "x": integer } }, { "type": "null" }] },
            },
            "additionalProperties": integer,
        });
        let written = |text: &str| {
            let mut value = crate::json::parse_strict(text).unwrap();
            write_whole_numbers(&schema, &mut value);
            value.to_string()
        };
        for (given, expected) in [
            (r#"{"days":14.0}"#, r#"{"days":14}"#),
            (r#"{"days":-0.0}"#, r#"{"days":0}"#),
            (r#"{"days":1.4e1}"#, r#"{"days":14}"#),
            (r#"{"days":14.5}"#, r#"{"days":14.5}"#),
            (r#"{"days":14}"#, r#"{"days":14}"#),
            (r#"{"days":18446744073709551615}"#, r#"{"days":18446744073709551615}"#),
            (r#"{"days":"14.0"}"#, r#"{"days":"14.0"}"#),
            (r#"{"none":null}"#, r#"{"none":null}"#),
            (r#"{"none":2.0}"#, r#"{"none":2}"#),
            (r#"{"ratio":2.0}"#, r#"{"ratio":2.0}"#),
            (r#"{"any":2.0}"#, r#"{"any":2.0}"#),
            (r#"{"list":[1.0,2]}"#, r#"{"list":[1,2]}"#),
            (r#"{"pair":[1.0,2.0]}"#, r#"{"pair":[1,2.0]}"#),
            (r#"{"deep":{"x":3.0}}"#, r#"{"deep":{"x":3}}"#),
            (r#"{"more":3.0}"#, r#"{"more":3}"#),
        ] {
            assert_eq!(written(given), expected);
        }
    }
}
