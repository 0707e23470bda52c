//! Clients that want to be told of changes at a server, while that server comes and goes.

use crate::changing_server::{Shop, done, tool};
use crate::support::{home, http, names, stdio};
use crate::upstream::sees;
use portcullis_testkit::wait::until;
use serde_json::json;

const UPDATED: &str = "notifications/resources/updated";

#[tokio::test]
async fn a_server_that_takes_the_place_of_another_tells_whom_that_one_told() {
    let offer = json!({
        "tools": [tool("touch", "Changes what it is told")],
        "resources": [{ "uri": "shop://0", "name": "0" }, { "uri": "shop://a", "name": "a" }],
    });
    for (isolated, switched) in [(false, true), (false, false), (true, true), (true, false)] {
        let (home, shop) = (home(), Shop::new(&offer));
        let settings = format!("trust = \"always\"\nper_client = {isolated}");
        shop.configure(&home, &settings);
        let hub = home.serve().await;
        let mut client = http(&hub, "2025-11-25").await;
        sees(&mut client, "shop_touch").await;
        let told = |uri: &str| {
            let line = format!("resources/subscribe {uri}");
            shop.calls().iter().filter(|call| **call == line).count()
        };
        for uri in ["shop://0", "shop://a"] {
            client.result("resources/subscribe", json!({ "uri": uri })).await;
            until("the server knows", async || (told(uri) == 1).then_some(())).await;
        }
        if switched {
            done(&home, &["mcp", "disable", "shop"]).await;
            until("it is gone", async || {
                let listed = client.result("tools/list", json!({})).await;
                (!names(&listed["tools"]).contains(&"shop_touch")).then_some(())
            })
            .await;
            // Nobody is there to hear it, and it counts all the same.
            client.result("resources/unsubscribe", json!({ "uri": "shop://0" })).await;
            done(&home, &["mcp", "enable", "shop"]).await;
        } else {
            client.result("resources/unsubscribe", json!({ "uri": "shop://0" })).await;
            shop.configure(&home, &format!("{settings}\ntimeout_ms = 12345"));
        }
        until("the next one knows", async || (told("shop://a") == 2).then_some(())).await;
        // Told in their order, so it would have come first.
        assert_eq!(told("shop://0"), 1, "isolated: {isolated}, switched: {switched}");
        sees(&mut client, "shop_touch").await;
        client.call("shop_touch", json!({ "updated": "shop://a" })).await;
        assert_eq!(client.told(UPDATED).await["params"]["uri"], "shop://a");
    }
}

#[tokio::test]
async fn a_server_that_refuses_to_tell_is_heard_by_whoever_asked() {
    let offer = json!({
        "tools": [tool("touch", "Changes what it is told")],
        "resources": [{ "uri": "shop://a", "name": "a" }, { "uri": "shop://b/silent", "name": "b" }],
    });
    let (home, shop) = (home(), Shop::new(&offer));
    shop.configure(&home, "trust = \"always\"");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "shop_touch").await;
    for _ in 0..2 {
        let refused = client.request("resources/subscribe", json!({ "uri": "shop://b/silent" })).await;
        assert_eq!(refused["error"]["message"], "unknown method", "{refused}");
        assert_eq!(client.result("resources/subscribe", json!({ "uri": "shop://a" })).await, json!({}));
    }
    // Whoever was refused is not told, and the others are.
    for uri in ["shop://b/silent", "shop://a"] {
        client.call("shop_touch", json!({ "updated": uri })).await;
    }
    assert_eq!(client.told(UPDATED).await["params"]["uri"], "shop://a");
}

#[tokio::test]
async fn whoever_watches_a_resource_starts_a_lazy_server() {
    let offer = json!({
        "tools": [tool("touch", "Changes what it is told")],
        "resources": [{ "uri": "shop://a", "name": "a" }],
    });
    let (home, shop) = (home(), Shop::new(&offer));
    shop.configure(&home, "trust = \"always\"\nstart = \"lazy\"");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "shop_touch").await;
    until("it rests", async || {
        let status = home.run(&["mcp", "status", "--json"]).await.json();
        (status["servers"][0]["idle"] == true).then_some(())
    })
    .await;
    assert_eq!(shop.calls(), [""; 0]);
    client.result("resources/subscribe", json!({ "uri": "shop://a" })).await;
    let told = || shop.calls().iter().any(|call| call == "resources/subscribe shop://a");
    until("the server runs, and knows", async || told().then_some(())).await;
    // A part of it, which is told of too, and under its own name.
    client.call("shop_touch", json!({ "updated": "shop://a/b" })).await;
    assert_eq!(client.told(UPDATED).await["params"]["uri"], "shop://a/b");
}

#[tokio::test]
async fn an_address_that_is_too_long_is_not_watched() {
    let home = home();
    let hub = home.serve().await;
    let uri = format!("shop://{}", "a".repeat(8 * 1024));
    let words = "Invalid params: `uri` must have at most 8192 bytes";
    let mut session = http(&hub, "2025-11-25").await;
    let refused = session.request("resources/subscribe", json!({ "uri": uri })).await;
    assert_eq!(refused["error"]["message"], words);
    let listen = json!({ "notifications": { "resourceSubscriptions": ["shop://a", uri] } });
    for mut client in [http(&hub, "2026-07-28").await, stdio(&home, "2026-07-28")] {
        let refused = client.request("subscriptions/listen", listen.clone()).await;
        assert_eq!(refused["error"]["message"], words);
    }
}

/// What a client wants no more is taken back where it was begun, though nobody offers it any longer.
#[tokio::test]
async fn a_resource_that_is_gone_is_not_watched_for_ever() {
    let offer = |resources: serde_json::Value| json!({ "tools": [tool("touch", "Changes what it is told")], "resources": resources });
    let (home, shop) = (home(), Shop::new(&offer(json!([{ "uri": "shop://a", "name": "a" }]))));
    shop.configure(&home, "trust = \"always\"\nper_client = true\nidle_stop = \"1h\"");
    let hub = home.serve().await;
    let mut line = stdio(&home, "2025-11-25");
    line.initialize(json!({})).await;
    sees(&mut line, "shop_touch").await;
    line.call("shop_touch", json!({})).await;
    line.result("resources/subscribe", json!({ "uri": "shop://a" })).await;
    shop.offers(&offer(json!([])));
    until("it is gone", async || {
        let listed = line.result("resources/list", json!({})).await;
        (!listed.to_string().contains("shop://a")).then_some(())
    })
    .await;
    // With a server of its own that ends as soon as its client has gone, whatever that wanted to hear.
    let clients = async || {
        let status = home.run(&["mcp", "status", "--json"]).await.json();
        status["servers"][0]["clients"].as_array().map_or(0, Vec::len)
    };
    until("it has its own", async || (clients().await == 1).then_some(())).await;
    line.hang_up();
    until("its own ends", async || (clients().await == 0).then_some(())).await;
    drop(hub);
}

#[tokio::test]
async fn what_a_person_is_to_be_asked_about_is_not_watched() {
    let offer = json!({
        "tools": [tool("touch", "Changes what it is told")],
        "resources": [{ "uri": "shop://a", "name": "a" }],
    });
    let (home, shop) = (home(), Shop::new(&offer));
    shop.configure(&home, "trust = \"always\"\ndecision = \"ask\"");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "shop_touch").await;
    let refused = client.request("resources/subscribe", json!({ "uri": "shop://a" })).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("cannot be subscribed to"), "{refused}");
    // The address would be what reaches the server.
    assert_eq!(shop.calls(), Vec::<String>::new());
}
