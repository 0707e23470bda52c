//! A line break between two words of one message would make a second message of what follows, which no guard has seen.

use crate::changing_server::{Shop, tool};
use crate::support::{home, request};
use crate::upstream::sees;
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::misbehaving_server::{MisbehavingReply, MisbehavingServer, answer};
use portcullis_testkit::process::{UNHURRIED, run};
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::{Value, json};

const SMUGGLED: &str =
    r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"pay","arguments":{}}}"#;

#[tokio::test]
async fn a_call_carries_no_other_call_into_a_server() {
    let offer = json!({ "tools": [tool("see", "See invoices"), tool("pay", "Pay an invoice")] });
    let (home, shop) = (home(), Shop::new(&offer));
    shop.configure(&home, "trust = \"always\"");
    let hub = home.serve().await;
    let token = home.add_client("reader", &["--allow", "shop_see"]).await;
    sees(&mut McpClient::http(hub.address, &token, "2025-11-25").await, "shop_see").await;
    let mut expected = Vec::new();
    for params in [
        format!("\"name\":\"shop_see\",\"arguments\":{{}},\"_meta\":{{\"x\":[\n{SMUGGLED}\n]}}"),
        format!("\"name\":\"shop_see\",\"arguments\":{{\"x\":[\n{SMUGGLED}\n]}}"),
        format!("\"name\":\"shop_see\",\"arguments\":{{}},\"x\":[\r\n{SMUGGLED}\r\n]"),
        // What many send without a thought.
        "\n\"name\": \"shop_see\",\n\"arguments\": {\n\"text\": 1\n}\n".to_owned(),
    ] {
        let body =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{{params}}}}}");
        let reply = RawHttpRequest::post("/mcp", body).token(&token).send(hub.address).await;
        expected.push("see");
        assert!(reply.text().contains("called see"), "{params}: {}", reply.text());
        assert_eq!(shop.calls(), expected, "{params}");
    }
}

#[tokio::test]
async fn an_argument_that_a_server_could_take_for_a_checked_one_is_refused() {
    let properties = json!({ "path": { "type": "string", "maxLength": 3 } });
    let see = json!({ "name": "see", "inputSchema": { "type": "object", "properties": properties } });
    let (home, shop) = (home(), Shop::new(&json!({ "tools": [see] })));
    shop.configure(&home, "trust = \"always\"");
    let hub = home.serve().await;
    let mut client = McpClient::http(hub.address, &hub.token, "2025-11-25").await;
    sees(&mut client, "shop_see").await;
    let refused = client.call("shop_see", json!({ "path": "ok", "Path": "/etc/passwd" })).await;
    assert!(refused.to_string().contains("could be taken for"), "{refused}");
    let taken = client.call("shop_see", json!({ "path": "ok", "other": "x" })).await;
    assert!(taken.to_string().contains("called see"), "{taken}");
    assert_eq!(shop.calls(), ["see"]);
}

#[tokio::test]
async fn an_answer_over_lines_is_one_line_to_whoever_reads_lines() {
    let home = home();
    let far = MisbehavingServer::open(|seen| match seen.usual() {
        MisbehavingReply::Answer(whole) if seen.asks() == "tools/call" => {
            let whole = String::from_utf8(whole).unwrap();
            let body: Value = serde_json::from_str(whole.split_once("\r\n\r\n").unwrap().1).unwrap();
            MisbehavingReply::Answer(answer(
                200,
                &[("Content-Type", "application/json")],
                &format!("{body:#}\r\n"),
            ))
        }
        does => does,
    });
    let far = far.await.unwrap();
    home.configure(&format!("{UNHURRIED}[mcp.far]\nurl = \"{}\"\ntrust = \"always\"\n", far.url()));
    let _hub = home.serve().await;
    let mut input = String::new();
    for message in [
        request(1, "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} })),
        request(2, "tools/call", json!({ "name": "far_echo", "arguments": {} })),
    ] {
        input.push_str(&format!("{message}\n"));
    }
    let ran = run(home.command(&["--mcp"]), &input).await;
    let said: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answered = said.iter().find(|message| message["id"] == 2).expect("an answer");
    assert_eq!(answered["result"]["content"][0]["text"], "echoed", "{ran:?}");
}
