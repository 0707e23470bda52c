//! A name is taken back and given again. Its new holder knows the session of the former, and uses it before anybody looks
//! who is still known.
//!
//! Tasks are kept from it likewise: `server/src/tasks.rs`, `an_inherited_name_inherits_no_task`.

use crate::changing_server::done;
use crate::support::{home, request};
use portcullis_testkit::raw_http::{RawHttpRequest, RawHttpResponse};
use serde_json::json;
use std::net::SocketAddr;

async fn opened(address: SocketAddr, token: &str) -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let reply: RawHttpResponse = RawHttpRequest::post("/mcp", request(1, "initialize", params).to_string())
        .token(token)
        .send(address)
        .await;
    reply.head.header("mcp-session-id").unwrap().to_owned()
}

/// Returns the status of a request in a session.
async fn status(address: SocketAddr, token: &str, session: &str) -> u16 {
    let body = request(2, "tools/list", json!({})).to_string();
    let request = RawHttpRequest::post("/mcp", body).token(token).header("mcp-session-id", session);
    request.header("mcp-protocol-version", "2025-11-25").send(address).await.status()
}

#[tokio::test]
async fn is_not_found_by_the_next_holder_of_the_name() {
    let home = home();
    let hub = home.serve().await;
    let former = home.add_client("ada", &[]).await;
    let session = opened(hub.address, &former).await;
    // The check can fail: whoever the hub takes for the one that opened it gets this.
    assert_eq!(status(hub.address, &former, &session).await, 200);
    done(&home, &["clients", "revoke", "ada"]).await;
    let next = home.add_client("ada", &[]).await;
    assert_eq!(status(hub.address, &next, &session).await, 404);
    let own = opened(hub.address, &next).await;
    assert_eq!(status(hub.address, &next, &own).await, 200);
}
