//! Tools whose input schema must reach the client verbatim.

use super::spec_with;
use portcullis_core::{CallCtx, Family, Text, ToolError, ToolSpec};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) fn add(family: Family) -> Family {
    let state = Arc::new(());
    family.tool_with_schema(SCHEMA_2020_12, schema_2020_12(), &state, contact).tool_with_schema(
        CUSTOM_HEADER,
        custom_header_schema(),
        &state,
        custom_header,
    )
}

const SCHEMA_2020_12: ToolSpec = spec_with(
    "json_schema_2020_12_tool",
    "JSON Schema 2020-12",
    "Tool with JSON Schema 2020-12 features",
    r#"{"name":"Ada","contactMethod":"email","email":"ada@example.com"}"#,
);

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    })
}

/// The suite only lists this tool. Validation is the layer's job.
async fn contact(_: Arc<()>, args: Map<String, Value>, _: CallCtx) -> Result<Text, ToolError> {
    Ok(Text(format!("JSON Schema 2020-12 tool called with: {}", Value::Object(args))))
}

/// The only tool with an `x-mcp-header`: the suite takes the first that has one.
const CUSTOM_HEADER: ToolSpec = spec_with(
    "test_custom_header",
    "Argument as header",
    "Returns the region; the argument is also sent as an HTTP header.",
    r#"{"region":"eu-central"}"#,
);

fn custom_header_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        "required": ["region"]
    })
}

#[derive(Deserialize)]
struct CustomHeaderArgs {
    region: String,
}

async fn custom_header(_: Arc<()>, args: CustomHeaderArgs, _: CallCtx) -> Result<Text, ToolError> {
    Ok(Text(format!("Region: {}", args.region)))
}
