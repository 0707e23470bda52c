//! A hundred servers at once: what a list of all their tools takes, and what the hub needs for them.

use super::{ServerProgram, TortureHub, settled, until};
use crate::torture::session::TortureHome;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const TOOLS_EACH: usize = 10;
const LISTS: usize = 50;
/// More pages than there can be.
const PAGES_MAX: usize = 100;

/// What was seen.
#[derive(Debug)]
pub struct ManyServersFigures {
    pub tools: usize,
    /// The middle of what a list of all tools took, all pages.
    pub list: Duration,
    /// The same for the first page.
    pub page: Duration,
    pub memory_kb: u64,
}

/// Puts so many servers behind one hub. `server` is told its definitions and where to note calls.
pub fn many(program: &Path, server: &ServerProgram, servers: usize) -> Result<ManyServersFigures> {
    let lab = TortureHome::new(program)?;
    let definitions = lab.beside("definitions.json");
    std::fs::write(&definitions, json!({ "name": "one of many", "tools": tools() }).to_string())?;
    let mut server = server.clone();
    for path in [definitions, lab.beside("calls")] {
        server.args.push(path.display().to_string());
    }
    let mut config = portcullis_testkit::process::UNHURRIED.to_owned();
    for number in 0..servers {
        config.push_str(&server.section(&format!("s{number}"), ""));
    }
    std::fs::write(lab.home().join("portcullis.toml"), config)?;
    let hub = TortureHub::start(&lab)?;
    let mut caller = hub.caller()?;
    let mut list = || -> Result<(usize, Duration, Duration)> {
        let (began, mut first, mut count) = (Instant::now(), None, 0);
        let mut params = json!({});
        for _ in 0..PAGES_MAX {
            let page = caller.ask("tools/list", &params)?;
            first.get_or_insert(began.elapsed());
            // A look at the text: what reading it as JSON takes here is not the hub's time.
            count += page.matches("\"inputSchema\"").count();
            let Some((_, next)) = page.rsplit_once("\"nextCursor\":\"") else { break };
            params = json!({ "cursor": next.split('"').next().unwrap_or_default() });
        }
        Ok((count, first.context("no page")?, began.elapsed()))
    };
    let wanted = servers * TOOLS_EACH;
    until("all servers are connected", || Ok((list()?.0 >= wanted).then_some(())))?;
    let mut took = Vec::new();
    for _ in 0..LISTS {
        took.push(list()?);
    }
    let tools = took[0].0;
    let middle = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let page = middle(took.iter().map(|(_, page, _)| *page).collect());
    let list = middle(took.iter().map(|(_, _, list)| *list).collect());
    let memory_kb = settled(&hub)?;
    hub.end()?;
    Ok(ManyServersFigures { tools, list, page, memory_kb })
}

fn tools() -> Vec<Value> {
    let properties = json!({
        "path": { "type": "string", "description": "Path of the file, relative to the project." },
        "lines": { "type": "integer", "minimum": 1, "description": "How many lines to return at most." },
    });
    let tool = |number| {
        json!({
            "name": format!("tool_{number}"),
            "description": "Returns the first lines of a file, with their numbers, as plain text.",
            "inputSchema": { "type": "object", "properties": properties, "required": ["path"] },
        })
    };
    (0..TOOLS_EACH).map(tool).collect()
}
