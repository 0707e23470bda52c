//! A third-party server: `@modelcontextprotocol/server-everything`, over both transports.
//!
//! PORTCULLIS_EVERYTHING is the path of its `dist/index.js`; without it the tests are skipped, with a message.

use crate::support::{UpstreamFixture, reads, said};
use portcullis_testkit::wait::until;
use portcullis_upstream::StatusKind;
use serde_json::json;
use std::net::SocketAddr;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

async fn start(script: &str, way: &str, port: u16) -> Child {
    let mut command = Command::new("node");
    command.args([script, way]).env("PORT", port.to_string()).kill_on_drop(true);
    command.stdout(Stdio::null()).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    #[expect(clippy::disallowed_methods, reason = "only to see whether the server listens")]
    until("it listens", async || TcpStream::connect(address).await.ok()).await;
    child
}

#[tokio::test]
async fn everything_works_by_both_ways_and_after_a_restart() {
    let Ok(script) = std::env::var("PORTCULLIS_EVERYTHING") else {
        eprintln!("skipped: PORTCULLIS_EVERYTHING is not set, so server-everything is not asked");
        return;
    };
    for (way, path) in [("streamableHttp", "mcp"), ("sse", "sse")] {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let mut child = start(&script, way, port).await;
        let world = UpstreamFixture::connected(reads(&format!("http://127.0.0.1:{port}/{path}"))).await;
        let status = world.upstream.status();
        assert!(status.tools >= 10 && status.revision == Some("2025-11-25"), "{way} {status:?}");
        let mut client = world.client().await;
        let sum = client.call("up_get-sum", json!({ "a": 2, "b": 3 })).await;
        assert!(said(&sum).contains('5'), "{way} {sum}");
        let echoed = client.call("up_echo", json!({ "message": "hi" })).await;
        assert_eq!(said(&echoed), "Echo: hi", "{way}");
        let listed = client.result("resources/list", json!({})).await;
        assert!(!listed["resources"].as_array().unwrap().is_empty(), "{way}");

        // A new process knows no session of the old one.
        child.kill().await.unwrap();
        let _child = start(&script, way, port).await;
        let again = client.call("up_echo", json!({ "message": "again" })).await;
        assert_eq!(said(&again), "Echo: again", "{way}");
        world.status(StatusKind::Connected).await;
    }
}
