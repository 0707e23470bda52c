//! Tokens are renewed before they expire, once for all who wait.

use super::*;
use futures::future::join_all;
use std::time::Duration;

/// As many as call at the same time.
const CALLERS: usize = 50;
/// Long enough for all of them to arrive while a token is renewed.
const SLOWLY: Duration = Duration::from_millis(300);

/// Returns a world in which the token is about to expire.
async fn about_to_expire() -> (OAuthWorld, Arc<Person>) {
    let (world, person) = start(Conduct { token_takes: SLOWLY, ..Conduct::default() }).await;
    oauth(&world, &person, Someone::Away).log_in(&*person).await.unwrap();
    let now = portcullis_core::Clock::since_epoch(&SystemClock).as_secs();
    person.change(|login| login.about.expires_at = Some(now + 30));
    (world, person)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_renewed_before_it_expires_and_once() {
    let (world, person) = about_to_expire().await;
    let oauth = oauth(&world, &person, Someone::Away);
    let before = person.kept().unwrap();
    let headers = join_all((0..CALLERS).map(|_| oauth.header())).await;
    let renewed = headers[0].clone().unwrap().unwrap();
    assert!(headers.iter().all(|header| header.as_ref().unwrap().as_deref() == Some(&renewed)));
    assert_ne!(renewed, format!("Bearer {}", before.access_token.unwrap().expose()));
    assert_eq!(world.grants("refresh_token"), 1);
    println!("figure: {CALLERS} callers, 1 renewal");
    assert_eq!(ask(&world, &oauth, "tools/call").await.unwrap(), 200);
    let after = person.kept().unwrap();
    assert_ne!(
        before.refresh_token.unwrap().expose(),
        after.refresh_token.unwrap().expose(),
        "the new one is kept"
    );

    // Where each caller is on its own the same count is higher: the check can fail.
    let (world, person) = about_to_expire().await;
    let alone: Vec<OAuth> = (0..5).map(|_| super::oauth(&world, &person, Someone::Away)).collect();
    join_all(alone.iter().map(OAuth::header)).await;
    assert!(world.grants("refresh_token") > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_refused_is_renewed_once() {
    let (world, person) = start(Conduct { token_takes: SLOWLY, ..Conduct::default() }).await;
    let oauth = oauth(&world, &person, Someone::Away);
    oauth.log_in(&*person).await.unwrap();
    world.revoke();
    let statuses = join_all((0..CALLERS).map(|_| ask(&world, &oauth, "tools/call"))).await;
    assert!(statuses.iter().all(|status| *status == Ok(200)), "{statuses:?}");
    assert_eq!(world.grants("refresh_token"), 1);
}

#[tokio::test]
async fn a_refresh_token_that_stays_is_kept() {
    let (world, person) = start(Conduct { rotates: false, ..Conduct::default() }).await;
    let oauth = oauth(&world, &person, Someone::Away);
    oauth.log_in(&*person).await.unwrap();
    for _ in 0..3 {
        world.revoke();
        assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
    }
    assert_eq!((world.grants("refresh_token"), person.pages().len()), (3, 1));
    // Enough for a while: a server that goes on refusing is not helped by it.
    world.revoke();
    let error = ask(&world, &oauth, "tools/call").await.unwrap_err();
    assert!(error.to_string().starts_with("the server no longer accepts the login"), "{error}");
    assert_eq!(world.grants("refresh_token"), 3);
}

#[tokio::test]
async fn a_login_that_has_ended_is_forgotten_and_said_so() {
    let (world, person) = start(Conduct::default()).await;
    let oauth = oauth(&world, &person, Someone::Away);
    oauth.log_in(&*person).await.unwrap();
    world.revoke_all();
    let error = ask(&world, &oauth, "tools/call").await.unwrap_err();
    assert!(error.to_string().contains("run `portcullis mcp auth notes`"), "{error}");
    let kept = person.kept().unwrap();
    assert!(kept.access_token.is_none() && kept.refresh_token.is_none());
    // Asked once; what is of no use is not shown again.
    let _ = ask(&world, &oauth, "tools/call").await;
    assert_eq!(world.grants("refresh_token"), 1);
    // Another process logs in: the next call has it.
    super::oauth(&world, &person, Someone::Away).log_in(&*person).await.unwrap();
    assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
    assert_eq!(world.asked("as", "/register").len(), 1, "still the same client");
}

#[tokio::test]
async fn a_moment_without_the_authorization_server_costs_nothing_while_the_token_is_good() {
    let (world, person) = about_to_expire().await;
    person.change(|login| login.about.token_endpoint = "http://127.0.0.1:1/token".to_owned());
    let oauth = oauth(&world, &person, Someone::Away);
    assert!(oauth.header().await.unwrap().is_some());
    person.change(|login| login.about.expires_at = Some(1));
    let error = oauth.header().await.unwrap_err();
    assert!(matches!(error, OAuthError::Unreachable { .. }), "{error}");
    person.change(|login| login.refresh_token = None);
    let error = oauth.header().await.unwrap_err();
    assert_eq!(error.to_string(), "the login has expired; run `portcullis mcp auth notes`");
    assert!(person.kept().unwrap().access_token.is_some() && world.grants("refresh_token") == 0);
}
