//! What a caller can do about arguments that a tool does not take: the nearest names, and the tool's signature.

use super::explain::nearest;
use portcullis_core::json::printable;
use portcullis_core::{ErrorKind, ToolDef, ToolError};
use serde_json::Value;

/// Bound on the arguments of a signature. The definition has them all.
const ARGUMENTS_SHOWN_MAX: usize = 20;
/// Bound on the names that are proposed at once.
const NAMES_PROPOSED_MAX: usize = 4;
/// The longest name that is shown. The schema of an upstream tool is untrusted.
const NAME_BYTES_MAX: usize = 100;

/// Adds the signature to an error about arguments that does not say what to do.
pub(super) fn advise(tool: &ToolDef, error: ToolError) -> ToolError {
    match error.kind {
        ErrorKind::InvalidArgs if error.hints.is_empty() => error.hint(signature(tool)),
        _ => error,
    }
}

/// Adds the nearest name for each argument that the tool does not have, and the signature.
pub(super) fn with_nearest_names(tool: &ToolDef, arguments: &Value, mut error: ToolError) -> ToolError {
    if let (Some(given), Some(declared)) =
        (arguments.as_object(), tool.input_schema["properties"].as_object())
    {
        let known: Vec<&str> = declared.keys().map(String::as_str).collect();
        let unknown = given.keys().filter(|name| !declared.contains_key(*name));
        for name in unknown.filter(|name| name.len() <= NAME_BYTES_MAX).take(NAMES_PROPOSED_MAX) {
            if let Some(near) = nearest(name, &known) {
                error = error.hint(format!("use `{}` instead of `{}`", printable(near), printable(name)));
            }
        }
    }
    error.hint(signature(tool))
}

/// Returns what a tool takes, required arguments first: `workspace_write(path: string, content: string)`.
fn signature(tool: &ToolDef) -> String {
    let name = &tool.name;
    let empty = serde_json::Map::new();
    let declared = tool.input_schema["properties"].as_object().unwrap_or(&empty);
    let required = tool.input_schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_required = |argument: &str| required.iter().any(|name| name == argument);
    let mut arguments: Vec<(&String, &Value)> =
        declared.iter().filter(|(argument, _)| argument.len() <= NAME_BYTES_MAX).collect();
    if arguments.is_empty() {
        return format!("`{name}` takes no arguments");
    }
    arguments.sort_by_key(|(argument, _)| !is_required(argument));
    let mut shown: Vec<String> = arguments
        .iter()
        .take(ARGUMENTS_SHOWN_MAX)
        .map(|(argument, schema)| {
            let mark = if is_required(argument) { "" } else { "?" };
            format!("{}{mark}: {}", printable(argument), kind(schema))
        })
        .collect();
    if arguments.len() > ARGUMENTS_SHOWN_MAX {
        shown.push("…".to_owned());
    }
    format!("call it as `{name}({})`; those with `?` may be left out", shown.join(", "))
}

/// Returns the JSON type of an argument, in a word.
fn kind(schema: &Value) -> &'static str {
    let named = |kind: &Value| match kind.as_str() {
        Some("string") => Some("string"),
        Some("integer") => Some("integer"),
        Some("number") => Some("number"),
        Some("boolean") => Some("boolean"),
        Some("array") => Some("array"),
        Some("object") => Some("object"),
        _ => None,
    };
    let kinds = &schema["type"];
    let first = kinds.as_array().into_iter().flatten().find_map(named);
    let is_text = |options: &Value| options.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    match named(kinds).or(first) {
        Some(kind) => kind,
        None if is_text(&schema["enum"]) => "string",
        None => "any",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tool_taking;
    use serde_json::json;

    #[test]
    fn a_signature_has_the_required_arguments_first_and_is_bounded() {
        let tool = tool_taking(json!({
            "type": "object",
            "properties": {
                "append": { "type": ["null", "boolean"] },
                "content": { "type": "string" },
                "mode": { "enum": ["a", "b"] },
                "of": { "anyOf": [] },
            },
            "required": ["content"],
        }));
        assert_eq!(
            signature(&tool),
            "call it as `stub_taking(content: string, append?: boolean, mode?: string, of?: any)`; those with `?` may be \
             left out"
        );
        assert_eq!(signature(&tool_taking(json!({ "type": "object" }))), "`stub_taking` takes no arguments");
        let many: serde_json::Map<_, _> =
            (0..1_000).map(|n| (format!("{n}{}", "x".repeat(90)), json!({ "type": "string" }))).collect();
        let wide = tool_taking(json!({ "type": "object", "properties": many }));
        assert!(signature(&wide).len() < ARGUMENTS_SHOWN_MAX * (NAME_BYTES_MAX + 20));
    }

    #[test]
    fn a_wrong_name_gets_the_nearest_and_the_signature() {
        let tool = tool_taking(json!({ "type": "object", "properties": { "path": { "type": "string" } } }));
        let wrong = json!({ "pth": 1, "zzz": 2 });
        let error = with_nearest_names(&tool, &wrong, ToolError::invalid_args("no"));
        assert_eq!(
            error.hints,
            [
                "use `path` instead of `pth`",
                "call it as `stub_taking(path?: string)`; those with `?` may be left out"
            ]
        );
        let advised = advise(&tool, ToolError::invalid_args("no"));
        assert_eq!(advised.hints, error.hints[1..]);
        // Control: who says what to do needs no signature, and other errors are about something else.
        assert_eq!(advise(&tool, ToolError::invalid_args("no").hint("so")).hints, ["so"]);
        assert!(advise(&tool, ToolError::denied("no")).hints.is_empty());
    }
}
