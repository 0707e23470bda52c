//! Calls that wait are announced, shown as a person reads them, and decided at the terminal.

use crate::support::{home, stdio, text};
use portcullis_testkit::process::{TestHome, UNHURRIED, run_at_terminal};
use portcullis_testkit::wait::within;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

const ASKING: &str = "[[policy]]\ntools = [\"workspace_write\"]\ndecision = \"ask\"\n";

/// Returns a home in which every write is asked about.
fn asking(wait_secs: u64, more: &str) -> TestHome {
    let home = home();
    home.configure(&format!("{UNHURRIED}[approvals]\nwait_secs = {wait_secs}\n{more}{ASKING}"));
    home
}

fn write_call(content: &str) -> String {
    json!({ "path": "note.md", "content": content }).to_string()
}

/// Accepts one request and answers it. Returns its head and its body.
async fn receive(listener: &TcpListener) -> (String, String) {
    let (stream, _) = within("the webhook is called", listener.accept()).await.unwrap();
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn a_webhook_hears_of_a_call_that_waits_and_not_of_its_arguments() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let home = asking(
        0,
        &format!("[egress]\nallow = [\"{place}\"]\n[notify]\nurl = \"http://{place}/hook-of-mine\"\n"),
    );
    let mut client = stdio(&home, "2025-06-18");
    client.initialize(json!({})).await;
    let told = client.call("workspace_write", json!({ "path": "note.md", "content": "private words" })).await;
    let (head, body) = receive(&listener).await;
    assert!(head.starts_with("POST /hook-of-mine HTTP/1.1\r\n"), "{head}");
    assert!(!body.contains("private words"), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["event"], &body["target"]), (&json!("approval_pending"), &json!("workspace_write")));
    assert!(text(&told).contains(body["id"].as_str().unwrap()), "{told}");
}

#[tokio::test]
async fn the_user_of_a_terminal_decides_in_place() {
    let home = asking(60, "");
    home.write("note.md", "one\ntwo\n");
    let arguments = write_call("one\n2\n");
    let call = || home.command(&["tools", "call", "workspace_write", &arguments]);
    let (code, screen) = run_at_terminal(call(), "n\n").await;
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("content, as changes to note.md:\n    one\n  - two\n  + 2\n"), "{screen}");
    assert!(screen.contains("was not approved"), "{screen}");
    assert_eq!(std::fs::read_to_string(home.files().join("note.md")).unwrap(), "one\ntwo\n");

    let other = write_call("three\n");
    let (code, screen) =
        run_at_terminal(home.command(&["tools", "call", "workspace_write", &other]), "y\n").await;
    assert_eq!(code, 0, "{screen}");
    assert_eq!(std::fs::read_to_string(home.files().join("note.md")).unwrap(), "three\n");
    let records = home.run(&["audit", "search", "--tool", "workspace_write", "--json"]).await.stdout;
    assert!(records.contains("once by command line, user"), "{records}");
}

#[tokio::test]
async fn a_watcher_gets_a_line_for_each_call_that_waits() {
    let home = asking(0, "");
    let mut watcher = home.command(&["approvals", "watch", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    for content in ["one", "two"] {
        let told = home.run(&["tools", "call", "workspace_write", &write_call(content)]).await;
        assert!(told.stderr.contains("pending approval"), "{told:?}");
        let line = within("the watcher prints it", lines.next_line()).await.unwrap().unwrap();
        let seen: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&seen["state"], &seen["target"]), (&json!("pending"), &json!("workspace_write")));
        assert!(seen["arguments"].as_str().unwrap().contains(content), "{seen}");
    }
    watcher.start_kill().unwrap();
}
