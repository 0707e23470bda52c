//! An HTTP server that does what a test scripts, and nothing else.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::broadcast;

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: serde_json::Value,
    /// The connection it came on, counted from 0.
    pub connection: usize,
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the method of its message.
    pub fn asks(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// Returns a result for its message, as JSON.
    pub fn result(&self, result: serde_json::Value) -> MisbehavingReply {
        let message = serde_json::json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result });
        MisbehavingReply::Answer(answer(200, &[("Content-Type", "application/json")], &message.to_string()))
    }

    /// Returns the ordinary response of a server of 2025-11-25 with one tool and a session.
    pub fn usual(&self) -> MisbehavingReply {
        let tool = serde_json::json!({ "name": "echo", "inputSchema": { "type": "object" } });
        match (self.method.as_str(), self.asks()) {
            ("POST", "initialize") => {
                let result = serde_json::json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "usual", "version": "1" } });
                let message =
                    serde_json::json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result });
                let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "s-1")];
                MisbehavingReply::Answer(answer(200, &headers, &message.to_string()))
            }
            ("POST", "tools/list") => self.result(serde_json::json!({ "tools": [tool] })),
            ("POST", "tools/call") => {
                self.result(serde_json::json!({ "content": [{ "type": "text", "text": "echoed" }] }))
            }
            ("POST", method) if method.starts_with("notifications/") => {
                MisbehavingReply::Answer(answer(202, &[], ""))
            }
            ("POST", _) => MisbehavingReply::Answer(answer(400, &[], "what?")),
            _ => MisbehavingReply::Answer(answer(405, &[], "")),
        }
    }
}

/// The reaction to a request.
#[derive(Debug, Clone)]
pub enum MisbehavingReply {
    Answer(Vec<u8>),
    /// Writes this, and then nothing; the connection stays open.
    Hangs(Vec<u8>),
    /// Writes this, and closes the connection.
    Closes(Vec<u8>),
    /// Writes this repeatedly.
    Floods {
        head: Vec<u8>,
        piece: Vec<u8>,
    },
    /// Writes this, and then everything from a channel, until all its senders are gone.
    Tells {
        head: Vec<u8>,
        says: broadcast::Sender<Vec<u8>>,
    },
}

/// Returns a response with a length.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// Returns the head of an event stream, which ends with its connection.
pub fn events(headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n".to_owned();
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// The server, and every request that it got.
pub struct MisbehavingServer {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl MisbehavingServer {
    pub async fn open(
        does: impl Fn(&RecordedRequest) -> MisbehavingReply + Send + Sync + 'static,
    ) -> std::io::Result<MisbehavingServer> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (does, seeing) = (Arc::new(does), seen.clone());
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((visitor, _)) = listener.accept().await {
                // Without Nagle's algorithm: under a paused clock nothing waits for the kernel to gather
                // more.
                let _ = visitor.set_nodelay(true);
                tokio::spawn(serve(visitor, connection, does.clone(), seeing.clone()));
                connection += 1;
            }
        });
        Ok(MisbehavingServer { address, seen })
    }

    /// Speaks TLS, with the test certificate.
    pub async fn open_tls(
        does: impl Fn(&RecordedRequest) -> MisbehavingReply + Send + Sync + 'static,
    ) -> std::io::Result<MisbehavingServer> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (does, seeing, acceptor) = (Arc::new(does), seen.clone(), crate::canary_network::acceptor());
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((visitor, _)) = listener.accept().await {
                let (does, seeing, acceptor) = (does.clone(), seeing.clone(), acceptor.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate disconnects.
                    if let Ok(visitor) = acceptor.accept(visitor).await {
                        serve(visitor, connection, does, seeing).await;
                    }
                });
                connection += 1;
            }
        });
        Ok(MisbehavingServer { address, seen })
    }

    /// Listens on a Unix socket instead. The address has no meaning then.
    pub fn open_unix(
        path: &std::path::Path,
        does: impl Fn(&RecordedRequest) -> MisbehavingReply + Send + Sync + 'static,
    ) -> std::io::Result<MisbehavingServer> {
        let listener = UnixListener::bind(path)?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (does, seeing) = (Arc::new(does), seen.clone());
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((visitor, _)) = listener.accept().await {
                tokio::spawn(serve(visitor, connection, does.clone(), seeing.clone()));
                connection += 1;
            }
        });
        Ok(MisbehavingServer { address: SocketAddr::from(([127, 0, 0, 1], 0)), seen })
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().clone()
    }
}

async fn serve(
    mut visitor: impl AsyncReadExt + AsyncWriteExt + Unpin,
    connection: usize,
    does: Arc<dyn Fn(&RecordedRequest) -> MisbehavingReply + Send + Sync>,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
) {
    while let Some(request) = request(&mut visitor, connection).await {
        let done = does(&request);
        seen.lock().push(request);
        let written = match done {
            MisbehavingReply::Answer(bytes) => visitor.write_all(&bytes).await,
            MisbehavingReply::Closes(bytes) => {
                let _ = visitor.write_all(&bytes).await;
                return;
            }
            MisbehavingReply::Hangs(bytes) => {
                let _ = visitor.write_all(&bytes).await;
                // Until the peer disconnects.
                let _ = visitor.read(&mut [0; 1]).await;
                return;
            }
            MisbehavingReply::Tells { head, says } => {
                let mut hears = says.subscribe();
                drop(says);
                let mut written = visitor.write_all(&head).await;
                while let (Ok(()), Ok(said)) = (&written, hears.recv().await) {
                    written = visitor.write_all(&said).await;
                }
                return;
            }
            MisbehavingReply::Floods { head, piece } => {
                let mut written = visitor.write_all(&head).await;
                while written.is_ok() {
                    written = visitor.write_all(&piece).await;
                }
                written
            }
        };
        if written.is_err() {
            return;
        }
    }
}

async fn request(visitor: &mut (impl AsyncReadExt + Unpin), connection: usize) -> Option<RecordedRequest> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = visitor.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ');
        let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
        if bytes.len() < at + 4 + length {
            continue;
        }
        let body = serde_json::from_slice(&bytes[at + 4..]).unwrap_or_default();
        return Some(RecordedRequest { method, path, headers, body, connection });
    }
}
