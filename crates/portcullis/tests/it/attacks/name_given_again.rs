//! A stranger holds streams with a token that was found. The token is taken back and the name given again at once, before
//! anybody looks who is still known: the name is there, and the streams must end all the same.

use crate::changing_server::done;
use crate::support::{home, stdio};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::UNHURRIED;
use serde_json::json;

const CHANGED: &str = "notifications/tools/list_changed";

#[tokio::test]
async fn streams_end_with_their_token_and_not_with_its_name() {
    let home = home();
    let hub = home.serve().await;
    let token = home.add_client("ada", &[]).await;
    let mut listener = McpClient::http(hub.address, &token, "2026-07-28").await;
    listener.listen(json!({ "toolsListChanged": true })).await;
    let mut session = McpClient::http(hub.address, &token, "2025-11-25").await;
    session.initialize(json!({})).await;
    let mut legacy = McpClient::sse(hub.address, &token, "2024-11-05").await;
    legacy.initialize(json!({})).await;
    let mut line = stdio(&home, "2026-07-28");
    line.listen(json!({ "toolsListChanged": true })).await;

    done(&home, &["clients", "revoke", "ada"]).await;
    home.add_client("ada", &[]).await;
    for stranger in [&mut session, &mut legacy, &mut listener] {
        stranger.until_end().await;
    }
    // The same look let the line go on, whose client stands in no list.
    home.configure(&format!("{UNHURRIED}[[policy]]\ntools = [\"workspace_write\"]\ndecision = \"deny\"\n"));
    line.told(CHANGED).await;
}
