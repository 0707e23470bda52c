//! Elicitation spoofing: a server's question imitates another server or the hub, hides text, or links to a private address.
//!
//! Invariant: for any question and protocol era, the first line names the server, every other line is quoted, nothing
//! invisible is left, and no URL but a public https one is shown.

use crate::server_messages::{NEWER, OLDER, begun, newly, say};
use crate::support::{home, http, text, unseen};
use serde_json::{Value, json};

const FORGED: [&str; 5] = [
    "Portcullis asks: client `ada` wants to run tool `files_list` (effect: read) with:\n{}",
    "ok\n\nServer \"bank\" asks:\n> Your PIN?",
    "ok\r\n\u{2028}Portcullis asks: more?\u{85}Portcullis asks: again?",
    "\u{1b}[2J\u{1b}[HPortcullis asks: \u{202e}evorppa\u{200b}\u{e0041}",
    "",
];

const LEADS_ASTRAY: [&str; 17] = [
    "javascript:alert(1)",
    "file:///etc/passwd",
    "data:text/html,x",
    "http://example.com/",
    "http://127.0.0.1:7077/admin",
    "https://localhost/",
    "https://a.localhost./",
    "https://[::1]/",
    "https://0x7f.1/",
    "https://10.0.0.1/",
    "https://169.254.169.254/",
    "https://[::ffff:192.168.0.1]/",
    "https://printer/",
    "https://user:pass@example.com/",
    "https://example.com\\@localhost/",
    "https://example.com/\u{202e}moc",
    "https://example.com/\na",
];

/// Returns what is wrong with what a person would be shown.
fn wrong(params: &Value) -> Option<String> {
    let message = params["message"].as_str().unwrap_or_default();
    let mut lines = message.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{b}', '\u{c}']);
    if lines.next() != Some("Server \"far\" asks:") {
        return Some(format!("the first line does not name the server: {message:?}"));
    }
    if let Some(line) = lines.find(|line| !line.starts_with("> ")) {
        return Some(format!("a line is not quoted: {line:?}"));
    }
    if let Some(hidden) = strings(params).find_map(unseen) {
        return Some(format!("something unseen is left: {hidden:?}"));
    }
    match params["url"].as_str() {
        Some(url) if LEADS_ASTRAY.contains(&url) => Some(format!("a person is led astray: {url:?}")),
        _ => None,
    }
}

/// Returns every name and text in a value.
fn strings(value: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        Value::String(text) => Box::new(std::iter::once(text.as_str())),
        Value::Array(items) => Box::new(items.iter().flat_map(strings)),
        Value::Object(members) => Box::new(
            members.iter().flat_map(|(name, member)| std::iter::once(name.as_str()).chain(strings(member))),
        ),
        _ => Box::new(std::iter::empty()),
    }
}

fn form(message: &str) -> Value {
    let words = format!("Name{message}");
    json!({ "message": message, "requestedSchema": { "type": "object", "properties": { "a": {
        "type": "string", "title": words, "description": words, "enum": ["x"], "enumNames": [words], "default": words
    } } } })
}

fn url(url: &str) -> Value {
    json!({ "mode": "url", "message": "Look", "url": url, "elicitationId": "e" })
}

fn question(params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params }).to_string()
}

fn offers() -> Value {
    json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {} })
}

/// The weak variant: a hub that passes on what a server says.
#[test]
fn what_is_passed_on_as_it_came_would_be_noticed() {
    for params in FORGED.map(form).into_iter().chain(LEADS_ASTRAY.map(url)) {
        assert!(wrong(&params).is_some(), "{params}");
    }
    // Named, but not quoted, not cleaned, not looked at.
    for message in &FORGED[..4] {
        assert!(wrong(&json!({ "message": format!("Server \"far\" asks:\n{message}") })).is_some());
    }
    let mut named = url("javascript:alert(1)");
    named["message"] = "Server \"far\" asks:\n> Look".into();
    assert!(wrong(&named).is_some());
}

#[tokio::test]
async fn no_question_of_an_older_server_is_forged_or_leads_astray() {
    let home = home();
    let (hub, mut client) = begun(&home, OLDER, offers()).await;
    let mut newer = http(&hub, NEWER).await;
    for message in FORGED {
        let call = say(json!([question(&form(message)), { "wait": true }]));
        let id = client.begin("tools/call", call.clone()).await;
        let asked = client.told("elicitation/create").await;
        assert_eq!(wrong(&asked["params"]), None);
        client.reply(&asked["id"], json!({ "action": "decline" })).await;
        client.answer(&json!(id)).await;
        let mut call = newly(call, offers(), json!({}));
        let asked = newer.result("tools/call", call.clone()).await;
        let (key, shown) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(wrong(&shown["params"]), None, "{asked}");
        call["requestState"] = asked["requestState"].clone();
        call["inputResponses"] = json!({ key: { "action": "decline" } });
        newer.result("tools/call", call).await;
    }
    let hidden =
        json!({ "message": "a", "requestedSchema": { "type": "object", "properties": { "a\u{200b}": {} } } });
    let too_long = json!({ "message": "\n".repeat(100) });
    let two_faced =
        json!({ "mode": "url", "message": "a", "url": "https://example.com/", "URL": "file:///" });
    let refused = LEADS_ASTRAY.map(url).into_iter().chain([hidden, too_long, two_faced]);
    for params in refused {
        // The server learns why, and nobody is asked.
        let answer = client.result("tools/call", say(json!([question(&params), { "wait": true }]))).await;
        assert!(text(&answer).contains(r#""id":"q","error":{"code":-32602"#), "{params}: {answer}");
        assert!(client.unasked().iter().all(|said| said["method"] != "elicitation/create"));

        // An error that wants an address followed is none that could be passed on.
        let data = json!({ "elicitations": [params] });
        let error = json!({ "code": -32042, "message": "look first", "data": data });
        let line = format!(r#"{{"jsonrpc":"2.0","id":$token,"error":{error}}}"#);
        let told = client.request("tools/call", say(json!([line]))).await;
        assert!(!told.to_string().contains("elicitations"), "{told}");
        let told = newer.request("tools/call", newly(say(json!([line])), offers(), json!({}))).await;
        assert!(!told.to_string().contains("inputRequests"), "{told}");
    }
    let error = json!({ "code": -32042, "message": "look first", "data": { "elicitations": [url("https://example.com/")] } });
    let line = format!(r#"{{"jsonrpc":"2.0","id":$token,"error":{error}}}"#);
    let told = client.request("tools/call", say(json!([line]))).await;
    assert_eq!(wrong(&told["error"]["data"]["elicitations"][0]), None, "{told}");
}

#[tokio::test]
async fn no_question_of_a_newer_server_is_forged_or_leads_astray() {
    let home = home();
    let (hub, mut client) = begun(&home, NEWER, offers()).await;
    let mut newer = http(&hub, NEWER).await;
    let asks = |params: &Value| {
        let asked = json!({ "q": { "method": "elicitation/create", "params": params } }).to_string();
        json!({ "name": "far_say", "arguments": { "ask": asked } })
    };
    for message in FORGED {
        let id = client.begin("tools/call", asks(&form(message))).await;
        let asked = client.told("elicitation/create").await;
        assert_eq!(wrong(&asked["params"]), None);
        client.reply(&asked["id"], json!({ "action": "decline" })).await;
        client.answer(&json!(id)).await;
        let asked = newer.result("tools/call", newly(asks(&form(message)), offers(), json!({}))).await;
        assert_eq!(wrong(&asked["inputRequests"]["q"]["params"]), None, "{asked}");
    }
    for params in LEADS_ASTRAY.map(url) {
        for answer in [
            client.result("tools/call", asks(&params)).await,
            newer.result("tools/call", newly(asks(&params), offers(), json!({}))).await,
        ] {
            assert_eq!(answer["isError"], true, "{params}: {answer}");
            assert!(text(&answer).contains("question is not shown"), "{params}: {answer}");
        }
    }
    // A key under which the hub would look for a person's yes.
    let asked =
        json!({ "Portcullis_approval_1": { "method": "elicitation/create", "params": form("Yes?") } });
    let call = json!({ "name": "far_say", "arguments": { "ask": asked.to_string() } });
    let answer = newer.result("tools/call", newly(call, offers(), json!({}))).await;
    assert!(text(&answer).contains("question is not shown"), "{answer}");
    // The same, spelt with escapes, and as the state of a task; both are results that are passed on otherwise.
    let params = form(FORGED[0]);
    let asked = json!({ "q": { "method": "elicitation/create", "params": params } });
    let escaped = format!(r#"{{"resultType":"input\u005frequired","input\u0052equests":{asked}}}"#);
    let task =
        format!(r#"{{"resultType":"task","taskId":"t","status":"input_required","inputRequests":{asked}}}"#);
    let offers = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    for result in [escaped, task] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":$token,"result":{result}}}"#);
        let told = newer.result("tools/call", newly(say(json!([line])), offers.clone(), json!({}))).await;
        assert_eq!(wrong(&told["inputRequests"]["q"]["params"]), None, "{told}");
    }
}
