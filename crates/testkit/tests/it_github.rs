//! The GitHub tools against a fake of GitHub.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use portcullis_core::{
    Arguments, Call, CallCtx, Caller, Client, Gate, Origin, Output, Registry, Scope, Secret, SystemClock,
    Target, ToolError,
};
use portcullis_egress::{EgressClient, EgressSettings, HostRateLimit, SecretSource, SystemResolver};
use portcullis_store::secrets::SecretError;
use portcullis_testkit::fake_github::{FakeGithub, TOKEN};
use portcullis_tools::{GithubConfig, GithubSettings, github};
use serde_json::{Value, json};
use std::sync::Arc;

/// Holds the token for this machine, in one field.
struct Tokens;

impl SecretSource for Tokens {
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        match (name, host, field) {
            ("GITHUB_TOKEN", "127.0.0.1", "authorization") => Ok(Secret::new(TOKEN.to_owned())),
            ("OLD_TOKEN", ..) => Ok(Secret::new("ghp_expired_000000".to_owned())),
            _ => Err(SecretError::Unknown(name.to_owned())),
        }
    }
}

struct GithubFixture {
    gate: Gate,
}

fn hub(fake: &FakeGithub, change: impl FnOnce(&mut GithubSettings)) -> GithubFixture {
    let settings = EgressSettings {
        exceptions: vec![fake.address.to_string().parse().unwrap()],
        per_host: HostRateLimit { per_minute: 1_000_000, burst: 1_000_000 },
        ..EgressSettings::default()
    };
    let clock = Arc::new(SystemClock);
    let egress =
        EgressClient::new(settings, Arc::new(SystemResolver::default()), Arc::new(Tokens), clock.clone());
    let mut settings = GithubSettings {
        base_url: fake.base_url().parse().unwrap(),
        token: "secret:GITHUB_TOKEN".parse().unwrap(),
        repositories: Vec::new(),
    };
    change(&mut settings);
    let registry = Registry::default();
    let config = GithubConfig { egress: Arc::new(egress.unwrap()), clock, settings };
    registry.add(github::family(config)).unwrap();
    GithubFixture { gate: Gate::new(registry, vec![]) }
}

impl GithubFixture {
    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, ToolError> {
        let client = Arc::new(Client { name: "test".to_owned(), scope: Scope::everything(), token: None });
        let call =
            Call::new(client, Target::Tool(tool.to_owned()), Arguments::of(&arguments), CallCtx::detached());
        match self.gate.call(call).await? {
            Output::Tool(output) => Ok(output.structured.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the error of a call, as one text.
    async fn failure(&self, tool: &str, arguments: Value) -> String {
        let error = self.call(tool, arguments).await.unwrap_err();
        let wait = error.retry_after.map(|wait| match wait.as_secs() {
            // The clock is the machine's.
            1_000_000.. => " (wait until it is reset)".to_owned(),
            seconds => format!(" (wait {seconds} s)"),
        });
        let hints = error.hints.iter().map(|hint| match error.retry_after {
            Some(wait) if wait.as_secs() > 1_000_000 => hint.replace(&wait.as_secs().to_string(), "…"),
            _ => hint.clone(),
        });
        let hints: Vec<String> = hints.map(|hint| format!("\n  {hint}")).collect();
        format!("{}: {}{}{}", error.kind.code(), error.message, wait.unwrap_or_default(), hints.concat())
    }
}

fn at(repository: &str) -> Value {
    json!({ "owner": "octocat", "repo": repository })
}

fn with(repository: &str, more: Value) -> Value {
    let mut arguments = at(repository);
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

#[tokio::test]
async fn issues_are_listed_over_pages_without_pull_requests() {
    let github = FakeGithub::open();
    let hub = hub(&github, |_| {});
    let listed = hub.call("github_list_issues", at("hello-world")).await.unwrap();
    let issues = listed["issues"].as_array().unwrap();
    assert_eq!((issues.len(), &listed["more"], &listed["state"]), (30, &json!(true), &json!("open")));
    assert!(issues.iter().all(|issue| issue["number"].as_u64().unwrap() % 3 != 0), "no pull requests");
    assert_eq!(
        issues[0],
        json!({
            "number": 247, "title": "Entry 247", "state": "open", "labels": ["bug"], "assignees": ["hubot"], "milestone": "v1.0",
            "author": "octocat", "comments": 2, "created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-02-03T04:05:06Z",
            "url": "https://github.com/octocat/hello-world/issues/247",
        })
    );
    // 250 entries, of which 83 are pull requests: all pages.
    let all = hub
        .call("github_list_issues", with("hello-world", json!({ "state": "all", "limit": 500 })))
        .await
        .unwrap();
    assert_eq!((all["issues"].as_array().unwrap().len(), &all["more"]), (167, &json!(false)));
    assert_eq!(github.asked().len(), 1 + 3);
    let exact = hub
        .call("github_list_issues", with("hello-world", json!({ "state": "all", "limit": 167 })))
        .await
        .unwrap();
    assert_eq!((exact["issues"].as_array().unwrap().len(), &exact["more"]), (167, &json!(false)));
    let some = hub
        .call("github_list_issues", with("hello-world", json!({ "state": "all", "limit": 100 })))
        .await
        .unwrap();
    assert_eq!((some["issues"].as_array().unwrap().len(), &some["more"]), (100, &json!(true)));
    let filtered = json!({ "labels": ["bug", "good first issue"], "assignee": "hubot", "milestone": 1, "state": "closed" });
    let none = hub.call("github_list_issues", with("hello-world", filtered)).await.unwrap();
    assert_eq!(none["issues"], json!([]));
    let asked = github.asked().pop().unwrap();
    assert_eq!(
        asked,
        "GET /api/v3/repos/octocat/hello-world/issues?state=closed&per_page=100&labels=bug%2Cgood+first+issue&assignee=hubot&milestone=1"
    );
    // The redirect of a moved repository is followed, a page at another origin is not: the token would go
    // along.
    assert_eq!(
        hub.call("github_list_issues", at("moved")).await.unwrap()["issues"].as_array().unwrap().len(),
        30
    );
    assert_eq!(hub.call("github_list_issues", at("strange-next")).await.unwrap()["more"], false);
    assert_eq!(hub.call("github_list_issues", at("empty")).await.unwrap()["issues"], json!([]));
}

#[tokio::test]
async fn an_issue_is_created_as_it_was_written() {
    let github = FakeGithub::open();
    let hub = hub(&github, |_| {});
    let more = json!({ "title": "A title", "body": "secret:GITHUB_TOKEN", "labels": ["bug", "forbidden"], "assignees": ["hubot"], "milestone": 1 });
    let created = hub.call("github_create_issue", with("hello-world", more)).await.unwrap();
    assert_eq!(
        created,
        json!({ "number": 251, "url": "https://github.com/octocat/hello-world/issues/251", "left_out": ["label `forbidden`"] })
    );
    // A POST to a moved repository arrives, too.
    assert_eq!(
        hub.call("github_create_issue", with("moved", json!({ "title": "x" }))).await.unwrap()["number"],
        251
    );
    assert_eq!(github.asked().len(), 3);
}

#[tokio::test]
async fn each_refusal_says_what_it_is_and_what_to_do() {
    let github = FakeGithub::open();
    let hub = hub(&github, |_| {});
    let mut said = Vec::new();
    for repository in [
        "limited",
        "limited-429",
        "secondary",
        "abuse",
        "forbidden",
        "sso",
        "archived",
        "disabled",
        "blocked",
        "broken",
        "missing",
        "nonsense",
    ] {
        said.push(format!("{repository}: {}", hub.failure("github_list_issues", at(repository)).await));
    }
    for repository in ["forbidden", "broken", "missing", "archived"] {
        let create = with(repository, json!({ "title": "x" }));
        said.push(format!("creating in {repository}: {}", hub.failure("github_create_issue", create).await));
    }
    for more in [json!({ "title": "x", "assignees": ["nobody"] }), json!({ "title": "x", "milestone": 9 })] {
        said.push(hub.failure("github_create_issue", with("hello-world", more)).await);
    }
    insta::assert_snapshot!(said.join("\n"));
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anyone_is_asked() {
    let github = FakeGithub::open();
    let hub =
        hub(&github, |config| config.repositories = vec!["octocat/*".to_owned(), "acme/site".to_owned()]);
    let mut said = Vec::new();
    for arguments in [
        json!({ "owner": "../..", "repo": "x" }),
        json!({ "owner": "octocat", "repo": "a/b" }),
        json!({ "owner": "octocat", "repo": ".." }),
        json!({ "owner": "octocat", "repo": "x?y=z" }),
        json!({ "owner": "acme", "repo": "secret" }),
        with("hello-world", json!({ "limit": 0 })),
        with("hello-world", json!({ "labels": ["a,b"] })),
        with("hello-world", json!({ "labels": [""] })),
        with("hello-world", json!({ "assignee": "@me" })),
    ] {
        said.push(hub.failure("github_list_issues", arguments).await);
    }
    for more in [
        json!({ "title": "  " }),
        json!({ "title": "x".repeat(257) }),
        json!({ "title": "x", "body": "y".repeat(65_537) }),
        json!({ "title": "x", "assignees": vec!["a"; 11] }),
    ] {
        said.push(hub.failure("github_create_issue", with("hello-world", more)).await);
    }
    insta::assert_snapshot!(said.join("\n"));
    assert_eq!(github.asked().len(), 0);
}

#[tokio::test]
async fn without_a_good_token_the_user_is_told_which() {
    let github = FakeGithub::open();
    let old = hub(&github, |config| config.token = "secret:OLD_TOKEN".parse().unwrap());
    let missing = hub(&github, |config| config.token = "secret:NO_TOKEN".parse().unwrap());
    let said = [
        old.failure("github_list_issues", at("hello-world")).await,
        missing.failure("github_list_issues", at("hello-world")).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    denied: GitHub does not accept the token
      tell the user: it may have expired; a new one is set with `portcullis secrets set OLD_TOKEN`
    denied: no secret is named `NO_TOKEN`; `portcullis secrets list` shows which exist
      an administrator can allow a host for the secret with `portcullis secrets grant`
    ");
}

#[tokio::test]
async fn without_a_token_no_tool_is_ready() {
    let fake = FakeGithub::open();
    let tools = |of: &GithubFixture| of.gate.tools(&caller()).unwrap();
    let ready = hub(&fake, |_| {});
    let unready = hub(&fake, |settings| settings.token = "secret:NONE_SUCH".parse().unwrap());
    for (with, without) in tools(&ready).iter().zip(tools(&unready)) {
        assert!((with.readiness.as_ref().unwrap())().is_ok(), "{}", with.name);
        let error = (without.readiness.as_ref().unwrap())().unwrap_err();
        assert_eq!(error.to_string(), "unavailable: there is no token for GitHub that the hub may use");
        assert_eq!(
            error.hints,
            [
                "tell the user: `portcullis secrets set NONE_SUCH --grant 127.0.0.1` stores one, and `portcullis secrets \
                 grant NONE_SUCH 127.0.0.1` lets the hub use one that is stored"
            ]
        );
    }
}

fn caller() -> Caller {
    let client = Client { name: "test".to_owned(), scope: Scope::everything(), token: None };
    Caller::new(Arc::new(client), Origin::Client)
}
