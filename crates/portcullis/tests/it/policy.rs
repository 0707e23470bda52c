//! The rules, as a person asks about them, and as the time changes them.

use crate::support::{home, names, stdio};
use jiff::{SignedDuration, Timestamp};
use portcullis_core::{Clock, SystemClock};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{TestHome, UNHURRIED, run};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

const RULES: &str = r#"
[time]
timezone = "Europe/Vienna"

[[policy]]
tools = ["memory_*"]
clients = ["ci-*"]
decision = "deny"

[[policy]]
tools = ["workspace_write"]
hours = "22:00-06:00"
days = ["fri-sat"]
decision = "deny"

[[policy]]
tools = ["workspace_write"]
origins = ["schedule"]
decision = "ask"

[[policy]]
clients = ["local"]
until = "2999-01-01T00:00:00Z"
decision = "allow"
"#;

fn with_rules() -> TestHome {
    let home = home();
    home.configure(RULES);
    home
}

/// Asks, and returns the exit code, the decision, the rule and its place.
async fn tested(home: &TestHome, args: &[&str]) -> (i32, String) {
    let ran = home.run(&[&["policy", "test", "--json"], args].concat()).await;
    let said = ran.json();
    let text = |key: &str| said[key].as_str().unwrap_or("-").to_owned();
    (ran.code, format!("{} by {} at {}", text("decision"), text("rule"), text("place")))
}

#[tokio::test]
async fn a_decision_is_explained() {
    let home = with_rules();
    home.add_client("ci-1", &["--effects", "read", "--expires", "1d"]).await;
    home.add_client("laptop", &[]).await;
    for (args, code, expected) in [
        (&["ci-1", "memory_read"][..], 4, "deny by policy[0] at portcullis.toml:5"),
        (&["laptop", "memory_read"], 0, "allow by default:read at -"),
        (&["laptop", "memory_write"], 0, "allow by default:local-write at -"),
        (&["ci-1", "workspace_write"], 4, "deny by scope at -"),
        (
            &["laptop", "workspace_write", "--at", "2026-11-14T05:59"],
            4,
            "deny by policy[1] at portcullis.toml:10",
        ),
        (&["laptop", "workspace_write", "--at", "2026-11-14T06:00"], 0, "allow by default:local-write at -"),
        (
            &["laptop", "workspace_write", "--at", "2026-11-13T21:00:00Z"],
            4,
            "deny by policy[1] at portcullis.toml:10",
        ),
        (&["laptop", "workspace_write", "--at", "2026-11-16T01:00"], 0, "allow by default:local-write at -"),
        (
            &["laptop", "workspace_write", "--origin", "schedule", "--at", "2026-11-16T01:00"],
            3,
            "ask by policy[2] at portcullis.toml:16",
        ),
        (
            &["local", "memory_write", "--at", "2998-12-31T23:59:59Z"],
            0,
            "allow by policy[3] at portcullis.toml:21",
        ),
        (&["local", "memory_write", "--at", "2999-01-01T00:00:00Z"], 0, "allow by default:local-write at -"),
        (&["laptop", "no_such"], 4, "deny by unknown at -"),
        (&["nobody", "memory_read"], 4, "deny by identity at -"),
        (&["ci-1", "workspace_read", "--at", "2050-01-01T00:00"], 4, "deny by identity at -"),
    ] {
        assert_eq!(tested(&home, args).await, (code, expected.to_owned()), "{args:?}");
    }
    for args in [
        &["policy", "test", "local"][..],
        &["policy", "test", "local", "x", "--origin", "moon"],
        &["policy", "test", "local", "x", "--at", "soon"],
        &["policy", "test", "local", "memory_read", "{"],
    ] {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn an_explanation_reads_well() {
    let home = with_rules();
    let at = ["--at", "2026-11-16T01:00"];
    let told = async |args: &[&str]| home.run(&[&["policy", "test"], args, &at].concat()).await.stdout;
    insta::assert_snapshot!(told(&["local", "workspace_write", r#"{"path": "a"}"#, "--origin", "schedule"]).await, @"
    client     `local`, the stdio client; may read, create, write, destroy *
    tool       `workspace_write`: write, local; its schema is unknown
    call       origin schedule, on Mon 2026-11-16 01:00:00 +01:00 (Europe/Vienna)
    scope      allows it
    policy[0]  no match: `tools` is memory_* [deny, portcullis.toml:5]
    policy[1]  no match: `days` is fri,sat [deny, portcullis.toml:10]
    policy[2]  MATCHES [ask, portcullis.toml:16]
    policy[3]  not evaluated [allow, portcullis.toml:21]
    arguments  invalid arguments: `content` is missing
    decision   ask, by policy[2] at portcullis.toml:16
    next       the call is refused for its arguments, before approval
    ");
    insta::assert_snapshot!(told(&["nobody", "workspace_wrote"]).await, @"
    client    `nobody`: no such client; list them with `portcullis clients list`
    tool      `workspace_wrote`: no such tool; did you mean workspace_write?
    call      origin client, on Mon 2026-11-16 01:00:00 +01:00 (Europe/Vienna)
    decision  deny, by identity
    next      its requests are refused with 401
    ");
    // Whatever day it is.
    home.configure(&RULES.replace("[\"fri-sat\"]", "[\"fri-sat\"]\nuntil = 2020-01-01T00:00:00Z"));
    insta::assert_snapshot!(home.run(&["policy"]).await.stdout, @"
    RULE       SOURCE              DECISION  TOOLS            CLIENTS  CONDITIONS                                        NOW
    policy[0]  portcullis.toml:5   deny      memory_*         ci-*     -                                                 active
    policy[1]  portcullis.toml:10  deny      workspace_write  *        fri,sat; 22:00-06:00; until 2020-01-01T00:00:00Z  inactive
    policy[2]  portcullis.toml:17  ask       workspace_write  *        schedule                                          active
    policy[3]  portcullis.toml:22  allow     *                local    until 2999-01-01T00:00:00Z                        active

    Hours and days are in Europe/Vienna.

    DEFAULT              DECISION  APPLIES TO
    default:read         allow     read local, read outside
    default:local-write  allow     create local, write local
    default:outside      ask       create outside, write outside
    default:destroy      ask       destroy local, destroy outside

    Defaults apply if no rule matches. Upstream tools use `mcp.NAME.decision` instead, or the policy chosen in the server's review: with ask-changes, reads are allowed and other calls ask.
    Calls outside a client's scope and unknown tools are denied before any rule.
    ");
    let piped =
        run(home.command(&["policy", "test", "local", "memory_read", "-", "--json"]), "{\"days\": 1}").await;
    assert_eq!((piped.code, &piped.json()["arguments"]["fit"]), (0, &json!(false)), "{piped:?}");
    let listed = home.run(&["policy", "list", "--json"]).await.json();
    assert_eq!(listed["rules"][1]["hours"], "22:00-06:00");
    assert_eq!(listed["defaults"].as_array().unwrap().len(), 4);
    home.configure(UNHURRIED);
    assert!(home.run(&["policy"]).await.stdout.starts_with("No rules yet."));
}

#[tokio::test]
async fn rules_are_edited_recorded_and_followed() {
    let home = home();
    let decided = async |tool: &str| home.run(&["policy", "test", "local", tool]).await.code;
    let rules = async || {
        let listed = home.run(&["policy", "--json"]).await.json();
        let rules = listed["rules"].as_array().unwrap().iter();
        rules.map(|rule| format!("{} {}", rule["decision"], rule["tools"])).collect::<Vec<_>>()
    };
    let added = home.run(&["policy", "add", "deny", "--tool", "memory_*", "--effect", "write,create"]).await;
    assert_eq!(added.code, 0, "{added:?}");
    assert!(added.stdout.starts_with("Added this rule; "), "{}", added.stdout);
    assert_eq!((decided("memory_write").await, decided("memory_read").await), (4, 0));
    let first = ["policy", "add", "ask", "--tool", "memory_write", "--before", "policy[0]", "--json"];
    assert_eq!(home.run(&first).await.json()["rules"][0]["decision"], "ask");
    assert_eq!(decided("memory_write").await, 3);
    assert_eq!(home.run(&["policy", "move", "0", "1"]).await.code, 0);
    assert_eq!(rules().await, [r#""deny" ["memory_*"]"#, r#""ask" ["memory_write"]"#]);
    assert_eq!(decided("memory_write").await, 4);
    let removed = home.run(&["policy", "remove", "0"]).await;
    assert!(
        removed.stdout.starts_with("Removed this rule:\n") && removed.stdout.contains("memory_*"),
        "{removed:?}"
    );
    assert_eq!(rules().await, [r#""ask" ["memory_write"]"#]);
    // What is wrong changes nothing.
    let file = home.path().join("portcullis.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    for (args, code, said) in [
        (&["policy", "add", "perhaps"][..], 2, "allow, ask, deny"),
        (&["policy", "add", "ask", "--hours", "9"], 2, "`policy[0].hours` is \"9\""),
        (&["policy", "add", "ask", "--before", "7"], 1, "no such rule: there are 1, numbered from 0"),
        (&["policy", "remove", "1"], 1, "no such rule"),
        (&["policy", "remove", "first"], 2, "expected the number of a rule"),
        (&["policy", "move", "0", "1"], 1, "no such rule"),
    ] {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), before);
    // The hub takes the records of commands into its log.
    let hub = home.serve().await;
    let recorded = until("the changes are in the audit log", async || {
        let found = home.run(&["audit", "search", "--json"]).await.stdout;
        ["policy.add", "policy.move", "policy.remove"]
            .iter()
            .all(|name| found.contains(name))
            .then_some(found)
    })
    .await;
    assert!(recorded.contains("memory_*"), "{recorded}");
    drop(hub);
}

/// What is explained is what happens: the same question to the command and to the hub.
#[tokio::test]
async fn the_hub_does_what_is_explained() {
    let home = with_rules();
    home.configure(&format!(
        "{UNHURRIED}{RULES}\n[[policy]]\ntools = [\"workspace_list\"]\ndecision = \"ask\"\n"
    ));
    let hub = home.serve().await;
    for (name, options) in [("ci-1", &[][..]), ("reader", &["--effects", "read"]), ("wide", &[])] {
        let token = home.add_client(name, options).await;
        let mut client = McpClient::http(hub.address, &token, "2025-11-25").await;
        client.initialize(json!({})).await;
        let listed = client.result("tools/list", json!({})).await;
        for tool in ["workspace_read", "workspace_list", "memory_read", "memory_write", "no_such"] {
            let (code, _) = tested(&home, &[name, tool]).await;
            assert_eq!(names(&listed["tools"]).contains(&tool), code != 4, "{name} {tool} {code}");
        }
    }
}

async fn tools(client: &mut McpClient) -> usize {
    let listed = client.result("tools/list", json!({})).await;
    listed["tools"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn a_session_hears_when_a_rule_ends() {
    let home = home();
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    assert_eq!(tools(&mut client).await, 10);
    // Long enough for the hub to see the file, on the busiest machine.
    let end = Timestamp::try_from(SystemClock.now()).unwrap() + SignedDuration::from_secs(5);
    let rule = format!("[[policy]]\ntools = [\"memory_*\"]\nuntil = {end}\ndecision = \"deny\"\n");
    home.configure(&format!("{UNHURRIED}{rule}"));
    let heard: Value = client.told("notifications/tools/list_changed").await;
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert_eq!(tools(&mut client).await, 8, "the rule holds");
    client.told("notifications/tools/list_changed").await;
    assert_eq!(tools(&mut client).await, 10, "the rule has ended");
}
