//! What servers and clients say to each other besides calls and results: questions and answers, and what is told on the way.

use crate::support::{home, http, stdio, text};
use crate::upstream::{sees, serving};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{Home, Hub};
use portcullis_testkit::talker;
use serde_json::{Value, json};

const OLDER: &str = "2025-11-25";
const NEWER: &str = "2026-07-28";
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}"#;
const TAKEN_BACK: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"too late"}}"#;

#[test]
#[ignore = "this is the server that the other tests start"]
fn serves() {
    talker::serve(&std::env::var("REVISION").unwrap()).unwrap();
}

fn server(revision: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[mcp.far]\ncommand = {program:?}\nargs = [\"--exact\", \"talk::serves\", \"--ignored\", \"--nocapture\"]\n\
         trust = \"always\"\nenv = {{ REVISION = \"{revision}\" }}\n{more}\n"
    )
}

/// Starts the hub before such a server, and returns it with a client of the older era that sees what the server has.
async fn begun(home: &Home, theirs: &str, offers: Value) -> (Hub, McpClient) {
    let hub = serving(home, &[server(theirs, "")]).await;
    let client = older(home, offers).await;
    (hub, client)
}

async fn older(home: &Home, offers: Value) -> McpClient {
    let mut client = stdio(home, OLDER);
    client.initialize(offers).await;
    sees(&mut client, "far_say").await;
    client
}

fn say(steps: Value) -> Value {
    json!({ "name": "far_say", "arguments": { "steps": steps } })
}

/// The same call, as a client of the newer era makes it.
fn newly(mut call: Value, offers: Value, more: Value) -> Value {
    call["_meta"] = more;
    call["_meta"]["io.modelcontextprotocol/clientCapabilities"] = offers;
    call
}

/// The same call once more, with the same answer to all that the server asked.
fn again(call: &Value, asked: &Value, answer: &Value) -> Value {
    let keys = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}")).keys();
    let mut call = call.clone();
    call["requestState"] = asked["requestState"].clone();
    call["inputResponses"] = keys.map(|key| (key.clone(), answer.clone())).collect();
    call
}

#[tokio::test]
async fn a_question_that_the_server_gives_up_holds_nothing_up() {
    let home = home();
    let (hub, mut client) = begun(&home, OLDER, json!({ "elicitation": {} })).await;
    for (how, then) in [("answers", vec![]), ("takes it back", vec![json!(TAKEN_BACK)])] {
        let file = home.path().join(how);
        let mut steps = vec![json!(QUESTION), json!({ "until": file })];
        steps.extend(then);
        let id = client.begin("tools/call", say(json!(steps))).await;
        let question = client.told("elicitation/create").await;
        std::fs::write(&file, "").unwrap();
        let answer = client.answer(&json!(id)).await;
        assert_eq!(text(&answer["result"]), "said", "{how}: {answer}");
        let void = client.told("notifications/cancelled").await;
        assert_eq!(void["params"]["requestId"], question["id"], "{how}: {void}");

        // To a client of rounds the question has gone already. What became of the call is there when it comes back.
        std::fs::remove_file(&file).unwrap();
        let mut newer = http(&hub, NEWER).await;
        let call = newly(say(json!(steps)), json!({ "elicitation": {} }), json!({}));
        let asked = newer.result("tools/call", call.clone()).await;
        std::fs::write(&file, "").unwrap();
        let answer = newer.result("tools/call", again(&call, &asked, &json!({ "action": "decline" }))).await;
        assert_eq!(text(&answer), "said", "{how}: {answer}");
    }
}

#[tokio::test]
async fn a_question_that_was_taken_back_is_void_while_the_call_goes_on() {
    let home = home();
    let (_hub, mut client) = begun(&home, OLDER, json!({ "elicitation": {} })).await;
    let file = home.path().join("asked");
    let other = QUESTION.replace(r#""q""#, r#""other""#);
    let steps = json!([QUESTION, other, { "until": file }, TAKEN_BACK, { "wait": true }]);
    let id = client.begin("tools/call", say(steps)).await;
    let (first, second) = (client.told("elicitation/create").await, client.told("elicitation/create").await);
    std::fs::write(&file, "").unwrap();
    let void = client.told("notifications/cancelled").await;
    assert_eq!(void["params"]["requestId"], first["id"]);
    client.reply(&second["id"], json!({ "action": "decline" })).await;
    let answer = client.answer(&json!(id)).await;
    assert!(text(&answer["result"]).contains(r#""id":"other","result":{"action":"decline"}"#), "{answer}");
}

#[tokio::test]
async fn what_a_call_says_is_told_to_the_round_that_goes_on_with_it() {
    let home = home();
    let hub = serving(&home, &[server(OLDER, "")]).await;
    let mut client = http(&hub, NEWER).await;
    sees(&mut client, "far_say").await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$token,"progress":1}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"on"}}"#;
    let call = say(json!([QUESTION, { "wait": true }, progress, log]));
    let offers = json!({ "elicitation": {} });
    let first = newly(call.clone(), offers.clone(), json!({ "progressToken": "first" }));
    let asked = client.result("tools/call", first).await;
    let level = "io.modelcontextprotocol/logLevel";
    let second = newly(call, offers, json!({ "progressToken": "second", level: "info" }));
    client.result("tools/call", again(&second, &asked, &json!({ "action": "decline" }))).await;
    assert_eq!(client.told("notifications/progress").await["params"]["progressToken"], "second");
    assert_eq!(client.told("notifications/message").await["params"]["data"], "on");
}

#[tokio::test]
async fn what_a_newer_server_asks_is_asked_as_the_client_knows_it() {
    let home = home();
    let offers = json!({ "elicitation": { "url": {} }, "roots": {} });
    let (hub, mut client) = begun(&home, NEWER, offers.clone()).await;
    let asks = |questions: &str| json!({ "name": "far_say", "arguments": { "ask": questions } });
    let url = r#"{"mode":"url","message":"Look","url":"https://example.com/"}"#;
    let questions =
        format!(r#"{{"r":{{"method":"roots/list"}},"u":{{"method":"elicitation/create","params":{url}}}}}"#);
    let id = client.begin("tools/call", asks(&questions)).await;
    let roots = client.told("roots/list").await;
    assert!(roots.get("params").is_none(), "{roots}");
    let follow = client.told("elicitation/create").await;
    assert!(follow["params"]["elicitationId"].as_str().is_some_and(|id| !id.is_empty()), "{follow}");
    client.reply(&roots["id"], json!({ "roots": [] })).await;
    client.reply(&follow["id"], json!({ "action": "accept" })).await;
    assert!(client.answer(&json!(id)).await["result"].is_object());

    let mut newer = http(&hub, NEWER).await;
    let asked = newer.result("tools/call", newly(asks(&questions), offers, json!({}))).await;
    assert_eq!(asked["inputRequests"]["r"], json!({ "method": "roots/list" }), "{asked}");
}

#[tokio::test]
async fn what_a_client_offers_only_in_part_is_asked_only_in_part() {
    let home = home();
    let (hub, mut client) = begun(&home, OLDER, json!({ "elicitation": {}, "sampling": {} })).await;
    let asked = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params }).to_string()
    };
    let url =
        json!({ "mode": "url", "message": "Look", "url": "https://example.com/", "elicitationId": "1" });
    let form = json!({ "mode": "form", "message": "Who?", "requestedSchema": { "type": "object" } });
    let tools = json!({ "messages": [], "maxTokens": 1, "tools": [] });
    let url = asked("elicitation/create", url);
    for question in [&url, &asked("sampling/createMessage", tools)] {
        let answer = client.result("tools/call", say(json!([question, { "wait": true }]))).await;
        assert!(text(&answer).contains("-32602"), "{answer}");
    }
    let mut newer = http(&hub, NEWER).await;
    for (offers, question) in [
        (json!({ "elicitation": { "form": {} } }), url),
        (json!({ "elicitation": { "url": {} } }), asked("elicitation/create", form)),
    ] {
        let call = newly(say(json!([question, { "wait": true }])), offers, json!({}));
        let answer = newer.result("tools/call", call).await;
        assert!(text(&answer).contains(r#""id":"q","error":{"code":-3260"#), "{answer}");
    }
    // And the server knows all that might be offered.
    let heard = client.call("far_heard", json!({})).await;
    for offered in [r#"\"roots\":{\"listChanged\":true}"#, r#"\"sampling\":{\"context\":{},\"tools\":{}}"#] {
        assert!(text(&heard).contains(offered), "{heard}");
    }
}

#[tokio::test]
async fn any_number_may_be_what_progress_is_told_by() {
    let home = home();
    let (_hub, mut client) = begun(&home, OLDER, json!({})).await;
    let token: Value = serde_json::from_str("12345678901234567890123").unwrap();
    let line = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$token,"progress":1}}"#;
    let mut call = say(json!([line]));
    call["_meta"] = json!({ "progressToken": token });
    client.result("tools/call", call).await;
    let told = client.told("notifications/progress").await;
    assert_eq!(told["params"]["progressToken"].to_string(), "12345678901234567890123");
}
