//! Servers that run on demand: `start = "lazy"` and `idle_stop`.

use crate::changing_server::{Shop, done, tool};
use crate::support::{home, names, text};
use crate::upstream::{lives, sees, server, serving};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, TestHome};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::time::Duration;

/// A client for a hub that is not the first on its home, which alone tells a token.
async fn connect(home: &TestHome, hub: &HubProcess) -> McpClient {
    let name = format!("client-{}", hub.process.pid());
    let token = home.add_client(&name, &[]).await;
    let mut client = McpClient::http(hub.address, &token, "2025-11-25").await;
    client.initialize(json!({})).await;
    client
}

async fn status(home: &TestHome) -> Value {
    home.run(&["mcp", "status", "--json"]).await.json()["servers"][0].clone()
}

async fn until_idle(home: &TestHome, idle: bool) -> Value {
    until(&format!("the server is connected, and idle is {idle}"), async || {
        let status = status(home).await;
        (status["status"] == "connected" && status["idle"] == idle).then_some(status)
    })
    .await
}

async fn tools(client: &mut McpClient) -> Vec<String> {
    let listed = client.result("tools/list", json!({})).await;
    names(&listed["tools"])
        .iter()
        .map(|name| (*name).to_owned())
        .filter(|name| name.starts_with("shop"))
        .collect()
}

fn offer() -> Value {
    json!({
        "instructions": "Pay at once.",
        "tools": [tool("pay", "Pay an invoice")],
        "prompts": [{ "name": "hello", "description": "Say hello" }],
        "resources": [{ "uri": "shop://a", "name": "a" }],
    })
}

#[tokio::test]
async fn a_lazy_server_is_known_without_being_started() {
    // One that is started with the hub shows that this one was not.
    for lazy in [true, false] {
        let (home, shop) = (home(), Shop::new(&offer()));
        let start = if lazy { "lazy" } else { "now" };
        shop.configure(&home, &format!("trust = \"always\"\nstart = \"{start}\""));
        let mut hub = home.serve().await;
        // Nothing is remembered yet, so it is started once to learn what it offers.
        let stands = until_idle(&home, lazy).await;
        assert_eq!(
            (&stands["tools"], &stands["prompts"], &stands["resources"]),
            (&json!(1), &json!(1), &json!(1))
        );
        hub.process.stop().await;

        shop.offers(&json!({ "fail": true }));
        let hub = home.serve().await;
        let mut client = connect(&home, &hub).await;
        if !lazy {
            until("it was started, and failed", async || {
                (status(&home).await["status"] == "failed").then_some(())
            })
            .await;
            assert!(tools(&mut client).await.is_empty());
            continue;
        }
        let stands = until_idle(&home, true).await;
        assert_eq!(tools(&mut client).await, ["shop_pay"]);
        assert_eq!((&stands["revision"], &stands["reason"]), (&json!("2025-11-25"), &Value::Null));
        let shown = done(&home, &["mcp", "status"]).await;
        assert!(shown.contains("shop    connected (idle)  1"), "{shown}");
        assert!(client.result("resources/list", json!({})).await.to_string().contains("shop://a"));
        let prompts = client.result("prompts/list", json!({})).await;
        assert_eq!(prompts["prompts"][0]["name"], "shop_hello");
        // The call starts it, and learns that it cannot be started: at once, not after the ten seconds that are waited for
        // one that may still come back.
        let call = client.call("shop_pay", json!({}));
        let refused =
            tokio::time::timeout(Duration::from_secs(9), call).await.expect("an answer before that");
        assert!(
            text(&refused)
                .contains("server `shop` failed to start (handshake): the connection to the server ended"),
            "{refused}"
        );
        shop.offers(&offer());
        assert_eq!(text(&client.call("shop_pay", json!({})).await), "called pay");
        assert_eq!(status(&home).await["idle"], false, "it stays as it is not said when it is to be ended");
    }
}

#[tokio::test]
async fn what_is_remembered_is_of_the_same_program_and_of_what_was_looked_at() {
    let (home, shop) = (home(), Shop::new(&offer()));
    shop.configure(&home, "start = \"lazy\"");
    let mut hub = home.serve().await;
    // Learnt, and nothing let in by that.
    let stands = until_idle(&home, true).await;
    assert_eq!((&stands["tools"], stands["quarantined"].as_array().unwrap().len()), (&json!(0), 4));
    done(&home, &["mcp", "trust", "shop", "--yes", "--policy", "allow"]).await;
    let mut client = connect(&home, &hub).await;
    sees(&mut client, "shop_pay").await;
    assert_eq!(status(&home).await["idle"], true, "trusting does not start it in the hub");
    hub.process.stop().await;

    // Other definitions than those that were looked at wait, although they were remembered.
    let path = home.path().join("workspace/secure/offers.json");
    let kept = std::fs::read_to_string(&path).unwrap();
    let changed = kept.replace("Pay an invoice", "Pay two invoices");
    assert_ne!(kept, changed);
    std::fs::write(&path, changed).unwrap();
    let mut hub = home.serve().await;
    let mut client = connect(&home, &hub).await;
    let stands = until_idle(&home, true).await;
    assert_eq!(stands["quarantined"][0]["name"], "pay", "{stands}");
    assert!(tools(&mut client).await.is_empty());
    hub.process.stop().await;

    // Another program may offer anything: it is asked.
    std::fs::write(&path, &kept).unwrap();
    let mut program = std::fs::read(shop.program()).unwrap();
    program.push(0);
    std::fs::write(shop.program(), program).unwrap();
    shop.offers(&json!({ "tools": [tool("other", "Another tool")] }));
    let _hub = home.serve().await;
    let stands = until_idle(&home, true).await;
    let waiting = stands["quarantined"].to_string();
    assert!(waiting.contains("other") && waiting.contains("program"), "{stands}");
}

#[tokio::test]
async fn an_idle_server_is_ended_and_started_again_by_the_next_call() {
    // Without the setting the same process answers.
    for (more, rests) in
        [("idle_stop = \"1s\"", true), ("start = \"lazy\"\nidle_stop = \"1s\"", true), ("", false)]
    {
        let home = home();
        let hub = serving(&home, &[server("far", more)]).await;
        let mut client = connect(&home, &hub).await;
        sees(&mut client, "far_seen").await;
        let pid = async |client: &mut McpClient| {
            let answer = client.call("far_seen", json!({})).await;
            let seen: Value = serde_json::from_str(text(&answer)).unwrap();
            i32::try_from(seen["pid"].as_i64().unwrap()).unwrap()
        };
        let first = pid(&mut client).await;
        if rests {
            until_idle(&home, true).await;
            until("its process ends", async || (!lives(first)).then_some(())).await;
            sees(&mut client, "far_seen").await;
        }
        // A call that takes longer than a server may be idle is not cut off.
        let slow = json!({ "steps": 3, "step_ms": 700 });
        assert_eq!(text(&client.call("far_slow", slow).await), "done at last");
        assert_eq!(pid(&mut client).await != first, rests, "{more}");
    }
}
