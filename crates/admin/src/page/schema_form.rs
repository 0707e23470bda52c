//! Forms from a tool's input schema, and arguments from a submitted form.
//!
//! Text, numbers, enums and lists of strings have fields of their own; every other type is a JSON field. A raw JSON
//! field takes all arguments at once, so a call with any schema can be sent.

use super::form::FormFields;
use portcullis_core::json::printable;
use portcullis_ops::Problem;
use serde_json::{Map, Value};

/// Prefix of argument fields, so no argument collides with a field such as `csrf`.
const PREFIX: &str = "arg.";
/// A schema with more properties has the raw JSON field only.
const FIELDS_MAX: usize = 60;
const CHOICES_MAX: usize = 200;

pub(crate) struct SchemaForm {
    pub(crate) fields: Vec<SchemaField>,
    /// The schema names no arguments.
    pub(crate) only_raw: bool,
    /// The last call used the raw JSON field.
    pub(crate) was_raw: bool,
    pub(crate) raw: String,
}

pub(crate) struct SchemaField {
    pub(crate) id: String,
    /// The form field.
    pub(crate) key: String,
    /// The argument.
    pub(crate) name: String,
    pub(crate) required: bool,
    pub(crate) hint: String,
    pub(crate) input: FieldInput,
    pub(crate) value: String,
}

impl SchemaField {
    pub(crate) fn has_hint(&self) -> bool {
        !self.hint.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldInput {
    Text,
    Number,
    Choice(Vec<FieldChoice>),
    /// One string per line.
    Lines,
    Json,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldChoice {
    /// As JSON.
    pub(crate) value: String,
    pub(crate) label: String,
}

impl SchemaForm {
    /// Builds the form, filled with the last submission.
    pub(crate) fn of(schema: &Value, given: Option<&FormFields>) -> SchemaForm {
        let properties = properties(schema);
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        let only_raw = properties.len() > FIELDS_MAX
            || (properties.is_empty() && !is_closed && !is_empty_object(schema));
        let fields = properties.iter().enumerate().take(FIELDS_MAX).map(|(at, (name, schema_of))| {
            let key = format!("{PREFIX}{name}");
            let default = schema_of.get("default").filter(|value| !value.is_null());
            let input = input_for(schema_of);
            let value = match (given, default) {
                (Some(given), _) => given.get(&key).to_owned(),
                (None, Some(default)) => written(default, &input),
                (None, None) => String::new(),
            };
            let required = required(schema).any(|one| one == name);
            SchemaField {
                id: format!("arg-{at}"),
                hint: hint(schema_of, &input),
                name: name.clone(),
                key,
                required,
                input,
                value,
            }
        });
        let fields = if only_raw { Vec::new() } else { fields.collect() };
        let raw =
            given.map(|given| given.get("raw")).filter(|raw| !raw.is_empty()).unwrap_or("{}").to_owned();
        let was_raw = given.is_some_and(|given| given.has("with", "raw"));
        SchemaForm { fields, only_raw, was_raw, raw }
    }
}

/// Returns the arguments of a submitted form.
pub(crate) fn arguments(schema: &Value, form: &FormFields) -> Result<Value, Problem> {
    if form.has("with", "raw") {
        return parse("the arguments", form.get("raw"));
    }
    let mut arguments = Map::new();
    for (name, schema_of) in properties(schema).iter().take(FIELDS_MAX) {
        let text = form.get(&format!("{PREFIX}{name}"));
        let input = input_for(schema_of);
        // An empty field omits the argument, except for a required string, which may be empty.
        let is_required = required(schema).any(|one| one == name);
        if text.is_empty() && !(is_required && input == FieldInput::Text) {
            continue;
        }
        let value = match input {
            FieldInput::Text => Value::from(text),
            FieldInput::Lines => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                Value::Array(lines.map(Value::from).collect())
            }
            FieldInput::Number | FieldInput::Choice(_) | FieldInput::Json => {
                parse(&format!("`{}`", printable(name)), text)?
            }
        };
        arguments.insert(name.clone(), value);
    }
    Ok(Value::Object(arguments))
}

fn parse(what: &str, text: &str) -> Result<Value, Problem> {
    portcullis_core::json::parse_strict(text)
        .map_err(|error| Problem::invalid(format!("{what}: {error}")).hint("enter valid JSON"))
}

fn properties(schema: &Value) -> Map<String, Value> {
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn is_empty_object(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
        && schema.get("additionalProperties").is_none()
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the only type besides `null`.
fn type_of(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::String(one) => Some(one),
        Value::Array(several) => {
            let mut others = several.iter().filter_map(Value::as_str).filter(|one| *one != "null");
            let one = others.next()?;
            others.next().is_none().then_some(one)
        }
        _ => None,
    }
}

fn input_for(schema: &Value) -> FieldInput {
    let choice = |value: &Value| FieldChoice {
        value: value.to_string(),
        label: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && !values.is_empty()
        && values.len() <= CHOICES_MAX
    {
        return FieldInput::Choice(values.iter().map(choice).collect());
    }
    match type_of(schema) {
        Some("string") => FieldInput::Text,
        Some("integer" | "number") => FieldInput::Number,
        Some("boolean") => FieldInput::Choice([true, false].map(|value| choice(&value.into())).to_vec()),
        Some("array") if schema.get("items").and_then(type_of) == Some("string") && !has_enum(schema) => {
            FieldInput::Lines
        }
        _ => FieldInput::Json,
    }
}

fn has_enum(schema: &Value) -> bool {
    schema.get("items").is_some_and(|items| items.get("enum").is_some())
}

/// Formats a value for its field.
fn written(value: &Value, input: &FieldInput) -> String {
    match (input, value) {
        (FieldInput::Text, Value::String(text)) => text.clone(),
        (FieldInput::Lines, Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        _ => value.to_string(),
    }
}

fn hint(schema: &Value, input: &FieldInput) -> String {
    let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let how = match input {
        FieldInput::Lines => "One per line.",
        FieldInput::Json => "JSON.",
        FieldInput::Text | FieldInput::Number | FieldInput::Choice(_) => "",
    };
    [said, how].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["path", "content"],
            "properties": {
                "path": { "type": "string", "description": "Where." },
                "content": { "type": "string" },
                "mode": { "enum": ["add", "replace", 3], "default": "add" },
                "limit": { "type": ["integer", "null"] },
                "deep": { "type": "boolean" },
                "tags": { "type": "array", "items": { "type": "string" } },
                "where": { "type": "object" },
                "raw": { "$ref": "#/$defs/x" }
            }
        })
    }

    #[test]
    fn a_field_for_each_argument() {
        let form = SchemaForm::of(&schema(), None);
        let inputs: Vec<_> =
            form.fields.iter().map(|f| (f.name.as_str(), f.required, f.value.as_str())).collect();
        assert_eq!(
            inputs,
            [
                ("path", true, ""),
                ("content", true, ""),
                ("mode", false, "\"add\""),
                ("limit", false, ""),
                ("deep", false, ""),
                ("tags", false, ""),
                ("where", false, ""),
                ("raw", false, "")
            ]
        );
        assert!(matches!(&form.fields[2].input, FieldInput::Choice(choices) if choices.len() == 3));
        assert_eq!(form.fields[5].input, FieldInput::Lines);
        assert_eq!(form.fields[6].hint, "JSON.");
    }

    #[test]
    fn what_was_put_in_becomes_arguments() {
        let form = FormFields::parse(
            b"with=fields&arg.path=a.txt&arg.content=&arg.mode=3&arg.limit=5&arg.deep=true&arg.tags=x%0Ay&arg.where={\"a\":1}&arg.raw=&arg.other=1",
        );
        assert_eq!(
            arguments(&schema(), &form.unwrap()).unwrap(),
            json!({ "path": "a.txt", "content": "", "mode": 3, "limit": 5, "deep": true, "tags": ["x", "y"], "where": { "a": 1 } })
        );
        let wrong = FormFields::parse(b"with=fields&arg.limit=many").unwrap();
        assert!(arguments(&schema(), &wrong).unwrap_err().message.starts_with("`limit`: "));
        let raw = FormFields::parse(b"with=raw&raw=[1]&arg.path=x").unwrap();
        assert_eq!(arguments(&schema(), &raw).unwrap(), json!([1]));
    }

    #[test]
    fn a_schema_that_says_little_is_for_json() {
        for schema in [json!(true), json!({}), json!({ "anyOf": [{}] })] {
            assert!(SchemaForm::of(&schema, None).only_raw, "{schema}");
        }
        assert!(!SchemaForm::of(&json!({ "type": "object" }), None).only_raw);
    }
}
