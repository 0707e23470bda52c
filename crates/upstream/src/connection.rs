//! One live connection to a server: requests out, answers back, and what the server says in between.

use bytes::Bytes;
use portcullis_core::{Peer, Progress, ToolError};
use portcullis_wire::message::{self, Incoming, Message};
use portcullis_wire::{Id, Revision, rpc};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How many messages may wait to be written before those who write wait too.
pub(crate) const OUTGOING_MAX: usize = 256;
/// How much of a server's error text is passed on.
const ERROR_CHARS_MAX: usize = 2_000;

/// What a server sent without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    ToolsChanged,
    PromptsChanged,
    ResourcesChanged,
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the server answered with error {code}: {message}")]
    Refused { code: i64, message: String },
    #[error("the server gave no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the connection to the server ended")]
    Closed,
    #[error("cancelled by the caller")]
    Cancelled,
}

type Answer = Result<Box<RawValue>, RequestError>;

struct Waiting {
    answer: oneshot::Sender<Answer>,
    peer: Option<Arc<dyn Peer>>,
    /// Told at every sign of life.
    alive: Arc<Notify>,
}

/// The connection. When the last one who holds it lets go, the transport ends.
pub(crate) struct Connection {
    out: mpsc::Sender<Bytes>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    next_id: AtomicU64,
    heard: mpsc::Sender<Heard>,
    pub(crate) revision: OnceLock<Revision>,
    /// Cancelled when the server is gone.
    pub(crate) closed: CancellationToken,
    _end: DropGuard,
}

impl Connection {
    /// `end` is cancelled when the connection is no longer wanted.
    pub(crate) fn new(
        out: mpsc::Sender<Bytes>,
        heard: mpsc::Sender<Heard>,
        end: CancellationToken,
    ) -> Connection {
        Connection {
            out,
            waiting: Mutex::default(),
            next_id: AtomicU64::new(1),
            heard,
            revision: OnceLock::new(),
            closed: CancellationToken::new(),
            _end: end.drop_guard(),
        }
    }

    /// Makes a request. `params` is the inside of the object, without what every request carries.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &str,
        peer: Option<Arc<dyn Peer>>,
        cancel: &CancellationToken,
        timeout: Duration,
    ) -> Answer {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let alive = Arc::new(Notify::new());
        let wants_progress = peer.is_some();
        self.lock().insert(id, Waiting { answer, peer, alive: alive.clone() });
        // However this ends, nobody waits for it any more.
        let forget = Forget { connection: self, id };
        let message = self.written(id, method, params, wants_progress);
        if self.out.send(message).await.is_err() {
            return Err(RequestError::Closed);
        }
        let mut answered = std::pin::pin!(answered);
        let ended = loop {
            tokio::select! {
                answer = &mut answered => break answer.unwrap_or(Err(RequestError::Closed)),
                () = self.closed.cancelled() => break Err(RequestError::Closed),
                () = cancel.cancelled() => break Err(RequestError::Cancelled),
                () = tokio::time::sleep(timeout) => break Err(RequestError::Timeout(timeout)),
                // A sign of life: the time begins anew.
                () = alive.notified() => {}
            }
        };
        drop(forget);
        if let Err(RequestError::Cancelled | RequestError::Timeout(_)) = &ended {
            self.notify("notifications/cancelled", &json!({ "requestId": id }));
        }
        ended
    }

    fn written(&self, id: u64, method: &str, params: &str, wants_progress: bool) -> Bytes {
        let mut out = String::with_capacity(params.len() + 320);
        out.push_str(r#"{"jsonrpc":"2.0","id":"#);
        out.push_str(&id.to_string());
        out.push_str(r#","method":""#);
        out.push_str(method);
        out.push_str(r#"","params":{"#);
        out.push_str(params);
        let mut meta = String::new();
        if wants_progress {
            meta.push_str(&format!(r#""progressToken":{id}"#));
        }
        if self.revision.get().is_some_and(|revision| revision.era() == portcullis_wire::Era::PerRequest) {
            if !meta.is_empty() {
                meta.push(',');
            }
            meta.push_str(MODERN_META);
        }
        if !meta.is_empty() {
            if !params.is_empty() {
                out.push(',');
            }
            out.push_str(&format!(r#""_meta":{{{meta}}}"#));
        }
        out.push_str("}}");
        out.into()
    }

    /// Says something that needs no answer. Where the server does not keep up, it is not said.
    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let _ = self.out.try_send(rpc::notification(method, params));
    }

    /// Takes a message of the server's.
    pub(crate) fn receive(&self, bytes: &[u8]) {
        match message::parse(bytes) {
            Ok(Incoming::One(message)) => self.take(message),
            Ok(Incoming::Batch(batch)) => {
                batch.0.into_iter().flatten().for_each(|message| self.take(message))
            }
            Err(malformed) => {
                tracing::debug!(target: "upstream", error = %malformed.error.message, "a server sent what is no message");
            }
        }
    }

    fn take(&self, message: Message<'_>) {
        match message {
            Message::Response(response) => {
                let Id::Number(id) = &response.id else { return };
                let Some(waiting) = id.parse().ok().and_then(|id: u64| self.lock().remove(&id)) else {
                    return;
                };
                let answer = match response.outcome {
                    Ok(result) => Ok(result.to_owned()),
                    Err(error) => Err(refused(error)),
                };
                // Whoever asked may be gone.
                let _ = waiting.answer.send(answer);
            }
            Message::Notification(notification) => {
                let params = notification.params;
                match notification.method.as_ref() {
                    "notifications/progress" => self.progress(params),
                    "notifications/tools/list_changed" => self.hear(Heard::ToolsChanged),
                    "notifications/prompts/list_changed" => self.hear(Heard::PromptsChanged),
                    "notifications/resources/list_changed" => self.hear(Heard::ResourcesChanged),
                    _ => {}
                }
            }
            Message::Request(request) => {
                let answer = match request.method.as_ref() {
                    "ping" => Ok(b"{}".to_vec()),
                    "roots/list" => Ok(br#"{"roots":[]}"#.to_vec()),
                    method => Err(rpc::RpcError::method_not_found(method)),
                };
                let _ = self.out.try_send(rpc::response(Some(&request.id), &answer));
            }
        }
    }

    /// Storms are damped: what is not taken yet says the same.
    fn hear(&self, heard: Heard) {
        let _ = self.heard.try_send(heard);
    }

    fn progress(&self, params: Option<&RawValue>) {
        let Some(params) = params.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()) else {
            return;
        };
        let Some(id) = params["progressToken"].as_u64() else { return };
        let waiting = self.lock();
        let Some(waiting) = waiting.get(&id) else { return };
        waiting.alive.notify_one();
        if let (Some(peer), Some(progress)) = (&waiting.peer, params["progress"].as_f64()) {
            let message = params["message"].as_str().map(str::to_owned);
            peer.progress(Progress { progress, total: params["total"].as_f64(), message });
        }
    }

    /// Ends every request that waits: the server is gone.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const MODERN_META: &str = concat!(
    r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"portcullis","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);

struct Forget<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.connection.lock().remove(&self.id);
    }
}

fn refused(error: &RawValue) -> RequestError {
    let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
    let message: String =
        error["message"].as_str().unwrap_or("no reason given").chars().take(ERROR_CHARS_MAX).collect();
    RequestError::Refused { code: error["code"].as_i64().unwrap_or_default(), message }
}

impl RequestError {
    /// Tells it to whoever called a tool of the server `name`.
    pub(crate) fn told(self, name: &str) -> ToolError {
        use portcullis_core::ErrorKind;
        match self {
            RequestError::Refused { code, message } => ToolError::new(
                ErrorKind::Upstream,
                format!(
                    "server `{name}` refused the call ({code}): {}",
                    portcullis_core::json::printable(&message)
                ),
            ),
            RequestError::Timeout(after) => ToolError::timeout(after).hint(format!(
                "`mcp.{name}.timeout_ms` says how long a call may take without a sign of progress"
            )),
            RequestError::Closed => {
                ToolError::unavailable(format!("server `{name}` ended while the call was under way"))
                    .hint("it is started again; whether the call was carried out is not known")
            }
            RequestError::Cancelled => ToolError::cancelled(),
        }
    }
}
