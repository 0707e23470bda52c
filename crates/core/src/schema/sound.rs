//! Whether a schema is one.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::collections::HashSet;

/// How long a `pattern` of a stranger's schema may search. Ordinary patterns need some hundred steps.
const BACKTRACK_STEPS_MAX: usize = 100_000;
/// How large a `pattern` may become when compiled.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Makes a validator, or says what is wrong with the schema.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns =
        PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_STEPS_MAX).size_limit(PATTERN_BYTES_MAX);
    jsonschema::options()
        .with_pattern_options(patterns)
        // In every dialect, and not only in those that say so: what counts as one differs from place to place, and
        // only the tool knows what it takes.
        .should_validate_formats(false)
        // A schema must not make the hub fetch anything.
        .offline()
        .build(schema)
        .map_err(|error| error.to_string())
}

/// Returns whether nothing is wrong with a schema. `false` says only that a closer look is needed.
pub fn is_plainly_sound(schema: &Value) -> bool {
    let dialect = match schema.get("$schema") {
        None => true,
        Some(Value::String(dialect)) => {
            dialect.contains("/draft/2020-12/schema") || dialect.contains("/draft-07/schema")
        }
        Some(_) => false,
    };
    dialect && is_sound(schema, true)
}

fn is_sound(schema: &Value, is_whole: bool) -> bool {
    let Value::Object(words) = schema else { return schema.is_boolean() };
    words.iter().all(|(word, says)| match word.as_str() {
        "$schema" => is_whole,
        "title" | "description" | "$comment" | "format" => says.is_string(),
        "default" | "const" => true,
        "examples" | "enum" => says.is_array(),
        "type" => match says {
            Value::Array(types) => !types.is_empty() && types.iter().all(is_type) && are_unique(types),
            name => is_type(name),
        },
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => says.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" => says.is_u64(),
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => says.is_boolean(),
        "required" => says.as_array().is_some_and(|keys| are_unique(keys)),
        "properties" => says.as_object().is_some_and(|all| all.values().all(|one| is_sound(one, false))),
        "items" | "additionalProperties" | "not" => is_sound(says, false),
        "anyOf" | "oneOf" | "allOf" => {
            says.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(|one| is_sound(one, false)))
        }
        word => word.starts_with("x-"),
    })
}

/// Returns whether these are texts, none of them twice.
fn are_unique(texts: &[Value]) -> bool {
    let mut seen = HashSet::new();
    texts.iter().all(|text| text.as_str().is_some_and(|text| seen.insert(text)))
}

fn is_type(name: &Value) -> bool {
    let types = ["object", "array", "string", "boolean", "null", "number", "integer"];
    name.as_str().is_some_and(|name| types.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_format_is_a_remark_in_every_dialect() {
        for dialect in
            ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
        {
            let schema = json!({ "$schema": dialect, "properties": { "at": { "format": "uri" } } });
            let value = json!({ "at": "https://example.com/ü" });
            assert!(crate::schema::plainly_fits(&schema, &value));
            assert!(compile(&schema).unwrap().is_valid(&value), "{dialect}");
        }
    }

    #[test]
    fn what_is_plainly_sound_is_sound() {
        let sound = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["a"],
            "properties": { "a": { "type": ["string", "null"], "enum": ["x", null], "maxLength": 3 }, "b": true },
            "additionalProperties": { "anyOf": [{ "type": "integer", "minimum": 0.5 }, { "items": { "const": 1 } }] },
        });
        assert!(is_plainly_sound(&sound));
        compile(&sound).unwrap();
        for (word, says) in [
            ("type", json!("wat")),
            ("type", json!([])),
            ("type", json!(["string", "string"])),
            ("required", json!("a")),
            ("required", json!(["a", "a"])),
            ("properties", json!([])),
            ("properties", json!({ "a": { "type": 1 } })),
            ("items", json!("x")),
            ("anyOf", json!([])),
            ("minimum", json!("1")),
            ("maxLength", json!(-1)),
            ("title", json!(1)),
            ("pattern", json!("(")),
            ("$ref", json!("https://example.com/schema.json")),
            ("$schema", json!("https://example.com/mine")),
        ] {
            let schema = json!({ word: says });
            assert!(!is_plainly_sound(&schema) && compile(&schema).is_err(), "{schema}");
        }
        // What it does not know may be right.
        let more = json!({ "pattern": "^a", "$defs": { "d": {} }, "$ref": "#/$defs/d" });
        assert!(!is_plainly_sound(&more) && compile(&more).is_ok());
    }
}
