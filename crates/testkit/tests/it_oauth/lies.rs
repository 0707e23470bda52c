//! OAuth servers that lie. No login is started, or its response is discarded.

use super::*;
use portcullis_testkit::oauth::IssParameter;
use serde_json::json;

/// Returns the error, and the number of logins and token requests.
async fn try_with(conduct: OAuthBehavior) -> (String, usize, usize) {
    let (world, person) = start(conduct).await;
    let oauth = oauth(&world, &person, UserPresence::There);
    let said = match ask(&world, &oauth, "initialize").await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(said == "200" || person.kept().is_none(), "nothing is kept of a login that failed");
    (said, world.asked("as", "/authorize").len(), world.asked("as", "/token").len())
}

#[tokio::test]
async fn whoever_is_not_who_they_should_be_gets_nothing() {
    let about = |about| OAuthBehavior { about, ..OAuthBehavior::default() };
    let cases: Vec<(OAuthBehavior, &str, usize)> = vec![
        (
            OAuthBehavior {
                resource: Some("https://evil.example.com/mcp".to_owned()),
                ..OAuthBehavior::default()
            },
            "tokens are for",
            0,
        ),
        (about(json!({ "issuer": "https://attacker.example.com" })), "says that it is", 0),
        (about(json!({ "code_challenge_methods_supported": ["plain"] })), "PKCE", 0),
        (about(json!({ "code_challenge_methods_supported": null })), "PKCE", 0),
        (about(json!({ "registration_endpoint": null })), "oauth.client_id", 0),
        (about(json!({ "token_endpoint": "http://127.0.0.1:1/token" })), "http:// is not allowed", 0),
        (about(json!({ "registration_endpoint": "http://10.0.0.1/" })), "http:// is not allowed", 0),
        (about(json!({ "authorization_endpoint": "javascript:alert(1)" })), "login page is invalid", 0),
        (
            about(json!({ "authorization_endpoint": "file:///etc/passwd" })),
            "`file` URLs are not supported",
            0,
        ),
        (OAuthBehavior { iss: IssParameter::Wrong, ..OAuthBehavior::default() }, "instead of", 1),
        (OAuthBehavior { iss: IssParameter::WithSlash, ..OAuthBehavior::default() }, "instead of", 1),
        (
            OAuthBehavior { iss: IssParameter::Missing, ..OAuthBehavior::default() },
            "does not say that it is from",
            1,
        ),
        (
            OAuthBehavior { login_error: Some("access_denied"), ..OAuthBehavior::default() },
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
    // With an honest server the counts differ: the check can fail.
    assert_eq!(try_with(OAuthBehavior::default()).await, ("200".to_owned(), 1, 1));
    let silent = OAuthBehavior {
        iss: IssParameter::Missing,
        about: json!({ "authorization_response_iss_parameter_supported": null }),
        ..OAuthBehavior::default()
    };
    assert_eq!(try_with(silent).await, ("200".to_owned(), 1, 1));
    let wrong = OAuthBehavior {
        iss: IssParameter::Wrong,
        about: json!({ "authorization_response_iss_parameter_supported": null }),
        ..OAuthBehavior::default()
    };
    assert_eq!(try_with(wrong).await.2, 0, "a name that is given is checked, also where none was promised");
}

#[tokio::test]
async fn a_document_that_is_named_is_the_only_one_that_counts() {
    let challenge = Some("Bearer resource_metadata=\"http://127.0.0.1:1/elsewhere\"".to_owned());
    let (said, asked, _) = try_with(OAuthBehavior { challenge, ..OAuthBehavior::default() }).await;
    assert!(said.contains("cannot be reached") && asked == 0, "{said}");
}

#[tokio::test]
async fn a_token_is_shown_to_no_other_server() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let oauth = oauth(&world, &person, UserPresence::Away);
    oauth.log_in(&*person).await.unwrap();
    assert!(oauth.header().await.unwrap().is_some());
    for other in ["https://other.example.com/mcp", "http://127.0.0.1:9/mcp", "nonsense"] {
        person.change(|login| login.about.resource = other.to_owned());
        assert_eq!(oauth.header().await.unwrap(), None, "{other}");
    }
}

#[tokio::test]
async fn another_authorization_server_sees_nothing_of_the_first() {
    let (world, person) = start(OAuthBehavior::default()).await;
    let (other, _) = start(OAuthBehavior::default()).await;
    let exceptions =
        [world.issuer_place(), other.issuer_place()].map(|place| place.parse().unwrap()).to_vec();
    let settings = EgressSettings { exceptions, per_host: UNHURRIED, ..EgressSettings::default() };
    let resolver = Arc::new(SystemResolver::default());
    let clock = Arc::new(SystemClock);
    let consent: Arc<dyn LoginPrompt> = person.clone();
    let oauth = OAuth::new(
        spec(&world.url()),
        settings,
        resolver,
        person.clone(),
        clock,
        Some(consent),
        Shutdown::default(),
    )
    .unwrap();
    assert_eq!(ask(&world, &oauth, "initialize").await.unwrap(), 200);
    let first = person.kept().unwrap();
    world.behave(|conduct| conduct.authorization_server = Some(other.issuer()));
    world.revoke_all();
    // The new server's tokens are invalid at the MCP server, which refuses again; only the shown pages count
    // here.
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
