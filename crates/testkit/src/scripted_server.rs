//! A stdio server that prints scripted lines verbatim, as in 2025-11-25 or in 2026-07-28.
//!
//! Its tool `say` executes its `steps`: a text is a line to print, `{"until": PATH}` waits until that file
//! exists, `{"wait": true}` waits for a line and makes it the result. In printed text, `$token` is the
//! progress token of the call. With `ask`, the text of questions, a round ends with them, and the next
//! returns its answers. `heard` returns every line so far. The server prints `AT_START` after the handshake,
//! and `AT_OTHER_ROOTS` when the client's roots change. It appends received lines to the file `HEARD`. There
//! is one resource, `talk://a`.

use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

/// Serves until stdin closes.
pub fn serve(revision: &str) -> io::Result<()> {
    let is_newer = revision == "2026-07-28";
    let mut heard = Vec::new();
    let append = |path| std::fs::File::options().append(true).create(true).open(path);
    let record = std::env::var_os("HEARD").map(append).transpose()?;
    let mut lines = io::stdin().lock().lines().map(|line| {
        let line = line?;
        record.as_ref().map_or(Ok(()), |mut file| writeln!(file, "{line}"))?;
        io::Result::Ok(line)
    });
    while let Some(line) = lines.next() {
        let line = line?;
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        heard.push(line.clone());
        let told = match message["method"].as_str() {
            Some("notifications/initialized") => std::env::var("AT_START").ok(),
            Some("notifications/roots/list_changed") => std::env::var("AT_OTHER_ROOTS").ok(),
            _ => None,
        };
        told.into_iter().try_for_each(|line| print(&line))?;
        let (id, params) = (&message["id"], &message["params"]);
        let (Some(method), false) = (message["method"].as_str(), id.is_null()) else { continue };
        let result = match method {
            "server/discover" if is_newer => json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {} },
                "ttlMs": 0,
                "cacheScope": "private",
            })
            .to_string(),
            "initialize" if !is_newer => json!({
                "protocolVersion": revision,
                "capabilities": { "tools": {}, "logging": {}, "resources": { "subscribe": true } },
                "serverInfo": { "name": "talker", "version": "1" },
            })
            .to_string(),
            "logging/setLevel" | "resources/subscribe" => "{}".to_owned(),
            "resources/list" => json!({ "resources": [{ "uri": "talk://a", "name": "a" }] }).to_string(),
            "resources/templates/list" => json!({ "resourceTemplates": [] }).to_string(),
            "tools/list" => tools().to_string(),
            "tools/call" if params["name"] == "heard" => text(&json!(heard).to_string()),
            "tools/call" => say(params, &line, &mut heard, &mut lines)?,
            _ => {
                print(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#))?;
                continue;
            }
        };
        print(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))?;
    }
    Ok(())
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn text(text: &str) -> String {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "content": content, "resultType": "complete" }).to_string()
}

fn tools() -> Value {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let tools = [tool("say"), tool("heard")];
    json!({ "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private" })
}

#[expect(clippy::disallowed_methods, reason = "a process of its own, which has nothing else to do")]
fn say(
    params: &Value,
    line: &str,
    heard: &mut Vec<String>,
    lines: &mut impl Iterator<Item = io::Result<String>>,
) -> io::Result<String> {
    let arguments = &params["arguments"];
    if let Some(questions) = arguments["ask"].as_str() {
        return Ok(match params["inputResponses"].is_null() {
            true => format!(r#"{{"resultType":"input_required","inputRequests":{questions}}}"#),
            // Verbatim: a parsed number would hide a change of its digits.
            false => text(line),
        });
    }
    let token = params["_meta"]["progressToken"].to_string();
    let mut answer = "said".to_owned();
    for step in arguments["steps"].as_array().into_iter().flatten() {
        if let Some(line) = step.as_str() {
            print(&line.replace("$token", &token))?;
        } else if let Some(file) = step["until"].as_str() {
            while !Path::new(file).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
        } else if step["wait"] == true {
            answer = lines.next().transpose()?.unwrap_or_default();
            heard.push(answer.clone());
        }
    }
    Ok(text(&answer))
}
