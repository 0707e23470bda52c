//! `portcullis --selftest`: every registered tool, its schema, its snapshot and its dispatch agree.
//!
//! It runs in a home of its own that is gone afterwards, and calls every tool with its own example, through
//! every guard, as a client would.

mod site;

use super::block_on;
use super::link::Link;
use crate::config::Config;
use crate::home::Home;
use crate::{print, surface};
use anyhow::{Context, Result};
use portcullis_store::scripts::{Approve, Capabilities, ScriptName};
use serde_json::{Value, json};
use site::Site;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What was found about one tool.
struct Checked {
    name: String,
    problems: Vec<String>,
}

pub(crate) fn run(as_json: bool) -> Result<ExitCode> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let site = Site::open()?;
    let home = Home::open(folder.path().join("home"))?;
    std::fs::write(home.path().join("portcullis.toml"), site.config(&folder.path().join("key")))?;
    std::fs::write(home.path().join("example.ics"), site::CALENDAR)?;
    let config = Config::load(home.path(), &|_| None)?.config;
    site.keep_token(&home, &config)?;
    keep_script(&config)?;
    let checked = block_on(async {
        let mut link = Link::open(&home, &config).await?;
        check_all(&mut link, &site).await
    })??;
    let failed = checked.iter().filter(|tool| !tool.problems.is_empty()).count();
    if as_json {
        let tools: Vec<Value> =
            checked.iter().map(|tool| json!({ "name": tool.name, "problems": tool.problems })).collect();
        print::json(&json!({ "tools": tools, "passed": checked.len() - failed, "failed": failed }));
    } else {
        for tool in &checked {
            let word = if tool.problems.is_empty() { "ok" } else { "FAILED" };
            print::line(format!("{word:<7} {}", tool.name));
            tool.problems.iter().for_each(|problem| print::line(format!("        {problem}")));
        }
        print::line(format!("selftest: {} passed, {failed} failed", checked.len() - failed));
    }
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Puts a script in place and approves it, for the example that runs one.
fn keep_script(config: &Config) -> Result<()> {
    let (scripts, name) = (crate::scripts::open(config), "hello".parse::<ScriptName>()?);
    let sha256 = scripts.write(&name, "def main():\n    return \"Hello\"\n", None)?;
    let granted = Capabilities::default();
    let approve = Approve { sha256, granted, expires: None, by: "selftest".to_owned(), seen: None };
    scripts.approve(&name, approve)?;
    Ok(())
}

async fn check_all(link: &mut Link, site: &Site) -> Result<Vec<Checked>> {
    let listed = link.list("tools/list", "tools").await?;
    let snapshots: BTreeMap<&str, Value> = surface::snapshots()?;
    let mut checked: Vec<Checked> = Vec::new();
    // What writes goes first: the examples that read look at what the others wrote.
    let mut order: Vec<&Value> = listed.iter().collect();
    order.sort_by_key(|tool| tool["annotations"]["readOnlyHint"].as_bool().unwrap_or(false));
    for tool in order {
        let name = tool["name"].as_str().unwrap_or_default().to_owned();
        let mut problems = Vec::new();
        match snapshots.get(name.as_str()) {
            None => problems.push("it has no snapshot; run `cargo xtask gen`".to_owned()),
            Some(snapshot) => {
                if snapshot["definition"] != *tool {
                    problems
                        .push("its definition is not that of its snapshot; run `cargo xtask gen`".to_owned());
                }
                problems.extend(call(link, site, &name, tool, snapshot).await?);
            }
        }
        checked.push(Checked { name, problems });
    }
    for name in snapshots.keys().filter(|name| !listed.iter().any(|tool| tool["name"] == **name)) {
        let problems = vec!["it has a snapshot but is not registered".to_owned()];
        checked.push(Checked { name: (*name).to_owned(), problems });
    }
    Ok(checked)
}

/// Calls a tool with its example, and with what its schema must refuse.
async fn call(
    link: &mut Link,
    site: &Site,
    name: &str,
    tool: &Value,
    snapshot: &Value,
) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let arguments = site.instead_of_the_web(&snapshot["example"]["arguments"]);
    let result = link.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
    match result {
        Err(error) => problems.push(format!("its example failed: {error:#}")),
        Ok(result) if result["isError"] == true => {
            problems.push(format!("its example failed: {}", result["content"][0]["text"]));
        }
        Ok(result) => {
            if let Some(schema) = tool.get("outputSchema") {
                let fits = jsonschema::validator_for(schema)
                    .map(|validator| validator.is_valid(&result["structuredContent"]))
                    .unwrap_or(false);
                if !fits {
                    problems.push("the result of its example does not fit its output schema".to_owned());
                }
            }
        }
    }
    let stray = json!({ "name": name, "arguments": { "no_such_argument": true } });
    match link.request("tools/call", stray).await {
        Ok(result) if result["structuredContent"]["code"] == "invalid_args" => {}
        Ok(_) | Err(_) => problems.push("it takes an argument that its schema does not know".to_owned()),
    }
    Ok(problems)
}
