//! A small HTTP server whose responses come from a function.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server on loopback, and the requests that it received.
pub(super) struct LoopbackSite {
    pub(super) address: SocketAddr,
    pub(super) asked: Arc<Mutex<Vec<String>>>,
}

impl LoopbackSite {
    pub(super) async fn open(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> LoopbackSite {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, asking) = (Arc::new(answer), asked.clone());
        tokio::spawn(async move {
            while let Ok((mut visitor, _)) = listener.accept().await {
                let (answer, asking) = (answer.clone(), asking.clone());
                tokio::spawn(async move {
                    let request = head(&mut visitor).await;
                    let answer = answer(&request);
                    asking.lock().push(request);
                    let _ = visitor.write_all(&answer).await;
                    let _ = visitor.shutdown().await;
                });
            }
        });
        LoopbackSite { address, asked }
    }

    pub(super) fn place(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

/// Reads a request: its head, and as much of the body as has arrived.
pub(super) async fn head(visitor: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = visitor.read(&mut piece).await.unwrap_or(0);
        request.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text.into_owned();
            }
        }
        if count == 0 {
            return text.into_owned();
        }
    }
}

/// Returns a response with headers and a body.
pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Whatever\r\nconnection: close\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    [text.as_bytes(), b"\r\n", body.as_ref()].concat()
}

pub(super) fn redirect(status: u16, to: &str) -> Vec<u8> {
    answer(status, &[("location", to), ("content-length", "0")], "")
}
