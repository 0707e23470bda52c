//! What most tests begin with.

use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, StdioProcess, TestHome};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The program under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_portcullis");

pub(crate) fn home() -> TestHome {
    TestHome::new(BINARY)
}

/// Starts `--mcp` on a home: the hub itself, or a bridge to the one that runs there.
pub(crate) fn stdio(home: &TestHome, revision: &'static str) -> McpClient {
    McpClient::lines(StdioProcess::start(home.command(&["--mcp"])), revision)
}

/// Opens a session over streamable HTTP.
pub(crate) async fn http(hub: &HubProcess, revision: &'static str) -> McpClient {
    let mut client = McpClient::http(hub.address, &hub.token, revision).await;
    if !client.is_newest() {
        client.initialize(json!({})).await;
    }
    client
}

/// A request as one line.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

/// Returns the text of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// Returns the names in a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

/// Returns the path of a shared file, or says that it is skipped.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("PORTCULLIS_SHARED") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let path = root.join("fixtures/corpora").join(name);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there; something small takes its place", path.display());
    None
}

/// Returns the lines of a shared file as JSON.
pub(crate) fn corpus(name: &str) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(shared(name)?).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// What in the corpora only looks hidden: it is part of what people see.
const SEEN: [&str; 4] = [
    "👨\u{200d}👩\u{200d}👧\u{200d}👦",
    "👨\u{200d}👩\u{200d}👧",
    "👩\u{200d}👩\u{200d}👧",
    "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
];

/// Returns the first character that a terminal obeys, or that nobody sees. Lines end, some of them as on Windows.
pub(crate) fn unseen(text: &str) -> Option<char> {
    let text = SEEN.iter().fold(text.replace("\r\n", "\n"), |text, seen| text.replace(seen, ""));
    let is_unseen = |c: &char| {
        (c.is_control() && !"\n\t".contains(*c)) || portcullis_core::hidden_chars::is_invisible(*c)
    };
    text.chars().find(is_unseen)
}
