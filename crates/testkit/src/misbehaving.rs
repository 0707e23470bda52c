//! A server over HTTP that does what a test says, and nothing that a good server would do by itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::broadcast;

/// A request, as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: serde_json::Value,
    /// On which connection it came, counted from 0.
    pub connection: usize,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The method of the message in it.
    pub fn asks(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// A result for the message in it, as JSON.
    pub fn result(&self, result: serde_json::Value) -> Does {
        let message = serde_json::json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result });
        Does::Answer(answer(200, &[("Content-Type", "application/json")], &message.to_string()))
    }

    /// What a server of 2025-11-25 with one tool says, with a session.
    pub fn usual(&self) -> Does {
        let tool = serde_json::json!({ "name": "echo", "inputSchema": { "type": "object" } });
        match (self.method.as_str(), self.asks()) {
            ("POST", "initialize") => {
                let result = serde_json::json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "usual", "version": "1" } });
                let message =
                    serde_json::json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result });
                let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "s-1")];
                Does::Answer(answer(200, &headers, &message.to_string()))
            }
            ("POST", "tools/list") => self.result(serde_json::json!({ "tools": [tool] })),
            ("POST", "tools/call") => {
                self.result(serde_json::json!({ "content": [{ "type": "text", "text": "echoed" }] }))
            }
            ("POST", method) if method.starts_with("notifications/") => Does::Answer(answer(202, &[], "")),
            ("POST", _) => Does::Answer(answer(400, &[], "what?")),
            _ => Does::Answer(answer(405, &[], "")),
        }
    }
}

/// What is done about a request.
#[derive(Debug, Clone)]
pub enum Does {
    Answer(Vec<u8>),
    /// Writes this, and then nothing any more; the connection stays open.
    Hangs(Vec<u8>),
    /// Writes this, and closes the connection.
    Closes(Vec<u8>),
    /// Writes this again and again.
    Floods {
        head: Vec<u8>,
        piece: Vec<u8>,
    },
    /// Writes this, and then whatever is said, until nobody is left who could say anything.
    Tells {
        head: Vec<u8>,
        says: broadcast::Sender<Vec<u8>>,
    },
}

/// Writes an answer with a length.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// Writes the beginning of a stream of events; it ends with its connection.
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
pub struct Misbehaving {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Misbehaving {
    pub async fn open(does: impl Fn(&Seen) -> Does + Send + Sync + 'static) -> std::io::Result<Misbehaving> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (does, seeing) = (Arc::new(does), seen.clone());
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((visitor, _)) = listener.accept().await {
                // At once: a clock that stands still does not wait for the kernel to gather more.
                let _ = visitor.set_nodelay(true);
                tokio::spawn(serve(visitor, connection, does.clone(), seeing.clone()));
                connection += 1;
            }
        });
        Ok(Misbehaving { address, seen })
    }

    /// Speaks TLS, with the certificate of the tests.
    pub async fn open_tls(
        does: impl Fn(&Seen) -> Does + Send + Sync + 'static,
    ) -> std::io::Result<Misbehaving> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (does, seeing, acceptor) = (Arc::new(does), seen.clone(), crate::world::acceptor());
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((visitor, _)) = listener.accept().await {
                let (does, seeing, acceptor) = (does.clone(), seeing.clone(), acceptor.clone());
                tokio::spawn(async move {
                    // Whoever does not trust the certificate goes away.
                    if let Ok(visitor) = acceptor.accept(visitor).await {
                        serve(visitor, connection, does, seeing).await;
                    }
                });
                connection += 1;
            }
        });
        Ok(Misbehaving { address, seen })
    }

    /// Listens on a socket of this machine instead. The address means nothing then.
    pub fn open_unix(
        path: &std::path::Path,
        does: impl Fn(&Seen) -> Does + Send + Sync + 'static,
    ) -> std::io::Result<Misbehaving> {
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
        Ok(Misbehaving { address: SocketAddr::from(([127, 0, 0, 1], 0)), seen })
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(
    mut visitor: impl AsyncReadExt + AsyncWriteExt + Unpin,
    connection: usize,
    does: Arc<dyn Fn(&Seen) -> Does + Send + Sync>,
    seen: Arc<Mutex<Vec<Seen>>>,
) {
    while let Some(request) = request(&mut visitor, connection).await {
        let done = does(&request);
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let written = match done {
            Does::Answer(bytes) => visitor.write_all(&bytes).await,
            Does::Closes(bytes) => {
                let _ = visitor.write_all(&bytes).await;
                return;
            }
            Does::Hangs(bytes) => {
                let _ = visitor.write_all(&bytes).await;
                // Until the other side has enough of it.
                let _ = visitor.read(&mut [0; 1]).await;
                return;
            }
            Does::Tells { head, says } => {
                let mut hears = says.subscribe();
                drop(says);
                let mut written = visitor.write_all(&head).await;
                while let (Ok(()), Ok(said)) = (&written, hears.recv().await) {
                    written = visitor.write_all(&said).await;
                }
                return;
            }
            Does::Floods { head, piece } => {
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

async fn request(visitor: &mut (impl AsyncReadExt + Unpin), connection: usize) -> Option<Seen> {
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
        return Some(Seen { method, path, headers, body, connection });
    }
}
