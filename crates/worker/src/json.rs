//! Conversion between Starlark values and JSON. Integers keep their precision at any size.

use num_bigint::BigInt;
use starlark::values::dict::DictRef;
use starlark::values::float::StarlarkFloat;
use starlark::values::{Heap, Value, ValueLike};

/// Nesting depth of a value.
const DEPTH_MAX: usize = 100;
/// Length of the JSON text; more would not fit into a frame to the hub.
const BYTES_MAX: usize = 1024 * 1024;

/// Serializes a value as JSON.
pub(crate) fn text_of<'v>(value: Value<'v>, heap: Heap<'v>) -> Result<String, String> {
    let mut writer = Writer { text: String::new(), written: 0 };
    writer.value(value, DEPTH_MAX, heap)?;
    Ok(writer.text)
}

struct Writer {
    text: String,
    written: usize,
}

impl Writer {
    fn put(&mut self, text: &str) -> Result<(), String> {
        self.written += text.len();
        if self.written > BYTES_MAX {
            return Err(format!("more than {BYTES_MAX} bytes of JSON"));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), String> {
        if text.len() > BYTES_MAX {
            return self.put(text);
        }
        self.put(&serde_json::Value::from(text).to_string())
    }

    fn value<'v>(&mut self, value: Value<'v>, depth: usize, heap: Heap<'v>) -> Result<(), String> {
        let Some(deeper) = depth.checked_sub(1) else {
            return Err(format!("nested more than {DEPTH_MAX} levels deep"));
        };
        if value.is_none() {
            return self.put("null");
        }
        if let Some(bool) = value.unpack_bool() {
            return self.put(if bool { "true" } else { "false" });
        }
        if let Some(text) = value.unpack_str() {
            return self.string(text);
        }
        if let Some(float) = value.downcast_ref::<StarlarkFloat>() {
            return match serde_json::Number::from_f64(float.0) {
                Some(number) => self.put(&number.to_string()),
                None => Err(format!("{} is not a JSON number", float.0)),
            };
        }
        if value.get_type() == "int" {
            return self.put(&value.to_str());
        }
        if let Some(dict) = DictRef::from_value(value) {
            self.put("{")?;
            for (at, (key, value)) in dict.iter().enumerate() {
                if at > 0 {
                    self.put(",")?;
                }
                match (key.unpack_str(), key.get_type()) {
                    (Some(text), _) => self.string(text)?,
                    (None, "int") => self.string(&key.to_str())?,
                    (None, other) => return Err(format!("a key of type {other}; JSON keys are strings")),
                }
                self.put(":")?;
                self.value(value, deeper, heap)?;
            }
            return self.put("}");
        }
        if value.get_type() == "struct" {
            self.put("{")?;
            for (at, name) in value.dir_attr().into_iter().enumerate() {
                if at > 0 {
                    self.put(",")?;
                }
                self.string(&name)?;
                self.put(":")?;
                let member = value.get_attr(&name, heap).map_err(|e| e.without_diagnostic().to_string())?;
                self.value(member.unwrap_or_else(Value::new_none), deeper, heap)?;
            }
            return self.put("}");
        }
        if matches!(value.get_type(), "list" | "tuple" | "set" | "range") {
            let items = value.iterate(heap).map_err(|error| error.without_diagnostic().to_string())?;
            self.put("[")?;
            for (at, item) in items.enumerate() {
                if at > 0 {
                    self.put(",")?;
                }
                self.value(item, deeper, heap)?;
            }
            return self.put("]");
        }
        Err(format!("a value of type {} cannot be converted to JSON", value.get_type()))
    }
}

/// Converts JSON to a value.
pub(crate) fn value_of<'v>(json: &serde_json::Value, heap: Heap<'v>) -> Value<'v> {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::new_none(),
        Json::Bool(bool) => Value::new_bool(*bool),
        Json::String(text) => heap.alloc(text.as_str()),
        Json::Number(number) => number_of(&number.to_string(), heap),
        Json::Array(items) => {
            let items: Vec<Value<'v>> = items.iter().map(|item| value_of(item, heap)).collect();
            heap.alloc(items)
        }
        Json::Object(members) => {
            let members: Vec<(&str, Value<'v>)> =
                members.iter().map(|(key, value)| (key.as_str(), value_of(value, heap))).collect();
            heap.alloc(starlark::values::dict::AllocDict(members))
        }
    }
}

fn number_of<'v>(digits: &str, heap: Heap<'v>) -> Value<'v> {
    match digits.parse::<i64>() {
        Ok(small) => heap.alloc(small),
        Err(_) => match digits.parse::<BigInt>() {
            Ok(large) => heap.alloc(large),
            Err(_) => heap.alloc(digits.parse::<f64>().unwrap_or(f64::NAN)),
        },
    }
}
