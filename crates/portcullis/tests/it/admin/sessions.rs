//! From the first start to signed in, and out again.

use super::{Admin, PASSWORD, problem, sign_in};
use crate::support::{home, request};
use portcullis_testkit::process::UNHURRIED;
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::json;

#[tokio::test]
async fn the_first_start_lets_one_person_in_and_the_rest_is_passwords() {
    let home = home();
    let mut hub = home.serve().await;
    let at = hub.address;
    let link = hub.admin_link.split_once('#').unwrap().1.to_owned();
    let welcome = |name: &str, password: &str| {
        RawHttpRequest::json(
            "POST",
            "/api/v1/welcome",
            &json!({ "link": link, "name": name, "password": password }),
        )
    };
    // What is wrong does not use the link up.
    assert_eq!(problem(&welcome("ann", "short").send(at).await), "invalid");
    assert_eq!(problem(&welcome("../x", PASSWORD).send(at).await), "invalid");
    let ann = Admin::first(&hub).await;
    assert_eq!(ann.sees("/session").await["admin"], "ann");
    let again = welcome("bob", PASSWORD).send(at).await;
    assert_eq!((again.status(), problem(&again)), (403, "forbidden".to_owned()), "the link is used up");

    // Signing in by password, out again, and everywhere.
    let second = Admin::signed_in(at, "ann").await;
    assert_eq!(problem(&sign_in("ann", "wrong horse battery").send(at).await), "sign_in_needed");
    assert_eq!(problem(&sign_in("bob", PASSWORD).send(at).await), "sign_in_needed");
    let sessions = ann.sees("/sessions").await["sessions"].clone();
    assert_eq!(sessions.as_array().unwrap().len(), 2, "{sessions}");
    second.does("POST", "/sign-out", json!({})).await;
    assert_eq!((second.get("/session").await.status(), ann.get("/session").await.status()), (401, 200));

    // Another process ends a session; the next request is refused.
    let listed = home.run(&["admin", "sessions", "--json"]).await.json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(home.run(&["admin", "sign-out", listed[0]["id"].as_str().unwrap()]).await.code, 0);
    assert_eq!(ann.get("/session").await.status(), 401);
    assert_eq!(home.run(&["admin", "sign-out", "nobody"]).await.code, 2);

    // Who forgot the password gets a link by way of the machine; it ends what was open.
    let third = Admin::signed_in(at, "ann").await;
    let printed = home.run(&["admin", "link", "--json"]).await.json();
    let fresh = printed["link"].as_str().unwrap().split_once('#').unwrap().1.to_owned();
    Admin::welcome(at, &fresh, "ann").await;
    assert_eq!(third.get("/session").await.status(), 401);

    // A hub that starts again has nothing to print, and knows the sessions.
    let fourth = Admin::signed_in(at, "ann").await;
    fourth.does("POST", "/sign-out-everywhere", json!({})).await;
    assert_eq!(fourth.get("/session").await.status(), 401);
    let fifth = Admin::signed_in(at, "ann").await;
    hub.process.stop().await;
    let hub = home.serve().await;
    assert_eq!(hub.admin_link, "");
    assert_eq!(Admin { address: hub.address, ..fifth }.get("/session").await.status(), 200);
}

#[tokio::test]
async fn a_session_that_is_over_is_told_so() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    assert_eq!(ann.get("/overview").await.status(), 200);
    // As if it was opened an hour ago.
    let hour_ago = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 hour')";
    let edit = format!(
        "UPDATE admin_sessions SET record = json_set(record, '$.created', {hour_ago}, '$.seen', {hour_ago})"
    );
    home.edit_rows("admins", edit.leak()).await;
    let reply = ann.get("/overview").await;
    assert_eq!((reply.status(), problem(&reply)), (401, "sign_in_needed".to_owned()));
    let reply = ann.send("PUT", "/secrets/X", json!({ "value": "long enough" })).await;
    assert_eq!(reply.status(), 401, "nothing half done");
    assert_eq!(home.run(&["secrets", "list", "--json"]).await.json(), json!([]));
}

#[tokio::test]
async fn a_session_and_a_token_open_different_doors() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let list = request(1, "tools/list", json!({})).to_string();
    let with_cookie = RawHttpRequest::post("/mcp", list.clone()).header("Cookie", &ann.cookie);
    assert_eq!(with_cookie.send(hub.address).await.status(), 401);
    for secret in [&ann.csrf, ann.cookie.split_once('=').unwrap().1] {
        assert_eq!(
            RawHttpRequest::post("/mcp", list.clone()).token(secret).send(hub.address).await.status(),
            401
        );
    }
    let with_token = RawHttpRequest::get("/api/v1/overview").token(&hub.token);
    assert_eq!(with_token.send(hub.address).await.status(), 401);
    let as_cookie =
        RawHttpRequest::get("/api/v1/overview").header("Cookie", format!("__Host-portcullis={}", hub.token));
    assert_eq!(as_cookie.send(hub.address).await.status(), 401);
}

#[tokio::test]
async fn where_others_could_read_along_it_is_not_served() {
    let home = home();
    let token = home.add_client("agent", &[]).await;
    for (allow, expected) in [("", 403), ("[admin]\nallow_remote = true\n", 401)] {
        home.configure(&format!("{UNHURRIED}[http]\nlisten = \"0.0.0.0:0\"\n{allow}"));
        let mut hub = home.serve().await;
        let reply = RawHttpRequest::get("/api/v1/overview").send(hub.address).await;
        assert_eq!(reply.status(), expected, "{}", reply.text());
        if expected == 403 {
            assert!(reply.text().contains("admin.allow_remote") && hub.admin_link.is_empty());
        }
        hub.process.stop().await;
    }
    home.configure(&format!("{UNHURRIED}[admin]\nenabled = false\n"));
    let hub = home.serve().await;
    assert_eq!(RawHttpRequest::get("/api/v1/overview").token(&token).send(hub.address).await.status(), 404);
}
