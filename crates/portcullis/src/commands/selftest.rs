//! `portcullis --selftest`: every registered tool, its schema, its snapshot and its dispatch agree.
//!
//! It runs in a home of its own that is gone afterwards, and calls every tool with its own example, through
//! every guard, as a client would.

use super::block_on;
use super::link::Link;
use crate::config::Config;
use crate::home::Home;
use crate::{print, surface};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

/// The page that examples name, and what stands in for it: a selftest needs no network.
const PAGE_IN_EXAMPLES: &str = "https://example.com/";
const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n\
                    <title>Example</title><p>A page for the selftest.";

/// A site of one page on this machine.
struct Site {
    address: SocketAddr,
}

impl Site {
    /// Answers until the process ends.
    fn open() -> Result<Site> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port for the selftest's page")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for mut visitor in listener.incoming().flatten() {
                // What was asked does not matter; who went away does not either.
                let _ = visitor.read(&mut [0; 4096]).and_then(|_| visitor.write_all(PAGE.as_bytes()));
            }
        });
        Ok(Site { address })
    }

    fn instead_of_the_web(&self, arguments: &Value) -> Value {
        let mut arguments = arguments.clone();
        for value in arguments.as_object_mut().into_iter().flat_map(|object| object.values_mut()) {
            if *value == PAGE_IN_EXAMPLES {
                *value = json!(format!("http://{}/", self.address));
            }
        }
        arguments
    }
}

/// What was found about one tool.
struct Checked {
    name: String,
    problems: Vec<String>,
}

pub(crate) fn run(as_json: bool) -> Result<ExitCode> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let site = Site::open()?;
    let home = Home::open(folder.path().join("home"))?;
    // It calls faster than a client may.
    std::fs::write(
        home.path().join("portcullis.toml"),
        format!(
            "[rate_limit]\nrequests_per_second = 1000000\nburst = 1000000\n[vault]\n[web]\n[egress]\nallow = [\"{}\"]\n",
            site.address
        ),
    )?;
    let config = Config::load(home.path(), &|_| None)?.config;
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
