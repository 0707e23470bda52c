//! JSON Schema validation of untrusted schemas, within a step budget.
//!
//! This module is the fast path: it checks only the common keywords, without compiling. A compiled validator takes megabytes,
//! and nearly every value is valid. On any unknown keyword it gives no verdict; then the validator of [`validity`] decides
//! and explains.

mod compile_steps;
mod cost;
mod graph;
mod pattern_weight;
#[cfg(test)]
mod shared_references_tests;
mod validity;
mod whole_numbers;

pub use cost::{Cost, ERROR_STEPS_MAX, STEPS_MAX, TooCostly};
pub use validity::{BoundedValidator, compile, is_plainly_sound};
pub use whole_numbers::write_whole_numbers;

use graph::weight;
use serde_json::{Map, Value};

/// Step budget of the fast path. It runs on an async worker, and this is a few milliseconds.
const PLAIN_STEPS_MAX: u64 = 300_000;

/// Returns whether a value is valid. `false` only means that the full validator must decide.
pub fn plainly_fits(schema: &Value, value: &Value) -> bool {
    FastPath { steps_left: PLAIN_STEPS_MAX }.fits_whole(schema, value)
}

/// A fast-path validation with a step budget.
struct FastPath {
    steps_left: u64,
}

impl FastPath {
    fn fits_whole(&mut self, schema: &Value, value: &Value) -> bool {
        let is_known = match schema.get("$schema") {
            None => true,
            Some(Value::String(dialect)) => {
                dialect.contains("/draft/2020-12/schema") || dialect.contains("/draft-07/schema")
            }
            Some(_) => false,
        };
        match schema {
            Value::Object(words) => {
                is_known && self.fits_all(words.iter().filter(|(word, _)| *word != "$schema"), words, value)
            }
            schema => schema == &Value::Bool(true),
        }
    }

    /// Spends steps; returns false if the budget is exhausted.
    fn spend(&mut self, steps: u64) -> bool {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.unwrap_or_default();
        left.is_some()
    }

    fn fits(&mut self, schema: &Value, value: &Value) -> bool {
        match schema {
            Value::Object(words) => self.spend(1) && self.fits_all(words.iter(), words, value),
            schema => schema == &Value::Bool(true),
        }
    }

    fn fits_all<'a>(
        &mut self,
        mut words: impl Iterator<Item = (&'a String, &'a Value)>,
        all: &Map<String, Value>,
        value: &Value,
    ) -> bool {
        words.all(|(word, says)| self.spend(1) && self.fits_word(word, says, all, value))
    }

    fn fits_word(&mut self, word: &str, says: &Value, all: &Map<String, Value>, value: &Value) -> bool {
        match word {
            "title" | "description" | "default" | "examples" | "format" => true,
            "type" => match says {
                Value::Array(types) => types.iter().any(|name| is_of_type(name, value)),
                name => is_of_type(name, value),
            },
            "enum" => says.as_array().is_some_and(|options| {
                self.spend(weight(value).saturating_mul(options.len() as u64)) && options.contains(value)
            }),
            "const" => self.spend(weight(value)) && says == value,
            "minimum" => both(value.as_i64(), says.as_i64(), |value, least| value >= least),
            "maximum" => both(value.as_i64(), says.as_i64(), |value, most| value <= most),
            "minLength" => both(chars(value), says.as_u64(), |chars, least| chars >= least),
            "maxLength" => both(chars(value), says.as_u64(), |chars, most| chars <= most),
            "minItems" => both(items(value), says.as_u64(), |items, least| items >= least),
            "maxItems" => both(items(value), says.as_u64(), |items, most| items <= most),
            "items" => value.as_array().is_some_and(|items| items.iter().all(|item| self.fits(says, item))),
            "required" => says.as_array().is_some_and(|keys| {
                let has = |key: &Value| key.as_str().is_some_and(|key| value.get(key).is_some());
                self.spend(keys.len() as u64) && keys.iter().all(has)
            }),
            // Keys without a schema are handled by `additionalProperties`.
            "properties" => both(value.as_object(), says.as_object(), |members, named| {
                self.spend(members.len() as u64)
                    && members
                        .iter()
                        .all(|(key, member)| named.get(key).is_none_or(|schema| self.fits(schema, member)))
            }),
            "additionalProperties" => value.as_object().is_some_and(|members| {
                let named = all.get("properties").and_then(Value::as_object);
                let is_named = |key: &String| named.is_some_and(|named| named.contains_key(key));
                self.spend(members.len() as u64)
                    && members
                        .iter()
                        .filter(|(key, _)| !is_named(key))
                        .all(|(_, member)| self.fits(says, member))
            }),
            _ => false,
        }
    }
}

fn both<T>(value: Option<T>, bound: Option<T>, holds: impl FnOnce(T, T) -> bool) -> bool {
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
        // `10.0` is an integer too; the full validator handles that.
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

    #[test]
    fn many_options_and_many_items_are_for_the_closer_look() {
        let options = |many: u64| json!({ "items": { "enum": (0..many).collect::<Vec<_>>() } });
        let items = |many: u64| json!(vec![0; many as usize]);
        assert!(plainly_fits(&options(100), &items(1_000)));
        assert!(plainly_fits(&options(10_000), &items(10)));
        assert!(!plainly_fits(&options(10_000), &items(1_000)));
        // Without the bound, the same validation uses every step.
        let mut unbounded = FastPath { steps_left: u64::MAX };
        assert!(unbounded.fits_whole(&options(10_000), &items(1_000)));
        assert!(u64::MAX - unbounded.steps_left > 30 * PLAIN_STEPS_MAX);
    }
}
