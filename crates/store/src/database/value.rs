//! Values and rows, the same for every engine.

use super::DatabaseError;
use std::sync::Arc;

/// What a column holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Int(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Value {
        Value::Bytes(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Value {
        Value::Bytes(value.to_owned())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// A type that a column can be read as.
pub trait FromValue: Sized {
    /// What is expected, in the words of an error.
    const EXPECTED: &'static str;

    fn from_value(value: Value) -> Option<Self>;
}

impl FromValue for i64 {
    const EXPECTED: &'static str = "a number";

    fn from_value(value: Value) -> Option<i64> {
        if let Value::Int(value) = value { Some(value) } else { None }
    }
}

impl FromValue for bool {
    const EXPECTED: &'static str = "0 or 1";

    fn from_value(value: Value) -> Option<bool> {
        match value {
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            _ => None,
        }
    }
}

impl FromValue for String {
    const EXPECTED: &'static str = "text";

    fn from_value(value: Value) -> Option<String> {
        if let Value::Text(value) = value { Some(value) } else { None }
    }
}

impl FromValue for Vec<u8> {
    const EXPECTED: &'static str = "bytes";

    fn from_value(value: Value) -> Option<Vec<u8>> {
        if let Value::Bytes(value) = value { Some(value) } else { None }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_value(value: Value) -> Option<Option<T>> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// One row of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub(super) columns: Arc<[String]>,
    pub(super) values: Vec<Value>,
}

impl Row {
    /// Takes a column's value out of the row. A column that the reader does not know is no error; one that it needs and that
    /// is missing is.
    pub fn take<T: FromValue>(&mut self, column: &str) -> Result<T, DatabaseError> {
        let at = self.columns.iter().position(|name| name == column);
        let value = at.and_then(|at| self.values.get_mut(at));
        let value = value.ok_or_else(|| DatabaseError::shape(format!("there is no column `{column}`")))?;
        let value = std::mem::replace(value, Value::Null);
        T::from_value(value)
            .ok_or_else(|| DatabaseError::shape(format!("column `{column}` does not hold {}", T::EXPECTED)))
    }
}
