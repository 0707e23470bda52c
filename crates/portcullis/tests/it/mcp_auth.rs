//! A login from the command line reaches the hub that runs, and stays a secret.

use crate::support::{home, http, names, text};
use portcullis_testkit::mcp_client::{McpClient, NEWEST};
use portcullis_testkit::oauth::{Conduct, OAuthWorld, Person};
use portcullis_testkit::process::{Home, UNHURRIED};
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::Consent;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

fn configure(home: &Home, world: &OAuthWorld) {
    let (url, issuer) = (world.url(), world.issuer_place());
    home.configure(&format!(
        "{UNHURRIED}[egress]\nallow = [\"{issuer}\"]\n[mcp.notes]\nurl = \"{url}\"\noauth = true\ntrust = \"always\"\n"
    ));
}

/// Runs `mcp auth notes` as a person would: reads the page from the terminal, and goes there.
async fn log_in(home: &Home) -> String {
    let mut child = home.command(&["mcp", "auth", "notes"]).spawn().unwrap();
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
    Person::default().show(&page).await.unwrap();
    let status = within("the end of the login", child.wait()).await.unwrap();
    while let Some(line) = lines.next_line().await.unwrap() {
        said.push_str(&line);
        said.push('\n');
    }
    assert!(status.success(), "{said}");
    said
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
    let world = OAuthWorld::start(Conduct::default()).await;
    let home = home();
    configure(&home, &world);
    let hub = home.serve().await;
    let mut client = http(&hub, NEWEST).await;
    assert!(!has_tool(&mut client).await);

    let said = log_in(&home).await;
    assert!(said.contains(&format!("Logged in to `notes` by {}", world.issuer())), "{said}");
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
    assert_eq!(out.json(), json!({ "server": "notes", "logged_out": true }));
    until("the login is gone", async || {
        let answer = open(&mut client).await;
        answer["isError"].as_bool().filter(|failed| *failed).map(|_| answer)
    })
    .await;
    let told = open(&mut client).await;
    assert!(text(&told).contains("portcullis mcp auth notes"), "{told}");
}

#[tokio::test]
async fn slips_are_told() {
    let home = home();
    let said = async |args: &[&str]| {
        let ran = home.run(args).await;
        (ran.code, ran.stderr.trim().to_owned())
    };
    let none = said(&["mcp", "auth", "notes"]).await;
    assert_eq!(none, (2, "error: no server is named `notes`; none is configured".to_owned()));
    home.configure("[mcp.notes]\nurl = \"https://notes.example.com/mcp\"\n");
    let (code, told) = said(&["mcp", "auth", "notes"]).await;
    assert!(code == 2 && told.contains("add `oauth = true`"), "{told}");
    let (code, told) = said(&["mcp", "logout", "other"]).await;
    assert!(code == 2 && told.contains("expected `notes`"), "{told}");
}
