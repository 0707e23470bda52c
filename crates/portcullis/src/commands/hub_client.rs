//! MCP client of the running hub, or of a hub in this process.

use super::stdio::{CONNECT_PAUSE, CONNECT_TRIES};
use crate::compose::compose;
use crate::config::Config;
use crate::home::Home;
use crate::mcp::ServerManager;
use anyhow::{Context, Result, anyhow, bail};
use portcullis_server::{line, local};
use portcullis_wire::client_dialect::sender_members;
use portcullis_wire::era::TASKS;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Pipe buffer per direction for a hub in this process.
const PIPE_BYTES: usize = 256 * 1024;
/// How long to wait for servers that were just started.
const SERVERS_WITHIN: Duration = Duration::from_secs(30);
/// Minimum poll interval of a task, whatever its server suggests: stays below the rate limit.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(250);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);

type Reader = Box<dyn AsyncRead + Unpin + Send>;
type Writer = Box<dyn AsyncWrite + Unpin + Send>;

/// A connection to a hub as the local client.
pub(crate) struct HubClient {
    from: BufReader<Reader>,
    to: Writer,
    next_id: u64,
    /// Keeps the upstream servers of a hub in this process alive.
    _servers: Option<Arc<ServerManager>>,
    /// The lock of the home.
    _claim: Option<local::HubLock>,
}

/// Becomes the hub for a moment, or connects to the running one. Other commands may race for it.
async fn claim_or_connect(home: &Home) -> Result<(Option<local::HubLock>, Option<UnixStream>)> {
    for _ in 0..CONNECT_TRIES {
        if let Some(claim) = local::claim(home.path()).context("the lock of the home folder")? {
            return Ok((Some(claim), None));
        }
        if let Ok(stream) = local::connect(home.path()).await {
            return Ok((None, Some(stream)));
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
    Ok((None, None))
}

impl HubClient {
    pub(crate) async fn open(home: &Home, config: &Config) -> Result<HubClient> {
        let (claim, stream) = claim_or_connect(home).await?;
        let mut servers = None;
        let (from, to): (Reader, Writer) = if claim.is_some() {
            let composed = compose(home, config)?;
            // They were started with the hub just now.
            composed.servers.settled(SERVERS_WITHIN).await;
            servers = Some(composed.servers);
            let (mine, theirs) = tokio::io::duplex(PIPE_BYTES);
            let (from, to) = tokio::io::split(theirs);
            tokio::spawn(line::serve(composed.hub, "stdio", from, to));
            let (from, to) = tokio::io::split(mine);
            (Box::new(from), Box::new(to))
        } else {
            let (from, to) = stream.context("the running hub does not respond")?.into_split();
            (Box::new(from), Box::new(to))
        };
        Ok(HubClient { from: BufReader::new(from), to, next_id: 1, _servers: servers, _claim: claim })
    }

    /// Sends a request and returns its result, skipping notifications.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Result<Value> {
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
                bail!("the hub closed the connection");
            }
            let mut answer: Value = serde_json::from_str(&line).context("the hub's response is not JSON")?;
            if answer.get("id") != Some(&json!(id)) {
                continue;
            }
            if let Some(error) = answer.get("error") {
                let message = error.get("message").and_then(Value::as_str).unwrap_or("unknown error");
                return Err(anyhow!("{message}"));
            }
            return Ok(answer["result"].take());
        }
    }

    /// Calls a tool, and waits for the result if it runs as a task.
    pub(crate) async fn call(&mut self, name: &str, arguments: Value) -> Result<Value> {
        let begun = self.request("tools/call", json!({ "name": name, "arguments": arguments })).await?;
        if begun["resultType"] != "task" {
            return Ok(begun);
        }
        let task = json!({ "taskId": begun["taskId"] });
        let ended = self.see_through(&task).await;
        if ended.is_err() {
            // A finished task need not be cancelled.
            let _ = self.request("tasks/cancel", task).await;
        }
        ended
    }

    async fn see_through(&mut self, task: &Value) -> Result<Value> {
        loop {
            let mut stands = self.request("tasks/get", task.clone()).await?;
            match stands["status"].as_str() {
                Some("completed") => return Ok(stands["result"].take()),
                Some("failed") => {
                    bail!("{}", stands["error"]["message"].as_str().unwrap_or("the task has failed"))
                }
                Some("cancelled") => bail!("the task was cancelled"),
                Some("input_required") => {
                    bail!("the task requests input; call it from a client that supports elicitation")
                }
                _ => {}
            }
            let every = stands["pollIntervalMs"].as_u64().map_or(LOOK_EVERY_MIN, Duration::from_millis);
            tokio::time::sleep(every.clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)).await;
        }
    }

    /// Lists all pages of `key`.
    pub(crate) async fn list(&mut self, method: &str, key: &str) -> Result<Vec<Value>> {
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
