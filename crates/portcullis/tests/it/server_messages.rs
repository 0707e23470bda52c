//! What servers and clients say to each other besides calls and results: questions and answers, and what is told on the way.

use crate::support::{home, http, stdio, text};
use crate::upstream::{sees, serving};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED};
use portcullis_testkit::scripted_server;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) const OLDER: &str = "2025-11-25";
pub(crate) const NEWER: &str = "2026-07-28";
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}"#;
const TAKEN_BACK: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"too late"}}"#;

#[test]
#[ignore = "this is the server that the other tests start"]
fn serves() {
    scripted_server::serve(&std::env::var("REVISION").unwrap()).unwrap();
}

/// `more` is more of its environment and, after a line's end, of its configuration.
pub(crate) fn server(revision: &str, more: &str) -> String {
    let (env, more) = more.split_once('\n').unwrap_or((more, ""));
    let program = std::env::current_exe().unwrap();
    format!(
        "[mcp.far]\ncommand = {program:?}\nargs = [\"--exact\", \"server_messages::serves\", \"--ignored\", \"--nocapture\"]\n\
         trust = \"always\"\nenv = {{ REVISION = \"{revision}\"{env} }}\n{more}\n"
    )
}

/// Starts the hub before such a server, and returns it with a client of the older era that sees what the server has.
pub(crate) async fn begun(home: &TestHome, theirs: &str, offers: Value) -> (HubProcess, McpClient) {
    let hub = serving(home, &[server(theirs, "")]).await;
    let client = older(home, offers).await;
    (hub, client)
}

async fn older(home: &TestHome, offers: Value) -> McpClient {
    let mut client = stdio(home, OLDER);
    client.initialize(offers).await;
    sees(&mut client, "far_say").await;
    client
}

pub(crate) fn say(steps: Value) -> Value {
    json!({ "name": "far_say", "arguments": { "steps": steps } })
}

/// The same call, as a client of the newer era makes it.
pub(crate) fn newly(mut call: Value, offers: Value, more: Value) -> Value {
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
async fn a_question_that_outlives_its_call_is_answered_all_the_same() {
    let home = home();
    let more = format!(", HEARD = {:?}", record(&home));
    let _hub = serving(&home, &[server(OLDER, &more)]).await;
    let mut client = older(&home, json!({ "elicitation": {} })).await;
    client.result("tools/call", say(json!([QUESTION, ROOTS]))).await;
    heard(&home, r#""id":"q","error":"#).await;
    heard(&home, r#""id":"r","#).await;
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
    let more = format!(r#"{questions},"_meta":{{"example.com/a":1.50}},"new":[1e+400]"#);
    let asked = newer.result("tools/call", newly(asks(&more), offers, json!({}))).await;
    assert_eq!(asked["inputRequests"]["r"], json!({ "method": "roots/list" }), "{asked}");
    // Whatever else the server says comes along, digit by digit.
    assert_eq!(asked["new"], exact("[1e+400]"), "{asked}");
    assert_eq!(asked["_meta"]["example.com/a"], exact("1.50"), "{asked}");
    // Whoever offers only a part learns which part it would have to offer.
    let forms = json!({ "elicitation": { "form": {} }, "roots": {} });
    let refused = newer.request("tools/call", newly(asks(&questions), forms, json!({}))).await;
    let missing = &refused["error"]["data"]["requiredCapabilities"];
    assert_eq!(missing, &json!({ "elicitation": { "url": {} } }), "{refused}");
}

/// What a server has linked to can be read there, whether it lists it or not.
#[tokio::test]
async fn what_a_result_links_to_can_be_read() {
    let home = home();
    let (_hub, mut client) = begun(&home, OLDER, json!({})).await;
    let address = json!({ "uri": "hidden://report" });
    let unknown = client.request("resources/read", address.clone()).await;
    assert_eq!(unknown["error"]["code"], -32002, "{unknown}");
    let link = r#"{"content":[{"type":"resource_link","uri":"hidden://report","name":"a"}]}"#;
    let line = format!(r#"{{"jsonrpc":"2.0","id":$token,"result":{link}}}"#);
    client.result("tools/call", say(json!([line]))).await;
    // This server has nothing to be read, which is its own to say.
    let refused = client.request("resources/read", address).await;
    assert_ne!(refused["error"]["code"], -32002, "{refused}");
    let seen = client.call("far_heard", json!({})).await;
    assert_eq!(text(&seen).matches(r#"\"resources/read\""#).count(), 1, "{seen}");
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

/// Returns JSON as it is written, with every digit.
fn exact(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap();
    assert_eq!(value.to_string(), text);
    value
}

/// Where a server writes down what it hears: a call that asks it would be one more that it could speak about.
fn record(home: &TestHome) -> PathBuf {
    home.path().join("heard")
}

/// Waits until the server has heard something.
async fn heard(home: &TestHome, what: &str) {
    until(what, async || {
        let heard = std::fs::read_to_string(record(home)).unwrap_or_default();
        heard.contains(what).then_some(())
    })
    .await;
}

const ROOTS: &str = r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#;
const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

#[tokio::test]
async fn a_server_of_ones_own_learns_the_folders_at_its_start() {
    let home = home();
    let more = format!(", AT_START = '{ROOTS}', HEARD = {:?}\nper_client = true", record(&home));
    let _hub = serving(&home, &[server(OLDER, &more)]).await;
    let mut client = older(&home, json!({ "roots": { "listChanged": true } })).await;
    let id = client.begin("tools/call", json!({ "name": "far_heard", "arguments": {} })).await;
    let question = client.told("roots/list").await;
    assert!(question.get("params").is_none(), "{question}");
    let roots = r#"{"roots":[{"uri":"file:///a","x":1.50}],"y":1e+2}"#;
    client.reply(&question["id"], exact(roots)).await;
    client.answer(&json!(id)).await;
    heard(&home, roots).await;
    // And when they change.
    client.notify(ROOTS_CHANGED, json!({})).await;
    heard(&home, ROOTS_CHANGED).await;
}

#[tokio::test]
async fn a_server_for_all_learns_the_folders_of_the_only_client_that_tells_them() {
    let home = home();
    let more = format!(", AT_OTHER_ROOTS = '{ROOTS}', HEARD = {:?}", record(&home));
    let hub = serving(&home, &[server(OLDER, &more)]).await;
    let mut client = older(&home, json!({ "roots": {} })).await;
    let question = client.told("roots/list").await;
    client.reply(&question["id"], json!({ "roots": [{ "uri": "file:///a" }] })).await;
    heard(&home, "file:///a").await;
    // Which of two is meant nobody can tell.
    let token = home.add_client("other", &[]).await;
    let mut other = McpClient::sse(hub.address, &token, OLDER).await;
    other.initialize(json!({ "roots": {} })).await;
    heard(&home, r#""result":{"roots":[]}"#).await;
    for client in [&mut client, &mut other] {
        assert!(client.unasked().iter().all(|message| message["method"] != "roots/list"));
    }
}

#[tokio::test]
async fn a_client_that_sees_nothing_of_a_server_tells_it_no_folders() {
    let home = home();
    let more = format!(", AT_OTHER_ROOTS = '{ROOTS}', HEARD = {:?}", record(&home));
    let hub = serving(&home, &[server(OLDER, &more)]).await;
    let token = home.add_client("stranger", &["--allow", "workspace_read"]).await;
    let mut stranger = McpClient::sse(hub.address, &token, OLDER).await;
    stranger.initialize(json!({ "roots": {} })).await;
    // It would go by the answer for all of its clients.
    heard(&home, r#""result":{"roots":[]}"#).await;
    assert!(stranger.unasked().iter().all(|message| message["method"] != "roots/list"));
}

#[tokio::test]
async fn what_is_told_on_the_way_arrives_as_it_left() {
    let home = home();
    let (_hub, mut client) = begun(&home, OLDER, json!({ "elicitation": { "url": {} } })).await;
    client.result("resources/subscribe", json!({ "uri": "talk://a" })).await;
    let more = r#""new":{"x":1.50,"y":[1e+2]},"_meta":{"example.com/kept":1}"#;
    for (method, params) in [
        (
            "notifications/progress",
            format!(
                r#""progress":12345678901234567890123,"total":98765432109876543210987.5,"message":"m",{more}"#
            ),
        ),
        ("notifications/message", format!(r#""level":"info","data":{{"n":2.50}},{more}"#)),
        ("notifications/resources/updated", format!(r#""uri":"talk://a",{more}"#)),
    ] {
        let token = if method.ends_with("progress") { r#""progressToken":$token,"# } else { "" };
        let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{token}{params}}}}}"#);
        let mut call = say(json!([line]));
        call["_meta"] = json!({ "progressToken": "mine" });
        client.result("tools/call", call).await;
        let told = client.told(method).await["params"].to_string();
        let token = token.replace("$token", r#""mine""#);
        assert_eq!(told, format!("{{{token}{params}}}"));
    }
    // That a person has followed an address is told to whoever showed it, also when the call is over.
    let url = r#"{"mode":"url","message":"Look","url":"https://example.com/","elicitationId":"e"}"#;
    let question = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{url}}}"#);
    let id = client.begin("tools/call", say(json!([question, { "wait": true }]))).await;
    let asked = client.told("elicitation/create").await;
    let named = r#""message":"Server \"far\" asks:\n> Look""#;
    assert_eq!(asked["params"].to_string(), url.replace(r#""message":"Look""#, named));
    client.reply(&asked["id"], json!({ "action": "accept" })).await;
    client.answer(&json!(id)).await;
    let params = format!(r#"{{"elicitationId":"e",{more}}}"#);
    let method = "notifications/elicitation/complete";
    client
        .call(
            "far_say",
            json!({ "steps": [format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)] }),
        )
        .await;
    assert_eq!(client.told(method).await["params"].to_string(), params);
}

#[tokio::test]
async fn what_a_server_logs_outside_of_calls_reaches_those_it_is_for() {
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"notice","data":"by itself"}}"#;
    for isolated in [true, false] {
        let home = home();
        let more = format!(", AT_OTHER_ROOTS = '{log}'\nper_client = {isolated}");
        let hub = serving(&home, &[server(OLDER, &more)]).await;
        let mut one = older(&home, json!({ "roots": {} })).await;
        if !isolated {
            // That there are folders at all is news to a server that all share.
            one.told("notifications/message").await;
        }
        let token = home.add_client("two", &[]).await;
        let mut two = McpClient::sse(hub.address, &token, OLDER).await;
        two.initialize(json!({})).await;
        let token = home.add_client("deaf", &[]).await;
        let mut deaf = McpClient::sse(hub.address, &token, OLDER).await;
        deaf.initialize(json!({})).await;
        deaf.result("logging/setLevel", json!({ "level": "error" })).await;
        for client in [&mut one, &mut two, &mut deaf] {
            client.call("far_heard", json!({})).await;
            client.unasked();
        }
        one.notify(ROOTS_CHANGED, json!({})).await;
        assert_eq!(one.told("notifications/message").await["params"]["data"], "by itself");
        if !isolated {
            two.told("notifications/message").await;
        }
        for client in [&mut two, &mut deaf] {
            client.result("ping", json!({})).await;
            let more = client.unasked();
            assert!(more.iter().all(|message| message["method"] != "notifications/message"), "{more:?}");
        }
    }
}

/// Answers what a call asks, once by a client of each era, and looks for it in what comes back.
async fn answers(hub: &HubProcess, client: &mut McpClient, call: Value, meta: Value, answer: &str) {
    let id = client.begin("tools/call", call.clone()).await;
    let question = client.told("elicitation/create").await;
    client.reply(&question["id"], exact(answer)).await;
    let told = client.answer(&json!(id)).await;
    assert!(text(&told["result"]).contains(answer), "{told}");

    let mut newer = http(hub, NEWER).await;
    let first = newly(call, json!({ "elicitation": {} }), meta);
    let asked = newer.result("tools/call", first.clone()).await;
    let told = newer.result("tools/call", again(&first, &asked, &exact(answer))).await;
    assert!(text(&told).contains(answer), "{told}");
}

#[tokio::test]
async fn what_a_client_answers_arrives_as_it_left() {
    let answer = r#"{"action":"accept","content":{"n":0.12345678901234567890123,"e":1e+5,"h":1e+400,"i":-0.0},"new":1.0}"#;
    let home = home();
    let (hub, mut client) = begun(&home, OLDER, json!({ "elicitation": {} })).await;
    let meta = exact(r#"{"example.com/mine":[1e+400,1.50]}"#);
    answers(&hub, &mut client, say(json!([QUESTION, { "wait": true }])), meta, answer).await;
    let seen = client.call("far_heard", json!({})).await;
    assert!(text(&seen).contains(r#"\"example.com/mine\":[1e+400,1.50]"#), "{seen}");

    // A server of the newer era gets it with the next round.
    let home = crate::support::home();
    let (hub, mut client) = begun(&home, NEWER, json!({ "elicitation": {} })).await;
    let asks = r#"{"q":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{}}}}"#;
    let call = json!({ "name": "far_say", "arguments": { "ask": asks } });
    answers(&hub, &mut client, call, json!({}), answer).await;
}

/// What a server answers that wants a person to follow an address before the call.
const FOLLOW_FIRST: &str = r#"{"jsonrpc":"2.0","id":$token,"error":{"code":-32042,"message":"first","data":{"elicitations":[{"mode":"url","message":"Look","url":"https://example.com/","elicitationId":"f"}]}}}"#;

#[tokio::test]
async fn what_is_still_open_does_not_outlive_the_client() {
    let offers = json!({ "elicitation": { "form": {}, "url": {} } });
    for (revision, steps) in [
        (OLDER, json!([FOLLOW_FIRST])),
        // Parked, for a client that never comes back.
        (NEWER, json!([QUESTION, { "wait": true }])),
    ] {
        let home = home();
        home.configure(&format!("{UNHURRIED}\n{}", server(OLDER, "")));
        let mut client = stdio(&home, revision);
        if revision == OLDER {
            client.initialize(offers.clone()).await;
        }
        sees(&mut client, "far_say").await;
        let call = if revision == OLDER { say(steps) } else { newly(say(steps), offers.clone(), json!({})) };
        client.request("tools/call", call).await;
        client.hang_up();
        client.until_end().await;
    }
}

#[tokio::test]
async fn a_call_that_is_parked_ends_with_its_client() {
    let home = home();
    let more = format!(", HEARD = {:?}", record(&home));
    let _hub = serving(&home, &[server(OLDER, &more)]).await;
    let mut client = stdio(&home, NEWER);
    sees(&mut client, "far_say").await;
    let call = newly(say(json!([QUESTION, { "wait": true }])), json!({ "elicitation": {} }), json!({}));
    client.result("tools/call", call).await;
    client.hang_up();
    // One that waits for the answer and for nothing else gets one, after it has heard that nobody needs what comes of it.
    heard(&home, "the call is over; no client can be asked").await;
    let all = std::fs::read_to_string(record(&home)).unwrap();
    assert!(all.find("notifications/cancelled") < all.find("the call is over"), "{all}");
}

#[tokio::test]
async fn a_question_that_cannot_be_read_is_put_to_nobody() {
    let deep = format!("{}{}", "[".repeat(140), "]".repeat(140));
    let cut = r#","params":{"message":"cut \ud83d","requestedSchema":{"type":"object","properties":{}}}"#;
    let offers = json!({ "elicitation": {}, "sampling": {} });
    let questions = [
        ("elicitation/create", cut.to_owned()),
        ("sampling/createMessage", format!(r#","params":{{"messages":[],"maxTokens":1,"metadata":{deep}}}"#)),
        ("elicitation/create", String::new()),
    ];
    let home_of_older = home();
    let (hub, mut client) = begun(&home_of_older, OLDER, offers.clone()).await;
    let mut newer = http(&hub, NEWER).await;
    for (method, params) in &questions {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}"{params}}}"#);
        let call = say(json!([line, { "wait": true }]));
        let answer = client.result("tools/call", call.clone()).await;
        assert!(text(&answer).contains(r#""id":"q","error":{"code":-32602"#), "{answer}");
        let answer = newer.result("tools/call", newly(call, offers.clone(), json!({}))).await;
        assert!(text(&answer).contains(r#""id":"q","error":{"code":-32602"#), "{answer}");
    }
    assert!(client.unasked().iter().all(|message| message.get("id").is_none()));

    let home = home();
    let (hub, mut client) = begun(&home, NEWER, offers.clone()).await;
    let mut newer = http(&hub, NEWER).await;
    let is_refused = |answer: &Value| {
        let said = answer.to_string();
        said.contains("question cannot be read") || said.contains("no client supports")
    };
    for (method, params) in &questions {
        let asks = format!(r#"{{"q":{{"method":"{method}"{params}}}}}"#);
        let call = json!({ "name": "far_say", "arguments": { "ask": asks } });
        let answer = client.request("tools/call", call.clone()).await;
        assert!(is_refused(&answer), "{answer}");
        let answer = newer.request("tools/call", newly(call, offers.clone(), json!({}))).await;
        assert!(is_refused(&answer), "{answer}");
    }
    assert!(client.unasked().iter().all(|message| message.get("id").is_none()));
}

#[tokio::test]
async fn what_a_client_refuses_is_refused_in_its_own_words() {
    let error = r#"{"code":-1,"message":"User rejected sampling request","data":{"why":1.50}}"#;
    let offers = json!({ "elicitation": {}, "sampling": {} });
    let sampling = r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    async fn refuses(client: &mut McpClient, call: Value, method: &str, error: &str) -> Value {
        let id = client.begin("tools/call", call).await;
        let question = client.told(method).await;
        client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "error": exact(error) })).await;
        client.answer(&json!(id)).await
    }
    let home_of_older = home();
    let (_hub, mut client) = begun(&home_of_older, OLDER, offers.clone()).await;
    for (question, method) in [(sampling, "sampling/createMessage"), (QUESTION, "elicitation/create")] {
        let call = say(json!([question, { "wait": true }]));
        let answer = refuses(&mut client, call, method, error).await;
        assert!(text(&answer["result"]).contains(&format!(r#""id":"q","error":{error}"#)), "{answer}");
    }

    // A server of rounds is called again only with answers.
    let home = home();
    let (_hub, mut client) = begun(&home, NEWER, offers).await;
    let asks = |method: &str| {
        let asks = format!(r#"{{"q":{{"method":"{method}","params":{{"message":"Who?"}}}}}}"#);
        json!({ "name": "far_say", "arguments": { "ask": asks } })
    };
    let form = "elicitation/create";
    let answer = refuses(&mut client, asks(form), form, error).await;
    assert!(text(&answer["result"]).contains(r#""inputResponses":{"q":{"action":"cancel"}}"#), "{answer}");
    let model = "sampling/createMessage";
    let answer = refuses(&mut client, asks(model), model, error).await.to_string();
    assert!(answer.contains("User rejected sampling request") && !answer.contains("again"), "{answer}");
}

#[tokio::test]
async fn what_a_round_leaves_open_is_asked_again() {
    let home = home();
    let hub = serving(&home, &[server(OLDER, "")]).await;
    let mut client = http(&hub, NEWER).await;
    sees(&mut client, "far_say").await;
    let call = newly(say(json!([QUESTION, { "wait": true }])), json!({ "elicitation": {} }), json!({}));
    let first = client.result("tools/call", call.clone()).await;
    let mut asked = first.clone();
    for nothing in [json!({}), json!({ "elicitation_1": "what?" })] {
        let mut more = call.clone();
        (more["requestState"], more["inputResponses"]) = (asked["requestState"].clone(), nothing);
        asked = client.result("tools/call", more).await;
        assert_eq!(asked["inputRequests"], first["inputRequests"], "{asked}");
    }
    let answer = client.result("tools/call", again(&call, &asked, &json!({ "action": "decline" }))).await;
    assert!(text(&answer).contains(r#""result":{"action":"decline"}"#), "{answer}");
}

#[tokio::test]
async fn an_address_that_comes_before_the_call_is_shown_by_a_client_of_rounds() {
    let home = home();
    let more = format!(", HEARD = {:?}", record(&home));
    let hub = serving(&home, &[server(OLDER, &more)]).await;
    let mut client = http(&hub, NEWER).await;
    sees(&mut client, "far_say").await;
    let call = newly(say(json!([FOLLOW_FIRST])), json!({ "elicitation": { "url": {} } }), json!({}));
    let asked = client.result("tools/call", call.clone()).await;
    let question = &asked["inputRequests"]["address_1"];
    assert_eq!(question["method"], "elicitation/create", "{asked}");
    assert_eq!(question["params"]["url"], "https://example.com/", "{asked}");
    // The call is made anew, and this server says the same again.
    let asked = client.result("tools/call", again(&call, &asked, &json!({ "action": "accept" }))).await;
    assert_eq!(asked["resultType"], "input_required");
    let seen = std::fs::read_to_string(record(&home)).unwrap();
    assert_eq!(seen.matches(r#""method":"tools/call""#).count(), 2, "{seen}");
    assert!(!seen.contains("inputResponses"), "{seen}");
    let answer = client.request("tools/call", again(&call, &asked, &json!({ "action": "decline" }))).await;
    assert!(answer.to_string().contains("was declined"), "{answer}");
    // Who cannot show one gets what the server said.
    let call = newly(say(json!([FOLLOW_FIRST])), json!({ "elicitation": {} }), json!({}));
    assert_eq!(client.request("tools/call", call).await["error"]["code"], -32042);
}

#[tokio::test]
async fn a_wish_for_a_task_that_nobody_could_ask_after_is_ignored() {
    let home = home();
    let (_hub, mut client) = begun(&home, OLDER, json!({})).await;
    let call = json!({ "name": "far_heard", "arguments": {}, "task": { "ttl": 5000 }, "mine": 1 });
    let heard = client.result("tools/call", call).await;
    assert!(text(&heard).contains(r#"\"mine\":1"#) && !text(&heard).contains(r#"\"ttl\""#), "{heard}");
}

#[tokio::test]
async fn that_a_call_is_given_up_is_heard_before_what_becomes_of_its_questions() {
    let home = home();
    let more = format!(", HEARD = {:?}", record(&home));
    let _hub = serving(&home, &[server(OLDER, &more)]).await;
    let mut client = older(&home, json!({ "elicitation": {} })).await;
    let id = client.begin("tools/call", say(json!([QUESTION, { "wait": true }, { "wait": true }]))).await;
    client.told("elicitation/create").await;
    client.notify("notifications/cancelled", json!({ "requestId": id })).await;
    heard(&home, r#""id":"q","error":"#).await;
    let seen = std::fs::read_to_string(record(&home)).unwrap();
    assert!(seen.find("notifications/cancelled") < seen.find(r#""id":"q","error":"#), "{seen}");
    assert!(seen.contains("notifications/cancelled"), "{seen}");
}
