//! A stdio server that runs its calls as tasks, as in 2025-11-25 or in 2026-07-28.
//!
//! Its tool `report` returns a task, which ends after so many polls (`looks`); with `ask` it first asks who
//! reads it, with `fail` it fails, with `progress` it reports progress. `seen` returns the methods that were
//! called.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

/// The result of a report, with a number of more digits than most programs keep.
pub const RESULT: &str =
    r#"{"content":[{"type":"text","text":"reported"}],"structuredContent":{"big":12345678901234567890123}}"#;
/// The error of a failed one.
pub const ERROR: &str = r#"{"code":-32055,"message":"no paper left"}"#;

const TASKS: &str = "io.modelcontextprotocol/tasks";

#[derive(Default)]
struct Task {
    looks: u64,
    asks: bool,
    fails: bool,
    cancelled: bool,
    /// The progress token.
    token: Option<Value>,
    answer: Option<Value>,
    /// The id of the request that waits for the result.
    waits: Option<Value>,
}

impl Task {
    fn status(&self) -> &'static str {
        match self {
            Task { cancelled: true, .. } => "cancelled",
            Task { looks: 1.., .. } => "working",
            Task { asks: true, answer: None, .. } => "input_required",
            Task { fails: true, .. } => "failed",
            _ => "completed",
        }
    }

    /// The outcome, as a member of a response.
    fn outcome(&self) -> String {
        match &self.answer {
            _ if self.fails => format!(r#""error":{ERROR}"#),
            Some(answer) => {
                let content = json!([{ "type": "text", "text": format!("reported to {answer}") }]);
                format!(r#""result":{}"#, json!({ "content": content }))
            }
            None => format!(r#""result":{RESULT}"#),
        }
    }
}

struct Server {
    is_newer: bool,
    /// Whether it declares task support at the handshake.
    says_so: bool,
    tasks: BTreeMap<String, Task>,
    seen: Vec<String>,
}

/// Serves until stdin closes.
pub fn serve(revision: &str, says_so: bool) -> io::Result<()> {
    let is_newer = revision == "2026-07-28";
    let mut server = Server { is_newer, says_so, tasks: BTreeMap::new(), seen: Vec::new() };
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        if message["method"].is_null() {
            server.answered(&message)?;
        } else if !message["id"].is_null() {
            server.asked(&message)?;
        }
    }
    Ok(())
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Responds with a `result` or `error` member, verbatim.
fn answer(id: &Value, outcome: &str) -> io::Result<()> {
    say(&format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#))
}

impl Server {
    fn asked(&mut self, message: &Value) -> io::Result<()> {
        let (id, params) = (&message["id"], &message["params"]);
        let method = message["method"].as_str().unwrap_or_default();
        self.seen.push(method.to_owned());
        let result = match method {
            "server/discover" if self.is_newer => json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {}, "extensions": { TASKS: {} } },
                "ttlMs": 0,
                "cacheScope": "private",
            }),
            "initialize" if !self.is_newer => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": match self.says_so {
                    true => json!({ "tools": {}, "tasks": { "cancel": {}, "requests": { "tools": { "call": {} } } } }),
                    false => json!({ "tools": {}, "tasks": { "cancel": {} } }),
                },
                "serverInfo": { "name": "tasked", "version": "1" },
            }),
            "tools/list" => self.tools(),
            "tools/call" if params["name"] == "seen" => {
                self.dressed(json!({ "content": [{ "type": "text", "text": json!(self.seen).to_string() }] }))
            }
            "tools/call" => match self.begun(params) {
                Ok(begun) => begun,
                Err(error) => return answer(id, &format!(r#""error":{error}"#)),
            },
            "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => {
                return self.about(method, id, params);
            }
            _ => {
                return answer(id, r#""error":{"code":-32601,"message":"Method not found"}"#);
            }
        };
        answer(id, &format!(r#""result":{result}"#))
    }

    fn tools(&self) -> Value {
        let flag = json!({ "type": "boolean" });
        let properties =
            json!({ "looks": { "type": "integer" }, "ask": flag, "fail": flag, "progress": flag });
        let mut report =
            json!({ "name": "report", "inputSchema": { "type": "object", "properties": properties } });
        // It has no meaning in the newer era.
        report["execution"] = json!({ "taskSupport": "required", "kept": 1 });
        let tools = json!([report, { "name": "seen", "inputSchema": { "type": "object" } }]);
        self.dressed(json!({ "tools": tools, "ttlMs": 0, "cacheScope": "private" }))
    }

    fn dressed(&self, mut result: Value) -> Value {
        if self.is_newer {
            result["resultType"] = "complete".into();
        }
        result
    }

    fn begun(&mut self, params: &Value) -> Result<Value, Value> {
        let meta = &params["_meta"];
        let extensions = &meta["io.modelcontextprotocol/clientCapabilities"]["extensions"];
        match self.is_newer {
            true if params.get("task").is_some() => {
                return Err(json!({ "code": -32602, "message": "`task` is of the older era" }));
            }
            true if extensions[TASKS].is_object() => {}
            true => return Err(json!({ "code": -32021, "message": "only as a task" })),
            false if params["task"].is_object() => {}
            false => return Err(json!({ "code": -32601, "message": "only as a task" })),
        }
        let id = format!("task-{}", self.tasks.len() + 1);
        let arguments = &params["arguments"];
        let wants = |key: &str| arguments[key] == true;
        let task = Task {
            looks: arguments["looks"].as_u64().unwrap_or(2),
            asks: wants("ask"),
            fails: wants("fail"),
            token: wants("progress").then(|| meta["progressToken"].clone()),
            ..Task::default()
        };
        self.tasks.insert(id.clone(), task);
        let open_object = self.open_object(&id);
        Ok(match self.is_newer {
            true => {
                let mut begun = Value::Object(open_object);
                begun["resultType"] = "task".into();
                begun
            }
            false => json!({ "task": open_object }),
        })
    }

    fn open_object(&self, id: &str) -> Map<String, Value> {
        let (task, time) = (&self.tasks[id], "2026-01-01T00:00:00Z");
        let (ttl, interval) =
            if self.is_newer { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
        let open_object = json!({
            "taskId": id,
            "status": task.status(),
            "statusMessage": format!("{} pages left", task.looks),
            "createdAt": time,
            "lastUpdatedAt": time,
            ttl: 60_000,
            interval: 50,
        });
        open_object.as_object().cloned().unwrap_or_default()
    }

    fn about(&mut self, method: &str, id: &Value, params: &Value) -> io::Result<()> {
        let name = params["taskId"].as_str().unwrap_or_default().to_owned();
        let is_newer = self.is_newer;
        let Some(task) = self.tasks.get_mut(&name) else {
            return answer(id, r#""error":{"code":-32602,"message":"no such task"}"#);
        };
        match method {
            "tasks/get" => {
                let open_object = Value::Object(self.open_object(&name)).to_string();
                self.look(&name, id, open_object.trim_end_matches('}'))
            }
            "tasks/result" if !is_newer && task.status() == "input_required" => {
                task.waits = Some(id.clone());
                let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": name } });
                let mut params = question();
                params["_meta"] = related;
                let method = "elicitation/create";
                say(&json!({ "jsonrpc": "2.0", "id": name, "method": method, "params": params }).to_string())
            }
            "tasks/result" if !is_newer => answer(id, &task.outcome()),
            "tasks/update" if is_newer => {
                task.answer = Some(params["inputResponses"]["who"].clone());
                answer(id, r#""result":{"resultType":"complete"}"#)
            }
            "tasks/cancel" => {
                task.cancelled = true;
                let open_object = Value::Object(self.open_object(&name));
                answer(id, &format!(r#""result":{open_object}"#))
            }
            _ => answer(id, r#""error":{"code":-32601,"message":"Method not found"}"#),
        }
    }

    /// Reports the state of a task, and advances it. `open_object` is an object that is still open.
    fn look(&mut self, name: &str, id: &Value, open_object: &str) -> io::Result<()> {
        let Some(task) = self.tasks.get_mut(name) else { return Ok(()) };
        let more = match (self.is_newer, task.status()) {
            (true, "input_required") => {
                let who = json!({ "method": "elicitation/create", "params": question() });
                format!(r#","inputRequests":{}"#, json!({ "who": who }))
            }
            (true, "completed" | "failed") => format!(",{}", task.outcome()),
            _ => String::new(),
        };
        let dress = if self.is_newer { r#","resultType":"complete""# } else { "" };
        if let Some(token) = &task.token {
            let params = json!({ "progressToken": token, "progress": 100 - task.looks, "total": 100 });
            say(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
                .to_string())?;
        }
        task.looks = task.looks.saturating_sub(1);
        answer(id, &format!(r#""result":{open_object}{more}{dress}}}"#))
    }

    /// The client has answered a task's question.
    fn answered(&mut self, message: &Value) -> io::Result<()> {
        let Some(task) = message["id"].as_str().and_then(|name| self.tasks.get_mut(name)) else {
            return Ok(());
        };
        task.answer = Some(message["result"].clone());
        match task.waits.take() {
            Some(id) => answer(&id, &task.outcome()),
            None => Ok(()),
        }
    }
}

fn question() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "mode": "form", "message": "Who reads it?", "requestedSchema": schema })
}
