//! A changed configuration takes effect while sessions stay open; a bad one does not.

use crate::support::{BINARY, http, names, stdio};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED, run};
use portcullis_testkit::raw_http::RawHttpRequest;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

async fn tools(client: &mut McpClient) -> Vec<String> {
    let listed = client.result("tools/list", json!({})).await;
    names(&listed["tools"]).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_new_rule_holds_in_an_open_session() {
    let home = TestHome::new(BINARY);
    let hub = home.serve().await;
    let mut open = http(&hub, "2025-11-25").await;
    let mut bridge = stdio(&home, "2025-11-25");
    bridge.initialize(json!({})).await;
    assert_eq!(tools(&mut open).await.len(), 10);
    home.configure(&format!("{UNHURRIED}[[policy]]\ntools = [\"memory_*\"]\ndecision = \"deny\"\n"));
    let expected = [
        "workspace_read",
        "workspace_write",
        "workspace_list",
        "script_list",
        "script_run",
        "script_exec",
        "script_reload",
        "script_propose",
    ];
    until("the rule holds", async || (tools(&mut open).await == expected).then_some(())).await;
    assert_eq!(tools(&mut bridge).await, expected);
    let read = json!({ "name": "memory_read", "arguments": {} });
    assert_eq!(open.refused("tools/call", read).await, -32602);
    hub.process.says("configuration reloaded").await;
    // And back.
    home.configure(UNHURRIED);
    until("the rule is gone", async || (tools(&mut open).await.len() == 10).then_some(())).await;
}

#[tokio::test]
async fn a_new_rate_limit_holds_in_an_open_session() {
    let home = TestHome::new(BINARY);
    let hub = home.serve().await;
    let mut open = http(&hub, "2025-11-25").await;
    home.configure("[rate_limit]\nrequests_per_second = 1\nburst = 1\n");
    until("the limit holds", async || {
        let answer = open.request("tools/list", json!({})).await;
        (answer["error"]["code"] == -32000).then_some(())
    })
    .await;
    home.configure(UNHURRIED);
    until("the limit is gone", async || {
        for _ in 0..5 {
            if open.request("tools/list", json!({})).await.get("error").is_some() {
                return None;
            }
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn a_new_log_level_holds_at_once() {
    let home = TestHome::new(BINARY);
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    home.configure(&format!("{UNHURRIED}[logging]\nlevel = \"debug\"\n"));
    until("requests are logged", async || {
        client.result("ping", json!({})).await;
        client.process().stderr().contains("DEBUG mcp: received request method=ping").then_some(())
    })
    .await;
}

async fn readiness(hub: &HubProcess) -> (u16, Value) {
    let reply = RawHttpRequest::get("/readyz").send(hub.address).await;
    (reply.status(), reply.json())
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_told() {
    let home = TestHome::new(BINARY);
    home.configure(&format!("{UNHURRIED}[[policy]]\ntools = [\"memory_*\"]\ndecision = \"deny\"\n"));
    let mut hub = home.serve().await;
    let mut open = http(&hub, "2025-11-25").await;
    for (bad, says) in [
        ("[rate_limit]\nrequests_per_secnd = 5\nburst = 0\n", "did you mean `requests_per_second`?"),
        ("this is not TOML", "portcullis.toml"),
        ("[[policy]]\ntools = [\"x\"]\ndecision = \"maybe\"\n", "maybe"),
    ] {
        home.configure(bad);
        // The log learns what is wrong; who has no token learns only that something is.
        until("the bad file is seen", async || hub.process.stderr().contains(says).then_some(())).await;
        let why = until("the bad file is told of", async || {
            let (status, said) = readiness(&hub).await;
            let reason = said["components"]["config"]["reason"].as_str()?.to_owned();
            (status == 503).then_some(reason)
        })
        .await;
        assert!(why.contains("the previous configuration is in force") && !why.contains(says), "{why}");
        // The previous configuration is in force.
        let listed = tools(&mut open).await;
        assert!(listed.len() == 8 && !listed.iter().any(|name| name.starts_with("memory")), "{listed:?}");
    }
    home.configure(UNHURRIED);
    until("the good file is seen", async || (readiness(&hub).await.0 == 200).then_some(())).await;
    assert_eq!(tools(&mut open).await.len(), 10);
    assert!(hub.process.is_running());
}

/// What needs a restart is said, and the rest of the file holds.
#[tokio::test]
async fn a_key_that_needs_a_restart_is_named() {
    let home = TestHome::new(BINARY);
    let hub = home.serve().await;
    until("the change is seen", async || {
        // Written again each time: the hub begins to look only after it has greeted.
        home.configure(&format!("{UNHURRIED}[memory]\nenabled = false\n"));
        hub.process.stderr().contains("some keys need a restart").then_some(())
    })
    .await;
    assert!(hub.process.stderr().contains("memory.enabled"), "{}", hub.process.stderr());
    let mut client = http(&hub, "2026-07-28").await;
    assert_eq!(tools(&mut client).await.len(), 10);
}

/// Lists are kept from one request to the next; what must not be told is not kept in them.
#[tokio::test]
async fn a_new_secret_is_masked_in_lists_at_once() {
    let home = TestHome::new(BINARY);
    let hub = home.serve().await;
    let mut open = http(&hub, "2025-11-25").await;
    let listed = async |open: &mut McpClient| open.result("tools/list", json!({})).await.to_string();
    let before = listed(&mut open).await;
    let value = "Return the text of one file";
    assert!(before.contains(value));
    assert_eq!(run(home.command(&["secrets", "set", "TEXT", "--weak"]), value).await.code, 0);
    until("the list is masked", async || {
        let list = listed(&mut open).await;
        (list.contains("[REDACTED:TEXT]") && !list.contains(value)).then_some(())
    })
    .await;
    assert_eq!(home.run(&["secrets", "remove", "TEXT"]).await.code, 0);
    until("the list is as before", async || (listed(&mut open).await == before).then_some(())).await;
}

#[tokio::test]
async fn tokens_are_masked_by_their_shape_unless_the_configuration_says_otherwise() {
    let home = TestHome::new(BINARY);
    let github = format!("ghp_{}", &"a1B2c3D4e5".repeat(4)[..36]);
    let own = format!("pcl_{}", "a1B2c3D4e5".repeat(5).get(..43).unwrap());
    let registered = "correct horse battery staple";
    home.write("a.md", format!("{github} {own} {registered}"));
    assert_eq!(run(home.command(&["secrets", "set", "WORDS", "--weak"]), registered).await.code, 0);
    let hub = home.serve().await;
    let mut open = http(&hub, "2025-11-25").await;
    let read = async |open: &mut McpClient| {
        let result = open.call("workspace_read", json!({ "path": "a.md" })).await;
        result["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let masked = read(&mut open).await;
    assert!(!masked.contains(&github) && masked.contains("[REDACTED:WORDS]"), "{masked}");
    home.configure(&format!("{UNHURRIED}[redaction]\ntoken_shapes = false\n"));
    until("the token is left alone", async || read(&mut open).await.contains(&github).then_some(())).await;
    // Neither what was registered nor a token of ours is ever left.
    let left = read(&mut open).await;
    assert!(!left.contains(&own) && left.contains("[REDACTED:WORDS]"), "{left}");
    home.configure(UNHURRIED);
    until("the token is masked again", async || (!read(&mut open).await.contains(&github)).then_some(()))
        .await;
}
