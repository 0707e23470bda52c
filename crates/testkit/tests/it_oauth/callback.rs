//! Hostile requests to the OAuth callback.

use super::*;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use portcullis_testkit::raw_http::RawHttpRequest;
use std::net::SocketAddr;

/// Lets others connect first, then logs in.
struct CrowdedConsent {
    person: Arc<TestUser>,
    said: Mutex<Vec<(String, u16)>>,
}

impl LoginPrompt for CrowdedConsent {
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let page = Url::parse(url).unwrap();
            let part = |name: &str| page.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
            let back = Url::parse(&part("redirect_uri")).unwrap();
            let address: SocketAddr = format!("127.0.0.1:{}", back.port().unwrap()).parse().unwrap();
            let state = part("state");
            for (who, request) in [
                ("no state", RawHttpRequest::get("/callback?code=stolen")),
                (
                    "a wrong state",
                    RawHttpRequest::get(format!("/callback?code=stolen&state={}", "x".repeat(43))),
                ),
                ("two states", RawHttpRequest::get(format!("/callback?code=stolen&state={state}&state=x"))),
                ("another page", RawHttpRequest::get(format!("/?code=stolen&state={state}"))),
                ("another method", RawHttpRequest::post(format!("/callback?code=stolen&state={state}"), "")),
                (
                    "another host",
                    RawHttpRequest::get(format!("/callback?code=stolen&state={state}"))
                        .header("Host", "evil.test"),
                ),
                ("too much", RawHttpRequest::get(format!("/callback?code=stolen&x={}", "a".repeat(60_000)))),
            ] {
                let mut connection = portcullis_testkit::raw_http::RawHttpConnection::open(address).await;
                let _ = connection.send(&request.bytes(address)).await;
                let status = connection.reply().await.map_or(0, |reply| reply.status());
                self.said.lock().push((who.to_owned(), status));
            }
            // Sends nothing, and stays connected.
            let _silent = portcullis_testkit::raw_http::RawHttpConnection::open(address).await;
            self.person.show(url).await
        })
    }
}

#[tokio::test]
async fn others_are_turned_away_and_change_nothing() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    let crowded = CrowdedConsent { person: person.clone(), said: Mutex::default() };
    oauth.log_in(&crowded).await.unwrap();
    let said = crowded.said.into_inner();
    assert!(said.iter().all(|(_, status)| matches!(status, 0 | 400 | 404 | 431 | 414)), "{said:?}");
    assert_eq!(said.len(), 7);
    let tokens = world.asked("as", "/token");
    assert!(tokens.len() == 1 && tokens[0].parts["code"] != "stolen");
}

/// Shows no login page.
struct NoConsent;

impl LoginPrompt for NoConsent {
    fn show<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Err("there is no browser".to_owned()) })
    }
}

#[tokio::test]
async fn a_page_that_nobody_sees_is_not_waited_for() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    let error = oauth.log_in(&NoConsent).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no browser");
    assert!(person.kept().is_none());
}
