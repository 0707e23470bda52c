//! A form made from the schema of a tool's arguments, and arguments made from what was put in.
//!
//! Fields for what people type often: text, numbers, choices, lists of words. Everything else is a field for JSON, and
//! beside the whole form there is one field for all arguments as JSON, so whatever a schema says can be sent.

use super::form::Form;
use crate::problem::Problem;
use portcullis_core::json::printable;
use serde_json::{Map, Value};

/// What is in front of the name of a field, so that no argument is taken for a field of ours.
const PREFIX: &str = "arg.";
/// A schema with more is for JSON.
const FIELDS_MAX: usize = 60;
const CHOICES_MAX: usize = 200;

pub(crate) struct SchemaForm {
    pub(crate) fields: Vec<Field>,
    /// The schema does not say which arguments there are.
    pub(crate) only_raw: bool,
    /// The last try was made with JSON.
    pub(crate) was_raw: bool,
    pub(crate) raw: String,
}

pub(crate) struct Field {
    pub(crate) id: String,
    /// The name in the form.
    pub(crate) key: String,
    /// The name of the argument.
    pub(crate) name: String,
    pub(crate) required: bool,
    pub(crate) hint: String,
    pub(crate) input: Input,
    pub(crate) value: String,
}

impl Field {
    pub(crate) fn has_hint(&self) -> bool {
        !self.hint.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Text,
    Number,
    Choice(Vec<Choice>),
    /// One text on each line.
    Lines,
    Json,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// As JSON.
    pub(crate) value: String,
    pub(crate) label: String,
}

impl SchemaForm {
    /// Makes the form, with what was put in the last time.
    pub(crate) fn of(schema: &Value, given: Option<&Form>) -> SchemaForm {
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
            Field {
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

/// Returns the arguments that a form was filled with.
pub(crate) fn arguments(schema: &Value, form: &Form) -> Result<Value, Problem> {
    if form.has("with", "raw") {
        return parse("the arguments", form.get("raw"));
    }
    let mut arguments = Map::new();
    for (name, schema_of) in properties(schema).iter().take(FIELDS_MAX) {
        let text = form.get(&format!("{PREFIX}{name}"));
        let input = input_for(schema_of);
        // A field that nobody filled is an argument that is left out, except for a text that has to be there.
        let is_required = required(schema).any(|one| one == name);
        if text.is_empty() && !(is_required && input == Input::Text) {
            continue;
        }
        let value = match input {
            Input::Text => Value::from(text),
            Input::Lines => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                Value::Array(lines.map(Value::from).collect())
            }
            Input::Number | Input::Choice(_) | Input::Json => parse(&format!("`{}`", printable(name)), text)?,
        };
        arguments.insert(name.clone(), value);
    }
    Ok(Value::Object(arguments))
}

fn parse(what: &str, text: &str) -> Result<Value, Problem> {
    portcullis_core::json::parse_strict(text)
        .map_err(|error| Problem::invalid(format!("{what}: {error}")).hint("write it as JSON"))
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

/// Returns the one type that something else than `null` has.
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

fn input_for(schema: &Value) -> Input {
    let choice = |value: &Value| Choice {
        value: value.to_string(),
        label: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && !values.is_empty()
        && values.len() <= CHOICES_MAX
    {
        return Input::Choice(values.iter().map(choice).collect());
    }
    match type_of(schema) {
        Some("string") => Input::Text,
        Some("integer" | "number") => Input::Number,
        Some("boolean") => Input::Choice([true, false].map(|value| choice(&value.into())).to_vec()),
        Some("array") if schema.get("items").and_then(type_of) == Some("string") && !has_enum(schema) => {
            Input::Lines
        }
        _ => Input::Json,
    }
}

fn has_enum(schema: &Value) -> bool {
    schema.get("items").is_some_and(|items| items.get("enum").is_some())
}

/// Returns a value as it stands in its field.
fn written(value: &Value, input: &Input) -> String {
    match (input, value) {
        (Input::Text, Value::String(text)) => text.clone(),
        (Input::Lines, Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        _ => value.to_string(),
    }
}

fn hint(schema: &Value, input: &Input) -> String {
    let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let how = match input {
        Input::Lines => "One on each line.",
        Input::Json => "As JSON.",
        Input::Text | Input::Number | Input::Choice(_) => "",
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
        assert!(matches!(&form.fields[2].input, Input::Choice(choices) if choices.len() == 3));
        assert_eq!(form.fields[5].input, Input::Lines);
        assert_eq!(form.fields[6].hint, "As JSON.");
    }

    #[test]
    fn what_was_put_in_becomes_arguments() {
        let form = Form::parse(
            b"with=fields&arg.path=a.txt&arg.content=&arg.mode=3&arg.limit=5&arg.deep=true&arg.tags=x%0Ay&arg.where={\"a\":1}&arg.raw=&arg.other=1",
        );
        assert_eq!(
            arguments(&schema(), &form.unwrap()).unwrap(),
            json!({ "path": "a.txt", "content": "", "mode": 3, "limit": 5, "deep": true, "tags": ["x", "y"], "where": { "a": 1 } })
        );
        let wrong = Form::parse(b"with=fields&arg.limit=many").unwrap();
        assert!(arguments(&schema(), &wrong).unwrap_err().message.starts_with("`limit`: "));
        let raw = Form::parse(b"with=raw&raw=[1]&arg.path=x").unwrap();
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
