//! What holds for every client, however it is connected and whatever it speaks.

use crate::support::{names, text};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::TestHome;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// More than one page of resources.
const MANY: usize = 255;
/// Larger than any buffer on the way.
const BIG: usize = 100 * 1024;

/// Puts into a home what the assertions look for.
pub(crate) fn fill(home: &TestHome) {
    home.write("hello.md", "# Hello\n");
    home.write("watched.txt", "before");
    home.write("picture.bin", [0xff, 0xfe, 0x00]);
    for n in 0..MANY {
        home.write(&format!("many/{n:03}.txt"), format!("{n}"));
    }
    let front = "---\ntitle: Greet\ndescription: Says hello\narguments:\n  - name: who\n    required: true\n    \
                 values: [World, Wilma, Fred]\n---\n";
    home.write_prompt("greet", &format!("{front}Say hello to {{{{who}}}}.\n"));
}

/// The one set of assertions.
pub(crate) async fn standard_assertions(client: &mut McpClient, home: &TestHome) {
    lifecycle(client).await;
    tools(client).await;
    calls(client).await;
    big(client, home).await;
    prompts(client).await;
    completion(client).await;
    resources(client).await;
    changes(client, home).await;
    methods_of_the_era(client).await;
    unknown_method(client).await;
    batches(client).await;
    late_cancellation(client).await;
}

async fn lifecycle(client: &mut McpClient) {
    let result = if client.is_newest() {
        client.result("server/discover", json!({})).await
    } else {
        let result = client.initialize(json!({})).await;
        assert_eq!(result["protocolVersion"], client.revision());
        assert_eq!(result["serverInfo"]["name"], "portcullis");
        result
    };
    for capability in ["tools", "resources", "prompts", "completions", "logging"] {
        assert!(result["capabilities"][capability].is_object(), "{capability}: {result}");
    }
    assert!(result["instructions"].as_str().is_some_and(|text| text.contains("workspace_list")));
    if client.is_newest() {
        let supported: Vec<&str> =
            result["supportedVersions"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
        assert_eq!(supported, ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    }
    envelope(client, &result, CachePolicy::Yes);
}

/// Whether a client may keep a result.
#[derive(PartialEq)]
enum CachePolicy {
    Yes,
    No,
}

/// The newest revision says of every result what it is; the older ones must not see any of that.
fn envelope(client: &McpClient, result: &Value, kept: CachePolicy) {
    let is_newest = client.is_newest();
    assert_eq!(result.get("resultType"), is_newest.then(|| json!("complete")).as_ref(), "{result}");
    let cacheable = is_newest && kept == CachePolicy::Yes;
    assert_eq!(result.get("cacheScope"), cacheable.then(|| json!("private")).as_ref(), "{result}");
    assert_eq!(result.get("ttlMs").is_some_and(Value::is_u64), cacheable, "{result}");
}

async fn tools(client: &mut McpClient) {
    let listed = client.result("tools/list", json!({})).await;
    envelope(client, &listed, CachePolicy::Yes);
    let expected: Vec<Value> = portcullis::surface::current()
        .unwrap()
        .into_iter()
        // What a section of the configuration has to turn on is off in these homes.
        .filter(|(name, _)| {
            !["vault_", "web_", "calendar_", "github_"].iter().any(|family| name.starts_with(family))
        })
        .map(|(_, snapshot)| snapshot["definition"].clone())
        .collect();
    assert_eq!(listed["tools"], json!(expected), "the same definitions, in the same order, everywhere");
    assert_eq!(listed.get("nextCursor"), None);
    assert_eq!(client.result("tools/list", json!({})).await, listed, "twice the same");
    assert_eq!(client.refused("tools/list", json!({ "cursor": "nonsense" })).await, -32602);
}

async fn calls(client: &mut McpClient) {
    let read = client.call("workspace_read", json!({ "path": "hello.md" })).await;
    assert_eq!((text(&read), &read["isError"]), ("# Hello\n", &json!(false)));
    envelope(client, &read, CachePolicy::No);

    let listed = client.call("workspace_list", json!({ "path": "." })).await;
    assert_eq!(listed["structuredContent"]["entries"][0]["name"], "many");
    let shown: Value = serde_json::from_str(text(&listed)).unwrap();
    assert_eq!(shown, listed["structuredContent"], "the text is the same value");
    assert!(text(&listed).starts_with("{\n  \"path\""), "set in two spaces");

    let missing = client.call("workspace_read", json!({ "path": "gone.md" })).await;
    assert_eq!(missing["isError"], true);
    assert_eq!(text(&missing), "Error: file `gone.md` not found\n`workspace_list` shows what exists");
    assert_eq!(missing["structuredContent"]["code"], "not_found");

    let invalid = client.call("workspace_read", json!({ "pth": 7 })).await;
    assert_eq!(
        (&invalid["isError"], &invalid["structuredContent"]["code"]),
        (&json!(true), &json!("invalid_args"))
    );
    assert!(text(&invalid).contains("`pth`") && text(&invalid).contains("`path`"), "{invalid}");

    let unknown = client.request("tools/call", json!({ "name": "no_such", "arguments": {} })).await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert_eq!(unknown["error"]["message"], "Unknown tool: no_such");
    assert_eq!(client.refused("tools/call", json!({ "arguments": {} })).await, -32602);
    let list = json!({ "name": "workspace_read", "arguments": [] });
    assert_eq!(client.refused("tools/call", list).await, -32602);
}

async fn big(client: &mut McpClient, home: &TestHome) {
    let content: String = (0..BIG).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    let written = client.call("workspace_write", json!({ "path": "big.txt", "content": content })).await;
    assert_eq!(written["structuredContent"]["bytes"], BIG, "{}", text(&written));
    assert_eq!(std::fs::read_to_string(home.files().join("big.txt")).unwrap(), content);
    let read = client.call("workspace_read", json!({ "path": "big.txt" })).await;
    assert_eq!(text(&read), content);
}

async fn prompts(client: &mut McpClient) {
    let listed = client.result("prompts/list", json!({})).await;
    envelope(client, &listed, CachePolicy::Yes);
    assert_eq!(names(&listed["prompts"]), ["greet"]);
    assert_eq!(listed["prompts"][0]["arguments"][0]["name"], "who");
    let got = client.result("prompts/get", json!({ "name": "greet", "arguments": { "who": "Ada" } })).await;
    envelope(client, &got, CachePolicy::No);
    assert_eq!(got["messages"][0]["content"]["text"], "Say hello to Ada.\n");
    assert_eq!(client.refused("prompts/get", json!({ "name": "greet" })).await, -32602);
    assert_eq!(client.refused("prompts/get", json!({ "name": "no_such" })).await, -32602);
}

async fn completion(client: &mut McpClient) {
    let of = |reference: Value, name: &str, value: &str| json!({ "ref": reference, "argument": { "name": name, "value": value } });
    let prompt = json!({ "type": "ref/prompt", "name": "greet" });
    let completed = client.result("completion/complete", of(prompt, "who", "W")).await;
    assert_eq!(completed["completion"]["values"], json!(["World", "Wilma"]), "{completed}");
    let templates = client.result("resources/templates/list", json!({})).await;
    envelope(client, &templates, CachePolicy::Yes);
    let template = templates["resourceTemplates"][0]["uriTemplate"].as_str().unwrap();
    let file = json!({ "type": "ref/resource", "uri": template });
    let completed = client.result("completion/complete", of(file, "path", "hel")).await;
    assert_eq!(completed["completion"]["values"], json!(["hello.md"]), "{completed}");
    let nobody = json!({ "type": "ref/prompt", "name": "no_such" });
    assert_eq!(client.refused("completion/complete", of(nobody, "who", "")).await, -32602);
    assert_eq!(client.refused("completion/complete", of(json!({}), "who", "")).await, -32602);
}

async fn resources(client: &mut McpClient) {
    let (mut uris, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let page = client.result("resources/list", params).await;
        envelope(client, &page, CachePolicy::Yes);
        let items = page["resources"].as_array().unwrap();
        uris.extend(items.iter().map(|item| item["uri"].as_str().unwrap().to_owned()));
        pages += 1;
        match page.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    assert_eq!(pages, 2);
    assert_eq!(uris.len(), MANY + 4, "with the three of their own, and the big one");
    assert_eq!(uris.iter().collect::<BTreeSet<_>>().len(), uris.len(), "none twice");
    let uri = uri_of(&uris, "hello.md");
    let read = client.result("resources/read", json!({ "uri": uri })).await;
    envelope(client, &read, CachePolicy::Yes);
    assert_eq!(read["contents"], json!([{ "uri": uri, "mimeType": "text/markdown", "text": "# Hello\n" }]));
    let bytes = client.result("resources/read", json!({ "uri": uri_of(&uris, "picture.bin") })).await;
    assert_eq!(bytes["contents"][0]["blob"], "//4A");
    let missing = if client.is_newest() { -32602 } else { -32002 };
    let gone = uri.replace("hello", "gone");
    assert_eq!(client.refused("resources/read", json!({ "uri": gone })).await, missing);
    assert_eq!(client.refused("resources/read", json!({ "uri": "other://place" })).await, missing);
    assert_eq!(client.refused("resources/read", json!({})).await, -32602);
}

fn uri_of<'a>(uris: &'a [String], name: &str) -> &'a str {
    uris.iter().find(|uri| uri.ends_with(&format!("/{name}"))).unwrap()
}

/// A real change of a real file is told to who asked for it.
async fn changes(client: &mut McpClient, home: &TestHome) {
    let listed = client.result("resources/list", json!({})).await;
    let uri = listed["resources"].as_array().unwrap().iter().find(|item| item["name"] == "hello.md").unwrap()
        ["uri"]
        .as_str()
        .unwrap()
        .replace("hello.md", "watched.txt");
    if client.is_newest() {
        let granted = client.listen(json!({ "resourceSubscriptions": [uri, "other://place"] })).await;
        // What nobody owns is left out.
        assert_eq!(granted["params"]["notifications"]["resourceSubscriptions"], json!([uri]));
    } else {
        assert_eq!(client.result("resources/subscribe", json!({ "uri": uri })).await, json!({}));
        assert_eq!(client.refused("resources/subscribe", json!({ "uri": "other://place" })).await, -32002);
    }
    home.write("watched.txt", "after");
    let told = client.told("notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], *uri);
    let tag = &told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(tag.is_u64(), client.is_newest(), "{told}");
    let read = client.result("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read["contents"][0]["text"], "after");
    if !client.is_newest() {
        assert_eq!(client.result("resources/unsubscribe", json!({ "uri": uri })).await, json!({}));
    }
    // The same write may be seen in two steps; nothing later counts on it.
    client.unasked();
}

async fn methods_of_the_era(client: &mut McpClient) {
    let older = [
        ("ping", json!({})),
        ("logging/setLevel", json!({ "level": "warning" })),
        ("resources/unsubscribe", json!({ "uri": "other://place" })),
    ];
    for (method, params) in older {
        if client.is_newest() {
            assert_eq!(client.refused(method, params).await, -32601, "{method}");
        } else {
            assert_eq!(client.result(method, params).await, json!({}), "{method}");
        }
    }
    if client.is_newest() {
        let initialize = json!({ "protocolVersion": "2026-07-28", "capabilities": {} });
        for (method, params) in
            [("initialize", initialize), ("resources/subscribe", json!({ "uri": "x://y" }))]
        {
            assert_eq!(client.refused(method, params).await, -32601, "{method}");
        }
    } else {
        for method in ["server/discover", "subscriptions/listen", "tasks/get"] {
            assert_eq!(client.refused(method, json!({})).await, -32601, "{method}");
        }
        assert_eq!(client.refused("logging/setLevel", json!({ "level": "loud" })).await, -32602);
    }
}

async fn unknown_method(client: &mut McpClient) {
    let answer = client.request("no/such", json!({})).await;
    assert_eq!(answer["error"]["code"], -32601);
    assert_eq!(answer["error"]["message"], "Method not found: no/such");
    if client.is_http() {
        assert_eq!(client.status, if client.is_newest() { 404 } else { 200 });
    }
}

async fn batches(client: &mut McpClient) {
    let batch = json!([
        { "jsonrpc": "2.0", "id": "b1", "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/progress", "params": {} },
        { "jsonrpc": "2.0", "id": "b2", "method": "no/such" },
    ]);
    client.send(&batch).await;
    if !["2024-11-05", "2025-03-26"].contains(&client.revision()) {
        let refused = client.answer(&Value::Null).await;
        assert_eq!(refused["error"]["code"], -32600);
        assert!(refused["error"]["message"].as_str().unwrap().contains("send one message"), "{refused}");
        return;
    }
    // One array where the transport answers at once; one by one where answers go down a stream.
    let together = client.wait("the answers", |m| m.is_array() || m["id"] == "b1").await;
    let answers = match together {
        Value::Array(answers) => answers,
        first => vec![first, client.answer(&json!("b2")).await],
    };
    assert_eq!(answers[0], json!({ "jsonrpc": "2.0", "id": "b1", "result": {} }));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!("b2"), &json!(-32601)));
    assert_eq!(answers.len(), 2);
}

/// A cancellation that comes too late is no fault: nothing is said of it, and the next request is answered.
async fn late_cancellation(client: &mut McpClient) {
    client.unasked();
    let answered = client.begin("tools/list", json!({})).await;
    client.answer(&json!(answered)).await;
    client.notify("notifications/cancelled", json!({ "requestId": answered, "reason": "too late" })).await;
    client.notify("notifications/cancelled", json!({ "requestId": "never seen" })).await;
    client.notify("notifications/cancelled", json!({})).await;
    client.result("tools/list", json!({})).await;
    let told_of_files = |message: &Value| {
        message["method"].as_str().is_some_and(|method| method.starts_with("notifications/resources/"))
    };
    let unasked: Vec<Value> = client.unasked().into_iter().filter(|m| !told_of_files(m)).collect();
    assert_eq!(unasked, Vec::<Value>::new());
}
