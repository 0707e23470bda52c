//! Token renewal: before expiry, once for all concurrent callers.

use super::*;
use futures::future::join_all;
use std::time::Duration;

/// Concurrent callers.
const CALLERS: usize = 50;
/// Long enough for all of them to arrive during a renewal.
const SLOWLY: Duration = Duration::from_millis(300);

/// Returns servers whose token is about to expire.
async fn about_to_expire() -> (OAuthServers, Arc<TestUser>) {
    let (world, person) = start(OAuthBehavior { token_takes: SLOWLY, ..OAuthBehavior::default() }).await;
    oauth(&world, &person, UserPresence::Away).log_in(&*person).await.unwrap();
    let now = portcullis_core::Clock::since_epoch(&SystemClock).as_secs();
    person.change(|login| (login.about.expires_at, login.about.renew_at) = (Some(now + 30), Some(now)));
    (world, person)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_renewed_before_it_expires_and_once() {
    let (world, person) = about_to_expire().await;
    let oauth = oauth(&world, &person, UserPresence::Away);
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

    // Each is a separate process: the lock holds across processes.
    let apart = async |person: Arc<TestUser>, world: &OAuthServers| {
        let alone: Vec<OAuth> = (0..5).map(|_| super::oauth(world, &person, UserPresence::Away)).collect();
        let headers = join_all(alone.iter().map(OAuth::header)).await;
        (headers.iter().all(Result::is_ok), world.grants("refresh_token"))
    };
    let (world, person) = about_to_expire().await;
    assert_eq!(apart(person, &world).await, (true, 1));
    // Without the lock, the count is higher: the check can fail.
    let (world, person) = about_to_expire().await;
    person.keeps_no_turns.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(apart(person, &world).await.1 > 1);
}

/// Makes the token expire.
fn expire(person: &TestUser) {
    person.change(|login| (login.about.expires_at, login.about.renew_at) = (Some(1), Some(1)));
}

/// The first caller is cancelled after the issuer consumed its refresh token: the next token is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_goes_on_without_who_began_it() {
    let (world, person) = about_to_expire().await;
    expire(&person);
    let oauth = oauth(&world, &person, UserPresence::Away);
    tokio::select! {
        renewed = oauth.header() => panic!("the caller did not wait for the issuer: {renewed:?}"),
        () = portcullis_testkit::wait::until("the issuer is asked", async || {
            (world.grants("refresh_token") == 1).then_some(())
        }) => {}
    }
    assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
    assert_eq!(world.grants("refresh_token"), 1);
}

/// A valid token is used while its issuer is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_long_for_a_token_that_is_only_due() {
    let (world, person) = about_to_expire().await;
    world.behave(|conduct| conduct.token_takes = SLOWLY * 20);
    let oauth = oauth(&world, &person, UserPresence::Away);
    let before = format!("Bearer {}", person.kept().unwrap().access_token.unwrap().expose());
    assert_eq!(oauth.header().await, Ok(Some(before.clone())));
    portcullis_testkit::wait::until("the new one is kept", async || {
        (person.kept().unwrap().access_token.unwrap().expose() != &before["Bearer ".len()..]).then_some(())
    })
    .await;
    assert_eq!(world.grants("refresh_token"), 1);
}

/// Some servers forget tokens often, and accept the next one each time.
#[tokio::test]
async fn a_token_is_renewed_as_often_as_the_new_one_is_taken() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    for times in 1..=6 {
        world.revoke();
        assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200), "{times}");
        assert_eq!(world.grants("refresh_token"), times);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_for_a_renewal_hear_that_it_failed() {
    let (world, person) = about_to_expire().await;
    world.behave(|conduct| conduct.token_answers = Some((503, "")));
    expire(&person);
    let oauth = oauth(&world, &person, UserPresence::Away);
    let used = format!("Bearer {}", person.kept().unwrap().access_token.unwrap().expose());
    for headers in [true, false] {
        let waiting = (0..CALLERS).map(async |_| match headers {
            true => oauth.header().await.map(drop),
            false => oauth.refused(Some(&used), 401, None).await.map(drop),
        });
        for error in join_all(waiting).await {
            assert!(matches!(error, Err(OAuthError::Unreachable { .. })), "{error:?}");
        }
        assert_eq!(world.grants("refresh_token"), if headers { 1 } else { 2 });
    }
}

/// A login ends, or starts again, during a renewal by another process: the person's last action counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_does_while_a_token_is_renewed_counts() {
    for anew in [false, true] {
        let (world, person) = about_to_expire().await;
        let (hub, shell) =
            (oauth(&world, &person, UserPresence::Away), oauth(&world, &person, UserPresence::Away));
        let hub = Arc::new(hub);
        let renewing = tokio::spawn({
            let hub = hub.clone();
            async move { hub.header().await }
        });
        portcullis_testkit::wait::until("the hub renews", async || {
            (world.grants("refresh_token") == 1).then_some(())
        })
        .await;
        if anew {
            shell.log_in(&*person).await.unwrap();
        } else {
            assert!(shell.log_out().await.unwrap().was);
        }
        let renewed = renewing.await.unwrap().unwrap().unwrap();
        match person.kept() {
            None => assert!(!anew),
            Some(kept) => {
                assert!(anew);
                assert_ne!(format!("Bearer {}", kept.access_token.unwrap().expose()), renewed);
            }
        }
        // After a logout, no token made in between is valid.
        assert_eq!(ask(&world, &hub, "tools/call").await.is_ok(), anew);
    }
}

/// A person who takes long on the login page.
#[derive(Default)]
struct SlowConsent {
    shown: tokio::sync::Notify,
}

impl LoginPrompt for SlowConsent {
    fn show<'a>(&'a self, _: &'a str) -> futures::future::BoxFuture<'a, Result<(), String>> {
        self.shown.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn calls_go_on_while_a_person_is_asked_to_log_in() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    let slow = SlowConsent::default();
    let asked = oauth.log_in(&slow);
    tokio::pin!(asked);
    tokio::select! {
        ended = &mut asked => panic!("{ended:?}"),
        () = slow.shown.notified() => {}
    }
    // The token is refused, renewed and used while the person is still on the page.
    world.revoke();
    tokio::select! {
        ended = &mut asked => panic!("{ended:?}"),
        answered = portcullis_testkit::wait::within("an answer", ask(&world, &oauth, "tools/call")) => {
            assert_eq!(answered, Ok(200));
        }
    }
}

#[tokio::test]
async fn a_login_outlives_an_outage_of_who_makes_its_tokens() {
    for answer in
        [(503, "<html>"), (503, r#"{"error":"temporarily_unavailable"}"#), (429, r#"{"error":"slow_down"}"#)]
    {
        let (world, person) = start(OAuthBehavior::default()).await;
        let oauth = oauth(&world, &person, UserPresence::Away);
        oauth.log_in(&*person).await.unwrap();
        world.revoke();
        world.behave(|conduct| conduct.token_answers = Some(answer));
        // However often: an unreachable server has refused nothing.
        for _ in 0..5 {
            let error = ask(&world, &oauth, "tools/call").await.unwrap_err();
            assert!(matches!(error, OAuthError::Unreachable { .. }), "{error}");
        }
        world.behave(|conduct| conduct.token_answers = None);
        assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
        assert_eq!(person.pages().len(), 1);
    }
}

#[tokio::test]
async fn a_token_is_used_while_it_is_good_whatever_becomes_of_its_renewal() {
    let refused = (400, r#"{"error":"invalid_grant"}"#);
    for answer in [(503, r#"{"error":"server_error"}"#), (400, r#"{"error":"invalid_request"}"#), refused] {
        let (world, person) = about_to_expire().await;
        world.behave(|conduct| conduct.token_answers = Some(answer));
        let oauth = oauth(&world, &person, UserPresence::Away);
        for _ in 0..3 {
            assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200), "{answer:?}");
        }
        assert_eq!(world.grants("refresh_token"), 1, "{answer:?}: it is not tried again at once");
        assert_eq!(person.kept().unwrap().refresh_token.is_none(), answer == refused);
    }
}

#[tokio::test]
async fn a_client_that_is_not_known_any_more_is_made_anew() {
    let (world, person) = start(OAuthBehavior { forgets_clients: true, ..OAuthBehavior::default() }).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    let before = person.kept().unwrap().about.client_id;
    world.revoke();
    let error = ask(&world, &oauth, "tools/call").await.unwrap_err();
    assert!(error.to_string().contains("run `portcullis mcp auth notes`"), "{error}");
    let about = oauth.log_in(&*person).await.unwrap();
    assert_ne!(about.client_id, before);
    assert_eq!((world.asked("as", "/register").len(), about.client_gone), (2, false));
    assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
}

#[tokio::test]
async fn a_token_of_a_short_life_is_not_renewed_at_every_request() {
    let (world, person) = start(OAuthBehavior { expires_in: Some(60), ..OAuthBehavior::default() }).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    for _ in 0..5 {
        assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
    }
    assert_eq!(world.grants("refresh_token"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_refused_is_renewed_once() {
    let (world, person) = start(OAuthBehavior { token_takes: SLOWLY, ..OAuthBehavior::default() }).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    world.revoke();
    let statuses = join_all((0..CALLERS).map(|_| ask(&world, &oauth, "tools/call"))).await;
    assert!(statuses.iter().all(|status| *status == Ok(200)), "{statuses:?}");
    assert_eq!(world.grants("refresh_token"), 1);
}

#[tokio::test]
async fn a_refresh_token_that_stays_is_kept() {
    let (world, person) = start(OAuthBehavior { rotates: false, ..OAuthBehavior::default() }).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    for _ in 0..3 {
        world.revoke();
        assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
    }
    assert_eq!((world.grants("refresh_token"), person.pages().len()), (3, 1));
}

#[tokio::test]
async fn a_server_that_takes_no_new_token_either_is_left_alone() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    for _ in 0..3 {
        let used = oauth.header().await.unwrap();
        assert_eq!(oauth.refused(used.as_deref(), 401, None).await, Ok(true));
    }
    // Valid for a while.
    let used = oauth.header().await.unwrap();
    let error = oauth.refused(used.as_deref(), 401, None).await.unwrap_err();
    assert!(error.to_string().starts_with("the server no longer accepts the login"), "{error}");
    assert_eq!(world.grants("refresh_token"), 3);
}

#[tokio::test]
async fn a_login_that_has_ended_is_forgotten_and_said_so() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    world.revoke_all();
    let error = ask(&world, &oauth, "tools/call").await.unwrap_err();
    assert!(error.to_string().contains("run `portcullis mcp auth notes`"), "{error}");
    let kept = person.kept().unwrap();
    assert!(kept.access_token.is_none() && kept.refresh_token.is_none());
    // Shown once; a useless login page is not shown again.
    let _ = ask(&world, &oauth, "tools/call").await;
    assert_eq!(world.grants("refresh_token"), 1);
    // Another process logs in: the next call uses its token.
    super::oauth(&world, &person, UserPresence::Away).log_in(&*person).await.unwrap();
    assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
    assert_eq!(world.asked("as", "/register").len(), 1, "still the same client");
}

#[tokio::test]
async fn a_moment_without_the_authorization_server_costs_nothing_while_the_token_is_good() {
    let (world, person) = about_to_expire().await;
    person.change(|login| login.about.token_endpoint = "http://127.0.0.1:1/token".to_owned());
    let oauth = oauth(&world, &person, UserPresence::Away);
    assert!(oauth.header().await.unwrap().is_some());
    person.change(|login| login.about.expires_at = Some(1));
    let error = oauth.header().await.unwrap_err();
    assert!(matches!(error, OAuthError::Unreachable { .. }), "{error}");
    person.change(|login| login.refresh_token = None);
    let error = oauth.header().await.unwrap_err();
    assert_eq!(error.to_string(), "the login has expired; run `portcullis mcp auth notes`");
    assert!(person.kept().unwrap().access_token.is_some() && world.grants("refresh_token") == 0);
}
