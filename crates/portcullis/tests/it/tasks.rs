//! Servers that run calls as tasks, behind the real program, for clients that know such tasks and for those that do not.

use crate::support::{home, http, request, stdio, text};
use crate::upstream::{sees, serving};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, TestHome, run};
use portcullis_testkit::task_server;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

const BOTH: [&str; 2] = ["2025-11-25", "2026-07-28"];

#[test]
#[ignore = "this is the server that the other tests start"]
fn serves() {
    task_server::serve(&std::env::var("REVISION").unwrap(), std::env::var("SAYS_NOTHING").is_err()).unwrap();
}

fn server(revision: &str, more: &str) -> String {
    server_in(&format!("REVISION = \"{revision}\""), more)
}

fn server_in(environment: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[mcp.far]\ncommand = {program:?}\nargs = [\"--exact\", \"tasks::serves\", \"--ignored\", \"--nocapture\"]\n\
         env = {{ {environment} }}\ntrust = \"always\"\n{more}\n"
    )
}

/// Starts the hub before such a server, and returns it with a client of the older era that sees what the server has.
async fn begun(home: &TestHome, theirs: &str, more: &str, offers: Value) -> (HubProcess, McpClient) {
    let hub = serving(home, &[server(theirs, more)]).await;
    let mut client = stdio(home, "2025-11-25");
    client.initialize(offers).await;
    sees(&mut client, "far_report").await;
    (hub, client)
}

/// Which methods the server was called by.
async fn seen(client: &mut McpClient) -> Vec<String> {
    serde_json::from_str(text(&client.call("far_seen", json!({})).await)).unwrap()
}

#[tokio::test]
async fn a_tool_that_runs_as_a_task_is_called_like_any_other() {
    for theirs in BOTH {
        let home = home();
        // Each look is a sign of life; all of them together take longer than a silence may.
        let (_hub, mut client) = begun(&home, theirs, "timeout_ms = 400", json!({})).await;
        let listed = client.result("tools/list", json!({})).await;
        let listed = listed["tools"].as_array().unwrap();
        let report = listed.iter().find(|tool| tool["name"] == "far_report").unwrap();
        assert_eq!(report["execution"], json!({ "taskSupport": "forbidden", "kept": 1 }), "{report}");
        let answer = client.call("far_report", json!({ "looks": 10 })).await;
        assert_eq!(text(&answer), "reported", "{theirs}: {answer}");
        let failed = client.call("far_report", json!({ "fail": true })).await;
        assert_eq!(failed["structuredContent"]["upstream"]["code"], -32055, "{theirs}: {failed}");
        // As text: a parsed number would hide what became of its digits.
        let line = request("raw", "tools/call", json!({ "name": "far_report", "arguments": {} }));
        let greeting =
            request(1, "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
        let raw = run(home.command(&["--mcp"]), &format!("{greeting}\n{line}\n")).await;
        assert!(raw.stdout.contains(r#""big":12345678901234567890123"#), "{theirs}: {raw:?}");
        let shown = home.run(&["tools", "call", "far_report", "{}"]).await;
        assert_eq!(shown.stdout.trim(), "reported", "{theirs}: {shown:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_say_that_it_runs_tasks_is_not_asked_for_one() {
    let home = home();
    let silent = server_in("REVISION = \"2025-11-25\", SAYS_NOTHING = \"1\"", "");
    let _hub = serving(&home, &[silent]).await;
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    sees(&mut client, "far_report").await;
    let answer = client.request("tools/call", json!({ "name": "far_report", "arguments": {} })).await;
    let upstream = &answer["result"]["structuredContent"]["upstream"];
    assert_eq!(*upstream, json!({ "code": -32601, "message": "only as a task" }), "{answer}");
}

#[tokio::test]
async fn what_a_task_says_of_itself_is_told() {
    for theirs in BOTH {
        let home = home();
        let (_hub, mut client) = begun(&home, theirs, "", json!({})).await;
        for (wants, expected) in [
            (
                json!({ "looks": 2 }),
                json!({ "progressToken": "mine", "progress": 1, "message": "2 pages left" }),
            ),
            (
                json!({ "looks": 2, "progress": true }),
                json!({ "progressToken": "mine", "progress": 98, "total": 100 }),
            ),
        ] {
            let params =
                json!({ "name": "far_report", "arguments": wants, "_meta": { "progressToken": "mine" } });
            let id = client.begin("tools/call", params).await;
            let fits = |message: &Value| {
                message["method"] == "notifications/progress" && message["params"] == expected
            };
            client.wait("word of it", fits).await;
            assert_eq!(text(&client.answer(&json!(id)).await["result"]), "reported", "{theirs}");
        }
    }
}

#[tokio::test]
async fn what_a_task_asks_reaches_the_client() {
    for theirs in BOTH {
        let home = home();
        let (hub, mut old) = begun(&home, theirs, "", json!({ "elicitation": {} })).await;
        let id = old.begin("tools/call", json!({ "name": "far_report", "arguments": { "ask": true } })).await;
        let question = old.wait("a question", |message| message["method"] == "elicitation/create").await;
        assert_eq!(question["params"]["message"], "Server \"far\" asks:\n> Who reads it?");
        old.reply(&question["id"], json!({ "action": "accept", "content": { "name": "old" } })).await;
        let answer = old.answer(&json!(id)).await;
        assert!(text(&answer["result"]).contains(r#""name":"old""#), "{theirs}: {answer}");
        if theirs == "2026-07-28" {
            continue;
        }
        // A client of the newer era is asked by the end of a round.
        let mut new = http(&hub, "2026-07-28").await;
        let offers = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
        let mut call = json!({ "name": "far_report", "arguments": { "ask": true }, "_meta": offers });
        let asked = new.result("tools/call", call.clone()).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        call["requestState"] = asked["requestState"].clone();
        call["inputResponses"] = json!({ key: { "action": "accept", "content": { "name": "new" } } });
        let answer = new.result("tools/call", call).await;
        assert!(text(&answer).contains(r#""name":"new""#), "{answer}");
    }
}

#[tokio::test]
async fn a_task_that_nobody_waits_for_is_cancelled() {
    for theirs in BOTH {
        let home = home();
        let (_hub, mut client) = begun(&home, theirs, "", json!({})).await;
        let id = client
            .begin("tools/call", json!({ "name": "far_report", "arguments": { "looks": 100_000 } }))
            .await;
        until("it is looked at", async || {
            seen(&mut client).await.contains(&"tasks/get".to_owned()).then_some(())
        })
        .await;
        client.notify("notifications/cancelled", json!({ "requestId": id })).await;
        until("it is cancelled", async || {
            seen(&mut client).await.contains(&"tasks/cancel".to_owned()).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_that_knows_tasks_gets_one() {
    for theirs in BOTH {
        let home = home();
        let (hub, _) = begun(&home, theirs, "", json!({})).await;
        let mut client = http(&hub, "2026-07-28").await;
        let offers = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let meta = json!({ "io.modelcontextprotocol/clientCapabilities": offers });
        let call = json!({ "name": "far_report", "arguments": {}, "_meta": meta });
        let begun = client.result("tools/call", call).await;
        assert_eq!(begun["resultType"], "task", "{begun}");
        let ask = json!({ "taskId": begun["taskId"], "_meta": meta });
        let ended = until("it has ended", async || {
            let stands = client.result("tasks/get", ask.clone()).await;
            (stands["status"] == "completed").then_some(stands)
        })
        .await;
        assert_eq!(text(&ended["result"]), "reported", "{theirs}: {ended}");
    }
}

/// What a client of the newer era says of itself that knows tasks.
fn knows_tasks() -> Value {
    let offers = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    json!({ "io.modelcontextprotocol/clientCapabilities": offers })
}

/// Asks after a task until it is as expected, and returns how it stands then.
async fn stands(client: &mut McpClient, task: &Value, status: &str) -> Value {
    let ask = json!({ "taskId": task, "_meta": knows_tasks() });
    until(status, async || {
        let stands = client.result("tasks/get", ask.clone()).await;
        (stands["status"] == status).then_some(stands)
    })
    .await
}

#[tokio::test]
async fn what_is_asked_after_a_task_is_on_the_record() {
    let home = home();
    let (hub, _) = begun(&home, "2026-07-28", "", json!({})).await;
    let mut client = http(&hub, "2026-07-28").await;
    let call = json!({ "name": "far_report", "arguments": { "ask": true }, "_meta": knows_tasks() });
    let begun = client.result("tools/call", call).await;
    let task = &begun["taskId"];
    stands(&mut client, task, "input_required").await;
    let answers = json!({ "who": { "action": "accept", "content": { "name": "ghp_0123456789abcdefghijABCDEFGHIJ012345" } } });
    client
        .result("tasks/update", json!({ "taskId": task, "inputResponses": answers, "_meta": knows_tasks() }))
        .await;
    let ended = stands(&mut client, task, "completed").await;
    assert!(text(&ended["result"]).contains("reported to"), "{ended}");
    let records = home.run(&["audit", "search", "--tool", "far_report", "--json"]).await.stdout;
    for expected in ["tasks/get", "tasks/update", "inputResponses"] {
        assert!(records.contains(expected), "{expected}: {records}");
    }
    assert!(!records.contains("ghp_0123456789"), "{records}");
    let page = home.run(&["audit", "search", "--json"]).await.stdout;
    assert!(page.contains(r#""kind":"task""#), "{page}");
}

#[tokio::test]
async fn nothing_more_comes_of_a_task_whose_tool_may_not_be_called_but_it_can_be_ended() {
    let home = home();
    let (hub, mut old) = begun(&home, "2026-07-28", "", json!({})).await;
    let mut client = http(&hub, "2026-07-28").await;
    let call = json!({ "name": "far_report", "arguments": { "looks": 100_000 }, "_meta": knows_tasks() });
    let begun = client.result("tools/call", call).await;
    let ask = json!({ "taskId": begun["taskId"], "_meta": knows_tasks() });
    stands(&mut client, &begun["taskId"], "working").await;
    let before = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let rule = |decision: &str| {
        let rule = format!("[[policy]]\ntools = [\"far_report\"]\ndecision = \"{decision}\"\n");
        home.configure(&format!("{before}\n[approvals]\nwait_secs = 0\n{rule}"));
    };
    // A person would be asked about another call, and was about this one.
    rule("ask");
    until("the rule holds", async || {
        let call = json!({ "name": "far_report", "arguments": {}, "_meta": knows_tasks() });
        let answer = client.result("tools/call", call).await;
        (answer["resultType"] == "input_required").then_some(())
    })
    .await;
    stands(&mut client, &begun["taskId"], "working").await;
    rule("deny");
    let refused = until("the rule holds", async || {
        let stands = client.request("tasks/get", ask.clone()).await;
        stands.get("error").is_some().then_some(stands)
    })
    .await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("task"), "{refused}");
    client.result("tasks/cancel", ask).await;
    assert!(seen(&mut old).await.contains(&"tasks/cancel".to_owned()));
}

#[tokio::test]
async fn a_call_that_goes_on_is_not_begun_once_more_as_a_task() {
    let home = home();
    let (hub, mut old) = begun(&home, "2025-11-25", "", json!({})).await;
    let mut new = http(&hub, "2026-07-28").await;
    let without = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let mut call = json!({ "name": "far_report", "arguments": { "ask": true }, "_meta": without });
    let asked = new.result("tools/call", call.clone()).await;
    let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    call["requestState"] = asked["requestState"].clone();
    call["inputResponses"] = json!({ key: { "action": "accept", "content": { "name": "new" } } });
    call["_meta"] = knows_tasks();
    let answer = new.result("tools/call", call).await;
    assert!(text(&answer).contains(r#""name":"new""#), "{answer}");
    // One for the report, and one for this question.
    let calls = seen(&mut old).await.iter().filter(|method| *method == "tools/call").count();
    assert_eq!(calls, 2);
}

/// Both servers call their first task the same.
#[tokio::test]
async fn tasks_of_two_servers_are_told_apart() {
    let (home, theirs) = (home(), server("2026-07-28", ""));
    let hub = serving(&home, &[theirs.clone(), theirs.replace("[mcp.far]", "[mcp.wide]")]).await;
    let mut client = http(&hub, "2026-07-28").await;
    let offers = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let meta = json!({ "io.modelcontextprotocol/clientCapabilities": offers });
    let mut begun = Vec::new();
    for (tool, fails) in [("far_report", true), ("wide_report", false)] {
        sees(&mut client, tool).await;
        let call = json!({ "name": tool, "arguments": { "fail": fails }, "_meta": meta });
        begun.push(client.result("tools/call", call).await["taskId"].clone());
    }
    assert_ne!(begun[0], begun[1]);
    for (id, status) in begun.iter().zip(["failed", "completed"]) {
        let ask = json!({ "taskId": id, "_meta": meta });
        let ended = until("it has ended", async || {
            let stands = client.result("tasks/get", ask.clone()).await;
            (stands["status"] != "working").then_some(stands)
        })
        .await;
        assert_eq!((&ended["taskId"], &ended["status"]), (id, &json!(status)), "{ended}");
    }
}

#[tokio::test]
async fn a_question_of_a_task_reaches_its_own_client() {
    let home = home();
    let (hub, mut client) = begun(&home, "2025-11-25", "", json!({ "elicitation": {} })).await;
    let token = home.add_client("other", &[]).await;
    let mut other = McpClient::http(hub.address, &token, "2025-11-25").await;
    other.initialize(json!({ "elicitation": {} })).await;
    let others = tokio::spawn(async move { other.call("far_report", json!({ "looks": 100_000 })).await });
    until("the other one's is looked at", async || {
        seen(&mut client).await.contains(&"tasks/get".to_owned()).then_some(())
    })
    .await;
    let id = client.begin("tools/call", json!({ "name": "far_report", "arguments": { "ask": true } })).await;
    let question = client.wait("a question", |message| message["method"] == "elicitation/create").await;
    // The task is the hub's, and the client does not know it.
    assert!(!question.to_string().contains("related-task"), "{question}");
    client.reply(&question["id"], json!({ "action": "accept", "content": { "name": "me" } })).await;
    let answer = client.answer(&json!(id)).await;
    let told = text(&answer["result"]);
    assert!(told.contains(r#""name":"me""#) && told.contains(r#""taskId":"task-2""#), "{answer}");
    others.abort();
}

/// Another hub is a server of the newer era over HTTP, which wants to see the task in a header too.
#[tokio::test]
async fn a_task_of_another_hub_is_seen_through() {
    let (far, near) = (home(), home());
    let (behind, _) = begun(&far, "2025-11-25", "", json!({})).await;
    let section = format!(
        "[mcp.hub]\nurl = \"http://{}/mcp\"\nheaders = {{ Authorization = \"Bearer {}\" }}\ntrust = \"always\"\n",
        behind.address, behind.token
    );
    let _before = serving(&near, &[section]).await;
    let mut client = stdio(&near, "2025-11-25");
    client.initialize(json!({})).await;
    sees(&mut client, "hub_far_report").await;
    let answer = client.call("hub_far_report", json!({})).await;
    assert_eq!(text(&answer), "reported", "{answer}");
}
