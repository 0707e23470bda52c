//! MCP client of a hub on this machine, as the local client.

use portcullis_wire::client_dialect::sender_members;
use portcullis_wire::era::TASKS;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

/// Minimum poll interval of a task, whatever its server suggests: stays below the rate limit.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(250);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);

type Reader = Box<dyn AsyncRead + Unpin + Send>;
type Writer = Box<dyn AsyncWrite + Unpin + Send>;

/// A JSON-RPC error of the hub. It is inside of the [`io::Error`] of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HubRefusal {
    pub message: String,
    pub code: i64,
    /// When a call that was over the rate limit can be made again.
    pub retry_after_ms: Option<u64>,
}

impl HubRefusal {
    fn read(error: &Value) -> HubRefusal {
        HubRefusal {
            message: error["message"].as_str().unwrap_or("unknown error").to_owned(),
            code: error["code"].as_i64().unwrap_or_default(),
            retry_after_ms: error["data"]["retry_after_ms"].as_u64(),
        }
    }
}

/// A connection to a hub.
pub struct HubClient {
    from: BufReader<Reader>,
    to: Writer,
    next_id: u64,
}

impl HubClient {
    /// Speaks over these streams.
    pub fn new(
        from: impl AsyncRead + Unpin + Send + 'static,
        to: impl AsyncWrite + Unpin + Send + 'static,
    ) -> HubClient {
        let from: Reader = Box::new(from);
        HubClient { from: BufReader::new(from), to: Box::new(to), next_id: 1 }
    }

    /// Sends a request and returns its result, skipping notifications.
    pub async fn request(&mut self, method: &str, params: Value) -> io::Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        let mut params = params;
        let members = sender_members(&json!({ "extensions": { TASKS: {} } }), None);
        params["_meta"] = serde_json::from_str(&format!("{{{members}}}"))?;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.to.write_all(format!("{message}\n").as_bytes()).await?;
        self.to.flush().await?;
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).await? == 0 {
                return Err(io::Error::other("the hub closed the connection"));
            }
            let mut answer: Value = serde_json::from_str(&line)
                .map_err(|error| io::Error::other(format!("the hub's response is not JSON: {error}")))?;
            if answer.get("id") != Some(&json!(id)) {
                continue;
            }
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(HubRefusal::read(error)));
            }
            return Ok(answer["result"].take());
        }
    }

    /// Calls a tool, and waits for the result if it runs as a task.
    pub async fn call(&mut self, name: &str, arguments: Value) -> io::Result<Value> {
        let begun = self.request("tools/call", json!({ "name": name, "arguments": arguments })).await?;
        if begun["resultType"] != "task" {
            return Ok(begun);
        }
        let task = json!({ "taskId": begun["taskId"] });
        let ended = self.await_task(&task).await;
        if ended.is_err() {
            // A finished task need not be cancelled.
            let _ = self.request("tasks/cancel", task).await;
        }
        ended
    }

    async fn await_task(&mut self, task: &Value) -> io::Result<Value> {
        loop {
            let mut stands = self.request("tasks/get", task.clone()).await?;
            let failure = match stands["status"].as_str() {
                Some("completed") => return Ok(stands["result"].take()),
                Some("failed") => stands["error"]["message"].as_str().unwrap_or("the task has failed"),
                Some("cancelled") => "the task was cancelled",
                Some("input_required") => {
                    "the task requests input; call it from a client that supports elicitation"
                }
                _ => {
                    let every =
                        stands["pollIntervalMs"].as_u64().map_or(LOOK_EVERY_MIN, Duration::from_millis);
                    tokio::time::sleep(every.clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)).await;
                    continue;
                }
            };
            return Err(io::Error::other(failure));
        }
    }

    /// Lists all pages of `key`.
    pub async fn list(&mut self, method: &str, key: &str) -> io::Result<Vec<Value>> {
        let (mut items, mut params) = (Vec::new(), json!({}));
        loop {
            let mut page = self.request(method, params).await?;
            if let Value::Array(more) = page[key].take() {
                items.extend(more);
            }
            match page.get("nextCursor") {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return Ok(items),
            }
        }
    }
}
