//! Other servers behind the real program: what is passed on, what goes wrong, and what is left behind.

use crate::support::{home, http, names, request, stdio, text};
use portcullis_testkit::faulty_server;
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED, run};
use portcullis_testkit::wait::until;
use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::{Value, json};

/// The servers of these tests are this very program, started again to run only this. What the test harness itself says
/// on standard output is what no server should say there.
#[test]
#[ignore = "this is the server that the other tests start"]
fn serves() {
    faulty_server::serve(&std::env::var("REVISION").unwrap_or_else(|_| "2025-11-25".to_owned())).unwrap();
}

/// Returns a section of the configuration that starts such a server.
pub(crate) fn server(name: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[mcp.{name}]\ncommand = {program:?}\n\
         args = [\"--exact\", \"upstream::serves\", \"--ignored\", \"--nocapture\"]\ntrust = \"always\"\n{more}\n"
    )
}

pub(crate) async fn serving(home: &TestHome, servers: &[String]) -> HubProcess {
    home.configure(&format!("{UNHURRIED}\n{}", servers.join("\n")));
    home.serve().await
}

/// Waits until the client sees a tool of that name.
pub(crate) async fn sees(client: &mut McpClient, tool: &str) {
    for _ in 0..400 {
        let listed = client.result("tools/list", json!({})).await;
        if names(&listed["tools"]).contains(&tool) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("no tool `{tool}` in ten seconds");
}

#[tokio::test]
async fn tools_of_other_servers_are_called_in_every_revision() {
    for theirs in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let home = home();
        let hub = serving(&home, &[server("far", &format!("env = {{ REVISION = \"{theirs}\" }}"))]).await;
        for ours in ["2025-11-25", "2026-07-28"] {
            let mut client = http(&hub, ours).await;
            sees(&mut client, "far_echo").await;
            let answer = client.call("far_echo", json!({ "text": "hello" })).await;
            assert_eq!(text(&answer), "hello", "{theirs} for {ours}");
        }
    }
}

#[tokio::test]
async fn nothing_is_lost_on_the_way() {
    let home = home();
    let hub = serving(&home, &[server("far", "")]).await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "far_exact").await;
    let listed = client.result("tools/list", json!({})).await;
    let listed = listed["tools"].as_array().unwrap();
    let exact = listed.iter().find(|tool| tool["name"] == "far_exact").unwrap();
    assert_eq!(exact["x-unknown"], json!({ "kept": true }));
    assert!(listed.iter().all(|tool| tool["name"] != "far_no_schema"), "a tool without a schema is left out");

    let call =
        json!({ "name": "far_exact", "arguments": {}, "_meta": { "example.com/mine": 1 }, "extra": [1] });
    let answer = client.result("tools/call", call.clone()).await;
    assert_eq!(answer["unknownField"], json!({ "a": null }));
    assert_eq!(answer["content"][1]["type"], "hologram");
    // As text: a parsed number would hide what became of its digits.
    let mut line = request("raw", "tools/call", json!({ "name": "far_exact", "arguments": {} }));
    line["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let raw = run(home.command(&["--mcp"]), &format!("{line}\n")).await;
    for kept in [r#""big":12345678901234567890123"#, r#""small":1.0"#, r#""x":1.50"#] {
        assert!(faulty_server::EXACT.contains(kept) && raw.stdout.contains(kept), "{kept}: {}", raw.stdout);
    }
    // What an error says besides its message likewise.
    line["params"]["name"] = "far_refuse".into();
    let raw = run(home.command(&["--mcp"]), &format!("{line}\n")).await;
    let kept = format!(r#""code":-32050,"message":"not today","data":{}}}"#, faulty_server::EXACT_DATA);
    assert!(raw.stdout.contains(&kept), "{}", raw.stdout);
    client.result("tools/call", call).await;
    let seen = client.call("far_seen", json!({})).await;
    let seen: Value = serde_json::from_str(text(&seen)).unwrap();
    assert_eq!(seen["request"]["params"]["_meta"]["example.com/mine"], 1);
    assert_eq!(seen["request"]["params"]["extra"], json!([1]));
    // A cleared environment, and the names of what the hub itself puts there.
    let mut environment: Vec<&str> =
        seen["environment"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    environment.sort_unstable();
    assert_eq!(environment, ["HOME", "PATH", "PORTCULLIS_MARK"]);
}

#[tokio::test]
async fn one_that_fails_changes_nothing_for_the_others() {
    let home = home();
    let broken = "[mcp.broken]\ncommand = \"/no/such/program\"\ntrust = \"always\"\n".to_owned();
    let hub =
        serving(&home, &[broken, server("bad", "timeout_ms = 2000"), server("long", ""), server("good", "")])
            .await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "bad_crash").await;
    sees(&mut client, "long_huge").await;
    sees(&mut client, "good_echo").await;
    for (tool, arguments, expected) in [
        ("bad_garbage", json!({ "lines": 500 }), "after the garbage"),
        ("bad_reuse", json!({}), "first"),
        ("bad_storm", json!({ "times": 2000 }), "stormed"),
        ("bad_hang", json!({}), "Error: no answer within 2000 ms"),
        ("bad_crash", json!({}), "Error: server `bad` ended while the call was under way"),
        // Started again by itself; the call waits for it.
        ("bad_echo", json!({ "text": "back" }), "back"),
        // Signs of life count: three of them, each well within the time, take longer than it together.
        ("bad_slow", json!({ "steps": 3, "step_ms": 900 }), "done at last"),
        // A line that is too long is skipped, but not for ever.
        ("long_huge", json!({ "megabytes": 18 }), "after the long line"),
        (
            "long_huge",
            json!({ "megabytes": 1024 }),
            "Error: server `long` ended while the call was under way",
        ),
        ("long_echo", json!({ "text": "back again" }), "back again"),
    ] {
        let answer = client.call(tool, arguments).await;
        assert!(text(&answer).starts_with(expected), "{tool}: {answer}");
        assert_eq!(text(&client.call("good_echo", json!({ "text": "fine" })).await), "fine");
    }
}

#[tokio::test]
async fn a_question_reaches_the_client_in_its_own_way() {
    let home = home();
    let hub = serving(&home, &[server("far", "")]).await;
    // Asked while the call waits.
    let mut old = stdio(&home, "2025-11-25");
    old.initialize(json!({ "elicitation": {} })).await;
    sees(&mut old, "far_ask").await;
    let id = old.begin("tools/call", json!({ "name": "far_ask", "arguments": {} })).await;
    let question = old.wait("a question", |message| message["method"] == "elicitation/create").await;
    assert_eq!(question["params"]["message"], "Server \"far\" asks:\n> Who are you?");
    old.reply(&question["id"], json!({ "action": "accept", "content": { "name": "old" } })).await;
    let answer = old.answer(&json!(id)).await;
    assert!(text(&answer["result"]).contains(r#""name":"old""#), "{answer}");

    // Asked by the end of a round, and answered by the next.
    let mut new = http(&hub, "2026-07-28").await;
    let offers = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let call = json!({ "name": "far_ask", "arguments": {}, "_meta": offers });
    let asked = new.result("tools/call", call.clone()).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["params"]["message"], "Server \"far\" asks:\n> Who are you?");
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ key: { "action": "accept", "content": { "name": "new" } } });
    let answer = new.result("tools/call", again.clone()).await;
    assert!(text(&answer).contains(r#""name":"new""#), "{answer}");
    // What has gone on once does not go on again.
    let late = new.request("tools/call", again).await;
    assert!(late.to_string().contains("ended meanwhile"), "{late}");
}

#[tokio::test]
async fn a_call_that_a_person_approved_goes_on_with_the_answers_of_its_client() {
    let home = home();
    let hub = serving(&home, &[server("far", "decision = \"ask\"")]).await;
    let mut client = http(&hub, "2026-07-28").await;
    sees(&mut client, "far_ask").await;
    let offers = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let mut call = json!({ "name": "far_ask", "arguments": {}, "_meta": offers });
    let mut asked = Vec::new();
    let answer = loop {
        let answer = client.result("tools/call", call.clone()).await;
        let Some(requests) = answer["inputRequests"].as_object() else { break answer };
        let key = requests.keys().next().unwrap();
        let content = match key.starts_with("portcullis_approval_") {
            true => json!({ "approve": true }),
            false => json!({ "name": "new" }),
        };
        call["requestState"] = answer["requestState"].clone();
        call["inputResponses"] = json!({ key: { "action": "accept", "content": content } });
        asked.push(key.clone());
        assert!(asked.len() <= 2, "one yes covers the call: {asked:?}");
    };
    assert!(text(&answer).contains(r#""name":"new""#), "{answer}");
    // The server was asked for its answer once: the call that it began is the one that ended.
    assert_eq!(asked.iter().filter(|key| !key.starts_with("portcullis_")).count(), 1, "{asked:?}");
}

#[tokio::test]
async fn the_time_that_a_client_takes_to_answer_is_not_the_servers() {
    let home = home();
    let _hub = serving(&home, &[server("far", "timeout_ms = 300")]).await;
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({ "elicitation": {} })).await;
    sees(&mut client, "far_ask").await;
    let id = client.begin("tools/call", json!({ "name": "far_ask", "arguments": {} })).await;
    let question = client.wait("a question", |message| message["method"] == "elicitation/create").await;
    // Longer than the server may be silent.
    tokio::time::sleep(std::time::Duration::from_millis(900)).await;
    client.reply(&question["id"], json!({ "action": "accept", "content": { "name": "late" } })).await;
    let answer = client.answer(&json!(id)).await;
    assert!(text(&answer["result"]).contains(r#""name":"late""#), "{answer}");
}

#[tokio::test]
async fn the_decision_of_a_server_holds_where_no_rule_speaks() {
    let home = home();
    let rule = "[[policy]]\ntools = [\"asks_echo\"]\ndecision = \"allow\"\n".to_owned();
    let servers = [
        server("free", ""),
        server("asks", "decision = \"ask\""),
        server("never", "decision = \"deny\""),
        rule,
    ];
    let _hub = serving(&home, &servers).await;
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    sees(&mut client, "free_echo").await;
    sees(&mut client, "asks_crash").await;
    let listed = client.result("tools/list", json!({})).await;
    assert!(!names(&listed["tools"]).iter().any(|name| name.starts_with("never_")));
    assert_eq!(text(&client.call("free_echo", json!({ "text": "a" })).await), "a");
    assert_eq!(text(&client.call("asks_echo", json!({ "text": "b" })).await), "b");
    let denied = client.refused("tools/call", json!({ "name": "never_echo", "arguments": {} })).await;
    assert_eq!(denied, -32602, "what is denied looks like what does not exist");
    let id = client.begin("tools/call", json!({ "name": "asks_seen", "arguments": {} })).await;
    until("the call waits for a person", async || {
        home.run(&["approvals", "list", "--json"]).await.stdout.contains("asks_seen").then_some(())
    })
    .await;
    drop((client, id));
}

pub(crate) fn lives(pid: i32) -> bool {
    // One that is dead and not yet collected is dead.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && !stat.contains(") Z ")
}

#[tokio::test]
async fn nothing_is_left_running_however_the_hub_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let home = home();
        let mut hub = serving(&home, &[server("far", "")]).await;
        let mut client = http(&hub, "2025-11-25").await;
        sees(&mut client, "far_leave").await;
        let left = client.call("far_leave", json!({})).await;
        let left: i32 = text(&left).parse().unwrap();
        assert!(lives(left));
        hub.process.signal(signal);
        hub.process.end().await;
        until("the child of the server is gone too", async || (!lives(left)).then_some(())).await;
    }
}

#[tokio::test]
async fn a_server_that_is_taken_out_ends_at_once() {
    let home = home();
    let hub = serving(&home, &[server("far", "")]).await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "far_leave").await;
    let left = client.call("far_leave", json!({})).await;
    let left: i32 = text(&left).parse().unwrap();
    home.configure(UNHURRIED);
    until("its tools are gone", async || {
        let listed = client.result("tools/list", json!({})).await;
        (!names(&listed["tools"]).contains(&"far_echo")).then_some(())
    })
    .await;
    until("and what it started", async || (!lives(left)).then_some(())).await;
}

#[tokio::test]
async fn a_client_that_searches_finds_and_calls() {
    let home = home();
    let hub = serving(&home, &[server("far", "")]).await;
    let token = home.add_client("finder", &["--tools", "search"]).await;
    let mut all = http(&hub, "2025-11-25").await;
    sees(&mut all, "far_echo").await;
    let mut client = McpClient::http(hub.address, &token, "2026-07-28").await;
    let listed = client.result("tools/list", json!({})).await;
    let listed_names = names(&listed["tools"]);
    assert!(listed_names.contains(&"find_tools") && listed_names.contains(&"workspace_read"));
    assert!(!listed_names.iter().any(|name| name.starts_with("far_")), "{listed_names:?}");
    let find = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "find_tools").unwrap();
    assert!(find["description"].as_str().unwrap().contains("far (13 tools)"), "{find}");

    let found = client.call("find_tools", json!({ "query": "do some echoing" })).await;
    assert_eq!(found["structuredContent"]["tools"][0]["name"], "far_echo", "{found}");
    let call = json!({ "name": "far_echo", "arguments": { "text": "found" } });
    assert_eq!(text(&client.call("call_tool", call).await), "found");
    // On the record it is the tool itself.
    let audit = home.run(&["audit", "search", "--tool", "far_echo", "--client", "finder", "--json"]).await;
    assert!(audit.stdout.contains("far_echo"), "{audit:?}");

    // An object that is written as a text is one all the same.
    let call = json!({ "name": "far_echo", "arguments": "{\"text\": \"written\"}" });
    assert_eq!(text(&client.call("call_tool", call).await), "written");
    // Whatever names no tool is told what is wrong with it, and is on the record.
    for (wrong, misfit) in [
        (json!({ "nme": "far_echo" }), "`name` is missing"),
        (json!({ "name": 5 }), "`name` is 5, expected"),
        (json!({ "name": "far_echo", "text": "x" }), "`text`"),
        (json!({ "name": "far_echo", "arguments": "x" }), "`arguments` is"),
    ] {
        let answer = client.call("call_tool", wrong).await;
        assert_eq!(
            (&answer["isError"], &answer["structuredContent"]["code"]),
            (&json!(true), &json!("invalid_args"))
        );
        assert!(text(&answer).contains(misfit), "{answer}");
    }
    let audit = home.run(&["audit", "search", "--tool", "call_tool", "--client", "finder", "--json"]).await;
    assert_eq!(audit.stdout.matches("invalid_args").count(), 4, "{audit:?}");
    // It may be any tool, so no client is told that it is harmless.
    let call = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "call_tool").unwrap();
    let hints = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];
    assert_eq!(hints.map(|hint| call["annotations"][hint].as_bool()), [false, true, false, true].map(Some));

    // Whoever may only use some of it has the two all the same, and finds and calls just that.
    let narrow = ["--tools", "search", "--allow", "far_*", "--deny", "far_leave", "--effects", "destroy"];
    let token = home.add_client("narrow", &narrow).await;
    let mut client = McpClient::http(hub.address, &token, "2025-11-25").await;
    let listed = client.result("tools/list", json!({})).await;
    assert_eq!(names(&listed["tools"]), ["find_tools", "call_tool"]);
    for tool in listed["tools"].as_array().unwrap() {
        assert!(tool["description"].as_str().unwrap().contains("far (12 tools)"), "{tool}");
    }
    let found = client.call("find_tools", json!({ "query": "leave", "limit": 50 })).await;
    assert!(!found.to_string().contains("far_leave"), "{found}");
    let call = json!({ "name": "far_echo", "arguments": { "text": "narrow" } });
    assert_eq!(text(&client.call("call_tool", call).await), "narrow");
    for hidden in ["far_leave", "workspace_list"] {
        let call = json!({ "name": "call_tool", "arguments": { "name": hidden } });
        assert_eq!(client.refused("tools/call", call).await, -32602);
    }

    // Nobody else knows of the two.
    assert!(!names(&all.result("tools/list", json!({})).await["tools"]).contains(&"find_tools"));
    assert_eq!(all.refused("tools/call", json!({ "name": "find_tools", "arguments": {} })).await, -32602);
    let mut line = stdio(&home, "2026-07-28");
    assert_eq!(line.refused("tools/call", json!({ "name": "call_tool", "arguments": {} })).await, -32602);
}

#[tokio::test]
async fn who_must_not_call_by_name_can_search_all_the_same() {
    let home = home();
    let rule = "[[policy]]\nclients = [\"ruled\"]\ntools = [\"call_tool\"]\ndecision = \"deny\"\n".to_owned();
    let hub = serving(&home, &[server("far", ""), rule]).await;
    sees(&mut http(&hub, "2025-11-25").await, "far_echo").await;
    // By a rule, or by what the client itself is denied, although it is allowed nothing by name.
    let denied = ["--tools", "search", "--allow", "far_*", "--deny", "call_tool"];
    for (name, scope) in [("ruled", &denied[..2]), ("denied", &denied)] {
        let token = home.add_client(name, scope).await;
        let mut client = McpClient::http(hub.address, &token, "2025-11-25").await;
        let listed = client.result("tools/list", json!({})).await;
        let listed = names(&listed["tools"]);
        assert!(listed.contains(&"find_tools") && !listed.contains(&"call_tool"), "{listed:?}");
        let found = client.call("find_tools", json!({ "query": "echo" })).await;
        assert_eq!(found["structuredContent"]["tools"][0]["name"], "far_echo", "{found}");
        let call =
            json!({ "name": "call_tool", "arguments": { "name": "far_echo", "arguments": { "text": "x" } } });
        assert_eq!(client.refused("tools/call", call).await, -32602);
    }
}
