//! Servers that say what is not so. Nobody is asked to log in, or the answer is thrown away.

use super::*;
use portcullis_testkit::oauth::Iss;
use serde_json::json;

/// Returns what is said, and how often anyone was asked to log in, and for tokens.
async fn try_with(conduct: Conduct) -> (String, usize, usize) {
    let (world, person) = start(conduct).await;
    let oauth = oauth(&world, &person, Someone::There);
    let said = match ask(&world, &oauth, "initialize").await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(said == "200" || person.kept().is_none(), "nothing is kept of a login that failed");
    (said, world.asked("as", "/authorize").len(), world.asked("as", "/token").len())
}

#[tokio::test]
async fn whoever_is_not_who_they_should_be_gets_nothing() {
    let about = |about| Conduct { about, ..Conduct::default() };
    let cases: Vec<(Conduct, &str, usize)> = vec![
        (
            Conduct { resource: Some("https://evil.example.com/mcp".to_owned()), ..Conduct::default() },
            "tokens are for",
            0,
        ),
        (about(json!({ "issuer": "https://attacker.example.com" })), "says that it is", 0),
        (about(json!({ "code_challenge_methods_supported": ["plain"] })), "PKCE", 0),
        (about(json!({ "code_challenge_methods_supported": null })), "PKCE", 0),
        (about(json!({ "registration_endpoint": null })), "oauth.client_id", 0),
        (about(json!({ "token_endpoint": "http://127.0.0.1:1/token" })), "http:// is not allowed", 0),
        (about(json!({ "registration_endpoint": "http://10.0.0.1/" })), "http:// is not allowed", 0),
        (about(json!({ "authorization_endpoint": "javascript:alert(1)" })), "login page makes no sense", 0),
        (about(json!({ "authorization_endpoint": "file:///etc/passwd" })), "`file` is not fetched", 0),
        (Conduct { iss: Iss::Wrong, ..Conduct::default() }, "instead of", 1),
        (Conduct { iss: Iss::WithSlash, ..Conduct::default() }, "instead of", 1),
        (Conduct { iss: Iss::Missing, ..Conduct::default() }, "does not say that it is from", 1),
        (
            Conduct { login_error: Some("access_denied"), ..Conduct::default() },
            "access_denied: the person said no",
            1,
        ),
    ];
    for (conduct, expected, logins) in cases {
        let shown = format!("{conduct:?}");
        let (said, asked, tokens) = try_with(conduct).await;
        assert!(said.contains(expected), "{said}\n{shown}");
        assert_eq!((asked, tokens), (logins, 0), "{shown}");
    }
    // The same count, where nobody lies: the check can fail.
    assert_eq!(try_with(Conduct::default()).await, ("200".to_owned(), 1, 1));
    let silent = Conduct {
        iss: Iss::Missing,
        about: json!({ "authorization_response_iss_parameter_supported": null }),
        ..Conduct::default()
    };
    assert_eq!(try_with(silent).await, ("200".to_owned(), 1, 1));
    let wrong = Conduct {
        iss: Iss::Wrong,
        about: json!({ "authorization_response_iss_parameter_supported": null }),
        ..Conduct::default()
    };
    assert_eq!(try_with(wrong).await.2, 0, "a name that is given is checked, also where none was promised");
}

#[tokio::test]
async fn a_document_that_is_named_is_the_only_one_that_counts() {
    let challenge = Some("Bearer resource_metadata=\"http://127.0.0.1:1/elsewhere\"".to_owned());
    let (said, asked, _) = try_with(Conduct { challenge, ..Conduct::default() }).await;
    assert!(said.contains("cannot be reached") && asked == 0, "{said}");
}

#[tokio::test]
async fn a_token_is_shown_to_no_other_server() {
    let (world, person) = start(Conduct::default()).await;
    let oauth = oauth(&world, &person, Someone::Away);
    oauth.log_in(&*person).await.unwrap();
    assert!(oauth.header().await.unwrap().is_some());
    for other in ["https://other.example.com/mcp", "http://127.0.0.1:9/mcp", "nonsense"] {
        person.change(|login| login.about.resource = other.to_owned());
        assert_eq!(oauth.header().await.unwrap(), None, "{other}");
    }
}

#[tokio::test]
async fn another_authorization_server_sees_nothing_of_the_first() {
    let (world, person) = start(Conduct::default()).await;
    let (other, _) = start(Conduct::default()).await;
    let exceptions =
        [world.issuer_place(), other.issuer_place()].map(|place| place.parse().unwrap()).to_vec();
    let settings = EgressSettings { exceptions, per_host: UNHURRIED, ..EgressSettings::default() };
    let resolver = Arc::new(SystemResolver::default());
    let clock = Arc::new(SystemClock);
    let consent: Arc<dyn Consent> = person.clone();
    let oauth =
        OAuth::new(spec(&world.url()), settings, resolver, person.clone(), clock, Some(consent)).unwrap();
    assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
    let first = person.kept().unwrap();
    world.behave(|conduct| conduct.authorization_server = Some(other.issuer()));
    world.revoke_all();
    // The new one's tokens mean nothing to the server, so it refuses again; what counts is who was shown what.
    let _ = ask(&world, &oauth, "initialize").await;
    let second = person.kept().unwrap();
    assert_eq!((first.about.issuer, second.about.issuer), (world.issuer(), other.issuer()));
    assert_eq!(other.asked("as", "/register").len(), 1);
    let shown = format!("{:?}", other.asked("as", ""));
    for secret in [first.refresh_token, first.access_token] {
        assert!(!shown.contains(secret.unwrap().expose()), "{shown}");
    }
    assert_eq!(other.grants("refresh_token"), 0);
    assert_eq!(world.grants("refresh_token"), 1, "the first was asked whether the login is still good");
}
