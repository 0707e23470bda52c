//! Configuration errors, all of them, with file and line.

use portcullis_core::json::printable;
use serde_json::Value;
use std::fmt;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file's name, or `environment`.
    pub place: String,
    pub line: Option<usize>,
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.text),
            None => write!(f, "{}: {}", self.place, self.text),
        }
    }
}

/// All errors in file order, one line each; the first hundred if there are more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    pub problems: Vec<ConfigError>,
}

/// Errors reported. More mean a wrong file.
pub(super) const PROBLEMS_MAX: usize = 100;

impl ConfigErrors {
    pub(super) fn new(mut problems: Vec<ConfigError>) -> ConfigErrors {
        problems.truncate(PROBLEMS_MAX);
        ConfigErrors { problems }
    }

    pub(super) fn one(place: impl Into<String>, text: impl Into<String>) -> ConfigErrors {
        ConfigErrors { problems: vec![ConfigError { place: place.into(), line: None, text: text.into() }] }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// An error at a JSON pointer, before it is mapped to a line.
#[derive(Debug)]
pub(super) struct Finding {
    /// A JSON pointer.
    pub(super) pointer: String,
    pub(super) text: String,
}

impl Finding {
    /// An unexpected value.
    pub(super) fn unexpected(pointer: &str, value: &Value, expected: &str) -> Finding {
        let text = format!("`{}` is {}, expected {expected}", key_path(pointer), shown(value));
        Finding { pointer: pointer.to_owned(), text }
    }
}

/// Returns a pointer as a key path: `/policy/0/tools` is `policy[0].tools`.
pub(super) fn key_path(pointer: &str) -> String {
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
pub(super) fn parts(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// Returns the pointer to a member.
pub(super) fn join(pointer: &str, key: &str) -> String {
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
