//! `portcullis tools show`: one tool, and what decides calls of it.

use super::schema_table::{fields, skeleton};
use crate::install::shell_word;
use crate::{BadUsage, print};
use anyhow::Result;
use portcullis_core::ToolDef;
use portcullis_core::json::{printable, visible};
use portcullis_ops::Operations;
use portcullis_ops::desk::TestPolicy;
use portcullis_ops::policy_test::PolicyTestReport;
use serde_json::{Value, json};
use std::process::ExitCode;

pub(super) fn run(ops: &Operations, name: &str, as_json: bool) -> Result<ExitCode> {
    let config = ops.config();
    let question = TestPolicy {
        client: config.stdio.client.clone(),
        tool: name.to_owned(),
        arguments: None,
        origin: None,
        at: None,
    };
    // A tool of an always trusted server is known by its name only.
    let shown = ops.explain_policy(&question, |report| match (&report.tool, &report.assumed_of) {
        (Some(tool), None) => Ok(if as_json { listing(tool, report) } else { text(tool, report).into() }),
        (Some(_), Some(server)) => Err(format!(
            "`{}` may be a tool of server `{server}`, which is always trusted and not reviewed, so its tools are not known here; `portcullis mcp test {server}` shows them",
            printable(name)
        )),
        (None, _) => Err(unknown(name, &report.nearest)),
    })?;
    match shown {
        Ok(value) if as_json => print::json(&value),
        Ok(text) => print::out(text.as_str().unwrap_or_default()),
        Err(problem) => {
            let absence = ops.absence_of(name)?.map(|why| format!("; {why}")).unwrap_or_default();
            return Err(BadUsage(format!("{problem}{absence}")).into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown(name: &str, nearest: &[String]) -> String {
    let name = printable(name);
    match nearest {
        [] => format!("no such tool: `{name}`; list them with `portcullis tools`"),
        near => {
            let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
            format!("no such tool: `{name}`; did you mean {}?", near.join(" or "))
        }
    }
}

/// Returns the arguments of an example call, and what it is for.
fn example(tool: &ToolDef) -> (String, Option<&'static str>) {
    match tool.example {
        Some(example) => (example.arguments.to_owned(), Some(example.what)),
        None => (skeleton(&tool.input_schema).to_string(), None),
    }
}

fn listing(tool: &ToolDef, report: &PolicyTestReport<'_>) -> Value {
    let (arguments, what) = example(tool);
    json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "server": tool.server,
        "effect": tool.effect.as_str(),
        "reach": tool.reach.as_str(),
        "labels": tool.labels.names(),
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "example": { "what": what, "arguments": serde_json::from_str::<Value>(&arguments).ok() },
        "decision": report.decision.as_str(),
        "rule": report.decision.rule(),
        "place": report.place(),
        "next": report.next(),
    })
}

fn text(tool: &ToolDef, report: &PolicyTestReport<'_>) -> String {
    let labels: String = tool.labels.iter().map(|label| format!(", {label}")).collect();
    let place = report.place().map(|place| format!(" at {place}")).unwrap_or_default();
    let mut rows = vec![
        ("title", visible(&tool.title)),
        ("effect", format!("{}, {}{labels}", tool.effect, tool.reach.as_str())),
        (
            "decision",
            format!("{}, by {}{place}: {}", report.decision.as_str(), report.decision.rule(), report.next()),
        ),
    ];
    rows.extend(tool.server.as_ref().map(|server| ("server", server.clone())));
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(key, value)| vec![key.to_owned(), value]).collect();
    let mut text =
        format!("{}\n{}\n{}\n", printable(&tool.name), print::table(&rows), tool.description.trim());
    let heading =
        |name: &str| vec![name.to_owned(), "TYPE".to_owned(), String::new(), "DESCRIPTION".to_owned()];
    let results = tool.output_schema.as_ref().map(fields).unwrap_or_default();
    for (name, rows) in [("ARGUMENT", fields(&tool.input_schema)), ("RESULT", results)] {
        if !rows.is_empty() {
            let rows: Vec<Vec<String>> = std::iter::once(heading(name)).chain(rows).collect();
            text.push_str(&format!("\n{}", print::table(&rows)));
        }
    }
    let (arguments, what) = example(tool);
    let what = what.map(|what| format!(" ({what})")).unwrap_or_default();
    text.push_str(&format!(
        "\nExample{what}:\n  portcullis tools call {} {}\n",
        tool.name,
        shell_word(&arguments)
    ));
    text
}
