//! A small MCP client that shows everything on the wire to the test.
//!
//! It speaks every transport and every revision, so that one set of assertions fits all pairs. It does not
//! trust the server: a duplicate or unsolicited response stays available in [`McpClient::unasked`].
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that fails is a test that fails"
)]

use crate::process::{ChildProcess, StdioProcess};
use crate::raw_http::{RawHttpConnection, RawHttpRequest, RawSseReader};
use crate::wait::within;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

/// The revision in which requests are stateless.
pub const NEWEST: &str = "2026-07-28";
/// Messages that may wait for the test.
const INBOX_MAX: usize = 65_536;

enum Wire {
    Lines { process: ChildProcess, stdin: Option<ChildStdin> },
    Http(HttpWire),
    Sse { http: HttpWire, endpoint: String },
}

struct HttpWire {
    address: SocketAddr,
    token: String,
    session: Option<String>,
    connection: RawHttpConnection,
}

/// One client, on one transport, of one revision.
pub struct McpClient {
    revision: &'static str,
    wire: Wire,
    next_id: u64,
    sender: mpsc::Sender<Value>,
    inbox: mpsc::Receiver<Value>,
    /// Received, and not yet consumed.
    arrived: VecDeque<Value>,
    /// The HTTP status of the newest response.
    pub status: u16,
}

impl McpClient {
    fn new(revision: &'static str, wire: Wire) -> McpClient {
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        McpClient { revision, wire, next_id: 1, sender, inbox, arrived: VecDeque::new(), status: 0 }
    }

    /// Connects to a process on its stdin and stdout. A line that is not JSON fails the test.
    pub fn lines(talking: StdioProcess, revision: &'static str) -> McpClient {
        let StdioProcess { process, stdin, mut stdout } = talking;
        let client = McpClient::new(revision, Wire::Lines { process, stdin });
        let sender = client.sender.clone();
        tokio::spawn(async move {
            let mut line = String::new();
            while stdout.read_line(&mut line).await.unwrap_or(0) > 0 {
                let message = serde_json::from_str(&line)
                    .unwrap_or_else(|error| json!({ "not JSON": line, "why": error.to_string() }));
                sender.send(message).await.unwrap_or_default();
                line.clear();
            }
        });
        client
    }

    /// Connects over streamable HTTP.
    pub async fn http(address: SocketAddr, token: &str, revision: &'static str) -> McpClient {
        McpClient::new(revision, Wire::Http(HttpWire::open(address, token).await))
    }

    /// Connects over HTTP+SSE, as of 2024-11-05.
    pub async fn sse(address: SocketAddr, token: &str, revision: &'static str) -> McpClient {
        let mut connection = RawHttpConnection::open(address).await;
        let request = RawHttpRequest::get("/sse").token(token).header("Accept", "text/event-stream");
        connection.send(&request.bytes(address)).await.unwrap();
        let head = connection.head().await.expect("an answer to GET /sse");
        assert!(head.status == 200 && head.is_event_stream(), "{head:?}");
        let mut events = RawSseReader::of(connection);
        let first = events.next().await.expect("the event that tells the address");
        assert_eq!(first.name.as_deref(), Some("endpoint"));
        let http = HttpWire::open(address, token).await;
        let client = McpClient::new(revision, Wire::Sse { http, endpoint: first.data });
        tokio::spawn(pump(events, client.sender.clone()));
        client
    }

    pub fn revision(&self) -> &'static str {
        self.revision
    }

    pub fn is_newest(&self) -> bool {
        self.revision == NEWEST
    }

    pub fn is_http(&self) -> bool {
        matches!(self.wire, Wire::Http(_))
    }

    /// Returns the process of a stdio connection.
    pub fn process(&mut self) -> &mut ChildProcess {
        match &mut self.wire {
            Wire::Lines { process, .. } => process,
            Wire::Http(_) | Wire::Sse { .. } => panic!("only a line has a process"),
        }
    }

    /// Opens a new connection for further requests; the old one may have been closed for being idle.
    pub async fn reconnect(&mut self) {
        if let Wire::Http(http) | Wire::Sse { http, .. } = &mut self.wire {
            http.connection = RawHttpConnection::open(http.address).await;
        }
    }

    /// Closes stdin.
    pub fn hang_up(&mut self) {
        if let Wire::Lines { stdin, .. } = &mut self.wire {
            *stdin = None;
        }
    }

    pub fn session(&self) -> Option<&str> {
        match &self.wire {
            Wire::Http(http) => http.session.as_deref(),
            Wire::Lines { .. } | Wire::Sse { .. } => None,
        }
    }

    /// Opens the session with the client's capabilities, and returns the result. Over HTTP also opens the
    /// event stream.
    pub async fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": self.revision,
            "capabilities": capabilities,
            "clientInfo": { "name": "testkit", "version": "0" },
        });
        let answer = self.request("initialize", params).await;
        let result = answer.get("result").unwrap_or_else(|| panic!("no session: {answer}")).clone();
        self.notify("notifications/initialized", json!({})).await;
        if let Wire::Http(http) = &self.wire {
            let events = http.get_events(None).await;
            tokio::spawn(pump(events, self.sender.clone()));
        }
        result
    }

    /// Makes a request and returns its whole response, with `result` or `error`.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(&json!(id)).await
    }

    /// Makes a request and returns its result.
    pub async fn result(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.request(method, params).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Makes a request that must fail and returns the error code.
    pub async fn refused(&mut self, method: &str, params: Value) -> i64 {
        let answer = self.request(method, params).await;
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method} was not refused: {answer}"))
    }

    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Sends a request without waiting for its response, and returns its id.
    pub async fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let params = self.dressed(params);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    /// Adds the members that every request of the newest revision carries, if missing.
    fn dressed(&self, mut params: Value) -> Value {
        if self.is_newest() {
            let mut meta = json!({
                "io.modelcontextprotocol/protocolVersion": NEWEST,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "testkit", "version": "0" },
            });
            if let (Some(all), Value::Object(given)) = (meta.as_object_mut(), params["_meta"].take()) {
                all.extend(given);
            }
            params["_meta"] = meta;
        }
        params
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// Answers a request of the server.
    pub async fn reply(&mut self, id: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }

    /// Sends a message verbatim.
    pub async fn send(&mut self, message: &Value) {
        let mut bytes = message.to_string().into_bytes();
        match &mut self.wire {
            Wire::Lines { stdin, .. } => {
                bytes.push(b'\n');
                let stdin = stdin.as_mut().expect("the line is open");
                within("writing a line", stdin.write_all(&bytes)).await.unwrap();
                stdin.flush().await.unwrap();
            }
            Wire::Sse { http, endpoint } => {
                let request = RawHttpRequest::post(endpoint.as_str(), bytes).token(&http.token);
                let reply = http.connection.exchange(&request).await;
                self.status = reply.status();
                if reply.status() != 202 {
                    self.arrived.push_back(reply.json());
                }
            }
            Wire::Http(http) => {
                let mut request = RawHttpRequest::post("/mcp", bytes).token(&http.token);
                if let Some(session) = &http.session {
                    request = request.header("Mcp-Session-Id", session);
                }
                request = with_headers(request, self.revision, message);
                let (status, messages) = http.post(&request).await;
                self.status = status;
                self.arrived.extend(messages);
            }
        }
    }

    /// Sends bytes that need not be a message, as a line or as a body, without headers that describe them.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.wire {
            Wire::Lines { stdin, .. } => {
                let stdin = stdin.as_mut().expect("the line is open");
                let line = [bytes, b"\n"].concat();
                within("writing a line", stdin.write_all(&line)).await.unwrap();
            }
            Wire::Http(http) => {
                let (status, messages) =
                    http.post(&RawHttpRequest::post("/mcp", bytes).token(&http.token)).await;
                self.status = status;
                self.arrived.extend(messages);
            }
            Wire::Sse { .. } => panic!("not supported on this transport"),
        }
    }

    /// Writes part of a line.
    pub async fn write_part(&mut self, bytes: &[u8]) {
        let Wire::Lines { stdin: Some(stdin), .. } = &mut self.wire else { panic!("only on an open line") };
        within("writing a part of a line", stdin.write_all(bytes)).await.unwrap();
    }

    /// Waits for the response to a request.
    pub async fn answer(&mut self, id: &Value) -> Value {
        let is_answer = |message: &Value| message.get("method").is_none() && message.get("id") == Some(id);
        self.wait(&format!("an answer to {id}"), is_answer).await
    }

    /// Waits for a notification, or for a request of the server.
    pub async fn told(&mut self, method: &str) -> Value {
        self.wait(method, |message| message.get("method").is_some_and(|own| own == method)).await
    }

    /// Waits for a matching message; others stay queued.
    pub async fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(at) = self.arrived.iter().position(&fits) {
                return self.arrived.remove(at).expect("it was found there");
            }
            match within(what, self.inbox.recv()).await {
                Some(message) => self.arrived.push_back(message),
                None => panic!("{what}: the connection has ended"),
            }
        }
    }

    /// Returns all messages that no call waited for.
    pub fn unasked(&mut self) -> Vec<Value> {
        while let Ok(message) = self.inbox.try_recv() {
            self.arrived.push_back(message);
        }
        self.arrived.drain(..).collect()
    }

    /// Returns all messages until the peer ends.
    pub async fn until_end(&mut self) -> Vec<Value> {
        // Only the reader of the connection sends from now on.
        (self.sender, _) = mpsc::channel(1);
        while let Some(message) = within("the end of the connection", self.inbox.recv()).await {
            self.arrived.push_back(message);
        }
        self.arrived.drain(..).collect()
    }

    /// Subscribes to changes, as in the newest revision, and waits for the acknowledgement.
    pub async fn listen(&mut self, notifications: Value) -> Value {
        let id = self.next_id;
        let params = self.dressed(json!({ "notifications": notifications }));
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params });
        match &self.wire {
            Wire::Http(http) => {
                self.next_id += 1;
                let request = RawHttpRequest::post("/mcp", message.to_string()).token(&http.token);
                let request = with_headers(request, self.revision, &message);
                let mut connection = RawHttpConnection::open(http.address).await;
                connection.send(&request.bytes(http.address)).await.unwrap();
                let head = connection.head().await.expect("an answer to subscriptions/listen");
                assert!(head.status == 200 && head.is_event_stream(), "{head:?}");
                tokio::spawn(pump(RawSseReader::of(connection), self.sender.clone()));
            }
            Wire::Lines { .. } | Wire::Sse { .. } => {
                self.next_id += 1;
                self.send(&message).await;
            }
        }
        let acknowledged = self.told("notifications/subscriptions/acknowledged").await;
        assert_eq!(acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
        acknowledged
    }
}

/// Adds the headers that repeat the body, as far as the revision has them.
pub fn with_headers(request: RawHttpRequest, revision: &str, message: &Value) -> RawHttpRequest {
    let method = message["method"].as_str().unwrap_or_default();
    let opens = method == "initialize" && revision != NEWEST;
    if opens || revision < "2025-06-18" {
        return request;
    }
    let request = request.header("MCP-Protocol-Version", revision);
    if revision != NEWEST || method.is_empty() {
        return request;
    }
    let request = request.header("Mcp-Method", method);
    let name = ["name", "uri", "taskId"].into_iter().find_map(|key| message["params"].get(key));
    match name.and_then(Value::as_str) {
        Some(name) => request.header("Mcp-Name", name),
        None => request,
    }
}

impl HttpWire {
    async fn open(address: SocketAddr, token: &str) -> HttpWire {
        let connection = RawHttpConnection::open(address).await;
        HttpWire { address, token: token.to_owned(), session: None, connection }
    }

    /// Posts a message and returns the status and every message of the response.
    async fn post(&mut self, request: &RawHttpRequest) -> (u16, Vec<Value>) {
        self.connection.send(&request.bytes(self.address)).await.unwrap();
        let head = self.connection.head().await.expect("an answer before the connection ends");
        if let Some(session) = head.header("mcp-session-id") {
            self.session = Some(session.to_owned());
        }
        if head.is_event_stream() {
            let connection =
                std::mem::replace(&mut self.connection, RawHttpConnection::open(self.address).await);
            let (mut events, mut messages) = (RawSseReader::of(connection), Vec::new());
            while let Some(event) = events.next().await {
                if !event.data.is_empty() {
                    messages.push(serde_json::from_str(&event.data).unwrap());
                }
            }
            return (head.status, messages);
        }
        let body = self.connection.rest(&head).await;
        let message = (!body.is_empty()).then(|| {
            serde_json::from_slice(&body)
                .unwrap_or_else(|_| json!({ "not JSON": String::from_utf8_lossy(&body) }))
        });
        (head.status, message.into_iter().collect())
    }

    /// Opens the stream of messages that belong to no request.
    async fn get_events(&self, last_event_id: Option<&str>) -> RawSseReader {
        let mut request =
            RawHttpRequest::get("/mcp").token(&self.token).header("Accept", "text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("Mcp-Session-Id", session);
        }
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let mut connection = RawHttpConnection::open(self.address).await;
        connection.send(&request.bytes(self.address)).await.unwrap();
        let head = connection.head().await.expect("an answer to GET /mcp");
        assert!(head.status == 200 && head.is_event_stream(), "{head:?}");
        RawSseReader::of(connection)
    }
}

async fn pump(mut events: RawSseReader, into: mpsc::Sender<Value>) {
    while let Some(event) = events.next().await {
        if let Ok(message) = serde_json::from_str(&event.data)
            && into.send(message).await.is_err()
        {
            return;
        }
    }
}
