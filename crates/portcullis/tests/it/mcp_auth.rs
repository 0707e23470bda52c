//! A login from the command line reaches the hub that runs, and stays a secret.

use crate::support::{home, http, names, text};
use base64::Engine;
use portcullis_testkit::canary_network::authority;
use portcullis_testkit::mcp_client::{McpClient, NEWEST};
use portcullis_testkit::misbehaving_server::{MisbehavingReply, MisbehavingServer, answer};
use portcullis_testkit::oauth::{OAuthBehavior, OAuthServers, TestUser};
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED};
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::LoginPrompt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

pub(crate) fn configure(home: &TestHome, world: &OAuthServers) {
    let (url, issuer) = (world.url(), world.issuer_place());
    home.configure(&format!(
        "{UNHURRIED}[egress]\nallow = [\"{issuer}\"]\n[mcp.notes]\nurl = \"{url}\"\noauth = true\ntrust = \"always\"\n\
         headers = {{ X-Tenant = \"blue\" }}\n"
    ));
}

/// How the server stands in the hub that runs.
async fn stands(home: &TestHome) -> String {
    let status = home.run(&["mcp", "status", "--json"]).await.json()["servers"][0]["status"].clone();
    status.as_str().unwrap().to_owned()
}

/// Runs `mcp auth notes` as a person would: reads the page from the terminal, and goes there.
async fn log_in(home: &TestHome) -> String {
    log_in_by(home, &["mcp", "auth", "notes"]).await
}

/// The same by any command that shows the page of a login.
async fn log_in_by(home: &TestHome, words: &[&str]) -> String {
    let (worked, said) = try_log_in_by(home, words).await;
    assert!(worked, "{said}");
    said
}

/// The same for a login that may fail. Returns whether it worked, and what was said.
pub(crate) async fn try_log_in_by(home: &TestHome, words: &[&str]) -> (bool, String) {
    let mut child = home.command(words).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = String::new();
    let page = within("the login page", async {
        while let Some(line) = lines.next_line().await.unwrap() {
            said.push_str(&line);
            said.push('\n');
            if line.trim_start().starts_with("http") {
                return line.trim().to_owned();
            }
        }
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
        panic!("no page: {said}{errors}");
    })
    .await;
    TestUser::default().show(&page).await.unwrap();
    let status = within("the end of the login", child.wait()).await.unwrap();
    while let Some(line) = lines.next_line().await.unwrap() {
        said.push_str(&line);
        said.push('\n');
    }
    child.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
    (status.success(), said)
}

/// A hub with a login at a server whose tool it shows.
async fn logged_in() -> (OAuthServers, TestHome, HubProcess, McpClient) {
    let world = OAuthServers::start(OAuthBehavior::default()).await;
    let home = home();
    configure(&home, &world);
    log_in(&home).await;
    let hub = home.serve().await;
    let mut client = http(&hub, NEWEST).await;
    until("the tool appears", async || has_tool(&mut client).await.then_some(())).await;
    (world, home, hub, client)
}

async fn has_tool(client: &mut McpClient) -> bool {
    let listed = client.result("tools/list", json!({})).await;
    names(&listed["tools"]).contains(&"notes_open")
}

async fn open(client: &mut McpClient) -> Value {
    client.call("notes_open", json!({})).await
}

#[tokio::test]
async fn a_login_reaches_the_running_hub_and_is_masked() {
    let world = OAuthServers::start(OAuthBehavior::default()).await;
    let home = home();
    configure(&home, &world);
    let hub = home.serve().await;
    let mut client = http(&hub, NEWEST).await;
    assert!(!has_tool(&mut client).await);

    let said = log_in(&home).await;
    assert!(said.contains(&format!("Logged in to `notes` with {}", world.issuer())), "{said}");
    until("the tool appears", async || has_tool(&mut client).await.then_some(())).await;
    assert_eq!(text(&open(&mut client).await), "open");

    // What the server accepted is masked in everything, also after it was renewed.
    for renewed in [false, true] {
        if renewed {
            world.revoke();
            assert_eq!(text(&open(&mut client).await), "open");
        }
        let used = world.asked("mcp", "/mcp").last().unwrap().authorization.clone().unwrap();
        let token = used.strip_prefix("Bearer ").unwrap();
        home.write("echo.md", format!("it was {token}"));
        let read = client.call("workspace_read", json!({ "path": "echo.md" })).await;
        assert_eq!(text(&read), "it was [REDACTED:oauth.notes.access]");
    }
    let listed = home.run(&["secrets", "list", "--json"]).await;
    assert_eq!(listed.json(), json!([]), "no handle leads to it");

    // Another login reaches the connection that is open; so does its end.
    world.revoke_all();
    log_in(&home).await;
    assert_eq!(text(&open(&mut client).await), "open");
    let out = home.run(&["mcp", "logout", "notes", "--json"]).await;
    let expected = json!({ "server": "notes", "logged_out": true, "revoked": true, "not_revoked": null });
    assert_eq!(out.json(), expected);
    until("the login is gone", async || {
        let answer = open(&mut client).await;
        answer["isError"].as_bool().filter(|failed| *failed).map(|_| answer)
    })
    .await;
    let told = open(&mut client).await;
    assert!(text(&told).contains("portcullis mcp auth notes"), "{told}");
}

/// A server that is there and an issuer that is not: calls wait for the issuer to come back, and nothing else is lost.
#[tokio::test]
async fn an_issuer_that_is_away_costs_no_connection() {
    let (world, home, _hub, mut client) = logged_in().await;
    until("it is connected", async || (stands(&home).await == "connected").then_some(())).await;

    world.revoke();
    world.behave(|conduct| conduct.token_answers = Some((503, "away")));
    let told = open(&mut client).await;
    assert!(told["isError"] == true && text(&told).contains("try again later"), "{told}");
    assert_eq!(stands(&home).await, "connected");

    world.behave(|conduct| conduct.token_answers = None);
    let before = world.asked("mcp", "/mcp").len();
    assert_eq!(text(&open(&mut client).await), "open");
    // Once with the old token and once with the new one: nobody had to be greeted and listed anew.
    assert_eq!(world.asked("mcp", "/mcp").len() - before, 2);
}

#[tokio::test]
async fn a_server_that_takes_calls_again_stands_as_it_did() {
    let (world, home, _hub, mut client) = logged_in().await;
    // More than was granted, and nobody is there to grant it.
    world.behave(|conduct| conduct.call_scope = Some("write"));
    assert_eq!(open(&mut client).await["isError"], true);
    until("a login is wanted", async || (stands(&home).await == "needs_auth").then_some(())).await;
    world.behave(|conduct| conduct.call_scope = None);
    assert_eq!(text(&open(&mut client).await), "open");
    until("it is connected", async || (stands(&home).await == "connected").then_some(())).await;
}

#[tokio::test]
async fn a_token_that_another_process_renewed_is_used_as_it_is() {
    let (world, home, _hub, mut client) = logged_in().await;
    world.revoke();
    let tested = home.run(&["mcp", "test", "notes"]).await;
    assert_eq!((tested.code, tested.stderr.as_str()), (0, ""), "{tested:?}");
    assert_eq!(world.grants("refresh_token"), 1);
    let before = world.asked("mcp", "/mcp").len();
    assert_eq!(text(&open(&mut client).await), "open");
    assert_eq!((world.asked("mcp", "/mcp").len() - before, world.grants("refresh_token")), (1, 1));
}

#[tokio::test]
async fn a_server_that_wants_a_login_is_added_with_it() {
    let world = OAuthServers::start(OAuthBehavior::default()).await;
    let home = home();
    let (url, issuer) = (world.url(), world.issuer_place());
    home.configure(&format!("{UNHURRIED}[egress]\nallow = [\"{issuer}\"]\n"));
    let refused = home.run(&["mcp", "add", "notes", "--url", &url]).await;
    assert!(refused.code == 1 && refused.stderr.contains("pass `--oauth`"), "{refused:?}");
    let said =
        log_in_by(&home, &["mcp", "add", "notes", "--url", &url, "--oauth", "--policy", "allow", "--yes"])
            .await;
    assert!(
        said.contains("Server `notes` is connected")
            && said.contains("It is trusted; later changes need review"),
        "{said}"
    );
    let hub = home.serve().await;
    let mut client = http(&hub, NEWEST).await;
    until("the tool appears", async || has_tool(&mut client).await.then_some(())).await;
    assert_eq!(text(&open(&mut client).await), "open");
}

/// Nothing is written that speaks of the login, so nobody could end it later.
#[tokio::test]
async fn a_server_that_is_not_added_after_all_is_logged_out() {
    let world = OAuthServers::start(OAuthBehavior::default()).await;
    let home = home();
    let (url, issuer) = (world.url(), world.issuer_place());
    home.configure(&format!("{UNHURRIED}[egress]\nallow = [\"{issuer}\"]\n"));
    // The file cannot be replaced any more once the person has logged in.
    let add = ["mcp", "add", "notes", "--url", &url, "--oauth", "--yes"];
    let mut child = home.command(&add).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let page = within("the login page", async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if line.trim_start().starts_with("http") {
                return line.trim().to_owned();
            }
        }
    })
    .await;
    home.configure("this is no configuration");
    TestUser::default().show(&page).await.unwrap();
    while lines.next_line().await.unwrap().is_some() {}
    assert!(!within("the end", child.wait()).await.unwrap().success());
    assert_eq!(world.asked("as", "/revoke").len(), 2);
    configure(&home, &world);
    let ran = home.run(&["mcp", "logout", "notes"]).await;
    assert_eq!(ran.stdout, "Not logged in to `notes`.\n");
}

/// What is kept of a login goes also where the configuration does not speak of it any more.
#[tokio::test]
async fn a_login_that_is_not_configured_any_more_can_be_ended() {
    let world = OAuthServers::start(OAuthBehavior::default()).await;
    let (url, issuer) = (world.url(), world.issuer_place());
    let egress = format!("{UNHURRIED}[egress]\nallow = [\"{issuer}\"]\n");
    let without = format!("{egress}[mcp.notes]\nurl = \"{url}\"\n");
    let program = format!("{egress}[mcp.notes]\ncommand = \"true\"\n");
    let revoked = "Logged out of `notes` and revoked its tokens.";
    let not_revoked = "Its tokens may still be valid: their server is no longer configured";
    for (config, word, said) in [
        (&without, "logout", revoked),
        (&without, "remove", revoked),
        (&program, "logout", not_revoked),
        (&program, "remove", not_revoked),
        (&egress, "logout", not_revoked),
    ] {
        let home = home();
        configure(&home, &world);
        log_in(&home).await;
        home.configure(config);
        let ran = home.run(&["mcp", word, "notes"]).await;
        assert!(ran.code == 0 && ran.stdout.contains(said), "{config} {word}: {ran:?}");
        configure(&home, &world);
        let ran = home.run(&["mcp", "logout", "notes"]).await;
        assert_eq!(ran.stdout, "Not logged in to `notes`.\n");
    }
}

#[tokio::test]
async fn the_end_of_a_login_is_told_to_who_made_its_tokens() {
    let unable = json!({ "revocation_endpoint": null });
    for (about, answers, said) in [
        (json!({}), 200, "Logged out of `notes` and revoked its tokens."),
        (unable, 200, "does not support revocation: the tokens stay valid until they expire."),
        (json!({}), 503, "Its tokens may still be valid: the token endpoint cannot be reached"),
    ] {
        let offers = about.as_object().is_some_and(serde_json::Map::is_empty);
        let world =
            OAuthServers::start(OAuthBehavior { about, revoke_answers: answers, ..OAuthBehavior::default() })
                .await;
        let home = home();
        configure(&home, &world);
        log_in(&home).await;
        let out = home.run(&["mcp", "logout", "notes"]).await;
        assert!(out.code == 0 && out.stdout.contains(said), "{out:?}");
        let revoked = world.asked("as", "/revoke");
        let kinds: Vec<&str> = revoked.iter().map(|asked| asked.parts["token_type_hint"].as_str()).collect();
        let expected: &[&str] = match (offers, answers) {
            (true, 200) => &["refresh_token", "access_token"],
            (true, _) => &["refresh_token"],
            (false, _) => &[],
        };
        assert_eq!(kinds, expected);
        // Forgotten here, whatever became of it there.
        let again = home.run(&["mcp", "logout", "notes"]).await;
        assert_eq!(again.stdout, "Not logged in to `notes`.\n");
    }
}

#[tokio::test]
async fn the_first_request_of_a_login_carries_what_every_request_does() {
    let world = OAuthServers::start(OAuthBehavior::default()).await;
    let home = home();
    configure(&home, &world);
    log_in(&home).await;
    assert_eq!(world.asked("mcp", "/mcp")[0].tenant.as_deref(), Some("blue"));
    // It is for the server, and for nobody that the server names.
    assert!(world.asked("as", "").iter().all(|asked| asked.tenant.is_none()));
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_for_servers_and_for_their_logins() {
    let server = MisbehavingServer::open_tls(|seen| match (seen.method.as_str(), seen.path.as_str()) {
        // What says that it is for somebody else ends a login, and shows that it was read.
        ("GET", path) if path.contains("oauth-protected-resource") => {
            let document = json!({ "resource": "https://other.example.com/", "authorization_servers": ["https://other.example.com"] });
            MisbehavingReply::Answer(answer(200, &[("Content-Type", "application/json")], &document.to_string()))
        }
        _ if seen.header("x-login").is_some() => MisbehavingReply::Answer(answer(401, &[], "")),
        _ => seen.usual(),
    })
    .await
    .unwrap();
    let url = server.url().replace("http://", "https://");
    let pem = base64::engine::general_purpose::STANDARD.encode(authority());
    let pem = format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n");
    for trusted in [true, false] {
        let home = home();
        std::fs::write(home.path().join("ca.pem"), &pem).unwrap();
        let egress = if trusted { "[egress]\nca_file = \"ca.pem\"\n" } else { "" };
        home.configure(&format!(
            "{UNHURRIED}{egress}[mcp.open]\nurl = \"{url}\"\ntrust = \"always\"\n\
             [mcp.shut]\nurl = \"{url}\"\noauth = true\nheaders = {{ X-Login = \"1\" }}\n"
        ));
        let ran = home.run(&["mcp", "test", "open"]).await;
        assert_eq!(ran.code == 0, trusted, "{ran:?}");
        assert_eq!(ran.stderr.contains("certificate"), !trusted, "{ran:?}");
        let ran = home.run(&["mcp", "auth", "shut"]).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        assert_eq!(ran.stderr.contains("https://other.example.com/"), trusted, "{ran:?}");
        assert_eq!(ran.stderr.contains("failed TLS certificate verification"), !trusted, "{ran:?}");
    }
}

#[tokio::test]
async fn slips_are_told() {
    let home = home();
    let said = async |args: &[&str]| {
        let ran = home.run(args).await;
        (ran.code, ran.stderr.trim().to_owned())
    };
    let none = said(&["mcp", "auth", "notes"]).await;
    assert_eq!(none, (2, "error: no such server: `notes`; list them with `portcullis mcp list`".to_owned()));
    home.configure("[mcp.notes]\nurl = \"https://notes.example.com/mcp\"\n");
    let (code, told) = said(&["mcp", "auth", "notes"]).await;
    assert!(code == 2 && told.contains("add `oauth = true`"), "{told}");
    home.configure("[mcp.notes]\ncommand = \"true\"\n");
    let (code, told) = said(&["mcp", "auth", "notes"]).await;
    assert!(code == 2 && told.contains("is a local command and needs no login"), "{told}");
    let (code, told) = said(&["mcp", "logout", "other"]).await;
    assert!(code == 2 && told.contains("no such server: `other`"), "{told}");
}

/// A server that is taken out takes its login along: nobody could end it any more.
#[tokio::test]
async fn a_server_that_is_removed_is_logged_out() {
    let world = OAuthServers::start(OAuthBehavior::default()).await;
    let home = home();
    configure(&home, &world);
    log_in(&home).await;
    let ran = home.run(&["mcp", "remove", "notes"]).await;
    assert!(ran.code == 0 && ran.stdout.contains("Logged out of `notes` and revoked its tokens."), "{ran:?}");
    assert_eq!(world.asked("as", "/revoke").len(), 2);
    configure(&home, &world);
    let ran = home.run(&["mcp", "logout", "notes"]).await;
    assert_eq!(ran.stdout, "Not logged in to `notes`.\n");
    let ran = home.run(&["mcp", "remove", "notes", "--json"]).await;
    let expected = json!({ "logged_out": false, "revoked": false, "not_revoked": null });
    assert_eq!(ran.json()["login"], expected);
}
