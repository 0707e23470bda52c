//! Servers that offer the same: who has it does not depend on who came first, and is said.

use crate::changing_server::{Shop, done, tool};
use crate::support::{home, http, names, text};
use crate::upstream::sees;
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

/// Servers that appear under their own names, and are taken as they come.
fn configure(home: &TestHome, servers: &[(&str, &Shop)]) {
    let more = "prefix = \"\"\ntrust = \"always\"\neffect = \"read\"";
    let sections: String = servers.iter().map(|(name, shop)| shop.section(name, more)).collect();
    home.configure(&format!("{UNHURRIED}{sections}"));
}

/// Waits until a server stands so.
async fn stands(home: &TestHome, name: &str, so: impl Fn(&Value) -> bool) -> Value {
    until("the server stands so", async || {
        let status = home.run(&["mcp", "status", "--json"]).await.json();
        let all = status["servers"].as_array().unwrap().clone();
        all.into_iter().find(|server| server["name"] == name && so(server))
    })
    .await
}

fn left_out(status: &Value) -> Vec<&str> {
    status["dropped"].as_array().unwrap().iter().map(|one| one["why"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_name_that_two_offer_has_one_owner_and_the_other_is_told() {
    let prompt = json!([{ "name": "hello" }]);
    let (home, a, b) = (
        home(),
        Shop::new(
            &json!({ "tools": [tool("echo", "Echo"), tool("workspace_read", "Read"), tool("call_tool", "Call"), tool("only_a", "A")], "prompts": prompt }),
        ),
        Shop::new(&json!({ "tools": [tool("echo", "Echo"), tool("only_b", "B")], "prompts": prompt })),
    );
    configure(&home, &[("a", &a), ("b", &b)]);
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "only_a").await;
    sees(&mut client, "only_b").await;
    let lost =
        stands(&home, "b", |status| status["dropped"].as_array().is_some_and(|all| all.len() == 2)).await;
    let told = ["`echo` is a tool of server `a`; this one is `b_echo`", "`hello` is a prompt of server `a`"];
    assert_eq!(left_out(&lost), told);
    assert_eq!((&lost["tools"], &lost["prompts"]), (&json!(2), &json!(0)), "{lost}");
    let shadows = stands(&home, "a", |status| status["tools"] == 4).await;
    assert_eq!(
        left_out(&shadows),
        [
            "`workspace_read` is a tool of the hub; this one is `a_workspace_read`",
            "`call_tool` is a tool of the hub; this one is `a_call_tool`"
        ]
    );
    let listed = client.result("tools/list", json!({})).await;
    assert_eq!(names(&listed["tools"]).iter().filter(|name| **name == "echo").count(), 1);
    assert_eq!(text(&client.call("echo", json!({})).await), "called echo");
    let prompts = client.result("prompts/list", json!({})).await;
    assert_eq!(names(&prompts["prompts"]), ["hello"]);

    // While its owner is away nobody else answers to the name, and afterwards it is the same one.
    done(&home, &["mcp", "disable", "a"]).await;
    let kept = stands(&home, "b", |status| left_out(status).iter().any(|why| why.contains("reserved"))).await;
    assert_eq!(
        left_out(&kept)[0],
        "`echo` is reserved for server `a`, which is not running; this one is `b_echo`"
    );
    assert_eq!(client.refused("tools/call", json!({ "name": "echo", "arguments": {} })).await, -32602);
    done(&home, &["mcp", "enable", "a"]).await;
    sees(&mut client, "echo").await;
    assert_eq!(text(&client.call("echo", json!({})).await), "called echo");
    assert_eq!((a.calls(), b.calls()), (vec!["echo".to_owned(); 2], Vec::new()));
    assert_eq!(text(&client.call("b_echo", json!({})).await), "called echo");
    assert_eq!(b.calls(), ["echo"]);

    // Whoever is configured no longer has no name.
    configure(&home, &[("b", &b)]);
    stands(&home, "b", |status| left_out(status).is_empty()).await;
    sees(&mut client, "echo").await;
    client.call("echo", json!({})).await;
    assert_eq!((a.calls().len(), b.calls().len()), (2, 2));
}

#[tokio::test]
async fn whoever_lists_an_address_is_asked_before_those_who_have_a_form_for_it() {
    let form = json!([{ "uriTemplate": "b://{+x}", "name": "any" }]);
    let (home, a, b) = (
        home(),
        Shop::new(&json!({ "tools": [tool("only_a", "A")], "resourceTemplates": form })),
        Shop::new(
            &json!({ "tools": [tool("only_b", "B")], "resources": [{ "uri": "b://secret", "name": "s" }], "resourceTemplates": form }),
        ),
    );
    configure(&home, &[("a", &a), ("b", &b)]);
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "only_a").await;
    sees(&mut client, "only_b").await;
    for uri in ["b://secret", "b://other"] {
        client.result("resources/read", json!({ "uri": uri })).await;
    }
    assert_eq!((a.calls(), b.calls()), (vec!["b://other".to_owned()], vec!["b://secret".to_owned()]));
    let so = |status: &Value| status["resources"] == 1 && !left_out(status).is_empty();
    let status = stands(&home, "b", so).await;
    assert_eq!(left_out(&status), ["`b://{+x}` is a template of server `a`"]);
}

#[tokio::test]
async fn an_address_that_two_list_is_listed_once_by_the_one_who_answers() {
    let listed = json!([{ "uri": "x://1", "name": "one" }]);
    let form = json!([{ "uriTemplate": "x://{+x}", "name": "any" }]);
    let offer =
        |name: &str| json!({ "tools": [tool(name, "T")], "resources": listed, "resourceTemplates": form });
    let (home, a, longer) = (home(), Shop::new(&offer("only_a")), Shop::new(&offer("only_b")));
    let more = "trust = \"always\"\neffect = \"read\"";
    home.configure(&format!("{UNHURRIED}{}{}", a.section("a", more), longer.section("longer", more)));
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "a_only_a").await;
    sees(&mut client, "longer_only_b").await;
    let resources = client.result("resources/list", json!({})).await;
    let ours = resources["resources"].as_array().unwrap().iter().filter(|one| one["uri"] == "x://1").count();
    assert_eq!(ours, 1, "{resources}");
    for uri in ["x://1", "x://2"] {
        client.result("resources/read", json!({ "uri": uri })).await;
    }
    assert_eq!((a.calls(), longer.calls()), (Vec::new(), vec!["x://1".to_owned(), "x://2".to_owned()]));
    let status =
        stands(&home, "a", |status| status["status"] == "connected" && status["resources"] == 0).await;
    let lost = ["`x://{+x}` is a template of server `longer`", "`x://1` is a resource of server `longer`"];
    assert_eq!(left_out(&status), lost, "{status}");
}

#[tokio::test]
async fn a_form_of_addresses_that_nobody_has_looked_at_answers_for_nothing() {
    let offer = |forms: &[&str]| {
        let forms: Vec<Value> =
            forms.iter().map(|form| json!({ "uriTemplate": form, "name": "f" })).collect();
        json!({ "tools": [tool("see", "See")], "resourceTemplates": forms })
    };
    let (home, shop) = (home(), Shop::new(&offer(&["shop://bill/{id}"])));
    shop.configure(&home, "effect = \"read\"");
    done(&home, &["mcp", "trust", "shop", "--yes", "--policy", "allow"]).await;
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "shop_see").await;
    client.result("resources/read", json!({ "uri": "shop://bill/1" })).await;
    shop.offers(&offer(&["shop://bill/{id}", "other://{+all}"]));
    done(&home, &["mcp", "reload", "shop"]).await;
    let status = stands(&home, "shop", |status| status["quarantined"] != json!([])).await;
    let waits = json!([{ "kind": "template", "name": "other://{+all}", "why": "new" }]);
    assert_eq!(status["quarantined"], waits);
    client.refused("resources/read", json!({ "uri": "other://x" })).await;
    client.result("resources/read", json!({ "uri": "shop://bill/2" })).await;
    done(&home, &["mcp", "trust", "shop", "--yes", "--policy", "allow"]).await;
    until("it is let in", async || {
        let read = client.request("resources/read", json!({ "uri": "other://x" })).await;
        read.get("result").map(|_| ())
    })
    .await;
    assert_eq!(shop.calls(), ["shop://bill/1", "shop://bill/2", "other://x"]);
}
