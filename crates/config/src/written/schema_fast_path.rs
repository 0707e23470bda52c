//! Fast validation of documents without errors.
//!
//! Building the full validator takes milliseconds at every start, and megabytes that an idle hub keeps; nearly every file
//! is valid.

use portcullis_core::schema::plainly_fits;
use serde_json::Value;

/// The schema written by `cargo xtask gen`: cheaper to parse than to generate.
const WRITTEN_DOWN: &str = include_str!("../../../../docs/portcullis.schema.json");

/// Returns whether a document is valid. `false` means only that the full validator must run.
pub(super) fn matches_schema(document: &Value) -> bool {
    if document.as_object().is_some_and(serde_json::Map::is_empty) {
        return true;
    }
    serde_json::from_str(WRITTEN_DOWN).is_ok_and(|schema| plainly_fits(&schema, document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::schema;
    use serde_json::json;

    fn schema_written_down() -> Value {
        serde_json::from_str(WRITTEN_DOWN).unwrap()
    }

    #[test]
    fn what_was_written_down_is_the_schema() {
        assert_eq!(schema_written_down(), schema(), "run `cargo xtask gen`");
    }

    /// Returns a document for every node of the schema, with a value in its place, and whether it may stand there.
    fn places(schema: &Value, wrap: &dyn Fn(Value) -> Value, out: &mut Vec<Value>) {
        for value in [
            json!(null),
            json!(true),
            json!(-1),
            json!(0),
            json!(1),
            json!(100),
            json!(70_000),
            json!(5.0),
            json!(5.5),
            json!(u64::MAX),
            json!(""),
            json!("x"),
            json!("10m"),
            json!([]),
            json!([1]),
            json!(["x"]),
            json!({}),
            json!({ "x": 1 }),
            json!({ "x": "y" }),
        ] {
            out.push(wrap(value));
        }
        for option in schema["enum"].as_array().into_iter().flatten() {
            out.push(wrap(option.clone()));
        }
        for bound in ["minimum", "maximum"].iter().filter_map(|word| schema[*word].as_i64()) {
            out.extend([bound - 1, bound, bound + 1].map(|value| wrap(value.into())));
        }
        for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
            places(inner, &|value| wrap(json!({ key: value })), out);
        }
        if schema["additionalProperties"].is_object() {
            places(&schema["additionalProperties"], &|value| wrap(json!({ "some": value })), out);
        }
        if schema["items"].is_object() {
            places(&schema["items"], &|value| wrap(json!([value])), out);
        }
    }

    #[test]
    fn it_vouches_for_nothing_that_the_validator_refuses() {
        let schema = schema();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mut documents = Vec::new();
        places(&schema, &|value| value, &mut documents);
        let (mut vouched, mut good) = (0, 0);
        for document in documents {
            let (is_good, is_plain) = (validator.is_valid(&document), plainly_fits(&schema, &document));
            assert!(is_good || !is_plain, "{document}");
            (good, vouched) = (good + usize::from(is_good), vouched + usize::from(is_plain));
        }
        // It would also hold for one that never says yes.
        assert!(good > 500 && vouched * 10 > good * 8, "{vouched} of {good}");
    }

    #[test]
    fn an_ordinary_file_needs_no_closer_look() {
        let mut table: toml::Table = toml::from_str(&example()).unwrap();
        table.insert("$schema".into(), "portcullis.schema.json".into());
        assert!(matches_schema(&serde_json::to_value(table).unwrap()));
        assert!(
            matches_schema(&json!({}))
                && !matches_schema(&json!([]))
                && !matches_schema(&json!({ "htp": {} }))
        );
    }
}
