//! Each a clear message, nothing half done.

use super::{Admin, problem};
use crate::support::home;
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::json;

#[tokio::test]
async fn every_input_has_a_bound_and_every_bound_an_error() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let raw = async |path: &str, body: Vec<u8>| {
        let request = RawHttpRequest::post(format!("/api/v1{path}"), body);
        let request = request.header("Cookie", &ann.cookie).header("x-csrf-token", &ann.csrf);
        problem(&request.send(hub.address).await)
    };
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    for (path, body, expected) in [
        ("/clients", vec![b' '; 2 * 1024 * 1024], "too_large"),
        ("/clients", b"{".to_vec(), "invalid"),
        ("/clients", b"{\"name\":\"a\",\"name\":\"b\"}".to_vec(), "invalid"),
        ("/clients", b"{\"nam\":\"a\"}".to_vec(), "invalid"),
        ("/clients", b"{\"name\":\"\xff\"}".to_vec(), "invalid"),
        ("/clients", deep(100_000), "invalid"),
        ("/clients", json!({ "name": "a".repeat(65) }).to_string().into(), "invalid"),
        ("/clients", json!({ "name": "a", "allow": vec!["*"; 201] }).to_string().into(), "invalid"),
        (
            "/approvals/x",
            json!({ "decision": "once", "reason": "r", "digest": "" }).to_string().into(),
            "invalid",
        ),
        (
            "/approvals/x",
            json!({ "decision": "reject", "reason": "r".repeat(501), "digest": "" }).to_string().into(),
            "invalid",
        ),
        ("/tools/workspace_list/try", json!({ "arguments": [] }).to_string().into(), "invalid"),
        ("/tools/none/try", json!({}).to_string().into(), "invalid"),
        (
            "/policy/test",
            json!({ "client": "a", "tool": "b", "origin": "moon" }).to_string().into(),
            "invalid",
        ),
        ("/policy/test", json!({ "client": "a", "tool": "b", "at": "moon" }).to_string().into(), "invalid"),
        ("/servers", json!({ "name": "../x", "command": "y" }).to_string().into(), "invalid"),
        ("/servers/import", json!({ "text": "not a configuration" }).to_string().into(), "invalid"),
        ("/password", json!({ "old": "x", "new": "long enough for all" }).to_string().into(), "forbidden"),
    ] {
        let shown: String = String::from_utf8_lossy(&body).chars().take(60).collect();
        assert_eq!(raw(path, body).await, expected, "{path} {shown}");
    }
    for (path, expected) in [
        ("/audit?limit=0", "invalid"),
        ("/audit?limit=501", "invalid"),
        ("/audit?limit=x", "invalid"),
        ("/audit?tool=[", "invalid"),
        ("/audit?since=yesterday", "invalid"),
        ("/audit?cursor=x", "invalid"),
        ("/audit?colour=red", "invalid"),
        ("/audit/x", "not_found"),
        ("/approvals/%00", "not_found"),
        ("/tools/..%2f..%2fetc", "not_found"),
        ("/servers/none", "not_found"),
    ] {
        assert_eq!(problem(&ann.get(path).await), expected, "{path}");
    }
    for (value, expected) in [("short", "invalid"), (&"x".repeat(70_000), "invalid")] {
        let reply = ann.send("PUT", "/secrets/X", json!({ "value": value })).await;
        assert_eq!(problem(&reply), expected);
    }
    assert_eq!(
        problem(&ann.send("PUT", "/secrets/lower", json!({ "value": "long enough" })).await),
        "invalid"
    );
    let grants = json!({ "value": "long enough", "grants": ["http://x/y"] });
    assert_eq!(problem(&ann.send("PUT", "/secrets/X", grants).await), "invalid");
    assert_eq!(home.run(&["secrets", "list", "--json"]).await.json(), json!([]));
    assert_eq!(home.run(&["clients", "list", "--json"]).await.json().as_array().unwrap().len(), 1);
}
