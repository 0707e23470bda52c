//! Misbehaving servers: each costs one call or one connection, never more.

use crate::support::{UpstreamFixture, reads, spec, with_headers};
use portcullis_testkit::misbehaving_server::{
    MisbehavingReply, MisbehavingServer, RecordedRequest, answer, events,
};
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::{HeaderSpec, ServerSpec, StatusKind, ValueResolver};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A usual server except for tool calls; it answers `ping`.
async fn calls(
    does: impl Fn(&RecordedRequest) -> MisbehavingReply + Send + Sync + 'static,
) -> MisbehavingServer {
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "tools/call" => does(seen),
        "ping" => seen.result(json!({})),
        _ => seen.usual(),
    });
    server.await.unwrap()
}

fn times(server: &MisbehavingServer, asks: &str) -> usize {
    server.seen().iter().filter(|seen| seen.asks() == asks).count()
}

fn hasty(url: &str) -> ServerSpec {
    ServerSpec { timeout: Duration::from_millis(300), ..spec(url) }
}

#[tokio::test]
async fn a_call_ends_in_time_whatever_the_server_leaves_open() {
    let half = b"HTTP/1.1 200 X\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\n{";
    for hung in [Vec::new(), b"HTTP/1.1 200".to_vec(), half.to_vec(), events(&[], ": nothing yet\n\n")] {
        let does = hung.clone();
        let server = calls(move |_| MisbehavingReply::Hangs(does.clone())).await;
        let world = UpstreamFixture::connected(hasty(&server.url())).await;
        let said = within("the call ends", world.call("up_echo")).await;
        assert!(
            said.contains("timeout") || said.contains("did not respond") || said.contains("300"),
            "{said}"
        );
        // No other call notices, and the hub probes whether the server is alive.
        until("it was asked", async || (times(&server, "ping") == 1).then_some(())).await;
        assert_eq!(world.upstream.status().kind, StatusKind::Connected);
        within("the next call ends", world.call("up_echo")).await;
        assert_eq!(times(&server, "initialize"), 1);
    }
}

#[tokio::test]
async fn a_server_that_answers_nothing_any_more_is_given_up() {
    let server = MisbehavingServer::open(|seen| match seen.asks() {
        "tools/call" | "ping" => MisbehavingReply::Hangs(Vec::new()),
        _ => seen.usual(),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(hasty(&server.url())).await;
    within("the call ends", world.call("up_echo")).await;
    assert_eq!(world.status(StatusKind::Failed).await.reason.as_deref(), Some("it does not respond"));
    world.status(StatusKind::Connected).await;
}

/// The server has acted by then; a client that cannot resume the response must not repeat the request.
#[tokio::test]
async fn a_call_is_made_once_though_its_answer_broke_off_and_cannot_be_taken_up_at_once() {
    let acted = Arc::new(AtomicUsize::new(0));
    let acting = acted.clone();
    let server = MisbehavingServer::open(move |seen| {
        match (seen.method.as_str(), seen.asks(), seen.header("last-event-id")) {
            ("POST", "tools/call", _) => {
                acting.fetch_add(1, Ordering::Relaxed);
                let id = &seen.body["id"];
                MisbehavingReply::Closes(events(&[], &format!("id: a-{id}\nretry: 20\ndata: \n\n")))
            }
            ("GET", _, Some(last)) => {
                let id: u64 = last.strip_prefix("a-").unwrap().parse().unwrap();
                let result = json!({ "content": [{ "type": "text", "text": "late" }] });
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
                MisbehavingReply::Closes(events(&[], &format!("data: {answer}\n\n")))
            }
            _ => seen.usual(),
        }
    });
    let server = server.await.unwrap();
    // The server is unreachable twice before anything is sent, and later for good.
    for (barred, expected) in [(2, "late"), (usize::MAX, "the call may or may not have run")] {
        acted.store(0, Ordering::Relaxed);
        let (acted, refused) = (acted.clone(), AtomicUsize::new(0));
        let is_barred =
            move || acted.load(Ordering::Relaxed) > 0 && refused.fetch_add(1, Ordering::Relaxed) < barred;
        let values = ValueResolver(Arc::new(move |written: &str| match is_barred() {
            true => Err("not now".to_owned()),
            false => Ok(written.to_owned()),
        }));
        let name = "x-key".parse().unwrap();
        let headers = vec![HeaderSpec { name, written: "key".to_owned(), values }];
        let spec = with_headers(&server.url(), headers);
        let before = times(&server, "tools/call");
        let said = within("the call", UpstreamFixture::connected(spec).await.call("up_echo")).await;
        assert!(said.contains(expected), "{said}");
        assert_eq!(times(&server, "tools/call") - before, 1);
    }
}

/// A login would not undo what the server has done.
#[tokio::test]
async fn a_call_whose_answer_may_not_be_taken_up_may_have_been_carried_out() {
    let server = MisbehavingServer::open(move |seen| match (seen.asks(), seen.header("last-event-id")) {
        ("tools/call", _) => MisbehavingReply::Closes(events(&[], "id: a\nretry: 20\ndata: \n\n")),
        (_, Some(_)) => MisbehavingReply::Answer(answer(401, &[], "")),
        _ => seen.usual(),
    });
    let server = server.await.unwrap();
    let said =
        within("the call", UpstreamFixture::connected(spec(&server.url())).await.call("up_echo")).await;
    assert!(said.contains("(401)") && said.contains("the call may or may not have run"), "{said}");
}

#[tokio::test]
async fn a_server_without_a_stream_of_its_own_stays_connected() {
    let refusing = |status| {
        MisbehavingServer::open(move |seen| match seen.method.as_str() {
            "GET" => MisbehavingReply::Answer(answer(status, &[], "")),
            _ => seen.usual(),
        })
    };
    let (never, fails) = (refusing(501).await.unwrap(), refusing(500).await.unwrap());
    let worlds = [
        UpstreamFixture::connected(spec(&never.url())).await,
        UpstreamFixture::connected(spec(&fails.url())).await,
    ];
    let gets = |server: &MisbehavingServer| server.seen().iter().filter(|seen| seen.method == "GET").count();
    until("one is asked again", async || (gets(&fails) >= 3).then_some(())).await;
    for (world, server) in worlds.iter().zip([&never, &fails]) {
        assert_eq!(world.upstream.status().kind, StatusKind::Connected);
        assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
        assert_eq!(times(server, "initialize"), 1);
    }
    assert_eq!(gets(&never), 1, "what it cannot do is not asked for again");
}

#[tokio::test]
async fn a_server_that_has_no_answer_to_the_newer_era_is_asked_for_the_older() {
    for said in [events(&[], ""), Vec::new(), b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n".to_vec()] {
        let server = MisbehavingServer::open(move |seen| match seen.asks() {
            "server/discover" => MisbehavingReply::Closes(said.clone()),
            _ => seen.usual(),
        });
        let server = server.await.unwrap();
        let world = UpstreamFixture::connected(spec(&server.url())).await;
        assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    }
}

#[tokio::test]
async fn a_server_that_hangs_at_its_greeting_is_greeted_anew_when_that_is_wanted() {
    for hangs in ["initialize", "tools/list"] {
        let server = MisbehavingServer::open(move |seen| match seen.asks() {
            asks if asks == hangs => MisbehavingReply::Hangs(Vec::new()),
            _ => seen.usual(),
        });
        let server = server.await.unwrap();
        let world = UpstreamFixture::new(spec(&server.url())).await;
        for count in 1..4 {
            until("it is greeted", async || (times(&server, hangs) == count).then_some(())).await;
            world.upstream.reconnect();
        }
    }
}

/// A server without keep-alive, so that it is away when its socket is.
fn at_socket(path: &std::path::Path) -> MisbehavingServer {
    let server = MisbehavingServer::open_unix(path, |seen| match seen.usual() {
        MisbehavingReply::Answer(bytes) => MisbehavingReply::Closes(bytes),
        other => other,
    });
    server.unwrap()
}

#[tokio::test]
async fn a_call_to_a_server_that_is_away_ends_in_time_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("up.sock");
    let first = at_socket(&path);
    let world = UpstreamFixture::connected(hasty(&format!("unix:{}:/mcp", path.display()))).await;
    assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    std::fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        let said = within("the call ends", world.call("up_echo")).await;
        assert!(
            said.contains("No such file")
                && !said.contains("no answer within")
                && !said.contains("did not respond within"),
            "{said}"
        );
    }
    world.status(StatusKind::Failed).await;
    // The era that it speaks is remembered.
    let second = at_socket(&path);
    world.upstream.reconnect();
    world.status(StatusKind::Connected).await;
    assert_eq!((times(&first, "server/discover"), times(&second, "server/discover")), (1, 0));
}

#[tokio::test]
async fn a_lost_session_is_opened_again_and_the_call_made_again() {
    for status in [404, 400] {
        let lost = Arc::new(AtomicBool::new(true));
        let (losing, greeted) = (lost.clone(), Arc::new(AtomicUsize::new(0)));
        let greeting = greeted.clone();
        let server = MisbehavingServer::open(move |seen| {
            if seen.asks() == "initialize" {
                greeting.fetch_add(1, Ordering::Relaxed);
            }
            if seen.asks() == "tools/call" && losing.swap(false, Ordering::Relaxed) {
                return MisbehavingReply::Answer(answer(status, &[], "who?"));
            }
            seen.usual()
        })
        .await
        .unwrap();
        // Even a destructive tool is not in doubt: the server has not acted.
        let world = UpstreamFixture::connected(spec(&server.url())).await;
        assert_eq!(within("the call", world.call("up_echo")).await, "echoed", "{status}");
        assert_eq!(greeted.load(Ordering::Relaxed), 2, "{status}");
        assert!(!lost.load(Ordering::Relaxed));
    }
}

#[tokio::test]
async fn a_server_that_forgets_every_session_is_not_asked_for_ever() {
    let server = MisbehavingServer::open(|seen| match seen.header("mcp-session-id") {
        Some(_) if seen.asks() == "tools/list" => MisbehavingReply::Answer(answer(404, &[], "who?")),
        _ => seen.usual(),
    })
    .await
    .unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    let reason = world.status(StatusKind::Failed).await.reason.unwrap();
    assert_eq!(reason, "the server loses every session at once");
    let greeted = server.seen().iter().filter(|seen| seen.asks() == "initialize").count();
    assert!((2..=12).contains(&greeted), "{greeted}");
}

#[tokio::test]
async fn endless_and_oversized_answers_have_an_end() {
    let endless_json = MisbehavingReply::Floods {
        head: b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".to_vec(),
        piece: vec![b' '; 64 * 1024],
    };
    let endless_line = MisbehavingReply::Floods { head: events(&[], "data: "), piece: vec![b'x'; 64 * 1024] };
    let endless_head = MisbehavingReply::Floods {
        head: b"HTTP/1.1 200 X\r\n".to_vec(),
        piece: b"X-Y: zzzzzzzzzzzzzzzz\r\n".repeat(1000),
    };
    for (flood, expected) in [
        (endless_json, "more than 16777216 bytes"),
        (endless_line, "more than 16777216 bytes"),
        (endless_head, "up"),
    ] {
        let server = calls(move |_| flood.clone()).await;
        // A read-only tool would be retried after any other fault.
        let world = UpstreamFixture::connected(reads(&server.url())).await;
        let said = within("the flood ends", world.call("up_echo")).await;
        assert!(said.contains(expected) && !said.contains("timeout"), "{said}");
        if expected != "up" {
            assert_eq!(times(&server, "initialize"), 1, "what is too long says nothing of the connection");
        }
    }
}

#[tokio::test]
async fn nothing_is_said_to_another_place() {
    let elsewhere = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    let target = elsewhere.url();
    let server = calls(move |_| MisbehavingReply::Answer(answer(307, &[("Location", &target)], ""))).await;
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let said = world.call("up_echo").await;
    assert!(said.contains("redirects to another origin"), "{said}");
    assert_eq!(elsewhere.seen().len(), 0);
    // HTTP+SSE has its own endpoint URL, which a server could choose.
    let target = elsewhere.url();
    let server = MisbehavingServer::open(move |seen| match seen.method.as_str() {
        "GET" => MisbehavingReply::Hangs(events(&[], &format!("event: endpoint\ndata: {target}\n\n"))),
        _ => MisbehavingReply::Answer(answer(404, &[], "")),
    })
    .await
    .unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    let reason = world.status(StatusKind::Failed).await.reason.unwrap();
    assert!(reason.contains("endpoint URL has another origin"), "{reason}");
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let server = calls(|_| MisbehavingReply::Answer(answer(308, &[("Location", "/mcp")], ""))).await;
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let said = world.call("up_echo").await;
    assert!(said.contains("redirects more than 3 times"), "{said}");
}

#[tokio::test]
async fn both_ways_are_told_where_neither_works() {
    let page = || answer(200, &[("Content-Type", "text/html")], "<html>hello</html>");
    let server = MisbehavingServer::open(move |_| MisbehavingReply::Answer(page())).await.unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    let reason = world.status(StatusKind::Failed).await.reason.unwrap();
    for part in ["over streamable HTTP", "`text/html`", "over HTTP+SSE", "opened no stream", "2026-07-28"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let server = MisbehavingServer::open(|seen| {
        MisbehavingReply::Answer(answer(if seen.method == "GET" { 405 } else { 404 }, &[], ""))
    })
    .await
    .unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    let reason = world.status(StatusKind::Failed).await.reason.unwrap();
    assert!(reason.contains("404 Not Found") && reason.contains("405 Method Not Allowed"), "{reason}");
}

/// Some open their stream for any method.
#[tokio::test]
async fn a_server_of_the_older_way_that_takes_a_message_for_a_visit_is_found() {
    let (says, _) = tokio::sync::broadcast::channel(64);
    let server = MisbehavingServer::open(move |seen| match seen.path.as_str() {
        "/messages" => {
            if let MisbehavingReply::Answer(answer) = seen.usual() {
                let text = String::from_utf8(answer).unwrap();
                let body = text.split_once("\r\n\r\n").unwrap().1;
                let _ = says.send(format!("data: {body}\n\n").into_bytes());
            }
            MisbehavingReply::Answer(answer(202, &[], ""))
        }
        _ => MisbehavingReply::Tells {
            head: events(&[], "event: endpoint\ndata: /messages\n\n"),
            says: says.clone(),
        },
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
}

/// Pages, faults and redirects: what frameworks answer at an unknown path.
#[tokio::test]
async fn a_server_of_the_older_way_is_found_whatever_it_answers_to_the_newer() {
    let refusal = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": "not here" } });
    for (status, headers, body) in [
        (500, vec![], "out of order".to_owned()),
        (501, vec![], "<html>unsupported</html>".to_owned()),
        (405, vec![], refusal.to_string()),
        (404, vec![JSON], refusal.to_string()),
        (404, vec![JSON], r#"{"error":"not found"}"#.to_owned()),
        (302, vec![("Location", "/login")], String::new()),
        (307, vec![("Location", "http://elsewhere.invalid/")], String::new()),
    ] {
        let (says, _) = tokio::sync::broadcast::channel(64);
        let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.path.as_str()) {
            ("GET", _) => {
                let head = events(&[], "event: endpoint\ndata: /messages\n\n");
                MisbehavingReply::Tells { head, says: says.clone() }
            }
            (_, "/messages") => {
                if let MisbehavingReply::Answer(answer) = seen.usual() {
                    let text = String::from_utf8(answer).unwrap();
                    let body = text.split_once("\r\n\r\n").unwrap().1;
                    let _ = says.send(format!("data: {body}\n\n").into_bytes());
                }
                MisbehavingReply::Answer(answer(202, &[], ""))
            }
            _ => MisbehavingReply::Answer(answer(status, &headers, &body)),
        });
        let server = server.await.unwrap();
        let world = UpstreamFixture::connected(spec(&server.url())).await;
        assert_eq!(within("the call", world.call("up_echo")).await, "echoed", "{status}");
    }
}

#[tokio::test]
async fn who_is_not_let_in_is_not_let_in_the_older_way() {
    let server =
        MisbehavingServer::open(|_| MisbehavingReply::Answer(answer(403, &[], "not you"))).await.unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    let reason = world.status(StatusKind::Failed).await.reason.unwrap();
    assert!(reason.contains("(403): not you"), "{reason}");
    assert!(server.seen().iter().all(|seen| seen.method == "POST"));
}

#[tokio::test]
async fn a_redirect_that_is_not_followed_says_where_it_leads() {
    for (status, location) in [(302, "/login?next=mcp"), (307, "https://elsewhere.invalid/mcp")] {
        let server =
            calls(move |_| MisbehavingReply::Answer(answer(status, &[("Location", location)], ""))).await;
        let said = UpstreamFixture::connected(spec(&server.url())).await.call("up_echo").await;
        assert!(said.contains(location), "{said}");
    }
}

#[tokio::test]
async fn a_greeting_that_says_nothing_is_none() {
    let server = MisbehavingServer::open(|seen| match seen.asks() {
        "initialize" => seen.result(json!({})),
        _ => seen.usual(),
    });
    let world = UpstreamFixture::new(spec(&server.await.unwrap().url())).await;
    let reason = world.status(StatusKind::Failed).await.reason.unwrap();
    assert!(reason.contains("has no `protocolVersion`"), "{reason}");
}

/// Repeated reconnects by a person are no fault of the server.
#[tokio::test]
async fn a_server_may_be_wanted_anew_as_often_as_one_likes() {
    let server = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let mut stood = world.upstream.watch();
    let greeted = || server.seen().iter().filter(|seen| seen.asks() == "initialize").count();
    for times in 2..10 {
        world.upstream.reconnect();
        within("it is connected anew", async {
            while greeted() < times || stood.borrow().kind != StatusKind::Connected {
                stood.changed().await.unwrap();
                assert_ne!(stood.borrow_and_update().kind, StatusKind::Failed);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_asks_who_we_are_needs_auth() {
    let challenge = ("WWW-Authenticate", "Bearer realm=\"x\"");
    let server = MisbehavingServer::open(move |_| MisbehavingReply::Answer(answer(401, &[challenge], "")))
        .await
        .unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    let reason = world.status(StatusKind::NeedsAuth).await.reason.unwrap();
    assert!(reason.contains("401") && reason.contains("realm"), "{reason}");
    // Neither HTTP+SSE nor the older era is tried: both would be refused too.
    assert!(server.seen().iter().all(|seen| seen.asks() == "server/discover"));
}

#[tokio::test]
async fn a_server_that_asks_only_now_who_we_are_needs_auth_from_now_on() {
    let server = calls(|_| MisbehavingReply::Answer(answer(401, &[], "the token has expired"))).await;
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let said = world.call("up_echo").await;
    assert!(said.contains("(401): the token has expired"), "{said}");
    let reason = world.status(StatusKind::NeedsAuth).await.reason.unwrap();
    assert!(reason.contains("the token has expired"), "{reason}");
    world.upstream.reconnect();
    world.status(StatusKind::Connected).await;
}

#[tokio::test]
async fn a_refusal_is_told_and_costs_one_call() {
    for (status, body, expected) in [
        (500, "out of order", "500 Internal Server Error: out of order"),
        (503, "", "503 Service Unavailable"),
        (429, "slowly", "429 Too Many Requests: slowly"),
        (403, "", "does not allow it (403)"),
        (403, "the plan has ended", "does not allow it (403): the plan has ended"),
    ] {
        let server = calls(move |_| MisbehavingReply::Answer(answer(status, &[], body))).await;
        let world = UpstreamFixture::connected(reads(&server.url())).await;
        let said = world.call("up_echo").await;
        assert!(said.contains(expected), "{said}");
        assert_eq!(server.seen().iter().filter(|seen| seen.asks() == "tools/call").count(), 1, "{status}");
        assert_eq!(world.upstream.status().kind, StatusKind::Connected);
    }
}

#[tokio::test]
async fn a_connection_that_broke_is_in_doubt_only_for_what_acts() {
    let asked = Arc::new(AtomicUsize::new(0));
    let make = || async {
        let counting = asked.clone();
        counting.store(0, Ordering::Relaxed);
        calls(move |seen| match counting.fetch_add(1, Ordering::Relaxed) {
            0 => MisbehavingReply::Closes(Vec::new()),
            _ => seen.usual(),
        })
        .await
    };
    let server = make().await;
    let said = UpstreamFixture::connected(spec(&server.url())).await.call("up_echo").await;
    assert!(said.contains("the call may or may not have run"), "{said}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let server = make().await;
    assert_eq!(UpstreamFixture::connected(reads(&server.url())).await.call("up_echo").await, "echoed");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_is_no_answer_to_the_question_is_told() {
    for body in [r#"{"jsonrpc":"2.0","id":999999,"result":{}}"#, "no JSON", "[]", "{}"] {
        let server = calls(move |_| MisbehavingReply::Answer(answer(200, &[JSON], body))).await;
        let said = UpstreamFixture::connected(spec(&server.url())).await.call("up_echo").await;
        assert!(said.contains("is to another request"), "{said}");
    }
    let server = calls(|_| MisbehavingReply::Answer(answer(202, &[], ""))).await;
    let said = UpstreamFixture::connected(spec(&server.url())).await.call("up_echo").await;
    assert!(said.contains("status 202 and nothing else"), "{said}");
    let event = json!({ "jsonrpc": "2.0", "method": "notifications/message" });
    let server = calls(move |_| MisbehavingReply::Closes(events(&[], &format!("data: {event}\n\n")))).await;
    let said = UpstreamFixture::connected(spec(&server.url())).await.call("up_echo").await;
    assert!(said.contains("before it was complete"), "{said}");
}
