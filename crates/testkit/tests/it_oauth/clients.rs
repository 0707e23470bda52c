//! Client registration, and a whole login.

use super::*;
use portcullis_core::Secret;
use portcullis_upstream::{ClientKind, ClientSecret, TokenMethod};
use serde_json::json;

#[tokio::test]
async fn a_login_says_all_that_it_has_to() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::There);
    assert_eq!(oauth.header().await.unwrap(), None);
    assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
    let page = Url::parse(&person.pages()[0]).unwrap();
    let part =
        |name: &str| page.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    assert_eq!(part("response_type").as_deref(), Some("code"));
    assert_eq!(part("code_challenge_method").as_deref(), Some("S256"));
    assert_eq!(part("resource"), Some(world.url()));
    assert_eq!(part("scope").as_deref(), Some("basic"));
    assert_eq!((part("state").unwrap().len(), part("code_challenge").unwrap().len()), (43, 43));
    assert!(part("redirect_uri").unwrap().starts_with("http://127.0.0.1:"));
    let tokens = world.asked("as", "/token");
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].parts["resource"], world.url());
    assert_eq!(tokens[0].authorization, None);
    let about = person.kept().unwrap().about;
    assert_eq!((about.issuer, about.resource), (world.issuer(), world.url()));
    // The next request needs none of it.
    assert_eq!(ask(&world, &oauth, "tools/call").await.unwrap(), 200);
    assert_eq!((world.asked("as", "/token").len(), person.pages().len()), (1, 1));
    // After a restart the tokens are found.
    let later = super::oauth(&world, &person, UserPresence::Away);
    assert_eq!(ask(&world, &later, "tools/call").await.unwrap(), 200);
}

#[tokio::test]
async fn no_two_logins_share_what_protects_them() {
    let (world, person) = start(OAuthBehavior { gives_refresh: false, ..OAuthBehavior::default() }).await;
    let oauth = oauth(&world, &person, UserPresence::There);
    for _ in 0..2 {
        ask(&world, &oauth, "initialize").await.unwrap();
        world.revoke();
    }
    let pages: Vec<Url> = person.pages().iter().map(|page| Url::parse(page).unwrap()).collect();
    for name in ["state", "code_challenge"] {
        let of = |page: &Url| page.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        assert_ne!(of(&pages[0]), of(&pages[1]), "{name}");
    }
}

#[tokio::test]
async fn a_client_registers_itself_once_for_one_way_back() {
    let (world, person) = start(OAuthBehavior { gives_refresh: false, ..OAuthBehavior::default() }).await;
    let oauth = oauth(&world, &person, UserPresence::There);
    for _ in 0..3 {
        assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
        world.revoke();
    }
    // The same port each time, so the same registration.
    assert_eq!((world.asked("as", "/register").len(), world.asked("as", "/authorize").len()), (1, 3));
    assert_eq!(person.kept().unwrap().about.client, ClientKind::Registered);
}

#[tokio::test]
async fn the_way_a_client_shows_who_it_is_is_one_that_is_offered() {
    for (offered, expected) in [
        (json!(["none", "client_secret_basic"]), TokenMethod::None),
        (json!(["client_secret_basic", "client_secret_post"]), TokenMethod::Basic),
        (json!(["client_secret_post"]), TokenMethod::Post),
        (json!(null), TokenMethod::None),
    ] {
        let about = json!({ "token_endpoint_auth_methods_supported": offered });
        let (world, person) = start(OAuthBehavior { about, ..OAuthBehavior::default() }).await;
        let oauth = oauth(&world, &person, UserPresence::There);
        assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
        assert_eq!(person.kept().unwrap().about.token_method, expected, "{offered}");
        let token = &world.asked("as", "/token")[0];
        let basic = token.authorization.as_ref().is_some_and(|header| header.starts_with("Basic "));
        let post = token.parts.contains_key("client_secret");
        assert_eq!(
            (basic, post),
            (expected == TokenMethod::Basic, expected == TokenMethod::Post),
            "{offered}"
        );
    }
}

#[tokio::test]
async fn a_configured_client_is_used_as_it_is() {
    for secret in [None, Some("a secret with: odd + letters")] {
        let about = json!({ "registration_endpoint": null, "token_endpoint_auth_methods_supported": null });
        let (world, person) = start(OAuthBehavior { about, ..OAuthBehavior::default() }).await;
        let asked_for = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let hosts = asked_for.clone();
        let look_up = secret.map(|secret| {
            ClientSecret(Arc::new(move |host: &str| {
                hosts.lock().push(host.to_owned());
                Ok(Secret::new(secret.to_owned()))
            }))
        });
        let spec =
            OAuthSpec { client_id: Some("mine".to_owned()), client_secret: look_up, ..spec(&world.url()) };
        let oauth = oauth_with(&world, spec, &person, UserPresence::There);
        assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
        let token = &world.asked("as", "/token")[0];
        let kept = person.kept().unwrap();
        assert_eq!((kept.about.client, kept.about.client_id.as_str()), (ClientKind::Configured, "mine"));
        assert!(kept.client_secret.is_none(), "it stays where it was configured");
        match secret {
            None => assert_eq!(token.parts["client_id"], "mine"),
            Some(_) => {
                let value = token.authorization.clone().unwrap();
                assert_eq!(value, "Basic bWluZTphK3NlY3JldCt3aXRoJTNBK29kZCslMkIrbGV0dGVycw==");
                assert_eq!(*asked_for.lock(), ["127.0.0.1"], "granted for the token endpoint");
            }
        }
    }
}

#[tokio::test]
async fn a_client_can_be_a_document() {
    let document = "https://hub.example.com/client.json";
    for (offered, expected) in [(true, ClientKind::Document), (false, ClientKind::Registered)] {
        let about = json!({ "client_id_metadata_document_supported": offered });
        let (world, person) = start(OAuthBehavior { about, ..OAuthBehavior::default() }).await;
        let spec = OAuthSpec { client_metadata_url: Some(document.to_owned()), ..spec(&world.url()) };
        let oauth = oauth_with(&world, spec, &person, UserPresence::There);
        assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
        assert_eq!(person.kept().unwrap().about.client, expected);
        assert_eq!(world.asked("as", "/register").is_empty(), offered);
        assert_eq!(world.asked("as", "/token")[0].parts["client_id"] == document, offered);
    }
}

#[tokio::test]
async fn documents_are_found_at_every_usual_place() {
    for (tenant, document_at) in [
        ("", ""),
        ("", "/.well-known/openid-configuration"),
        ("/tenant1", ""),
        ("/tenant1", "/.well-known/openid-configuration/tenant1"),
        ("/tenant1", "/tenant1/.well-known/openid-configuration"),
    ] {
        for names_document in [true, false] {
            let conduct = OAuthBehavior { tenant, document_at, names_document, ..OAuthBehavior::default() };
            let (world, person) = start(conduct).await;
            let oauth = oauth(&world, &person, UserPresence::There);
            assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200, "{tenant} {document_at}");
        }
    }
}

#[tokio::test]
async fn the_port_to_come_back_to_can_be_fixed() {
    let (world, person) = start(OAuthBehavior::default()).await;
    // A free port, which no other process takes within a moment.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let fixed = OAuthSpec { callback_port: Some(free), ..spec(&world.url()) };
    let oauth = oauth_with(&world, fixed.clone(), &person, UserPresence::There);
    assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
    let back = format!("http://127.0.0.1:{free}/callback");
    assert_eq!(person.kept().unwrap().about.redirect_uri, back);
    // A port in use is an error that names it.
    let _taken = std::net::TcpListener::bind(("127.0.0.1", free)).unwrap();
    let person = Arc::default();
    let oauth = oauth_with(&world, fixed, &person, UserPresence::There);
    let error = ask(&world, &oauth, "initialize").await.unwrap_err().to_string();
    assert!(error.contains(&format!("port {free}")), "{error}");
}

#[tokio::test]
async fn more_is_asked_for_when_the_server_wants_more_and_only_once() {
    let (world, person) =
        start(OAuthBehavior { call_scope: Some("write"), ..OAuthBehavior::default() }).await;
    let oauth = oauth(&world, &person, UserPresence::There);
    assert_eq!(ask(&world, &oauth, "tools/list").await.unwrap(), 200);
    assert_eq!(ask(&world, &oauth, "tools/call").await.unwrap(), 200);
    assert_eq!(person.kept().unwrap().about.asked, ["basic", "write"]);
    assert_eq!(person.pages().len(), 2);
    // A server that is never satisfied is given up.
    world.behave(|conduct| conduct.call_scope = Some("write and more"));
    for _ in 0..5 {
        let _ = ask(&world, &oauth, "tools/call").await;
    }
    let error = ask(&world, &oauth, "tools/call").await.unwrap_err().to_string();
    assert!(error.contains("every scope that it asked for"), "{error}");
    assert_eq!(person.pages().len(), 3);
}

#[tokio::test]
async fn without_a_person_it_is_said_what_they_have_to_do() {
    let (world, person) =
        start(OAuthBehavior { call_scope: Some("write"), ..OAuthBehavior::default() }).await;
    let away = oauth(&world, &person, UserPresence::Away);
    let error = ask(&world, &away, "initialize").await.unwrap_err();
    assert_eq!(error.to_string(), "the server wants a login; run `portcullis mcp auth notes`");
    assert!(world.asked("as", "/authorize").is_empty() && world.asked("as", "/register").is_empty());
    // From the command line.
    let about = away.log_in(&*person).await.unwrap();
    assert_eq!(about.asked, ["basic"]);
    assert_eq!(ask(&world, &away, "tools/list").await.unwrap(), 200);
    let error = ask(&world, &away, "tools/call").await.unwrap_err().to_string();
    assert!(error.contains("`write`") && error.contains("mcp auth notes"), "{error}");
    // The next login requests these scopes, in any process.
    let about = away.log_in(&*person).await.unwrap();
    assert_eq!(about.asked, ["basic", "write"]);
    assert_eq!(ask(&world, &away, "tools/call").await.unwrap(), 200);
    assert!(away.log_out().await.unwrap().was && !away.log_out().await.unwrap().was);
    assert!(ask(&world, &away, "tools/list").await.is_err());
}

#[tokio::test]
async fn what_the_server_wanted_besides_stays_asked_for() {
    let (world, person) =
        start(OAuthBehavior { call_scope: Some("write"), ..OAuthBehavior::default() }).await;
    let there = oauth(&world, &person, UserPresence::There);
    assert_eq!(ask(&world, &there, "tools/list").await.unwrap(), 200);
    assert_eq!(ask(&world, &there, "tools/call").await.unwrap(), 200);
    // Another process logs in again, without a notification.
    for _ in 0..2 {
        let about = oauth(&world, &person, UserPresence::Away).log_in(&*person).await.unwrap();
        assert_eq!(about.asked, ["write", "basic"]);
    }
    // The current configuration counts, not the former.
    let other = OAuthSpec { scope: Some("other".to_owned()), ..spec(&world.url()) };
    let about = oauth_with(&world, other, &person, UserPresence::Away).log_in(&*person).await.unwrap();
    assert_eq!(about.asked, ["write", "other"]);
}

#[tokio::test]
async fn what_was_not_granted_is_said_to_be_so() {
    let conduct =
        OAuthBehavior { call_scope: Some("write"), grants: Some("basic"), ..OAuthBehavior::default() };
    let (world, person) = start(conduct).await;
    let oauth = oauth(&world, &person, UserPresence::There);
    assert_eq!(ask(&world, &oauth, "tools/list").await.unwrap(), 200);
    assert_eq!(ask(&world, &oauth, "tools/call").await.unwrap(), 403);
    let about = person.kept().unwrap().about;
    assert_eq!(
        (about.withheld(&about.asked), about.granted),
        (vec!["write".to_owned()], Some(vec!["basic".to_owned()]))
    );
    let error = ask(&world, &oauth, "tools/call").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the server wants `write`, which was requested and not granted; run `portcullis mcp auth notes`"
    );
}

#[tokio::test]
async fn a_page_for_people_is_not_the_document() {
    for names_document in [true, false] {
        let conduct = OAuthBehavior {
            names_document,
            shows_pages: true,
            document_at: "/.well-known/openid-configuration",
            ..OAuthBehavior::default()
        };
        let (world, person) = start(conduct).await;
        let oauth = oauth(&world, &person, UserPresence::There);
        assert_eq!(ask(&world, &oauth, "tools/call").await.unwrap(), 200);
    }
}

#[tokio::test]
async fn nobody_logs_in_where_nothing_can_be_kept() {
    let (world, person) = start(OAuthBehavior::default()).await;
    person.keeps_nothing.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = oauth(&world, &person, UserPresence::Away).log_in(&*person).await.unwrap_err();
    assert_eq!(error.to_string(), "the secret store: nothing can be kept");
    assert!(person.pages().is_empty() && world.asked("as", "").is_empty());
}

#[tokio::test]
async fn a_server_that_says_nothing_of_its_logins_is_asked_where_it_was_usual() {
    let conduct = OAuthBehavior {
        names_document: false,
        has_document: false,
        lets_in_by_itself: true,
        iss: portcullis_testkit::oauth::IssParameter::Missing,
        ..OAuthBehavior::default()
    };
    let (world, person) = start(conduct.clone()).await;
    let oauth = oauth(&world, &person, UserPresence::There);
    assert_eq!(ask(&world, &oauth, "tools/call").await, Ok(200));
    let about = person.kept().unwrap().about;
    let origin = world.url().replace("/mcp", "");
    assert_eq!((about.issuer, about.token_endpoint), (origin.clone(), format!("{origin}/token")));
    // Such a login has no revocation endpoint.
    assert_eq!(oauth.log_out().await.unwrap().tokens, portcullis_upstream::TokenRevocation::NotOffered);
    // A server with metadata says it there, or nowhere.
    let (world, person) =
        start(OAuthBehavior { has_document: true, document_at: "/elsewhere", ..conduct }).await;
    let error = super::oauth(&world, &person, UserPresence::There).log_in(&*person).await.unwrap_err();
    assert!(error.to_string().contains("at none of the well-known URLs"), "{error}");
}
