//! Transcripts of calls through the gate: response, audit records and metrics.
//!
//! The hub is the real one, in this process: native tools, a family that misbehaves, all guards, and the
//! client at the other end of a pipe. Only times and numbers that differ between runs are left out.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]

use crate::boxed_hub::{BoxedHub, BoxedRules};
use crate::wait::within;
use portcullis_core::{
    CallCtx, CallLimits, Effect, Example, Family, Reach, Registry, Text, ToolError, ToolSpec,
};
use portcullis_server::line::LineCaller;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

/// Buffer of one direction.
const PIPE_BYTES: usize = 256 * 1024;

const PANIC: ToolSpec =
    misbehaving("test_panic", "Panics, to see that only this call notices.", CallLimits::DEFAULT);
/// Its deadline is short, because a test waits for all of it.
const HANG: ToolSpec = misbehaving(
    "test_hang",
    "Never answers, to see that someone ends it.",
    CallLimits { deadline_ms: 20, ..CallLimits::DEFAULT },
);

const fn misbehaving(name: &'static str, description: &'static str, limits: CallLimits) -> ToolSpec {
    let example = Example { what: "Misbehave", arguments: "{}" };
    ToolSpec {
        name,
        title: "Misbehave",
        description,
        effect: Effect::Read,
        reach: Reach::Local,
        limits,
        example,
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

#[expect(clippy::panic, reason = "this is what it is for")]
async fn panics(_: Arc<()>, _: NoArgs, _: CallCtx) -> Result<Text, ToolError> {
    panic!("a tool lost its head over /etc/secret")
}

async fn hangs(_: Arc<()>, _: NoArgs, _: CallCtx) -> Result<Text, ToolError> {
    std::future::pending().await
}

/// Makes calls, written as `tool {"argument": …}`, one after the other, in a workspace that holds `hello.md`.
pub async fn check(rules: BoxedRules, calls: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let hub = BoxedHub::with_rules(registry(folder.path()), false, rules).unwrap();
    let mut line = LineClient::open(&hub).await;
    let mut transcript = String::new();
    for call in calls {
        let before = numbers(&hub);
        let (tool, arguments) = call.split_once(' ').expect("a call is `tool {arguments}`");
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let reply = line.request("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        transcript.push_str(&format!("> {call}\n{}", told(&reply)));
        for record in records(&hub, tool).await {
            transcript.push_str(&format!("audit: {record}\n"));
        }
        for (name, now) in numbers(&hub) {
            let change = now - before.get(&name).copied().unwrap_or_default();
            if change != 0.0 {
                transcript.push_str(&format!("metric: {change:+} {name}\n"));
            }
        }
        transcript.push('\n');
    }
    // Ids are random.
    for approval in hub.handles.approvals.approvals().list().unwrap() {
        transcript = transcript.replace(&approval.id, "<id>");
    }
    transcript.trim_end().to_owned()
}

fn registry(folder: &Path) -> Registry {
    let workspace_root = folder.join("ai-data");
    std::fs::create_dir(&workspace_root).unwrap();
    std::fs::write(workspace_root.join("hello.md"), "# Hello\n").unwrap();
    let registry = Registry::default();
    portcullis_tools::register_local(&workspace_root, &folder.join("prompts"), &registry).unwrap();
    let state = Arc::new(());
    registry.add(Family::new("test").tool(PANIC, &state, panics).tool(HANG, &state, hangs)).unwrap();
    registry
}

/// Renders the response: the text as the model reads it, then its other members.
fn told(reply: &Value) -> String {
    if let Some(error) = reply.get("error") {
        let mut error = error.clone();
        if let Some(wait) = error.pointer_mut("/data/retry_after_ms") {
            *wait = json!("…");
        }
        return format!("error: {error}\n");
    }
    let result = &reply["result"];
    let word = if result["isError"] == true { "refused" } else { "ok" };
    let mut shown = String::new();
    for text in result["content"].as_array().into_iter().flatten().filter_map(|c| c["text"].as_str()) {
        for line in text.lines() {
            shown.push_str(&format!("{word}: {line}\n"));
        }
    }
    if let Some(structured) = result.get("structuredContent") {
        shown.push_str(&format!("data: {structured}\n"));
    }
    shown
}

/// Returns the audit records of the newest call; a call has a begin and an end.
async fn records(hub: &BoxedHub, tool: &str) -> Vec<String> {
    within("the audit log is written", hub.handles.audit.flush()).await.unwrap();
    let log = std::fs::read_to_string(hub.home.path().join("audit/audit.jsonl")).unwrap();
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let newest = records.last().map(|record| record["call"].clone());
    let of_call = records.iter().filter(|record| Some(&record["call"]) == newest.as_ref());
    let shown = of_call.map(|record| {
        assert_eq!(record["target"], tool);
        assert_eq!(record["digest"].as_str().map(str::len), Some(64));
        // What differs between runs, and what the line above contains already.
        let left_out = [
            "seq",
            "time",
            "call",
            "digest",
            "duration_us",
            "client",
            "origin",
            "kind",
            "target",
            "args",
            "begin",
            "mac",
        ];
        let fields = record.as_object().unwrap().iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
        let fields: Vec<String> = fields
            .map(|(key, value)| format!("{key}={}", value.as_str().map_or(value.to_string(), str::to_owned)))
            .collect();
        fields.join(" ")
    });
    shown.collect()
}

/// Returns every metric that does not depend on the machine's speed, nor on other hubs in this process:
/// limits are counted for all of them together.
fn numbers(hub: &BoxedHub) -> BTreeMap<String, f64> {
    let page = hub.handles.metrics.encode();
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.contains("_duration_"));
    let lines = lines.filter(|line| !line.starts_with("portcullis_limit_hits_total"));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, n)| (name.to_owned(), n.parse().unwrap()))
        .collect()
}

/// A client at the other end of a pipe.
struct LineClient {
    from: Lines<BufReader<ReadHalf<DuplexStream>>>,
    to: WriteHalf<DuplexStream>,
    next_id: u64,
}

impl LineClient {
    async fn open(hub: &BoxedHub) -> LineClient {
        let (mine, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (from, to) = tokio::io::split(theirs);
        tokio::spawn(portcullis_server::line::serve(hub.hub.clone(), "stdio", LineCaller::Local, from, to));
        let (from, to) = tokio::io::split(mine);
        let mut line = LineClient { from: BufReader::new(from).lines(), to, next_id: 1 };
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
        line.request("initialize", params).await;
        line
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        loop {
            let line = within("a reply", self.from.next_line()).await.unwrap().expect("the hub is there");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }
}
