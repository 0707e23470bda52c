//! Every transport with every revision that it can carry, one set of assertions for all.

use crate::standard::{fill, standard_assertions};
use crate::support::{home, stdio};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, TestHome};

#[derive(Debug, Clone, Copy)]
enum Transport {
    Stdio,
    /// A second `--mcp` process on the home of a hub that runs.
    Bridge,
    Http,
    /// HTTP+SSE as of 2024-11-05. It has sessions only, so the newest revision cannot use it.
    LegacySse,
}

async fn check(transport: Transport, revision: &'static str) {
    let home = home();
    fill(&home);
    let (mut client, _hub) = connect(&home, transport, revision).await;
    standard_assertions(&mut client, &home).await;
}

async fn connect(
    home: &TestHome,
    transport: Transport,
    revision: &'static str,
) -> (McpClient, Option<HubProcess>) {
    if let Transport::Stdio = transport {
        return (stdio(home, revision), None);
    }
    let hub = home.serve().await;
    let client = match transport {
        Transport::Stdio | Transport::Bridge => stdio(home, revision),
        Transport::Http => McpClient::http(hub.address, &hub.token, revision).await,
        Transport::LegacySse => McpClient::sse(hub.address, &hub.token, revision).await,
    };
    (client, Some(hub))
}

macro_rules! pairs {
    ($($name:ident: $transport:ident $revision:literal;)*) => {
        $(#[tokio::test]
        async fn $name() {
            check(Transport::$transport, $revision).await;
        })*
    };
}

pairs! {
    stdio_2024_11_05: Stdio "2024-11-05";
    stdio_2025_03_26: Stdio "2025-03-26";
    stdio_2025_06_18: Stdio "2025-06-18";
    stdio_2025_11_25: Stdio "2025-11-25";
    stdio_2026_07_28: Stdio "2026-07-28";
    bridge_2024_11_05: Bridge "2024-11-05";
    bridge_2025_03_26: Bridge "2025-03-26";
    bridge_2025_06_18: Bridge "2025-06-18";
    bridge_2025_11_25: Bridge "2025-11-25";
    bridge_2026_07_28: Bridge "2026-07-28";
    http_2024_11_05: Http "2024-11-05";
    http_2025_03_26: Http "2025-03-26";
    http_2025_06_18: Http "2025-06-18";
    http_2025_11_25: Http "2025-11-25";
    http_2026_07_28: Http "2026-07-28";
    legacy_sse_2024_11_05: LegacySse "2024-11-05";
    legacy_sse_2025_03_26: LegacySse "2025-03-26";
    legacy_sse_2025_06_18: LegacySse "2025-06-18";
    legacy_sse_2025_11_25: LegacySse "2025-11-25";
}

/// A client of HTTP+SSE cannot speak of sessions that the newest revision does not have.
#[tokio::test]
async fn legacy_sse_does_not_carry_the_newest_revision() {
    let home = home();
    let hub = home.serve().await;
    let mut client = McpClient::sse(hub.address, &hub.token, "2026-07-28").await;
    // Asked for by `initialize`, it is not what is agreed on.
    let result = client.initialize(serde_json::json!({})).await;
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(client.refused("server/discover", serde_json::json!({})).await, -32601);
}
