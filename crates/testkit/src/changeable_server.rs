//! A stdio server whose definitions are a file, read again for every list.
//!
//! `changeable-server DEFINITIONS CALLS`: the first file holds the definitions, and when it is replaced the
//! server sends `list_changed`, unless the file has `"announce": false`; the second gets one line for every
//! call that reached the server.
//!
//! ```json
//! { "name": "shop", "instructions": "…", "page_size": 1, "tools": [], "prompts": [], "resources": [], "resourceTemplates": [],
//!   "results": { "sum": {} } }
//! ```
#![expect(clippy::unwrap_used, reason = "a fixture that fails is a test that fails")]

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Serves the files that the program's arguments name.
pub fn run() {
    let mut files = std::env::args_os().skip(1).map(PathBuf::from);
    match (files.next(), files.next()) {
        (Some(definitions), Some(calls)) => serve(definitions, calls),
        _ => say_error("expected: DEFINITIONS CALLS"),
    }
}

/// Serves until stdin closes.
pub fn serve(definitions: PathBuf, calls: PathBuf) {
    let offer = read(&definitions);
    if offer["fail"] == true {
        say_error(offer["last_words"].as_str().unwrap_or("no \u{1b}[31mdatabase\u{1b}[0m here"));
        return;
    }
    let watched = definitions.clone();
    std::thread::spawn(move || tell_changes(&watched));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        // Like most servers, it skips invalid messages.
        let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(id) = request.get("id") else { continue };
        let offer = read(&definitions);
        // The error for some method instead of a result.
        let error = &offer["errors"][request["method"].as_str().unwrap_or_default()];
        let answer = match answer(&request, &offer, &calls) {
            _ if error.is_object() => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            Some(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            None => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "unknown method" } })
            }
        };
        say(&answer);
    }
}

fn answer(request: &Value, offer: &Value, calls: &Path) -> Option<Value> {
    let params = &request["params"];
    Some(match request["method"].as_str()? {
        "initialize" => {
            let mut result = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": { "listChanged": true }, "prompts": { "listChanged": true }, "resources": { "subscribe": true } },
                "serverInfo": { "name": offer["name"].as_str().unwrap_or("changeable"), "version": "1" },
            });
            if let Some(text) = offer["instructions"].as_str() {
                result["instructions"] = text.into();
            }
            result
        }
        "ping" => json!({}),
        "tools/list" => page(offer, "tools", params),
        "prompts/list" => page(offer, "prompts", params),
        "resources/list" => page(offer, "resources", params),
        method @ ("resources/subscribe" | "resources/unsubscribe") => {
            let uri = params["uri"].as_str()?;
            note(calls, &format!("{method} {uri}"));
            // Some get no notification.
            if uri.ends_with("/silent") {
                return None;
            }
            json!({})
        }
        "resources/templates/list" => page(offer, "resourceTemplates", params),
        "tools/call" => {
            let name = params["name"].as_str()?;
            note(calls, name);
            // The caller says what the call has changed.
            if let Some(uri) = params["arguments"]["updated"].as_str() {
                let method = "notifications/resources/updated";
                say(&json!({ "jsonrpc": "2.0", "method": method, "params": { "uri": uri } }));
            }
            match offer["results"].get(name) {
                Some(result) => result.clone(),
                None => json!({ "content": [{ "type": "text", "text": format!("called {name}") }] }),
            }
        }
        "prompts/get" => {
            let name = params["name"].as_str()?;
            note(calls, name);
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": name } }] })
        }
        "resources/read" => {
            let uri = params["uri"].as_str()?;
            note(calls, uri);
            json!({ "contents": [{ "uri": uri, "text": "contents" }] })
        }
        _ => return None,
    })
}

fn page(offer: &Value, key: &str, params: &Value) -> Value {
    let all = offer[key].as_array().cloned().unwrap_or_default();
    let size =
        offer["page_size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX).max(1);
    let from: usize = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let items: Vec<Value> = all.iter().skip(from).take(size).cloned().collect();
    let mut result = json!({ key: items });
    if from.saturating_add(size) < all.len() {
        result["nextCursor"] = (from + size).to_string().into();
    }
    result
}

/// Watches the file for replacement.
fn tell_changes(definitions: &Path) {
    let watch = inotify::init(CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, definitions.parent().unwrap(), WatchFlags::MOVED_TO).unwrap();
    let mut events = [0; 4096];
    while rustix::io::read(&watch, &mut events).is_ok_and(|bytes| bytes > 0) {
        if read(definitions)["announce"].as_bool() != Some(false) {
            for list in ["tools", "prompts", "resources"] {
                say(&json!({ "jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed") }));
            }
        }
    }
}

fn read(path: &Path) -> Value {
    std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn note(calls: &Path, name: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(calls).unwrap();
    writeln!(file, "{name}").unwrap();
}

fn say(message: &Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(format!("{message}\n").as_bytes());
    let _ = stdout.flush();
}

fn say_error(text: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
