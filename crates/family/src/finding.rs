//! What is wrong in a configuration file, at its key.

use portcullis_core::json::printable;
use serde_json::Value;

/// An error at a JSON pointer, before it is mapped to a line.
#[derive(Debug)]
pub struct Finding {
    /// A JSON pointer.
    pub pointer: String,
    pub text: String,
}

impl Finding {
    /// An unexpected value.
    pub fn unexpected(pointer: &str, value: &Value, expected: &str) -> Finding {
        let text = format!("`{}` is {}, expected {expected}", key_path(pointer), shown(value));
        Finding { pointer: pointer.to_owned(), text }
    }
}

/// Returns a pointer as a key path: `/policy/0/tools` is `policy[0].tools`.
pub fn key_path(pointer: &str) -> String {
    let mut path = String::new();
    for part in parts(pointer) {
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            path.push_str(&format!("[{part}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&printable(&part));
        }
    }
    path
}

/// Returns the keys and indices of a pointer.
fn parts(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// Returns the pointer to a member.
pub fn join(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Formats a value for an error message.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", printable(text)),
        Value::Array(items) if items.is_empty() => "an empty list".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        Value::Null => "empty".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
