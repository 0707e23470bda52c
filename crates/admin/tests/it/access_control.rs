//! Every page needs a session, and every form a CSRF token. The list of pages is read from the source.

use crate::support::{AdminFixture, answer_of};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::routing::get;

/// What anyone may open: where one signs in, and what is the same for everyone.
const OPEN: [&str; 3] = ["/admin/sign-in", "/admin/welcome", "/admin/assets/"];

fn paths() -> Vec<String> {
    let source = include_str!("../../src/page.rs");
    let paths: Vec<String> = source
        .split(".route(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        // It only leads to the page.
        .filter(|path| *path != "/")
        .map(|path| path.replace("{*elsewhere}", "elsewhere/x").replace(['{', '}'], ""))
        .collect();
    assert!(paths.len() > 25, "{paths:?}");
    paths
}

/// Returns what a stranger gets to see or do.
async fn let_through(router: &Router, paths: &[String]) -> Vec<String> {
    let mut through = Vec::new();
    for path in paths.iter().filter(|path| !OPEN.iter().any(|open| path.starts_with(open))) {
        for method in [Method::GET, Method::POST] {
            let request = Request::builder().method(&method).uri(path).header(header::HOST, "127.0.0.1:3000");
            let answer = answer_of(router, request.body(Body::from("do=remove")).unwrap()).await;
            let is_refused = match answer.status {
                StatusCode::SEE_OTHER => {
                    answer.header(header::LOCATION).starts_with("/admin/sign-in?next=%2Fadmin")
                }
                StatusCode::UNAUTHORIZED | StatusCode::METHOD_NOT_ALLOWED => true,
                _ => false,
            };
            if !is_refused {
                through.push(format!("{method} {path}: {}", answer.status));
            }
        }
    }
    through
}

#[tokio::test]
async fn no_page_is_for_strangers() {
    let hub = AdminFixture::new();
    assert_eq!(let_through(&hub.router, &paths()).await, Vec::<String>::new());
    // A script that follows the stream is refused, and not led to a page.
    let request = Request::builder().uri("/admin/live").header(header::ACCEPT, "text/event-stream");
    let answer = answer_of(&hub.router, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    // The weak variant: a page that forgot to ask.
    let weak = Router::new().route("/admin/forgotten", get(async || "everything"));
    assert_eq!(let_through(&weak, &["/admin/forgotten".to_owned()]).await, ["GET /admin/forgotten: 200 OK"]);
}

#[tokio::test]
async fn no_form_is_taken_without_its_token() {
    let hub = AdminFixture::signed_in().await;
    let csrf = hub.get("/admin").await.csrf().to_owned();
    for path in paths().iter().filter(|path| !OPEN.iter().any(|open| path.starts_with(open))) {
        for (form, with) in [
            ("do=remove".to_owned(), &[][..]),
            ("do=remove&csrf=wrong".to_owned(), &[]),
            (format!("do=remove&csrf={csrf}"), &[("origin", "http://evil.example")][..]),
            (format!("do=remove&csrf={csrf}"), &[("sec-fetch-site", "cross-site")]),
            (format!("do=remove&csrf={csrf}"), &[("origin", "null")]),
        ] {
            let answer = hub.ask(Method::POST, path, &form, with).await;
            let expected = [StatusCode::FORBIDDEN, StatusCode::METHOD_NOT_ALLOWED];
            assert!(expected.contains(&answer.status), "{path} {form} {with:?}: {}", answer.status);
        }
    }
    // The same with the token is taken.
    let answer = hub.post("/admin/servers/git", &format!("do=restart&csrf={csrf}")).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn every_answer_tells_the_browser_what_it_may_not_do() {
    let hub = AdminFixture::signed_in().await;
    let asset = hub.get("/admin").await.text.split("href=\"/admin/assets/page-").nth(1).unwrap().to_owned();
    let asset = format!("/admin/assets/page-{}", asset.split('"').next().unwrap());
    for path in ["/admin", "/admin/sign-in", "/admin/nothing", asset.as_str(), "/admin/live"] {
        let answer = hub.get(path).await;
        let policy = answer.header(header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff", "{path}");
        let is_kept = answer.header(header::CACHE_CONTROL).contains("immutable");
        assert_eq!(is_kept, path == asset, "{path}");
    }
}
