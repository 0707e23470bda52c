//! A stdio server with faults.
//!
//! Its tools name the fault: `crash`, `hang`, `garbage`, `huge`, `reuse`, `storm`, `leave`. Others show what
//! is forwarded: `echo`, `exact`, `refuse`, `slow`, `ask`, `seen`. It speaks the older era in the given
//! revision.

use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The text of a definition and of a result that must be forwarded verbatim.
pub const EXACT: &str = r#"{"content":[{"type":"text","text":"kept"},{"type":"hologram","data":{"x":1.50}}],"structuredContent":{"big":12345678901234567890123,"small":1.0},"_meta":{"example.com/kept":[1,2]},"unknownField":{"a":null}}"#;

/// The same for the data of an error.
pub const EXACT_DATA: &str = r#"{"big":98765432109876543210987,"x":2.50,"none":null}"#;

fn tools() -> Value {
    let tool = |name: &str, properties: Value| {
        json!({
            "name": name,
            "description": format!("Does {name}."),
            "inputSchema": { "type": "object", "properties": properties },
            "x-unknown": { "kept": true },
        })
    };
    json!([
        tool("echo", json!({ "text": { "type": "string" } })),
        tool("crash", json!({})),
        tool("hang", json!({})),
        tool("garbage", json!({ "lines": { "type": "integer" } })),
        tool("huge", json!({ "megabytes": { "type": "integer" } })),
        tool("reuse", json!({})),
        tool("storm", json!({ "times": { "type": "integer" } })),
        tool("leave", json!({})),
        tool("exact", json!({})),
        tool("slow", json!({ "steps": { "type": "integer" }, "step_ms": { "type": "integer" } })),
        tool("ask", json!({})),
        tool("seen", json!({})),
        tool("refuse", json!({})),
        { "name": "no_schema", "description": "Has none." },
    ])
}

/// Serves until stdin closes. `revision` is its response to `initialize`.
pub fn serve(revision: &str) -> io::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let mut last_request = Value::Null;
    while let Some(line) = lines.next() {
        let line = line?;
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = message["id"].clone();
        if id.is_null() {
            continue;
        }
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": revision,
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "fault", "version": "1" },
            }),
            Some("ping") => json!({}),
            Some("tools/list") => json!({ "tools": tools() }),
            Some("tools/call") => {
                let (name, arguments) = (&message["params"]["name"], &message["params"]["arguments"]);
                let seen = std::mem::replace(&mut last_request, message.clone());
                match call(name.as_str().unwrap_or_default(), arguments, &message, &seen, &mut lines)? {
                    Some(result) => result,
                    None => continue,
                }
            }
            Some(_) => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))?;
                continue;
            }
            None => continue,
        };
        say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
    }
    Ok(())
}

fn say(message: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{message}")?;
    out.flush()
}

fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

/// Returns the result, or `None` if there is none or it was sent already.
#[expect(clippy::disallowed_methods, reason = "this is what should not be done, in a process of its own")]
fn call(
    name: &str,
    arguments: &Value,
    message: &Value,
    last: &Value,
    lines: &mut impl Iterator<Item = io::Result<String>>,
) -> io::Result<Option<Value>> {
    let id = &message["id"];
    let number = |key: &str, otherwise: u64| arguments[key].as_u64().unwrap_or(otherwise);
    let result = match name {
        "echo" => text(arguments["text"].as_str().unwrap_or_default()),
        "crash" => {
            eprintln_line("it was asked to crash")?;
            std::process::exit(3);
        }
        "hang" => return Ok(None),
        "garbage" => {
            let mut out = io::stdout().lock();
            for line in 0..number("lines", 100) {
                writeln!(out, "{{\"jsonrpc\": \"2.0\", line {line} is no JSON \u{1b}[31m")?;
            }
            out.flush()?;
            drop(out);
            text("after the garbage")
        }
        "huge" => {
            let (mut out, part) = (io::stdout().lock(), vec![b'x'; 1024 * 1024]);
            for _ in 0..number("megabytes", 32) {
                out.write_all(&part)?;
            }
            out.write_all(b"\n")?;
            out.flush()?;
            drop(out);
            text("after the long line")
        }
        "reuse" => {
            for strange in [json!(999_999), json!("x"), json!(-1), json!(null)] {
                say(&json!({ "jsonrpc": "2.0", "id": strange, "result": text("for no request") }))?;
            }
            say(&json!({ "jsonrpc": "2.0", "id": id, "result": text("first") }))?;
            say(&json!({ "jsonrpc": "2.0", "id": id, "result": text("second") }))?;
            return Ok(None);
        }
        "storm" => {
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            for _ in 0..number("times", 1_000) {
                say(&changed)?;
            }
            text("stormed")
        }
        "leave" => {
            // A child outside of the hub's process groups, like a browser's.
            let child = Command::new("setsid")
                .args(["sleep", "600"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            text(child.id().to_string())
        }
        "exact" => {
            let mut out = io::stdout().lock();
            writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{EXACT}}}"#)?;
            out.flush()?;
            return Ok(None);
        }
        "refuse" => {
            let mut out = io::stdout().lock();
            let error = format!(r#"{{"code":-32050,"message":"not today","data":{EXACT_DATA}}}"#);
            writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)?;
            out.flush()?;
            return Ok(None);
        }
        "slow" => {
            let steps = number("steps", 3);
            for step in 0..steps {
                std::thread::sleep(Duration::from_millis(number("step_ms", 50)));
                let token = &message["params"]["_meta"]["progressToken"];
                let params = json!({ "progressToken": token, "progress": step + 1, "total": steps });
                say(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))?;
            }
            text("done at last")
        }
        "ask" => {
            let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
            let params = json!({ "message": "Who are you?", "requestedSchema": schema });
            say(&json!({ "jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": params }))?;
            let answer = lines.next().transpose()?.unwrap_or_default();
            text(answer)
        }
        // The previous request, and the environment of the process.
        "seen" => {
            let environment: Vec<String> =
                std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
            let seen = json!({ "request": last, "environment": environment, "pid": std::process::id() });
            text(seen.to_string())
        }
        other => text(format!("no such tool: {other}")),
    };
    Ok(Some(result))
}

fn eprintln_line(line: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{line}")
}
