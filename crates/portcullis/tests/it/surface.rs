//! The tool surface: its snapshots, and what holds for every tool.

use portcullis::surface;
use portcullis_core::Effect;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn snapshots_are_those_of_the_tools() {
    let current: BTreeMap<String, Value> = surface::current().unwrap().into_iter().collect();
    let committed: BTreeMap<String, Value> =
        surface::snapshots().unwrap().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(current, committed, "run `cargo xtask gen` and read the difference");
}

/// Invariants of every tool.
#[test]
fn every_tool_keeps_the_rules() {
    let tools = surface::tools().unwrap();
    let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names.len(), tools.len(), "names are unique");
    for tool in &tools {
        let name = &tool.name;
        let words: Vec<&str> = name.split('_').collect();
        let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
        assert!(words.len() >= 2 && words.iter().all(is_word), "`{name}` is family_verb");
        assert!(name.len() <= 64, "`{name}` fits every client");
        assert!(tool.title.len() >= 4 && tool.description.len() >= 40, "`{name}` is described");
        let schema = &tool.input_schema;
        assert_eq!(schema["type"], "object", "`{name}` takes an object");
        assert_eq!(schema["additionalProperties"], false, "`{name}` has a closed schema");
        for combinator in ["oneOf", "anyOf", "allOf", "not", "if"] {
            assert!(
                schema.get(combinator).is_none(),
                "`{name}` has no `{combinator}` at the top; some clients refuse it"
            );
        }
        for (field, schema) in schema["properties"].as_object().unwrap() {
            assert!(
                schema["description"].as_str().is_some_and(|d| d.len() >= 10),
                "`{name}.{field}` is described"
            );
        }
        assert!(tool.limits.deadline_ms > 0 && tool.limits.output_bytes_max > 0, "`{name}` has limits");
        let hints = tool.effect.hints(tool.reach);
        assert_eq!(hints.read_only, tool.effect == Effect::Read, "`{name}`");
        let validator = jsonschema::validator_for(schema).unwrap();
        let example: Value = serde_json::from_str(tool.example.unwrap().arguments).unwrap();
        assert!(validator.is_valid(&example), "the example of `{name}` fits its schema");
    }
}
