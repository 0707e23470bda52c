//! Snapshots of the tool surface, as last reviewed.
//!
//! `cargo xtask gen` writes one file per tool to `surface/`, so that a change shows up as a diff in review.

use crate::compose::guarded_tools;
use anyhow::{Context, Result};
use portcullis_core::{ToolDef, json::parse_strict};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

include!("surface/index.rs");

/// Returns the committed snapshots by name.
pub fn snapshots() -> Result<BTreeMap<&'static str, Value>> {
    let parse = |(name, text): &(&'static str, &str)| {
        let value = serde_json::from_str(text).with_context(|| format!("the snapshot of `{name}`"))?;
        Ok((*name, value))
    };
    SNAPSHOTS.iter().map(parse).collect()
}

/// Returns the native tools, as an unrestricted client of a default hub sees them.
pub fn tools() -> Result<Vec<Arc<ToolDef>>> {
    guarded_tools()
}

/// Returns the current surface of every tool, in list order.
pub fn current() -> Result<Vec<(String, Value)>> {
    tools()?.iter().map(|tool| Ok((tool.name.clone(), snapshot(tool)?))).collect()
}

fn snapshot(tool: &ToolDef) -> Result<Value> {
    let definition: Value = serde_json::from_str(portcullis_wire::render::tool(tool).get())?;
    let example = tool.example.with_context(|| format!("`{}` has no example", tool.name))?;
    let arguments = parse_strict(example.arguments)
        .with_context(|| format!("the example of `{}` is not JSON", tool.name))?;
    Ok(json!({
        "definition": definition,
        "effect": tool.effect.as_str(),
        "reach": tool.reach.as_str(),
        "limits": {
            "deadline_ms": tool.limits.deadline_ms,
            "output_bytes_max": tool.limits.output_bytes_max,
        },
        "example": { "what": example.what, "arguments": arguments },
    }))
}
