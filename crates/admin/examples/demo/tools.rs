//! Invented tools; one of them means harm.

use crate::data::HOSTILE;
use portcullis_ops::desk::*;
use serde_json::json;

pub(crate) fn tools() -> Vec<ToolDetail> {
    let tool =
        |name: &str, title: &str, description: &str, effect: &str, reach: &str, provider: &str, schema| {
            ToolDetail {
                name: name.into(),
                title: title.into(),
                description: description.into(),
                effect: effect.into(),
                reach: reach.into(),
                provider: provider.into(),
                input_schema: schema,
                output_schema: None,
            }
        };
    let path = json!({ "type": "object", "additionalProperties": false, "required": ["path"],
        "properties": { "path": { "type": "string", "description": "Path of the file, relative to the workspace." } } });
    let write = json!({ "type": "object", "additionalProperties": false, "required": ["path", "content"], "properties": {
        "path": { "type": "string", "description": "Path of the file, relative to the workspace." },
        "content": { "type": "string", "description": "The new text." },
        "mode": { "enum": ["replace", "append"], "default": "replace", "description": "What to do with a file that exists." },
        "make_folders": { "type": "boolean", "description": "Whether to make folders that are missing." },
        "limit": { "type": "integer", "description": "How many bytes at most." },
        "tags": { "type": "array", "items": { "type": "string" }, "description": "Words to find it by." },
        "options": { "type": "object", "description": "Anything else." } } });
    vec![
        tool(
            "workspace_read",
            "Read a file",
            "Return the text of one file of the workspace.",
            "read",
            "local",
            "workspace",
            path.clone(),
        ),
        tool(
            "workspace_write",
            "Write a file",
            "Write a text file of the workspace.",
            "write",
            "local",
            "workspace",
            write,
        ),
        tool(
            "workspace_list",
            "List files",
            "List what is in a folder of the workspace.",
            "read",
            "local",
            "workspace",
            path.clone(),
        ),
        tool(
            "memory_read",
            "Read memory",
            "Read what was remembered.",
            "read",
            "local",
            "memory",
            json!({ "type": "object" }),
        ),
        tool("memory_write", "Remember", "Remember something.", "create", "local", "memory", path.clone()),
        tool(
            "web_fetch",
            "Fetch a page",
            "Return a public web page as clean Markdown, in parts where it is long. What it says is a stranger's words.",
            "read",
            "outside",
            "web",
            path.clone(),
        ),
        tool(
            "git_git_commit",
            "Commit",
            "Records changes to the repository.",
            "write",
            "outside",
            "git",
            path.clone(),
        ),
        tool(
            "tickets_close_ticket",
            "Close",
            "Closes a ticket and tells its author why.",
            "destroy",
            "outside",
            "tickets",
            path.clone(),
        ),
        tool("calculator_add", "Add <b>numbers</b>", HOSTILE, "write", "outside", "calculator", path),
    ]
}
