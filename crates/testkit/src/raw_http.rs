//! Raw HTTP/1.1: a test must be able to send what no library would.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use crate::wait::within;
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A request, as it is written.
#[derive(Debug, Clone)]
pub struct RawHttpRequest {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl RawHttpRequest {
    pub fn new(method: &'static str, path: impl Into<String>) -> RawHttpRequest {
        RawHttpRequest { method, path: path.into(), headers: Vec::new(), body: None }
    }

    pub fn get(path: impl Into<String>) -> RawHttpRequest {
        RawHttpRequest::new("GET", path)
    }

    /// A POST as MCP clients send it.
    pub fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> RawHttpRequest {
        let mut request = RawHttpRequest::new("POST", path);
        request.body = Some(body.into());
        request
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
    }

    /// A request with a JSON body.
    pub fn json(method: &'static str, path: impl Into<String>, body: &serde_json::Value) -> RawHttpRequest {
        let mut request = RawHttpRequest::new(method, path).header("Content-Type", "application/json");
        request.body = Some(body.to_string().into_bytes());
        request
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> RawHttpRequest {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn token(self, token: &str) -> RawHttpRequest {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// Returns the bytes; `Host` is the address unless the request has its own.
    pub fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text.push_str(&format!("Host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// Sends it on a new connection.
    pub async fn send(&self, address: SocketAddr) -> RawHttpResponse {
        RawHttpConnection::open(address).await.exchange(self).await
    }
}

/// The head of a response.
#[derive(Debug, Clone)]
pub struct RawHttpHead {
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl RawHttpHead {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn is_event_stream(&self) -> bool {
        self.header("content-type").is_some_and(|value| value.starts_with("text/event-stream"))
    }

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    }
}

/// A whole response.
#[derive(Debug, Clone)]
pub struct RawHttpResponse {
    pub head: RawHttpHead,
    pub body: Vec<u8>,
}

impl RawHttpResponse {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| serde_json::json!({ "not JSON": self.text(), "why": error.to_string() }))
    }
}

/// A keep-alive connection.
pub struct RawHttpConnection {
    address: SocketAddr,
    stream: TcpStream,
    /// Read and not yet used.
    buffer: Vec<u8>,
}

impl RawHttpConnection {
    pub async fn open(address: SocketAddr) -> RawHttpConnection {
        #[expect(clippy::disallowed_methods, reason = "to a hub that a test started")]
        let stream = within("connecting", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        RawHttpConnection { address, stream, buffer: Vec::new() }
    }

    /// Connects from a given local address.
    pub async fn open_from(source: IpAddr, address: SocketAddr) -> RawHttpConnection {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "to a hub that a test started")]
        let stream = within("connecting", socket.connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        RawHttpConnection { address, stream, buffer: Vec::new() }
    }

    /// Sends bytes verbatim. An error means that the peer has closed.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        within("sending", self.stream.write_all(bytes)).await
    }

    pub async fn exchange(&mut self, request: &RawHttpRequest) -> RawHttpResponse {
        let bytes = request.bytes(self.address);
        let sent = self.send(&bytes).await;
        // A request may be refused, and the connection closed, before all of it was read. The response is there all the same.
        let is_cut_off = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        };
        assert!(sent.as_ref().err().is_none_or(is_cut_off), "{sent:?}");
        self.reply().await.expect_reply()
    }

    /// Reads a whole response; `None` if the connection was closed instead.
    pub async fn reply(&mut self) -> Option<RawHttpResponse> {
        let head = self.head().await?;
        let body = self.rest(&head).await;
        Some(RawHttpResponse { head, body })
    }

    /// Reads the head of a response.
    pub async fn head(&mut self) -> Option<RawHttpHead> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            if !self.more().await {
                return None;
            }
        };
        let text = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers =
            headers.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
        Some(RawHttpHead { status, headers })
    }

    /// Reads the body of a response.
    pub async fn rest(&mut self, head: &RawHttpHead) -> Vec<u8> {
        let mut body = Vec::new();
        if head.is_chunked() {
            while let Some(chunk) = self.chunk().await {
                body.extend_from_slice(&chunk);
            }
            return body;
        }
        let length = head.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        while self.buffer.len() < length && self.more().await {}
        body.extend(self.buffer.drain(..length.min(self.buffer.len())));
        body
    }

    /// Reads one chunk of a body; `None` at its end, or if the connection is closed.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break at;
            }
            if !self.more().await {
                return None;
            }
        };
        let size = std::str::from_utf8(&self.buffer[..line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        let whole = line + 2 + size + 2;
        while self.buffer.len() < whole {
            if !self.more().await {
                return None;
            }
        }
        let chunk = self.buffer[line + 2..line + 2 + size].to_vec();
        self.buffer.drain(..whole);
        (size > 0).then_some(chunk)
    }

    /// Reads on; false at the end of the connection.
    async fn more(&mut self) -> bool {
        self.buffer.reserve(16 * 1024);
        matches!(within("reading", self.stream.read_buf(&mut self.buffer)).await, Ok(1..))
    }

    /// Waits until the peer has closed; discards what it still sends.
    pub async fn closes(&mut self) {
        self.buffer.clear();
        while self.more().await {
            self.buffer.clear();
        }
    }
}

trait ExpectReply {
    fn expect_reply(self) -> RawHttpResponse;
}

impl ExpectReply for Option<RawHttpResponse> {
    #[expect(clippy::expect_used, reason = "a helper that fails is a test that fails")]
    fn expect_reply(self) -> RawHttpResponse {
        self.expect("an answer before the connection ends")
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// One server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawSseEvent {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: String,
}

/// Reads a response as server-sent events.
pub struct RawSseReader {
    connection: RawHttpConnection,
    text: String,
    ended: bool,
}

impl RawSseReader {
    pub fn of(connection: RawHttpConnection) -> RawSseReader {
        RawSseReader { connection, text: String::new(), ended: false }
    }

    /// Returns the next event; comments and empty priming events are skipped, but their ids count.
    pub async fn next(&mut self) -> Option<RawSseEvent> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let event = parse(&block);
                if !event.data.is_empty() || event.id.is_some() {
                    return Some(event);
                }
                continue;
            }
            if self.ended {
                return None;
            }
            match self.connection.chunk().await {
                Some(chunk) => self.text.push_str(&String::from_utf8_lossy(&chunk)),
                None => self.ended = true,
            }
        }
    }
}

fn parse(block: &str) -> RawSseEvent {
    let mut event = RawSseEvent::default();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => event.name = Some(value.to_owned()),
            "data" => event.data.push_str(value),
            _ => {}
        }
    }
    event
}
