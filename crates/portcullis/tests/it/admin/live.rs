//! The event stream.

use super::Admin;
use crate::support::{home, http};
use portcullis_testkit::process::UNHURRIED;
use portcullis_testkit::raw_http::{RawHttpConnection, RawSseReader};
use serde_json::{Value, json};

pub(super) async fn watch(admin: &Admin) -> RawSseReader {
    let mut connection = RawHttpConnection::open(admin.address).await;
    let request = admin.plain("GET", "/events", None);
    connection.send(&request.bytes(admin.address)).await.unwrap();
    let head = connection.head().await.unwrap();
    assert!(head.is_event_stream() && head.status == 200, "{head:?}");
    // The first comment shows that it listens.
    assert_eq!(connection.chunk().await.unwrap(), b": here\n\n");
    RawSseReader::of(connection)
}

#[tokio::test]
async fn calls_and_questions_are_told() {
    let home = home();
    home.configure(&format!(
        "{UNHURRIED}[approvals]\nwait_secs = 0\n[[policy]]\ntools = [\"workspace_write\"]\ndecision = \"ask\"\n"
    ));
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut events = watch(&ann).await;
    let mut client = http(&hub, "2025-06-18").await;
    client.call("workspace_list", json!({})).await;
    client.call("workspace_write", json!({ "path": "a", "content": "b" })).await;
    let mut told = Vec::new();
    while told.len() < 5 {
        let event = events.next().await.unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(data["event"], event.name.unwrap());
        told.push(format!(
            "{} {} {}",
            data["event"].as_str().unwrap(),
            data["target"],
            data["end"]["outcome"]
        ));
    }
    told.sort();
    assert_eq!(
        told,
        [
            "approvals null null",
            "call_closed \"workspace_list\" \"ok\"",
            "call_closed \"workspace_write\" \"needs_approval\"",
            "call_opened \"workspace_list\" null",
            "call_opened \"workspace_write\" null",
        ]
    );
    let recent = ann.sees("/calls").await;
    assert_eq!(recent["calls"][0]["target"], "workspace_write");
    let overview = ann.sees("/overview").await;
    assert_eq!((&overview["approvals_waiting"], &overview["calls_open"]), (&json!(1), &json!(0)));
    let counted: u64 =
        overview["minutes"].as_array().unwrap().iter().map(|m| m["calls"].as_u64().unwrap()).sum();
    assert_eq!(counted, 2);
}

/// Who does not read holds nobody up, and is told what is missing.
#[tokio::test]
async fn a_slow_reader_costs_nothing_and_is_told_what_it_missed() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut slow = watch(&ann).await;
    let mut client = http(&hub, "2025-06-18").await;
    for _ in 0..2_000 {
        client.call("workspace_list", json!({})).await;
    }
    let (mut told, mut missed) = (0, 0);
    while told + missed < 4_000 {
        let event = slow.next().await.unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        match data["event"].as_str().unwrap() {
            "missed" => missed += data["count"].as_u64().unwrap(),
            _ => told += 1,
        }
    }
    eprintln!("figure: events told and missed, of 4000: {told} {missed}");
    assert_eq!(told + missed, 4_000);
}

#[tokio::test]
async fn a_stream_ends_with_its_session_and_with_the_hub() {
    let home = home();
    let mut hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let second = Admin::signed_in(hub.address, "ann").await;
    let (mut first, mut other) = (watch(&ann).await, watch(&second).await);
    ann.does("POST", "/sign-out", json!({})).await;
    assert_eq!(first.next().await, None, "within seconds");
    hub.process.stop().await;
    assert_eq!(other.next().await, None);
}
