//! What reaches outside: each family where it is configured, and what it lacks told by `doctor`.

use crate::support::{home, http, names, stdio, text};
use portcullis_testkit::fake_github::{FakeGithub, TOKEN};
use portcullis_testkit::process::{CommandOutput, TestHome, UNHURRIED, run};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;

/// Answers every request with the same, and returns where.
fn site(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut visitor in listener.incoming().flatten() {
            let _ = visitor.read(&mut [0; 8192]).and_then(|_| visitor.write_all(answer.as_bytes()));
        }
    });
    address.to_string()
}

async fn set_secret(home: &TestHome, name: &str, value: &str, more: &[&str]) {
    let args = [&["secrets", "set", name], more].concat();
    let ran = run(home.command(&args), value).await;
    assert_eq!(ran.code, 0, "{ran:?}");
}

async fn tools(home: &TestHome) -> serde_json::Value {
    stdio(home, "2026-07-28").result("tools/list", json!({})).await["tools"].clone()
}

/// Returns the lines of `doctor` about what reaches outside.
fn about(ran: &CommandOutput) -> String {
    let words = ["egress", "web", "calendars", "github"];
    let mut lines = Vec::new();
    let mut is_about = false;
    for line in ran.stdout.lines() {
        let what = line.split_whitespace().nth(1).unwrap_or_default();
        // What to do stands on a line of its own.
        is_about = if line.starts_with(' ') { is_about } else { words.contains(&what) };
        lines.extend(is_about.then_some(line));
    }
    lines.join("\n")
}

#[tokio::test]
async fn a_family_exists_where_it_is_configured_and_doctor_says_what_it_lacks() {
    let home = home();
    let listed = tools(&home).await;
    assert!(
        !names(&listed).iter().any(|name| name.starts_with("github") || name.starts_with("calendar")),
        "{listed}"
    );
    insta::assert_snapshot!(about(&home.run(&["doctor"]).await), @"
    ok       web        off; `[web]` in the configuration enables web_fetch on
    ok       calendars  off; `[[calendars]]` with a name and a url or file enables calendar_read
    ok       github     off; `[github]` in the configuration enables the github_* tools on
    ");
    let calendars = "[[calendars]]\nname = \"Home\"\nfile = \"home.ics\"\n[[calendars]]\nname = \"Work\"\nurl = \"secret:WORK\"\n\
                     [[calendars]]\nname = \"Open\"\nurl = \"https://example.com/private-link.ics\"\n";
    home.configure(&format!("{UNHURRIED}[web]\n[github]\n[egress]\nca_file = \"none.pem\"\n{calendars}"));
    let told = home.run(&["doctor"]).await;
    assert_eq!(told.code, 1);
    assert!(!told.stdout.contains("private-link"), "{}", told.stdout);
    let shown = about(&told).replace(&home.path().display().to_string(), "HOME");
    insta::assert_snapshot!(shown, @"
    PROBLEM  egress     `egress.ca_file` is `HOME/none.pem`: the file cannot be read: No such file or directory (os error 2)
                        fix `egress.ca_file`; the hub does not start without it
    ok       web        on, public addresses only
    PROBLEM  calendars  Home: HOME/home.ics: No such file or directory (os error 2)
                        create the file, or fix `file` of the calendar
    PROBLEM  calendars  Work: no secret is named `WORK`; `portcullis secrets list` shows which exist
                        set the URL with `portcullis secrets set WORK`
    warning  calendars  Open: its URL is in plain text; store it with `portcullis secrets set NAME` and refer to it as `secret:NAME`
    PROBLEM  github     no token: no secret is named `GITHUB_TOKEN`; `portcullis secrets list` shows which exist
                        create a GitHub token that can read and write issues, then run `portcullis secrets set GITHUB_TOKEN --grant api.github.com`
    ");
    home.configure(&format!("{UNHURRIED}[web]\n[github]\n{calendars}"));
    std::fs::write(home.path().join("home.ics"), "BEGIN:VCALENDAR\nEND:VCALENDAR\n").unwrap();
    set_secret(&home, "WORK", "https://example.com/private-link.ics", &[]).await;
    set_secret(&home, "GITHUB_TOKEN", TOKEN, &["--grant", "uploads.github.com"]).await;
    let shown = about(&home.run(&["doctor"]).await).replace(&home.path().display().to_string(), "HOME");
    insta::assert_snapshot!(shown, @"
    ok       web        on, public addresses only
    ok       calendars  Home: HOME/home.ics
    ok       calendars  Work: URL in secret:WORK
    warning  calendars  Open: its URL is in plain text; store it with `portcullis secrets set NAME` and refer to it as `secret:NAME`
    PROBLEM  github     secret `GITHUB_TOKEN` is not granted for api.github.com
                        run `portcullis secrets grant GITHUB_TOKEN api.github.com`
    ");
    let listed = tools(&home).await;
    assert!(
        names(&listed).ends_with(&[
            "web_fetch",
            "calendar_read",
            "github_list_issues",
            "github_create_issue",
            "script_list",
            "script_run",
            "script_exec",
            "script_reload",
            "script_propose"
        ]),
        "{listed}"
    );
}

#[tokio::test]
async fn creating_an_issue_asks_a_person_and_listing_does_not() {
    let github = FakeGithub::open();
    let home = home();
    home.configure(&format!(
        "{UNHURRIED}[approvals]\nwait_secs = 0\n[github]\nbase_url = \"{}\"\n[egress]\nallow = [\"{}\"]\n",
        github.base_url(),
        github.address
    ));
    set_secret(&home, "GITHUB_TOKEN", TOKEN, &["--grant", "127.0.0.1"]).await;
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-06-18").await;
    let at = json!({ "owner": "octocat", "repo": "hello-world" });
    let listed = client.call("github_list_issues", at).await;
    assert_eq!((&listed["isError"], github.asked().len()), (&json!(false), 1), "{listed}");
    let issue = json!({ "owner": "octocat", "repo": "hello-world", "title": "A title" });
    let told = client.call("github_create_issue", issue.clone()).await;
    assert!(text(&told).contains("is pending approval by a person"), "{told}");
    assert_eq!(github.asked().len(), 1, "nothing was sent");
    let pending = home.run(&["approvals", "--json"]).await.json();
    let approved = home.run(&["approvals", "approve", pending[0]["id"].as_str().unwrap()]).await;
    assert_eq!(approved.code, 0, "{approved:?}");
    let created = client.call("github_create_issue", issue).await;
    assert_eq!(created["structuredContent"]["number"], 251, "{created}");
    // Neither the answers nor the log nor the records hold the token.
    assert!(!format!("{listed}{told}{created}{}", hub.process.stderr()).contains(TOKEN));
}

#[tokio::test]
async fn the_link_of_a_calendar_shows_nowhere() {
    let place = site("HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n");
    let home = home();
    home.configure(&format!(
        "{UNHURRIED}[logging]\nlevel = \"trace\"\n[egress]\nallow = [\"{place}\"]\n\
         [[calendars]]\nname = \"Gone\"\nurl = \"secret:FEED\"\n[[calendars]]\nname = \"Also\"\nurl = \"http://{place}/private-two/x.ics\"\n\
         [[calendars]]\nname = \"Unknown\"\nurl = \"https://private-three.invalid/x.ics\"\n"
    ));
    set_secret(&home, "FEED", &format!("http://{place}/private-one/basic.ics"), &[]).await;
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-06-18").await;
    let told = client.call("calendar_read", json!({})).await;
    let problems = told["structuredContent"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 3, "{told}");
    assert_eq!(problems[0]["problem"], "calendar `Gone` answered 404 Not Found");
    let doctor = home.run(&["doctor"]).await;
    let audit = home.run(&["audit", "search", "--json"]).await;
    assert!(audit.stdout.contains("calendar_read"), "{audit:?}");
    let all = format!("{told}{}{}{}{}", hub.process.stderr(), doctor.stdout, audit.stdout, audit.stderr);
    for part in ["private-one", "private-two", "private-three"] {
        assert!(!all.contains(part), "{part}: {all}");
    }
}

#[tokio::test]
async fn a_site_that_wants_fewer_requests_is_told_in_the_result() {
    let place = site("HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\nconnection: close\r\n\r\n");
    let home = home();
    home.configure(&format!("{UNHURRIED}[web]\n[egress]\nallow = [\"{place}\"]\n"));
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-06-18").await;
    let told = client.call("web_fetch", json!({ "url": format!("http://{place}/") })).await;
    // Not as the hub's own limit, which is an error of the protocol: the model reads this.
    assert_eq!(told["isError"], true);
    assert_eq!(
        told["structuredContent"],
        json!({
            "code": "rate_limited",
            "message": "`127.0.0.1` answered 429 Too Many Requests",
            "suggestions": ["wait 30 s before you ask it again"],
            "retry_after_ms": 30_000,
        })
    );
}
