//! The ways out.

use super::{Captured, LeakCase};
use crate::support::http;
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, TestHome, run};
use portcullis_testkit::raw_http::RawHttpRequest;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const REVISION: &str = "2025-11-25";

/// Results, resources, prompts, completions, and errors.
pub(super) async fn calls(hub: &HubProcess, leaks: &[LeakCase], captured: &mut Captured) {
    let mut client = http(hub, REVISION).await;
    for (at, leak) in leaks.iter().enumerate() {
        let file = format!("leak-{at}.txt");
        let mut ask = async |way, method: &str, params: Value| {
            let answer = client.request(method, params).await;
            captured.add(way, answer.to_string(), 1);
        };
        let read = |path: &str| json!({ "name": "workspace_read", "arguments": { "path": path } });
        ask("result", "tools/call", read(&file)).await;
        ask("resource", "resources/read", json!({ "uri": format!("workspace:///{file}") })).await;
        ask("prompt", "prompts/get", json!({ "name": format!("p{at}") })).await;
        let reference = json!({ "type": "ref/prompt", "name": format!("p{at}") });
        let argument = json!({ "name": "a", "value": "" });
        ask("completion", "completion/complete", json!({ "ref": reference, "argument": argument })).await;
        ask("error", "tools/call", read(&leak.text)).await;
        let wrong = json!({ "name": "workspace_read", "arguments": { "path": [leak.text] } });
        ask("error", "tools/call", wrong).await;
        let key = json!({ "name": "workspace_read", "arguments": { leak.text.as_str(): 1 } });
        ask("error", "tools/call", key).await;
    }
    let listed = client.call("workspace_list", json!({ "path": "names" })).await;
    captured.add("structured content", listed["structuredContent"].to_string(), leaks.len());
}

/// Lists, page by page.
pub(super) async fn lists(hub: &HubProcess, leaks: &[LeakCase], captured: &mut Captured) {
    let mut client = http(hub, REVISION).await;
    for (way, method, least) in [
        ("list of tools", "tools/list", 0),
        ("list of prompts", "prompts/list", leaks.len()),
        ("list of resources", "resources/list", leaks.len()),
        ("list of templates", "resources/templates/list", 0),
    ] {
        let (mut params, mut items) = (json!({}), 0);
        loop {
            let page = client.result(method, params.clone()).await;
            items += page.as_object().unwrap().values().find_map(Value::as_array).unwrap().len();
            captured.add(if least > 0 { way } else { "operators" }, page.to_string(), leaks.len());
            match page["nextCursor"].as_str() {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => break,
            }
        }
        assert!(items >= least, "{way}: {items}");
    }
}

/// Notices of changed files whose names are secret.
pub(super) async fn notices(home: &TestHome, hub: &HubProcess, leaks: &[LeakCase], captured: &mut Captured) {
    let mut client = http(hub, REVISION).await;
    let mut uris: BTreeSet<String> = BTreeSet::new();
    // What is masked in the list is subscribed to by whoever knows the name.
    let encoded = |name: &str| -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
        name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
    };
    for leak in leaks.iter().filter(|leak| leak.is_file_name()) {
        let uri = format!("workspace:///names/{}", encoded(&leak.text));
        if client.request("resources/subscribe", json!({ "uri": uri })).await.get("result").is_some() {
            uris.insert(leak.text.clone());
        }
    }
    assert!(!uris.is_empty());
    client.unasked();
    for name in &uris {
        home.write(&format!("names/{name}"), "changed");
    }
    let mut told = 0;
    until("the changes are told", async || {
        for message in client.unasked() {
            if message["method"] == "notifications/resources/updated" {
                told += 1;
                captured.add("notice", message.to_string(), 1);
            }
        }
        (told >= uris.len()).then_some(())
    })
    .await;
}

/// Answers as events.
pub(super) async fn stream(hub: &HubProcess, leaks: &[LeakCase], captured: &mut Captured) {
    let mut client = McpClient::sse(hub.address, &hub.token, "2024-11-05").await;
    client.initialize(json!({})).await;
    for (at, leak) in leaks.iter().enumerate() {
        let arguments = json!({ "path": format!("leak-{at}.txt") });
        let result = client.call("workspace_read", arguments).await;
        captured.add("event stream", result.to_string(), 1);
        let refused = client.request("tools/call", json!({ "name": leak.text })).await;
        captured.add("event stream", refused.to_string(), 1);
    }
}

/// What is said to whoever asks for what there is not.
pub(super) async fn refusals(hub: &HubProcess, leaks: &[LeakCase], captured: &mut Captured) {
    let mut client = http(hub, REVISION).await;
    for leak in leaks {
        let text = &leak.text;
        for (method, params) in [
            ("tools/call", json!({ "name": text })),
            ("prompts/get", json!({ "name": text })),
            ("resources/read", json!({ "uri": text })),
            ("resources/read", json!({ "uri": format!("workspace:///{text}") })),
            ("resources/subscribe", json!({ "uri": text })),
            ("logging/setLevel", json!({ "level": text })),
            ("tools/list", json!({ "cursor": text })),
            (text.as_str(), json!({})),
        ] {
            let answer = client.request(method, params).await;
            assert!(answer.get("error").is_some(), "{answer}");
            captured.add("refusal", answer.to_string(), 1);
        }
        // An id goes back as it came; the log has no need of it.
        let message = json!({ "jsonrpc": "2.0", "id": text, "method": "ping" });
        let request = RawHttpRequest::post("/mcp", message.to_string()).token(&hub.token);
        let reply = request.send(hub.address).await;
        match reply.json()["id"] == json!(text) {
            true => {}
            // One that is too long is refused.
            false => captured.add("refusal", reply.body, 1),
        }
        // The newest revision compares headers with the body and says what differs.
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": text,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
        let request = RawHttpRequest::post("/mcp", message.to_string()).token(&hub.token);
        captured.add("refusal", request.header("Mcp-Protocol-Version", "v0").send(hub.address).await.body, 1);
        let broken = RawHttpRequest::post("/mcp", format!("{{\"jsonrpc\": {text}")).token(&hub.token);
        captured.add("refusal", broken.send(hub.address).await.body, 1);
    }
}

/// What operators look at.
pub(super) async fn operators(hub: &HubProcess, sent: usize, captured: &mut Captured) {
    for path in ["/metrics", "/readyz", "/healthz", "/nowhere"] {
        let reply = RawHttpRequest::get(path).token(&hub.token).send(hub.address).await;
        assert!(!reply.body.is_empty(), "{path}");
        captured.add("operators", reply.body, sent);
    }
}

/// What commands print.
pub(super) async fn commands(home: &TestHome, leaks: &[LeakCase], captured: &mut Captured) {
    let by_secret: BTreeSet<&str> = leaks.iter().map(|leak| leak.name.as_str()).collect();
    for name in by_secret {
        let forms: Vec<&LeakCase> = leaks.iter().filter(|leak| leak.name == name).collect();
        let text: Vec<&str> = forms.iter().map(|leak| leak.text.as_str()).collect();
        home.write("forms.txt", text.join("\n\n---\n\n"));
        let read = r#"{"path": "forms.txt"}"#;
        for args in [
            &["tools", "call", "workspace_read", read][..],
            &["tools", "call", "workspace_read", read, "--json"],
        ] {
            let ran = home.run(args).await;
            assert_eq!(ran.code, 0, "{name}: {ran:?}");
            captured.add("cli: result", ran.stdout + &ran.stderr, forms.len());
        }
        // Given on standard input, because the command line is not ours to keep secret.
        let wrong = json!({ "path": forms[0].text }).to_string();
        for args in [
            &["tools", "call", "workspace_read", "-"][..],
            &["tools", "call", "workspace_read", "-", "--json"],
        ] {
            let ran = run(home.command(args), &wrong).await;
            captured.add("cli: error", ran.stdout + &ran.stderr, 1);
        }
        let ran = home.run(&["tools", "call", &forms[0].text]).await;
        captured.add("cli: error", ran.stdout + &ran.stderr, 1);
        let ran = home.run(&["clients", "revoke", &forms[0].text]).await;
        captured.add("cli: error", ran.stdout + &ran.stderr, 1);
    }
    for args in [&["audit", "tail", "-n", "2000"][..], &["audit", "search", "--json"]] {
        let ran = home.run(args).await;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        captured.add("cli: audit", ran.stdout + &ran.stderr, leaks.len());
    }
    for args in [&["doctor"][..], &["tools", "list", "--json"], &["clients", "list"], &["secrets", "list"]] {
        let ran = home.run(args).await;
        captured.add("cli: doctor and lists", ran.stdout + &ran.stderr, leaks.len());
    }
}
