//! Compilation of schemas into validators with a budget, and a fast soundness check of schemas.

use super::cost::{Cost, ERROR_STEPS_MAX, STEPS_MAX, TooCostly};
use super::pattern_weight::BACKTRACKS_MAX;
use jsonschema::{PatternOptions, ValidationError, ValidationOptions, Validator};
use serde_json::Value;
use std::collections::HashSet;

/// Size limit of a compiled `pattern`.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A validator that never exceeds its step budget.
pub struct BoundedValidator {
    validator: Validator,
    cost: Cost,
}

impl BoundedValidator {
    /// Returns whether a value is valid, if that is within the budget.
    pub fn is_valid(&self, value: &Value) -> Result<bool, TooCostly> {
        self.cost.steps(value, STEPS_MAX)?;
        Ok(self.validator.is_valid(value))
    }

    /// Returns all errors of a value, if that is within the budget.
    pub fn errors<'v>(
        &'v self,
        value: &'v Value,
    ) -> Result<impl Iterator<Item = ValidationError<'v>>, TooCostly> {
        self.cost.error_steps(value, ERROR_STEPS_MAX)?;
        Ok(self.validator.iter_errors(value))
    }
}

/// Compiles a schema, or returns what is wrong with it. The only way to a validator for an untrusted schema: one over the
/// budget is refused before it is compiled.
pub fn compile(schema: &Value) -> Result<BoundedValidator, String> {
    let cost = Cost::of(schema)?;
    let validator = options().build(schema).map_err(|error| error.to_string())?;
    Ok(BoundedValidator { validator, cost })
}

/// The options of every validator.
pub(super) fn options() -> ValidationOptions<'static> {
    let patterns =
        PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS_MAX).size_limit(PATTERN_BYTES_MAX);
    jsonschema::options()
        .with_pattern_options(patterns)
        // In no dialect: implementations differ in what a format accepts, and only the tool knows its own rules.
        .should_validate_formats(false)
        // SSRF: a schema must not make the hub fetch anything.
        .offline()
}

/// Returns whether a schema is sound. `false` only means that [`compile`] must decide.
pub fn is_plainly_sound(schema: &Value) -> bool {
    let dialect = match schema.get("$schema") {
        None => true,
        Some(Value::String(dialect)) => {
            dialect.contains("/draft/2020-12/schema") || dialect.contains("/draft-07/schema")
        }
        Some(_) => false,
    };
    dialect && Glance { parts_left: PLAIN_PARTS_MAX }.is_sound(schema, 0)
}

/// Maximum depth and size of a schema for the fast check. Larger ones are held against the budget.
const PLAIN_DEPTH_MAX: usize = 32;
const PLAIN_PARTS_MAX: usize = 10_000;

struct Glance {
    parts_left: usize,
}

impl Glance {
    fn spend(&mut self, parts: usize) -> bool {
        let left = self.parts_left.checked_sub(parts);
        self.parts_left = left.unwrap_or_default();
        left.is_some()
    }

    fn is_sound(&mut self, schema: &Value, depth: usize) -> bool {
        let Value::Object(words) = schema else { return self.spend(1) && schema.is_boolean() };
        depth < PLAIN_DEPTH_MAX
            && self.spend(1 + words.len())
            && words.iter().all(|(word, says)| self.is_sound_word(word, says, depth))
    }

    fn is_sound_word(&mut self, word: &str, says: &Value, depth: usize) -> bool {
        match word {
            "$schema" => depth == 0,
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
            "required" => says.as_array().is_some_and(|keys| self.spend(keys.len()) && are_unique(keys)),
            "properties" => {
                says.as_object().is_some_and(|all| all.values().all(|one| self.is_sound(one, depth + 1)))
            }
            "items" | "additionalProperties" | "not" => self.is_sound(says, depth + 1),
            "anyOf" | "oneOf" | "allOf" => says
                .as_array()
                .is_some_and(|all| !all.is_empty() && all.iter().all(|one| self.is_sound(one, depth + 1))),
            word => word.starts_with("x-"),
        }
    }
}

/// Returns whether these are distinct strings.
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
            assert!(compile(&schema).unwrap().is_valid(&value).unwrap(), "{dialect}");
        }
    }

    #[test]
    fn what_is_sound_at_a_glance_is_within_the_budget() {
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "allOf": [inner] }));
        let wide = |parts: usize| json!({ "anyOf": vec![json!({ "type": "null" }); parts] });
        let needs =
            |keys: usize| json!({ "required": (0..keys).map(|key| key.to_string()).collect::<Vec<_>>() });
        for (small, large, too_large) in [
            (deep(31), deep(32), deep(200)),
            (wide(4_000), wide(5_000), wide(60_000)),
            (needs(9_000), needs(10_000), needs(200_000)),
        ] {
            assert!(is_plainly_sound(&small) && compile(&small).is_ok());
            assert!(!is_plainly_sound(&large) && compile(&large).is_ok());
            assert!(!is_plainly_sound(&too_large) && compile(&too_large).is_err());
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
        // An unknown keyword may be right.
        let more = json!({ "pattern": "^a", "$defs": { "d": {} }, "$ref": "#/$defs/d" });
        assert!(!is_plainly_sound(&more) && compile(&more).is_ok());
    }
}
