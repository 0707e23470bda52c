//! A fake of GitHub's REST API, errors included.
//!
//! The name of a repository selects the response; `hello-world` is an ordinary one. Statuses, headers and
//! texts are those of the documentation.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// The token that it accepts.
pub const TOKEN: &str = "github_pat_11ATESTTOKEN00000000_example";
/// When the rate limit of the repository `limited` resets, in seconds since the epoch.
pub const RESET: u64 = 4_000_000_000;
/// Issues and pull requests in `hello-world`, of which every third is a pull request.
const ENTRIES: u64 = 250;

/// The server, for as long as the process runs.
pub struct FakeGithub {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeGithub {
    /// Serves on a free port, below `/api/v3` like GitHub Enterprise.
    pub fn open() -> FakeGithub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asking = asked.clone();
        std::thread::spawn(move || {
            for mut visitor in listener.incoming().flatten() {
                let Some(request) = Request::read(&mut visitor) else { continue };
                asking.lock().push(format!("{} {}", request.method, request.target));
                let _ = visitor.write_all(&answer(&request, address).bytes());
            }
        });
        FakeGithub { address, asked }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/api/v3", self.address)
    }

    /// Returns method and URL of every request so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

struct Request {
    method: String,
    target: String,
    head: String,
    body: Value,
}

impl Request {
    fn read(visitor: &mut TcpStream) -> Option<Request> {
        let mut bytes = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            let count = visitor.read(&mut piece).ok()?;
            bytes.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length =
                    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                if body.len() >= length.unwrap_or(0) {
                    let mut words = head.split(' ').map(str::to_owned);
                    return Some(Request {
                        method: words.next()?,
                        target: words.next()?,
                        head: head.to_ascii_lowercase(),
                        body: serde_json::from_str(body).unwrap_or_default(),
                    });
                }
            }
            if count == 0 {
                return None;
            }
        }
    }

    fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} Whatever\r\nconnection: close\r\n", self.status);
        text += "content-type: application/json; charset=utf-8\r\nx-github-request-id: 0000:0000\r\n";
        self.headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        format!("{text}\r\n{}", self.body).into_bytes()
    }

    fn said(status: u16, message: &str) -> Answer {
        let page = "https://docs.github.com/rest";
        let body = json!({ "message": message, "documentation_url": page, "status": status.to_string() });
        Answer { status, headers: Vec::new(), body }
    }

    fn with(mut self, name: &'static str, value: impl ToString) -> Answer {
        self.headers.push((name, value.to_string()));
        self
    }
}

fn answer(request: &Request, address: SocketAddr) -> Answer {
    let path = request.target.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let ["api", "v3", "repos", owner, repository, "issues"] = parts[..] else {
        return Answer::said(404, "Not Found");
    };
    let token = format!("authorization: bearer {}\r\n", TOKEN.to_ascii_lowercase());
    if !format!("{}\r\n", request.head).contains(&token) {
        return Answer::said(401, "Bad credentials");
    }
    if !request.head.contains("user-agent: ") {
        return Answer::said(
            403,
            "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.",
        );
    }
    let creating = request.method == "POST";
    match repository {
        "hello-world" if creating => create(request, owner, repository),
        "hello-world" => list(request, owner, repository, address),
        "empty" => Answer { status: 200, headers: Vec::new(), body: json!([]) },
        "limited" => Answer::said(403, "API rate limit exceeded for user ID 1. If you reach out to GitHub Support for help, please include the request ID.")
            .with("x-ratelimit-limit", 5000)
            .with("x-ratelimit-remaining", 0)
            .with("x-ratelimit-reset", RESET),
        "limited-429" => Answer::said(429, "API rate limit exceeded").with("x-ratelimit-remaining", 0).with("x-ratelimit-reset", RESET),
        "secondary" => Answer::said(403, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.")
            .with("retry-after", 97)
            .with("x-ratelimit-remaining", 4000),
        "abuse" => Answer::said(403, "You have triggered an abuse detection mechanism. Please wait a few minutes before you try again.")
            .with("x-ratelimit-remaining", 4000),
        "forbidden" => Answer::said(403, "Resource not accessible by personal access token")
            .with("x-accepted-github-permissions", if creating { "issues=write" } else { "issues=read; pull_requests=read" })
            .with("x-ratelimit-remaining", 4000),
        "sso" => Answer::said(403, "Resource protected by organization SAML enforcement. You must grant your Personal Access token access to this organization.")
            .with("x-github-sso", "required; url=https://github.com/orgs/acme/sso?authorization_request=A1"),
        "archived" => Answer::said(403, "Repository was archived so is read-only."),
        "disabled" => Answer::said(410, "Issues has been disabled in this repository."),
        "blocked" => Answer::said(451, "Repository access blocked"),
        "broken" => Answer::said(502, "Server Error"),
        "moved" => {
            let target = format!("http://{address}/api/v3/repos/{owner}/hello-world/issues");
            Answer::said(if creating { 307 } else { 301 }, "Moved Permanently").with("location", target)
        }
        "nonsense" => Answer { status: 200, headers: Vec::new(), body: json!({ "hello": "world" }) },
        "strange-next" => Answer { status: 200, headers: Vec::new(), body: json!([issue(owner, repository, 1)]) }
            .with("link", "<http://127.0.0.1:1/steal?page=2>; rel=\"next\""),
        _ => Answer::said(404, "Not Found"),
    }
}

fn issue(owner: &str, repository: &str, number: u64) -> Value {
    let kind = if number.is_multiple_of(3) { "pull" } else { "issues" };
    let mut issue = json!({
        "id": 1_000_000 + number,
        "number": number,
        "title": format!("Entry {number}"),
        "state": if number.is_multiple_of(2) { "closed" } else { "open" },
        "html_url": format!("https://github.com/{owner}/{repository}/{kind}/{number}"),
        "user": { "login": "octocat", "id": 1 },
        "labels": [{ "id": 7, "name": "bug", "color": "d73a4a" }],
        "assignees": [{ "login": "hubot", "id": 2 }],
        "milestone": { "number": 1, "title": "v1.0" },
        "comments": number % 5,
        "created_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-02-03T04:05:06Z",
        "body": "text",
        "locked": false,
    });
    if number.is_multiple_of(3) {
        issue["pull_request"] = json!({ "url": "https://api.github.com/pulls/1" });
    }
    issue
}

/// Pagination like GitHub's: at most 100 entries, and links to the other pages.
fn list(request: &Request, owner: &str, repository: &str, address: SocketAddr) -> Answer {
    let number =
        |name: &str, default: u64| request.query(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (size, page) = (number("per_page", 30).clamp(1, 100), number("page", 1).max(1));
    let state = request.query("state").unwrap_or("open");
    let fits = |issue: &Value| state == "all" || issue["state"] == state;
    let labels = request.query("labels").unwrap_or("bug");
    let all: Vec<Value> = (1..=ENTRIES)
        .rev()
        .map(|n| issue(owner, repository, n))
        .filter(fits)
        .filter(|_| labels == "bug")
        .collect();
    let from = usize::try_from((page - 1) * size).unwrap();
    let size = usize::try_from(size).unwrap();
    let shown: Vec<Value> = all.iter().skip(from).take(size).cloned().collect();
    let answer =
        Answer { status: 200, headers: Vec::new(), body: json!(shown) }.with("x-ratelimit-remaining", 4000);
    if from + size >= all.len() {
        return answer;
    }
    let base = format!("http://{address}/api/v3/repositories/1/issues");
    // GitHub's page links use numeric ids; these lead back here.
    let base = base.replace("repositories/1", &format!("repos/{owner}/{repository}"));
    let next = format!("{base}?state={state}&per_page={size}&page={}", page + 1);
    answer.with("link", format!("<{next}>; rel=\"next\", <{base}?page=99>; rel=\"last\""))
}

/// Validates like GitHub, and leaves out the label that this token may not set.
fn create(request: &Request, owner: &str, repository: &str) -> Answer {
    let fault = |field: &str, code: &str| {
        let mut answer = Answer::said(422, "Validation Failed");
        answer.body["errors"] = json!([{ "resource": "Issue", "field": field, "code": code, "value": "x" }]);
        answer
    };
    let body = &request.body;
    if body["title"].as_str().unwrap_or_default().is_empty() {
        return fault("title", "missing_field");
    }
    let assignees: Vec<&str> =
        body["assignees"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if assignees.contains(&"nobody") {
        return fault("assignees", "invalid");
    }
    if body["milestone"].as_u64().is_some_and(|milestone| milestone > 1) {
        return fault("milestone", "invalid");
    }
    let labels = body["labels"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let labels: Vec<Value> =
        labels.filter(|label| *label != "forbidden").map(|name| json!({ "name": name })).collect();
    let assignees: Vec<Value> = assignees.iter().map(|login| json!({ "login": login })).collect();
    let mut issue = issue(owner, repository, ENTRIES + 1);
    issue["title"] = body["title"].clone();
    issue["state"] = json!("open");
    issue["labels"] = json!(labels);
    issue["assignees"] = json!(assignees);
    let location = format!("https://api.github.com/repos/{owner}/{repository}/issues/{}", ENTRIES + 1);
    Answer { status: 201, headers: Vec::new(), body: issue }.with("location", location)
}
