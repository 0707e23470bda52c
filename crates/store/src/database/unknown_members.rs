//! Unknown members: what a newer program has added to a document survives an edit by an older one.

use serde_json::{Map, Value};

/// Returns the new text of a row, with the members of the stored text that this program does not know.
///
/// `known` is the stored row as this program writes it: a member that only the stored text has is unknown. Members of
/// arrays are not carried over, because nothing says which element was which.
pub(super) fn carry_over(stored: &str, known: &str, new: &str) -> Option<String> {
    let [stored, known, new] = [stored, known, new].map(serde_json::from_str::<Map<String, Value>>);
    let (stored, known, mut new) = (stored.ok()?, known.ok()?, new.ok()?);
    merge(stored, &known, &mut new).then(|| Value::Object(new).to_string())
}

/// Returns whether there was any.
fn merge(stored: Map<String, Value>, known: &Map<String, Value>, new: &mut Map<String, Value>) -> bool {
    let mut carried = false;
    for (name, value) in stored {
        match (value, known.get(&name), new.get_mut(&name)) {
            // Members of null say nothing.
            (Value::Null, None, _) => {}
            (value, None, None) => {
                new.insert(name, value);
                carried = true;
            }
            (Value::Object(value), Some(Value::Object(known)), Some(Value::Object(new))) => {
                carried |= merge(value, known, new);
            }
            _ => {}
        }
    }
    carried
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_stays_and_what_is_known_may_go() {
        let carry = |stored: &str, known: &str, new: &str| carry_over(stored, known, new);
        let stored = r#"{"a":1,"b":{"c":2,"new":[3]},"gone":4,"more":{"x":1},"none":null}"#;
        let known = r#"{"a":1,"b":{"c":2},"gone":4}"#;
        let carried = carry(stored, known, r#"{"a":5,"b":{"c":6}}"#).unwrap();
        let expected = serde_json::json!({ "a": 5, "b": { "c": 6, "new": [3] }, "more": { "x": 1 } });
        assert_eq!(serde_json::from_str::<Value>(&carried).unwrap(), expected);
        assert_eq!(carry(known, known, r#"{"a":5}"#), None, "nothing is unknown");
        assert_eq!(carry("[1]", "[1]", "[2]"), None);
    }
}
