//! Selftest: checks every tool against its schema and snapshot.
//!
//! Runs in a temporary home and calls every tool with its example, through all checks, as a client would.

mod site;

use crate::config::Config;
use crate::home::Home;
use crate::{database, script_sandbox};
use anyhow::{Context, Result};
use portcullis_server::local::HubClient;
use portcullis_tools::scripts::{ScriptApproval, ScriptName, ScriptPermissions};
use serde_json::{Value, json};
use site::SelftestSite;
use std::collections::BTreeMap;
use tempfile::TempDir;

/// Result of one tool.
pub struct ToolCheck {
    pub name: String,
    pub problems: Vec<String>,
}

/// A temporary home with all that the examples need.
pub struct Selftest {
    pub home: Home,
    pub config: Config,
    site: SelftestSite,
    _folder: TempDir,
}

impl Selftest {
    pub fn prepare() -> Result<Selftest> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let site = SelftestSite::open()?;
        let home = Home::open(folder.path().join("home"))?;
        std::fs::write(home.path().join("portcullis.toml"), site.config(&folder.path().join("key")))?;
        std::fs::write(home.path().join("example.ics"), site::CALENDAR)?;
        let config = Config::load(home.path(), &|_| None)?.config;
        site.keep_token(&home, &config)?;
        keep_script(&home, &config)?;
        Ok(Selftest { home, config, site, _folder: folder })
    }

    /// Checks the tools of a hub of this home against their snapshots, by name.
    pub async fn check(
        &self,
        link: &mut HubClient,
        snapshots: &BTreeMap<&str, Value>,
    ) -> Result<Vec<ToolCheck>> {
        check_all(link, &self.site, snapshots).await
    }
}

/// Creates and approves the script that an example runs.
fn keep_script(home: &Home, config: &Config) -> Result<()> {
    let (scripts, name) =
        (script_sandbox::open(config, &database::open(home, config)?), "hello".parse::<ScriptName>()?);
    let sha256 = scripts.write(&name, "def main():\n    return \"Hello\"\n", None)?;
    let granted = ScriptPermissions::default();
    let approve = ScriptApproval { sha256, granted, expires: None, by: "selftest".to_owned(), seen: None };
    scripts.approve(&name, approve)?;
    Ok(())
}

async fn check_all(
    link: &mut HubClient,
    site: &SelftestSite,
    snapshots: &BTreeMap<&str, Value>,
) -> Result<Vec<ToolCheck>> {
    let listed = link.list("tools/list", "tools").await?;
    let mut checked: Vec<ToolCheck> = Vec::new();
    // Writing tools first: the examples of reading tools use what they wrote.
    let mut order: Vec<&Value> = listed.iter().collect();
    order.sort_by_key(|tool| tool["annotations"]["readOnlyHint"].as_bool().unwrap_or(false));
    for tool in order {
        let name = tool["name"].as_str().unwrap_or_default().to_owned();
        let mut problems = Vec::new();
        match snapshots.get(name.as_str()) {
            None => problems.push("no snapshot; run `cargo xtask gen`".to_owned()),
            Some(snapshot) => {
                if snapshot["definition"] != *tool {
                    problems
                        .push("the definition differs from the snapshot; run `cargo xtask gen`".to_owned());
                }
                problems.extend(call(link, site, &name, tool, snapshot).await?);
            }
        }
        checked.push(ToolCheck { name, problems });
    }
    for name in snapshots.keys().filter(|name| !listed.iter().any(|tool| tool["name"] == **name)) {
        let problems = vec!["snapshot without a registered tool".to_owned()];
        checked.push(ToolCheck { name: (*name).to_owned(), problems });
    }
    Ok(checked)
}

/// Checks that a result has exactly one text, which is not empty and agrees with the structured content.
fn one_text(result: &Value) -> Option<String> {
    let text = match result["content"].as_array().map(Vec::as_slice) {
        Some([item]) if item["type"] == "text" => item["text"].as_str().unwrap_or_default(),
        _ => return Some("the result is not exactly one text".to_owned()),
    };
    if text.is_empty() {
        return Some("the text of the result is empty".to_owned());
    }
    // A text that is data is the same data; a sentence sums it up.
    let data = result.get("structuredContent")?;
    match serde_json::from_str::<Value>(text) {
        Ok(said @ Value::Object(_)) if said != *data => Some("text and structured content differ".to_owned()),
        Ok(_) | Err(_) => None,
    }
}

/// Calls a tool with its example, and with arguments that its schema must refuse.
async fn call(
    link: &mut HubClient,
    site: &SelftestSite,
    name: &str,
    tool: &Value,
    snapshot: &Value,
) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let arguments = site.instead_of_the_web(&snapshot["example"]["arguments"]);
    let result = link.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
    match result {
        Err(error) => problems.push(format!("the example failed: {error}")),
        Ok(result) if result["isError"] == true => {
            problems.push(format!("the example failed: {}", result["content"][0]["text"]));
        }
        Ok(result) => {
            problems.extend(one_text(&result));
            if let Some(schema) = tool.get("outputSchema") {
                let fits = jsonschema::validator_for(schema)
                    .map(|validator| validator.is_valid(&result["structuredContent"]))
                    .unwrap_or(false);
                if !fits {
                    problems.push("the result does not match the output schema".to_owned());
                }
            }
        }
    }
    let stray = json!({ "name": name, "arguments": { "no_such_argument": true } });
    match link.request("tools/call", stray).await {
        Ok(result) if result["structuredContent"]["code"] == "invalid_args" => {
            problems.extend(one_text(&result));
            if result["structuredContent"]["suggestions"].as_array().is_none_or(Vec::is_empty) {
                problems.push("an unknown argument is refused without a suggestion".to_owned());
            }
        }
        Ok(_) | Err(_) => problems.push("an unknown argument is accepted".to_owned()),
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_without_exactly_one_text_is_found() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let check =
            |content: Value, data: Value| one_text(&json!({ "content": content, "structuredContent": data }));
        assert_eq!(check(json!([text("a sentence")]), json!({ "a": 1 })), None);
        assert_eq!(check(json!([text(r#"{"a": 1}"#)]), json!({ "a": 1 })), None);
        for (content, expected) in [
            (json!([]), "the result is not exactly one text"),
            (json!([text("a"), text("b")]), "the result is not exactly one text"),
            (json!([{ "type": "image" }]), "the result is not exactly one text"),
            (json!([text("")]), "the text of the result is empty"),
            (json!([text(r#"{"a": 2}"#)]), "text and structured content differ"),
        ] {
            assert_eq!(check(content, json!({ "a": 1 })).as_deref(), Some(expected));
        }
    }
}
