//! A server that was given a secret says it back as its own name, which the hub writes down with how the server stands.

use crate::changing_server::{Shop, done, tool};
use crate::support::home;
use portcullis_testkit::process::{TestHome, run};
use portcullis_testkit::wait::until;
use serde_json::json;

const SECRET: &str = "r7q4z9k2m1x8";

/// What the hub has written down of a server, once its name is `name`.
async fn written(home: &TestHome, name: &str) -> String {
    until("how the server stands is written", async || {
        let text = std::fs::read_to_string(home.path().join("workspace/secure/servers.json"));
        text.ok().filter(|text| text.contains("\"connected\"") && text.contains(name))
    })
    .await
}

async fn hub_with(shop: &Shop) -> TestHome {
    let home = home();
    shop.configure(&home, "");
    done(&home, &["mcp", "trust", "shop", "--yes", "--policy", "allow"]).await;
    home
}

#[tokio::test]
async fn a_secret_is_not_written_down_as_a_name() {
    let shop = Shop::new(&json!({ "name": SECRET, "tools": [tool("pay", "Pay")] }));
    let home = hub_with(&shop).await;
    assert_eq!(run(home.command(&["secrets", "set", "MINE"]), SECRET).await.code, 0);
    let _hub = home.serve().await;
    let text = written(&home, "[REDACTED:MINE]").await;
    assert!(!text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn what_is_no_secret_is_written_as_it_is() {
    // The weak variant: a hub that does not know the secret, which the check notices.
    let shop = Shop::new(&json!({ "name": SECRET, "tools": [tool("pay", "Pay")] }));
    let home = hub_with(&shop).await;
    let _hub = home.serve().await;
    assert!(written(&home, SECRET).await.contains(SECRET));
}
