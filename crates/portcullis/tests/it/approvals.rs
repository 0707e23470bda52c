//! Calls that a person decides about: from the client, from the command line, and across a crash.

use crate::changing_server::{Shop, tool};
use crate::standard::fill;
use crate::support::{home, http, stdio, text};
use crate::upstream::sees;
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Returns a home in which every write is asked about, and calls wait for as long as given.
fn asking(wait_secs: u64) -> TestHome {
    let home = home();
    home.configure(&format!(
        "{UNHURRIED}[approvals]\nwait_secs = {wait_secs}\n[[policy]]\ntools = [\"workspace_write\"]\ndecision = \"ask\"\n"
    ));
    home
}

fn note(content: &str) -> Value {
    json!({ "path": "note.md", "content": content })
}

/// Returns the ids of what waits, oldest first.
async fn pending(home: &TestHome) -> Vec<String> {
    let list = home.run(&["approvals", "--json"]).await.json();
    list.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

async fn decide(home: &TestHome, args: &[&str]) -> String {
    let ran = home.run(&[&["approvals"], args].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// Told to come back, with the id; then the same call runs, once.
async fn come_back_and_run(home: &TestHome, client: &mut McpClient) {
    let told = client.call("workspace_write", note("one")).await;
    let ids = pending(home).await;
    let [id] = ids.as_slice() else { panic!("{ids:?}") };
    assert_eq!(told["isError"], true);
    assert!(text(&told).contains(&format!("is pending approval by a person; its id is {id}")), "{told}");
    assert_eq!(client.call("workspace_write", note("one")).await, told, "the same question");

    decide(home, &["approve", &id[..5]]).await;
    let edited = client.call("workspace_write", note("One")).await;
    assert!(text(&edited).contains("pending approval") && !text(&edited).contains(id), "{edited}");
    assert!(!home.files().join("note.md").exists());
    // Written in another order it is the same call.
    let same = client.call("workspace_write", json!({ "content": "one", "path": "note.md" })).await;
    assert_eq!(same["isError"], false, "{same}");
    assert_eq!(std::fs::read_to_string(home.files().join("note.md")).unwrap(), "one");
    let again = client.call("workspace_write", note("one")).await;
    assert!(text(&again).contains("pending approval"), "one yes, one call: {again}");
}

#[tokio::test]
async fn a_call_comes_back_for_its_approval_in_both_eras_and_on_both_transports() {
    for revision in ["2025-06-18", "2026-07-28"] {
        let home = asking(0);
        let mut client = stdio(&home, revision);
        if !client.is_newest() {
            client.initialize(json!({})).await;
        }
        come_back_and_run(&home, &mut client).await;

        let home = asking(0);
        let hub = home.serve().await;
        come_back_and_run(&home, &mut http(&hub, revision).await).await;
    }
}

#[tokio::test]
async fn a_waiting_call_says_so_and_runs_as_soon_as_it_is_approved() {
    let home = asking(60);
    let mut client = stdio(&home, "2025-06-18");
    client.initialize(json!({})).await;
    let params =
        json!({ "name": "workspace_write", "arguments": note("x"), "_meta": { "progressToken": 7 } });
    let call = client.begin("tools/call", params.clone()).await;
    let progress = client.told("notifications/progress").await;
    let ids = pending(&home).await;
    assert_eq!(progress["params"]["progressToken"], 7);
    assert!(progress["params"]["message"].as_str().unwrap().contains(&ids[0]), "{progress}");
    decide(&home, &["approve", &ids[0]]).await;
    let answer = client.answer(&json!(call)).await;
    assert_eq!(answer["result"]["isError"], false, "{answer}");

    // A no is told to the agent, with its reason, and holds.
    let call = client.begin("tools/call", params).await;
    let id = until("the question is asked", async || pending(&home).await.pop()).await;
    decide(&home, &["reject", &id, "--reason", "not on a Sunday"]).await;
    let answer = client.answer(&json!(call)).await;
    assert!(text(&answer["result"]).contains("was not approved: not on a Sunday"), "{answer}");
    let again = client.call("workspace_write", note("x")).await;
    assert!(text(&again).contains("not on a Sunday"), "{again}");
    assert!(pending(&home).await.is_empty(), "nobody is asked again at once");

    // Both are in the record, with who decided.
    let records = home.run(&["audit", "search", "--tool", "workspace_write", "--json"]).await.stdout;
    assert!(records.contains("once by command line, user"), "{records}");
}

#[tokio::test]
async fn what_waits_survives_the_hub_and_nothing_is_approved_by_its_end() {
    let home = asking(60);
    let mut client = stdio(&home, "2026-07-28");
    client.begin("tools/call", json!({ "name": "workspace_write", "arguments": note("x") })).await;
    let id = until("the question is asked", async || pending(&home).await.pop()).await;
    client.process().signal(Signal::KILL);
    client.process().end().await;
    assert_eq!(pending(&home).await, std::slice::from_ref(&id));

    home.configure(&std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap().replace("60", "0"));
    let mut client = stdio(&home, "2026-07-28");
    let told = client.call("workspace_write", note("x")).await;
    assert!(text(&told).contains(&id), "{told}");
    assert!(!home.files().join("note.md").exists());
    decide(&home, &["approve", &id]).await;
    // Approved, and killed before it is used: it still counts, and for one call.
    client.process().signal(Signal::KILL);
    client.process().end().await;
    let mut client = stdio(&home, "2026-07-28");
    assert_eq!(client.call("workspace_write", note("x")).await["isError"], false);
    assert!(text(&client.call("workspace_write", note("x")).await).contains("pending approval"));
}

#[tokio::test]
async fn a_yes_for_a_session_and_one_for_good() {
    let home = asking(0);
    let hub = home.serve().await;
    let mut first = http(&hub, "2025-06-18").await;
    first.call("workspace_write", note("1")).await;
    decide(&home, &["approve", &pending(&home).await[0], "--session"]).await;
    for content in ["1", "2", "1"] {
        assert_eq!(first.call("workspace_write", note(content)).await["isError"], false);
    }
    let mut second = http(&hub, "2025-06-18").await;
    assert!(text(&second.call("workspace_write", note("1")).await).contains("pending approval"));

    let id = pending(&home).await.pop().unwrap();
    let said = decide(&home, &["approve", &id, "--always"]).await;
    assert!(said.contains("always; added a rule to"), "{said}");
    let written = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let (rule, asks) = (written.find("decision = \"allow\""), written.find("decision = \"ask\""));
    assert!(rule.is_some() && rule < asks, "the new rule comes first:\n{written}");
    // The one that waited runs at once; others when the hub has read the rule.
    assert_eq!(second.call("workspace_write", note("1")).await["isError"], false);
    let mut attempt = 0;
    while second.call("workspace_write", note(&format!("try {attempt}"))).await["isError"] == true {
        attempt += 1;
        assert!(attempt < 200, "the rule is never read");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let mut third = http(&hub, "2026-07-28").await;
    assert_eq!(third.call("workspace_write", note("3")).await["isError"], false);
}

/// A server's own `decision = "ask"` asks about what the effect alone would allow: the rule is written for these too.
#[tokio::test]
async fn always_writes_a_rule_where_the_server_asks() {
    let offer = json!({
        "tools": [tool("see", "See invoices")],
        "resources": [{ "uri": "shop://a", "name": "a" }],
    });
    let (home, shop) = (home(), Shop::new(&offer));
    let server = shop.section("shop", "trust = \"always\"\ndecision = \"ask\"\neffect = \"read\"");
    home.configure(&format!("{UNHURRIED}[approvals]\nwait_secs = 0\n{server}"));
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-06-18").await;
    sees(&mut client, "shop_see").await;
    for (method, params) in [
        ("tools/call", json!({ "name": "shop_see", "arguments": {} })),
        ("resources/read", json!({ "uri": "shop://a" })),
    ] {
        let asked = client.request(method, params.clone()).await.to_string();
        assert!(asked.contains("pending approval"), "{asked}");
        let id = pending(&home).await.pop().unwrap();
        let said = decide(&home, &["approve", &id, "--always"]).await;
        assert!(said.contains("always; added a rule to"), "{method}: {said}");
        // The one that waited, and then one by the rule, when the hub has read it.
        let mut ran = 0;
        until("the rule is read", async || {
            let told = client.request(method, params.clone()).await.to_string();
            ran += usize::from(!told.contains("pending approval"));
            (ran == 2).then_some(())
        })
        .await;
    }
    let written = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    assert_eq!(written.matches("decision = \"allow\"").count(), 2, "{written}");
}

#[tokio::test]
async fn a_name_that_was_given_again_does_not_inherit_what_was_approved() {
    let home = asking(0);
    let hub = home.serve().await;
    let token = home.add_client("laptop", &[]).await;
    let mut former = McpClient::http(hub.address, &token, "2026-07-28").await;
    for content in ["1", "2"] {
        former.call("workspace_write", note(content)).await;
    }
    let ids = pending(&home).await;
    decide(&home, &["approve", &ids[0]]).await;
    decide(&home, &["approve", &ids[1], "--session"]).await;
    assert_eq!(former.call("workspace_write", note("3")).await["isError"], false);

    assert_eq!(home.run(&["clients", "revoke", "laptop"]).await.code, 0);
    let token = home.add_client("laptop", &[]).await;
    let mut next = McpClient::http(hub.address, &token, "2026-07-28").await;
    for content in ["1", "2", "3"] {
        let told = next.call("workspace_write", note(content)).await;
        assert!(text(&told).contains("pending approval"), "{content}: {told}");
    }
}

/// A client of the newest revision is asked by a result; its answer counts for one call, however often it is sent.
#[tokio::test]
async fn an_answered_round_cannot_be_sent_again() {
    let home = asking(60);
    let mut client = stdio(&home, "2026-07-28");
    let mut number = 1_000;
    let mut send = async |extra: Value| {
        number += 1;
        let mut params = json!({ "name": "workspace_write", "arguments": note("x"), "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        }});
        for (key, value) in extra.as_object().unwrap() {
            params[key] = value.clone();
        }
        let id = json!(number);
        client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
        client.answer(&id).await["result"].take()
    };
    let asked = send(json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let yes = json!({ "action": "accept", "content": { "approve": true } });
    let round = json!({ "requestState": asked["requestState"], "inputResponses": { key: yes } });
    let ran = send(round.clone()).await;
    assert_eq!(ran["isError"], false, "{ran}");
    let again = send(round.clone()).await;
    assert_eq!(again["resultType"], "input_required", "the old answer is none to the new question: {again}");
    assert_ne!(again["inputRequests"].as_object().unwrap().keys().next(), Some(key));
    // Nor does a made-up answer count, under whatever key.
    let new_key = again["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let made_up = send(json!({ "inputResponses": { new_key: yes } })).await;
    assert_eq!(made_up["resultType"], "input_required", "{made_up}");
}

/// Only some requests may be answered with a question; for the others a person decides elsewhere.
#[tokio::test]
async fn a_completion_is_not_answered_with_a_question() {
    let home = home();
    home.configure(&format!(
        "{UNHURRIED}[approvals]\nwait_secs = 0\n[[policy]]\ntools = [\"greet\"]\ndecision = \"ask\"\n"
    ));
    fill(&home);
    let mut client = stdio(&home, "2026-07-28");
    let meta = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let get = json!({ "name": "greet", "arguments": { "who": "Ada" }, "_meta": meta });
    let got = client.result("prompts/get", get).await;
    assert_eq!(got["resultType"], "input_required", "{got}");
    let before = pending(&home).await;
    let reference = json!({ "type": "ref/prompt", "name": "greet" });
    let complete = json!({ "ref": reference, "argument": { "name": "who", "value": "W" }, "_meta": meta });
    let told = client.request("completion/complete", complete.clone()).await;
    let message = told["error"]["message"].as_str().unwrap_or_else(|| panic!("{told}"));
    assert!(message.contains("pending approval by a person"), "{told}");
    let ids = pending(&home).await;
    let id = ids.iter().find(|id| !before.contains(id)).unwrap();
    decide(&home, &["approve", &id[..5]]).await;
    let completed = client.result("completion/complete", complete).await;
    assert_eq!(completed["completion"]["values"], json!(["World", "Wilma"]), "{completed}");
}

#[tokio::test]
async fn commands_say_what_is_wrong() {
    let home = asking(0);
    let mut client = stdio(&home, "2026-07-28");
    client.call("workspace_write", json!({ "path": "a.md", "content": "a\u{202e}b\u{200b}c" })).await;
    let shown = home.run(&["approvals", "show", &pending(&home).await[0]]).await.stdout;
    assert!(shown.contains(r"a\u{202e}b\u{200b}c") && !shown.contains('\u{202e}'), "{shown}");
    for (args, code, said) in [
        (&["show", "nope"][..], 1, "no approval has the id `nope`"),
        (&["approve", "\u{202e}"], 1, r"no approval has the id `\u{202e}`"),
        (&["approve"], 2, "required arguments were not provided"),
        (&["approve", "x", "--session", "--always"], 2, "cannot be used with"),
    ] {
        let ran = home.run(&[&["approvals"], args].concat()).await;
        assert!(ran.code == code && ran.stderr.contains(said), "{args:?}: {ran:?}");
    }
    home.edit_rows("approvals", "UPDATE approvals SET record = '{'").await;
    let ran = home.run(&["approvals"]).await;
    assert!(ran.code == 1 && ran.stderr.contains("the database is damaged"), "{ran:?}");
    let told = client.call("workspace_write", note("x")).await;
    assert!(text(&told).contains("approvals cannot be stored"), "{told}");
}

/// What was asked about yesterday is decided by today's rules.
#[tokio::test]
async fn a_rule_for_good_never_goes_around_another() {
    let home = asking(0);
    let mut client = stdio(&home, "2026-07-28");
    client.call("workspace_write", note("1")).await;
    let id = pending(&home).await.pop().unwrap();
    let asks = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let denies = "[[policy]]\ntools = [\"workspace_*\"]\neffects = [\"write\"]\ndecision = \"deny\"\n";
    home.configure(&asks.replacen("[[policy]]", &format!("{denies}[[policy]]"), 1));
    let ran = home.run(&["approvals", "approve", &id, "--always"]).await;
    assert!(ran.code == 1 && ran.stderr.contains("`policy[0]` now denies this"), "{ran:?}");
    assert_eq!(pending(&home).await, std::slice::from_ref(&id), "nothing was approved");

    // Where a rule says so already, no second one is written.
    let allows = asks.replacen("decision = \"ask\"", "decision = \"allow\"", 1);
    home.configure(&allows);
    let said = decide(&home, &["approve", &id, "--always"]).await;
    assert!(said.contains("a rule already allows it"), "{said}");
    assert_eq!(std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap(), allows);
}

/// A client that shows a form is asked even where nobody waits, and its form goes when somebody else was faster.
#[tokio::test]
async fn a_form_is_put_up_and_taken_down() {
    let home = asking(60);
    let mut client = stdio(&home, "2025-06-18");
    client.initialize(json!({ "elicitation": {} })).await;
    let call = client.begin("tools/call", json!({ "name": "workspace_write", "arguments": note("1") })).await;
    let form = client.told("elicitation/create").await;
    let properties = &form["params"]["requestedSchema"]["properties"];
    assert!(properties.get("approve").is_some() && properties.get("remember").is_some(), "{form}");
    let id = pending(&home).await.pop().unwrap();
    decide(&home, &["approve", &id]).await;
    assert_eq!(client.answer(&json!(call)).await["result"]["isError"], false);
    let taken_down = client.told("notifications/cancelled").await;
    assert_eq!(taken_down["params"]["requestId"], form["id"]);

    // A no on the command line is not undone by a yes in a form that was still open.
    let call = client.begin("tools/call", json!({ "name": "workspace_write", "arguments": note("2") })).await;
    let form = client.told("elicitation/create").await;
    decide(&home, &["reject", &pending(&home).await[0]]).await;
    client.reply(&form["id"], json!({ "action": "accept", "content": { "approve": true } })).await;
    assert_eq!(client.answer(&json!(call)).await["result"]["isError"], true);
    assert_eq!(std::fs::read_to_string(home.files().join("note.md")).unwrap(), "1");

    home.configure(
        &std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap().replace("= 60", "= 0"),
    );
    client.hang_up();
    client.process().end().await;
    let mut newest = stdio(&home, "2026-07-28");
    for number in 0..10 {
        let params = json!({ "name": "workspace_write", "arguments": note(&format!("n{number}")), "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        }});
        let id = json!(5_000 + number);
        newest.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
        let asked = newest.answer(&id).await["result"].take();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let form = asked["inputRequests"].as_object().unwrap().values().next().unwrap();
        assert!(form["params"]["requestedSchema"]["properties"].get("remember").is_none(), "{form}");
    }
}
