//! A server that would rather be asked again than keep a stream open lets the client of the hub do so, too.

use crate::support::{home, request};
use portcullis_testkit::misbehaving_server::{MisbehavingReply, MisbehavingServer, events};
use portcullis_testkit::process::{HubProcess, UNHURRIED};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest, RawSseReader};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

fn result(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "late" }] } })
}

/// Makes a request on a connection of its own, and returns the events of its answer.
async fn asked(hub: &HubProcess, session: &str, request: RawHttpRequest) -> RawSseReader {
    let request = request.token(&hub.token).header("Mcp-Session-Id", session);
    let request = request.header("Accept", "application/json, text/event-stream");
    let mut connection = RawHttpConnection::open(hub.address).await;
    connection.send(&request.bytes(hub.address)).await.unwrap();
    let head = connection.head().await.unwrap();
    assert!(head.status == 200 && head.is_event_stream());
    RawSseReader::of(connection)
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_ended_for_the_client_too() {
    // One that keeps its stream open shows that the hub ends none by itself.
    for lets_go in [true, false] {
        let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
            ("POST", "tools/call") => {
                let id = &seen.body["id"];
                let began = format!("id: a-{id}\nretry: 300\ndata: \n\n");
                let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": seen.body["params"]["_meta"]["progressToken"], "progress": 1 } });
                let rest = if lets_go { String::new() } else { format!("data: {}\n\n", result(id)) };
                MisbehavingReply::Closes(events(&[], &format!("{began}data: {progress}\n\n{rest}")))
            }
            ("GET", _) if seen.header("last-event-id").is_some() => {
                let last = seen.header("last-event-id").unwrap_or_default();
                let id: Value = last.trim_start_matches("a-").parse().unwrap();
                MisbehavingReply::Closes(events(&[], &format!("data: {}\n\n", result(&id))))
            }
            _ => seen.usual(),
        })
        .await
        .unwrap();
        let home = home();
        home.configure(&format!("{UNHURRIED}[mcp.up]\nurl = \"{}\"\ntrust = \"always\"\n", server.url()));
        let hub = home.serve().await;
        until("the server is connected", async || {
            home.run(&["mcp", "status"]).await.stdout.contains("connected").then_some(())
        })
        .await;
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
        let greeting =
            RawHttpRequest::post("/mcp", request(1, "initialize", params).to_string()).token(&hub.token);
        let greeted = greeting.send(hub.address).await;
        let session = greeted.head.header("mcp-session-id").unwrap().to_owned();

        let call = json!({ "name": "up_echo", "arguments": {}, "_meta": { "progressToken": "p" } });
        let call = RawHttpRequest::post("/mcp", request(2, "tools/call", call).to_string());
        let mut stream = asked(&hub, &session, call).await;
        let (mut last, mut answer) = (None, None);
        while let Some(event) = stream.next().await {
            last = event.id.or(last);
            let message = serde_json::from_str::<Value>(&event.data).unwrap_or_default();
            answer = (message["id"] == 2).then_some(message).or(answer);
        }
        assert_eq!(answer.is_none(), lets_go, "{answer:?}");
        if lets_go {
            let again = RawHttpRequest::get("/mcp").header("Last-Event-ID", last.unwrap());
            let mut stream = asked(&hub, &session, again).await;
            while let (None, Some(event)) = (&answer, stream.next().await) {
                let message = serde_json::from_str::<Value>(&event.data).unwrap_or_default();
                answer = (message["id"] == 2).then_some(message);
            }
        }
        assert_eq!(answer.unwrap()["result"]["content"][0]["text"], "late");
    }
}
