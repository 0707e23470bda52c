//! MCP client of the running hub, or of a hub in this process.

use super::stdio::{CONNECT_PAUSE, CONNECT_TRIES};
use crate::compose::{ComposedHub, compose};
use crate::config::Config;
use crate::home::Home;
use crate::services;
use anyhow::{Context, Result, anyhow, bail};
use portcullis_server::{line, local};
use portcullis_wire::client_dialect::sender_members;
use portcullis_wire::era::TASKS;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Pipe buffer per direction for a hub in this process.
const PIPE_BYTES: usize = 256 * 1024;
/// How long to wait for servers that were just started.
const SERVERS_WITHIN: Duration = Duration::from_secs(30);
/// How long calls and services of a hub in this process may take to end. The command has its results by then.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
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
    /// The hub, if it is in this process.
    own: Option<OwnHub>,
}

/// A hub for one command.
struct OwnHub {
    composed: ComposedHub,
    /// The connection to it.
    serving: JoinHandle<io::Result<()>>,
    claim: local::HubLock,
}

impl OwnHub {
    /// Shuts down in order: calls and services, the connection, the servers, and last the lock.
    async fn close(self) {
        self.composed.hub.shut_down(CLOSE_WITHIN).await;
        // Its end closes the connection.
        let _ = timeout(CLOSE_WITHIN, self.serving).await;
        self.composed.servers.stop();
        drop(self.composed);
        drop(self.claim);
    }
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
    /// Connects, does the work of a command, and closes.
    pub(crate) async fn with<T>(
        home: &Home,
        config: &Config,
        work: impl AsyncFnOnce(&mut HubClient) -> Result<T>,
    ) -> Result<T> {
        let mut link = HubClient::open(home, config).await?;
        let done = work(&mut link).await;
        if let Some(own) = link.own.take() {
            own.close().await;
        }
        done
    }

    async fn open(home: &Home, config: &Config) -> Result<HubClient> {
        let (claim, stream) = claim_or_connect(home).await?;
        let Some(claim) = claim else {
            let (from, to) = stream.context("the running hub does not respond")?.into_split();
            return Ok(HubClient::over(Box::new(from), Box::new(to), None));
        };
        let composed = compose(home, config)?;
        composed.hub.start_services(services::of_a_command(&composed).into())?;
        // They were started with the hub just now.
        composed.servers.settled(SERVERS_WITHIN).await;
        let (mine, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (from, to) = tokio::io::split(theirs);
        let serving = tokio::spawn(line::serve(composed.hub.clone(), "stdio", from, to));
        let (from, to) = tokio::io::split(mine);
        Ok(HubClient::over(Box::new(from), Box::new(to), Some(OwnHub { composed, serving, claim })))
    }

    fn over(from: Reader, to: Writer, own: Option<OwnHub>) -> HubClient {
        HubClient { from: BufReader::new(from), to, next_id: 1, own }
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
