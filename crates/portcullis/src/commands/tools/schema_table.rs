//! A JSON schema as a table of fields, for people.

use portcullis_core::json::{printable, visible};
use serde_json::Value;

/// Deeper fields are left to `--json`.
const DEPTH_MAX: usize = 4;
/// Further fields are left to `--json`.
const FIELDS_MAX: usize = 100;
const DEFINITIONS: [&str; 2] = ["#/$defs/", "#/definitions/"];

/// Returns a row for each field: name, type, whether it is required, and description. Empty if there is none.
pub(super) fn fields(schema: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    add(schema, schema, "", 0, &mut rows);
    if rows.len() > FIELDS_MAX {
        rows.truncate(FIELDS_MAX);
        rows.push(vec!["…".to_owned(), String::new(), String::new(), "`--json` shows all fields".to_owned()]);
    }
    rows
}

fn add(root: &Value, node: &Value, path: &str, depth: usize, rows: &mut Vec<Vec<String>>) {
    let node = resolved(root, node);
    let required =
        |key: &String| node["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key));
    for (key, field) in node["properties"].as_object().into_iter().flatten() {
        if rows.len() > FIELDS_MAX {
            return;
        }
        let inner = resolved(root, field);
        let name = format!("{path}{}", printable(key));
        let about = [field, inner].iter().find_map(|node| node["description"].as_str()).unwrap_or_default();
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        let more = bounds(inner);
        let gap = if about.is_empty() || more.is_empty() { "" } else { "; " };
        let needed = if required(key) { "required" } else { "" };
        rows.push(vec![
            name.clone(),
            type_of(root, inner, 0),
            needed.to_owned(),
            visible(&format!("{about}{gap}{more}")),
        ]);
        if depth < DEPTH_MAX {
            add(root, inner, &format!("{name}."), depth + 1, rows);
            add(root, &inner["items"], &format!("{name}[]."), depth + 1, rows);
        }
    }
}

/// Follows a reference within the schema, once: definitions may refer to themselves.
fn resolved<'s>(root: &'s Value, node: &'s Value) -> &'s Value {
    let Some(target) = node["$ref"].as_str() else { return node };
    let is_local = DEFINITIONS.iter().any(|prefix| target.starts_with(prefix));
    target.strip_prefix('#').filter(|_| is_local).and_then(|pointer| root.pointer(pointer)).unwrap_or(node)
}

fn type_of(root: &Value, node: &Value, depth: usize) -> String {
    let node = resolved(root, node);
    if let Some(options) = node["enum"].as_array() {
        return joined(options.iter().map(printed));
    }
    if !node["const"].is_null() {
        return printed(&node["const"]);
    }
    match &node["type"] {
        Value::String(kind) if kind == "array" && depth < DEPTH_MAX && node["items"].is_object() => {
            format!("list of {}", type_of(root, &node["items"], depth + 1))
        }
        Value::String(kind) => printable(kind),
        Value::Array(kinds) => joined(kinds.iter().filter_map(Value::as_str).map(printable)),
        _ => {
            let options = ["anyOf", "oneOf"].iter().find_map(|key| node[*key].as_array());
            match options.filter(|_| depth < DEPTH_MAX) {
                Some(options) => joined(options.iter().map(|option| type_of(root, option, depth + 1))),
                None => "any".to_owned(),
            }
        }
    }
}

fn printed(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), printable)
}

fn joined(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    words.dedup();
    words.join(" | ")
}

fn bounds(node: &Value) -> String {
    let mut parts = Vec::new();
    match (&node["minimum"], &node["maximum"]) {
        (Value::Null, Value::Null) => {}
        (least, Value::Null) => parts.push(format!("at least {least}")),
        (Value::Null, most) => parts.push(format!("at most {most}")),
        (least, most) => parts.push(format!("{least} to {most}")),
    }
    if !node["default"].is_null() {
        parts.push(format!("default {}", node["default"]));
    }
    parts.join("; ")
}

/// Returns arguments that have the required fields, to be filled in.
pub(super) fn skeleton(schema: &Value) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let members = required.map(|key| {
        let node = resolved(schema, &schema["properties"][key]);
        let shown = [&node["examples"][0], &node["default"], &node["enum"][0], &node["const"]];
        let value = shown.into_iter().find(|value| !value.is_null()).cloned();
        let value = value.unwrap_or_else(|| match node["type"].as_str() {
            Some("integer" | "number") => node.get("minimum").cloned().unwrap_or_else(|| 0.into()),
            Some("boolean") => true.into(),
            Some("array") => Value::Array(Vec::new()),
            Some("object") => Value::Object(serde_json::Map::new()),
            _ => "…".into(),
        });
        (key.to_owned(), value)
    });
    Value::Object(members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_field_is_a_row() {
        let schema = json!({
            "type": "object",
            "required": ["path", "edits", "mode"],
            "properties": {
                "path": { "type": "string", "description": "Where\nit is." },
                "limit": { "type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": "How many" },
                "mode": { "enum": ["a", "b", 3] },
                "edits": { "type": "array", "items": { "$ref": "#/$defs/Edit" } },
                "either": { "anyOf": [{ "type": "string" }, { "type": ["number", "null"] }] },
                "anything": {},
            },
            "$defs": { "Edit": { "type": "object", "required": ["old"], "properties": {
                "old": { "type": "string", "description": "\u{1b}[31m" },
                "next": { "$ref": "#/$defs/Edit" },
            } } },
        });
        let rows: Vec<String> = fields(&schema).iter().map(|row| row.join(" / ")).collect();
        let edit = |path: &str| {
            [format!("{path}old / string / required / \\u{{1b}}[31m"), format!("{path}next / object /  / ")]
        };
        let mut expected = vec![
            "path / string / required / Where it is.".to_owned(),
            "limit / integer /  / How many; 1 to 100; default 20".to_owned(),
            "mode / a | b | 3 / required / ".to_owned(),
            "edits / list of object / required / ".to_owned(),
        ];
        // A definition that refers to itself ends at the greatest depth.
        for path in ["edits[].", "edits[].next.", "edits[].next.next.", "edits[].next.next.next."] {
            expected.extend(edit(path));
        }
        expected.extend(["either / string | number | null /  / ", "anything / any /  / "].map(str::to_owned));
        assert_eq!(rows, expected);
        assert_eq!(skeleton(&schema), json!({ "path": "…", "edits": [], "mode": "a" }));
        assert_eq!(fields(&json!({ "type": "object" })), Vec::<Vec<String>>::new());
        assert_eq!(fields(&json!(null)), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_schema_without_end_has_one() {
        let wide: serde_json::Map<String, Value> =
            (0..FIELDS_MAX * 3).map(|at| (format!("f{at}"), json!({ "$ref": "#" }))).collect();
        assert_eq!(fields(&json!({ "properties": wide })).len(), FIELDS_MAX + 1);
        let knot = json!({ "properties": { "a": { "$ref": "#/$defs/K" } }, "$defs": {
            "K": { "properties": { "a": { "$ref": "#/$defs/K" }, "b": { "$ref": "#/$defs/K" } }, "items": { "$ref": "#/$defs/K" } },
        } });
        assert!(fields(&knot).len() <= FIELDS_MAX + 1);
    }
}
