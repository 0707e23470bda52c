//! A transport that only this file knows, added in one place, takes a real handshake and a real call.

use crate::support::{UpstreamFixture, prefixed};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use portcullis_store::pins::ServerIdentity;
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::{
    OutboundMessage, RequestError, ServerInstanceId, ServerTransport, StatusKind, TransportHint,
    TransportLink, TransportParts,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

/// Each connection is a pair of sockets, with a server on the other end.
#[derive(Debug, Clone, Default)]
struct SocketPairTransport {
    /// The hint that each connection was opened with.
    opened: Arc<Mutex<Vec<Option<String>>>>,
    waited: Arc<AtomicUsize>,
}

struct SocketPairLink(tokio::sync::Mutex<OwnedWriteHalf>);

impl ServerTransport for SocketPairTransport {
    fn open(&self, parts: TransportParts<'_>) -> Result<Arc<dyn TransportLink>, String> {
        let mut opened = self.opened.lock();
        opened.push(parts.hint.map(|hint| hint.as_str().to_owned()));
        let (hub_end, server_end) = UnixStream::pair().map_err(|error| error.to_string())?;
        if opened.len() == 3 {
            parts.diagnostics.push("the third connection is refused".to_owned());
            return Err("no more connections".to_owned());
        }
        tokio::spawn(serve(server_end));
        let (read, write) = hub_end.into_split();
        let inbound = parts.inbound;
        tokio::spawn(async move {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                inbound.receive(line.as_bytes(), None);
            }
            inbound.close();
        });
        Ok(Arc::new(SocketPairLink(tokio::sync::Mutex::new(write))))
    }

    fn identity(&self) -> BoxFuture<'_, ServerIdentity> {
        Box::pin(async { ServerIdentity::from([("socket pair".to_owned(), "of this test".to_owned())]) })
    }

    fn is_local(&self) -> bool {
        true
    }

    fn wait_free<'a>(&'a self, instance: &'a ServerInstanceId) -> BoxFuture<'a, ()> {
        assert_eq!(instance.0, "up");
        self.waited.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {})
    }
}

impl TransportLink for SocketPairLink {
    fn send<'a>(&'a self, message: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move {
            let mut socket = self.0.lock().await;
            let sent = async {
                socket.write_all(&message.bytes).await?;
                socket.write_all(b"\n").await
            };
            sent.await.map_err(|_: std::io::Error| RequestError::Closed)
        })
    }

    fn hint(&self) -> Option<TransportHint> {
        Some(TransportHint::new("socket pair"))
    }
}

/// A server with one tool.
async fn serve(socket: UnixStream) {
    let (read, mut write) = socket.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let answer = match asked["method"].as_str() {
            Some("initialize") => {
                json!({ "result": { "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } } })
            }
            Some("tools/list") => {
                json!({ "result": { "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] } })
            }
            Some("tools/call") => json!({ "result": { "content": [{ "type": "text", "text": "echoed" }] } }),
            _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
        };
        let Value::Object(mut answer) = answer else { continue };
        if asked.get("id").is_none() {
            continue;
        }
        answer.insert("jsonrpc".to_owned(), "2.0".into());
        answer.insert("id".to_owned(), asked["id"].clone());
        if write.write_all(format!("{}\n", Value::Object(answer)).as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_transport_is_one_type_behind_two_traits() {
    let transport = SocketPairTransport::default();
    let world = UpstreamFixture::connected(prefixed(transport.clone())).await;
    assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    assert_eq!(*transport.opened.lock(), [None]);
    assert_eq!(
        world.upstream.snapshot().unwrap().identity.get("socket pair").map(String::as_str),
        Some("of this test")
    );

    // The next connection is given what the first one left.
    world.upstream.reconnect();
    until("it is opened again", async || (transport.opened.lock().len() == 2).then_some(())).await;
    world.status(StatusKind::Connected).await;
    assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    assert_eq!(transport.opened.lock()[1].as_deref(), Some("socket pair"));

    // A person reads why a connection failed.
    world.upstream.reconnect();
    let status = world.status(StatusKind::Failed).await;
    assert_eq!(status.reason.as_deref(), Some("no more connections"));
    assert_eq!(status.stderr, ["the third connection is refused"]);
    assert!(transport.waited.load(Ordering::Relaxed) >= 3);
}
