//! Authorization matrix: every role at every route and tool.

use crate::support::{home, names, request};
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::path::Path;

/// What a client may do.
#[derive(Debug, Clone, Copy)]
enum RoleAccess {
    /// Not even come in.
    Nothing,
    Only(&'static [&'static str]),
    Everything,
}

struct Role {
    name: &'static str,
    token: Option<String>,
    may: RoleAccess,
}

/// Every tool, and arguments that it takes. `ROLE` is the name of whoever calls.
const TOOLS: [(&str, &str); 10] = [
    ("workspace_read", r#"{"path": "a.md"}"#),
    ("workspace_write", r#"{"path": "ROLE.md", "content": "x"}"#),
    ("workspace_list", "{}"),
    ("memory_read", "{}"),
    ("memory_write", r#"{"file": "memory/ROLE.md", "content": "x"}"#),
    ("script_list", "{}"),
    ("script_run", r#"{"name": "x"}"#),
    ("script_exec", r#"{"code": "1"}"#),
    ("script_reload", "{}"),
    ("script_propose", r#"{"name": "ROLE", "code": "1"}"#),
];

/// Every route: what a client that was let in gets there, and one that may do everything.
const ROUTES: [(&str, &str, u16, u16); 9] = [
    ("POST", "/mcp", 200, 200),
    ("GET", "/mcp", 400, 400),
    ("DELETE", "/mcp", 400, 400),
    ("GET", "/sse", 200, 200),
    ("POST", "/messages", 404, 404),
    ("GET", "/metrics", 403, 200),
    ("GET", "/nothing", 404, 404),
    ("GET", "/healthz", 200, 200),
    ("GET", "/readyz", 200, 200),
];
/// Those that everyone may look at.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// A home in which wrong tokens are not slowed down: what is asked here is who is let in.
fn patient_home() -> TestHome {
    let home = home();
    home.configure(&format!("{UNHURRIED}[limits]\ntoken_failures_max = 1000\n"));
    home
}

async fn roles(home: &TestHome, hub: &HubProcess) -> Vec<Role> {
    let role = |name, token: &str, may| Role { name, token: Some(token.to_owned()), may };
    let reader = home.add_client("reader", &["--effects", "read"]).await;
    let writer = home.add_client("writer", &["--effects", "read,create,write"]).await;
    let narrow = home.add_client("narrow", &["--allow", "memory_*"]).await;
    let revoked = home.add_client("revoked", &[]).await;
    let expired = home.add_client("expired", &["--expires", "1s"]).await;
    assert_eq!(home.run(&["clients", "revoke", "revoked"]).await.code, 0);
    let list = RawHttpRequest::post("/mcp", request(1, "tools/list", json!({})).to_string()).token(&expired);
    until("the token expires", async || (list.send(hub.address).await.status() == 401).then_some(())).await;
    vec![
        Role { name: "none", token: None, may: RoleAccess::Nothing },
        role("stranger", &format!("pcl_{}", "A".repeat(hub.token.len() - 4)), RoleAccess::Nothing),
        role("expired", &expired, RoleAccess::Nothing),
        role("revoked", &revoked, RoleAccess::Nothing),
        role(
            "reader",
            &reader,
            RoleAccess::Only(&[
                "workspace_read",
                "workspace_list",
                "memory_read",
                "script_list",
                "script_exec",
                "script_reload",
            ]),
        ),
        // Only `script_run` could destroy.
        role(
            "writer",
            &writer,
            RoleAccess::Only(&[
                "workspace_read",
                "workspace_write",
                "workspace_list",
                "memory_read",
                "memory_write",
                "script_list",
                "script_exec",
                "script_reload",
                "script_propose",
            ]),
        ),
        role("narrow", &narrow, RoleAccess::Only(&["memory_read", "memory_write"])),
        role("admin", &hub.token, RoleAccess::Everything),
    ]
}

impl Role {
    fn may_call(&self, tool: &str) -> bool {
        match self.may {
            RoleAccess::Nothing => false,
            RoleAccess::Only(tools) => tools.contains(&tool),
            RoleAccess::Everything => true,
        }
    }

    fn with_token(&self, request: RawHttpRequest) -> RawHttpRequest {
        self.token.iter().fold(request, |request, token| request.token(token))
    }

    async fn post(&self, hub: &HubProcess, method: &str, params: Value) -> (u16, Value) {
        let body = request(1, method, params).to_string();
        let reply = self.with_token(RawHttpRequest::post("/mcp", body)).send(hub.address).await;
        let status = reply.status();
        (status, if status == 200 { reply.json() } else { Value::Null })
    }
}

/// Returns everything that is not as it should be.
async fn differences(home: &TestHome, hub: &HubProcess, roles: &[Role]) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |role: &Role, what: &str, got: String, expected: String| {
        if got != expected {
            found.push(format!("{} {what}: {got}, expected {expected}", role.name));
        }
    };
    for role in roles {
        for (method, path, let_in, everything) in ROUTES {
            let expected = match role.may {
                RoleAccess::Nothing if !OPEN.contains(&path) => 401,
                RoleAccess::Nothing | RoleAccess::Only(_) => let_in,
                RoleAccess::Everything => everything,
            };
            let asked = match method {
                "POST" => RawHttpRequest::post(path, request(1, "tools/list", json!({})).to_string()),
                method => RawHttpRequest::new(method, path),
            };
            let mut connection = RawHttpConnection::open(hub.address).await;
            connection.send(&role.with_token(asked).bytes(hub.address)).await.unwrap();
            // The head only: some answers are streams.
            let status = connection.head().await.unwrap().status;
            note(role, &format!("{method} {path}"), status.to_string(), expected.to_string());
        }
        let allowed: Vec<&str> =
            TOOLS.into_iter().map(|(tool, _)| tool).filter(|tool| role.may_call(tool)).collect();
        let (status, listed) = role.post(hub, "tools/list", json!({})).await;
        let listed = if status == 200 { names(&listed["result"]["tools"]) } else { Vec::new() };
        note(role, "tools/list", format!("{listed:?}"), format!("{allowed:?}"));
        for (tool, arguments) in TOOLS {
            let arguments: Value = serde_json::from_str(&arguments.replace("ROLE", role.name)).unwrap();
            let (status, answer) =
                role.post(hub, "tools/call", json!({ "name": tool, "arguments": arguments })).await;
            let got = match (status, &answer["error"]["message"]) {
                (200, Value::Null) if answer["result"]["isError"] == true => "an error".to_owned(),
                (200, Value::Null) => "ran".to_owned(),
                (200, message) => message.as_str().unwrap().to_owned(),
                (status, _) => status.to_string(),
            };
            let expected = match role.may {
                RoleAccess::Nothing => "401".to_owned(),
                _ if role.may_call(tool) => "ran".to_owned(),
                _ => format!("Unknown tool: {tool}"),
            };
            note(role, tool, got, expected);
        }
        for (tool, file) in [("workspace_write", ""), ("memory_write", "memory/")] {
            let file = home.files().join(format!("{file}{}.md", role.name));
            note(
                role,
                &format!("file of {tool}"),
                file.exists().to_string(),
                role.may_call(tool).to_string(),
            );
        }
    }
    found
}

#[tokio::test]
async fn nobody_gets_what_is_not_theirs() {
    let home = patient_home();
    home.write("a.md", "text");
    crate::scripts::approved(&home, "x", "1").await;
    let hub = home.serve().await;
    let mut roles = roles(&home, &hub).await;
    assert_eq!(differences(&home, &hub, &roles).await, [""; 0]);

    // The table is about every tool.
    let admin = roles.pop().unwrap();
    let (_, listed) = admin.post(&hub, "tools/list", json!({})).await;
    assert_eq!(names(&listed["result"]["tools"]), TOOLS.map(|(name, _)| name));

    // A hub that gave everyone the rights of one who may do everything would be noticed, at every role and everywhere.
    for role in &mut roles {
        role.token.clone_from(&admin.token);
    }
    let noticed = differences(&home, &hub, &roles).await;
    let of = |role: &str| noticed.iter().filter(|line| line.starts_with(role)).count();
    for (role, count) in [("none", 20), ("stranger", 20), ("expired", 20), ("revoked", 20)] {
        assert_eq!(of(role), count, "{role}: {noticed:#?}");
    }
    // What the writer proposed as a script is another client's for whoever has its token no more.
    assert_eq!((of("reader"), of("writer"), of("narrow")), (8, 4, 11), "{noticed:#?}");
}

/// A route that the table does not know of fails here.
#[test]
fn the_table_is_about_every_route() {
    let http = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("server/src/http.rs");
    let text = std::fs::read_to_string(http).unwrap();
    let served: Vec<&str> =
        text.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(served.len() >= 6, "{served:?}");
    for path in served {
        assert!(ROUTES.iter().any(|(_, known, ..)| *known == path), "{path}");
    }
}
