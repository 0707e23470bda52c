//! Keys of the configuration and of the admin API cannot be redacted.

use super::schema;
use portcullis_store::secrets::{VALUE_BYTES_MIN, ordinary_text};
use serde_json::Value;

/// Nobody can register a key of the configuration or of the admin API as a secret, and have it redacted.
#[test]
fn the_hubs_own_keys_are_ordinary_text() {
    fn visit(node: &Value, found: &mut Vec<String>) {
        match node {
            Value::Object(members) => {
                found.extend(
                    members
                        .get("properties")
                        .and_then(Value::as_object)
                        .iter()
                        .flat_map(|all| all.keys().cloned()),
                );
                found.extend(members.get("const").and_then(Value::as_str).map(str::to_owned));
                let fixed = members.get("enum").and_then(Value::as_array).into_iter().flatten();
                found.extend(fixed.filter_map(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| visit(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| visit(item, found)),
            _ => {}
        }
    }
    let mut words = Vec::new();
    let api = include_str!("../../../docs/openapi.json");
    visit(&serde_json::from_str(api).unwrap(), &mut words);
    visit(&schema(), &mut words);
    words.retain(|word| word.len() >= VALUE_BYTES_MIN);
    assert!(words.len() > 100, "{words:?}");
    words.retain(|word| ordinary_text::ordinary(word) != Some(ordinary_text::NotSecretReason::Protocol));
    assert_eq!(words, Vec::<String>::new(), "belong into `HUB_WORDS`");
}
