//! DNS rebinding and cross-origin requests: a web page makes a browser call the hub.

use super::corpus;
use crate::support::home;
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use std::net::SocketAddr;

struct Case {
    host: String,
    origin: Option<String>,
    allowed: bool,
}

/// Routes and the method of each. Every one must refuse, even one that does not exist.
const ROUTES: [(&str, &str); 16] = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/nothing"),
    ("GET", "/api/v1/overview"),
    ("GET", "/api/v1/events"),
    ("POST", "/api/v1/sign-in"),
    ("PUT", "/api/v1/secrets/X"),
    ("GET", "/admin"),
    ("GET", "/admin/welcome"),
    ("GET", "/admin/assets/page.css"),
];

fn cases(port: u16) -> Vec<Case> {
    let filled = |text: &str| text.replace("{PORT}", &port.to_string());
    if let Some(lines) = corpus::lines("http_host_origin.jsonl") {
        let case = |line: &serde_json::Value| Case {
            host: filled(line["host"].as_str().unwrap()),
            origin: line["origin"].as_str().map(filled),
            allowed: line["expect"].as_str().unwrap().starts_with("allow"),
        };
        return lines.iter().map(case).collect();
    }
    let own = [("127.0.0.1:{PORT}", None, true), ("localhost:{PORT}", Some("http://localhost:{PORT}"), true)];
    let foreign = [
        ("evil.test", None),
        ("evil.test:{PORT}", Some("http://evil.test:{PORT}")),
        ("127.0.0.1.nip.io:{PORT}", None),
        ("localhost.evil.test:{PORT}", None),
        ("127.0.0.1:{PORT}", Some("http://evil.test")),
        ("127.0.0.1:{PORT}", Some("null")),
        ("127.0.0.1:{PORT}", Some("https://127.0.0.1:{PORT}")),
        ("127.0.0.1:1", None),
        ("", None),
    ];
    let foreign = foreign.map(|(host, origin)| (host, origin, false));
    let all = own.into_iter().chain(foreign);
    all.map(|(host, origin, allowed)| Case { host: filled(host), origin: origin.map(filled), allowed })
        .collect()
}

/// The checking function: what goes wrong, by the status that each case gets.
fn violations(results: &[(&Case, &str, u16)]) -> Vec<String> {
    let wrong = results.iter().filter(|(case, _, status)| (*status == 403) == case.allowed);
    wrong
        .map(|(case, route, status)| format!("{route} {:?} {:?}: {status}", case.host, case.origin))
        .collect()
}

async fn status(address: SocketAddr, token: &str, (method, path): (&'static str, &str), case: &Case) -> u16 {
    let mut request = RawHttpRequest::new(method, path).header("Host", &case.host).token(token);
    if let Some(origin) = &case.origin {
        request = request.header("Origin", origin);
    }
    let mut connection = RawHttpConnection::open(address).await;
    connection.send(&request.bytes(address)).await.unwrap();
    // A stream has no end, so only its head is read.
    connection.head().await.expect("an answer").status
}

#[tokio::test]
async fn gets_nowhere_on_any_route() {
    let home = home();
    let hub = home.serve().await;
    let cases = cases(hub.address.port());
    assert!(cases.iter().any(|case| case.allowed) && cases.len() > 10);
    let mut results = Vec::new();
    for route in ROUTES {
        for case in &cases {
            results.push((case, route.1, status(hub.address, &hub.token, route, case).await));
        }
    }
    eprintln!("{} cases on {} routes: {} answers", cases.len(), ROUTES.len(), results.len());
    assert_eq!(violations(&results), Vec::<String>::new());
}

/// The token does not help, and its absence is not what refuses.
#[tokio::test]
async fn is_refused_before_the_token_is_looked_at() {
    let home = home();
    let hub = home.serve().await;
    for token in [hub.token.as_str(), "pcl_wrong"] {
        let request = RawHttpRequest::get("/metrics").header("Host", "evil.test").token(token);
        assert_eq!(request.send(hub.address).await.status(), 403);
    }
    // Two hosts, or an address in the request line, are no way around.
    let own = hub.address.to_string();
    for (path, hosts) in
        [("/metrics", vec![own.as_str(), "evil.test"]), ("http://evil.test/metrics", vec![own.as_str()])]
    {
        let mut request = RawHttpRequest::get(path).token(&hub.token);
        for host in hosts {
            request = request.header("Host", host);
        }
        let status = request.send(hub.address).await.status();
        assert!([400, 403].contains(&status), "{path}: {status}");
    }
}

/// The test can fail: checks that look right and are not let some of the cases through.
#[test]
fn weak_checks_are_found_out() {
    let cases = cases(3000);
    let by_prefix = |case: &Case| case.host.starts_with("127.0.0.1") || case.host.starts_with("localhost");
    let by_part = |case: &Case| case.host.contains("localhost") || case.host.contains("127.0.0.1");
    let host_only =
        |case: &Case| ["127.0.0.1:3000", "localhost:3000", "[::1]:3000"].contains(&case.host.as_str());
    let found = |lets_in: &dyn Fn(&Case) -> bool| {
        let status = |case| if lets_in(case) { 200 } else { 403 };
        let results: Vec<_> = cases.iter().map(|case| (case, "/mcp", status(case))).collect();
        violations(&results).len()
    };
    let counts = [found(&by_prefix), found(&by_part), found(&host_only)];
    eprintln!("by prefix, by part, without Origin: {counts:?} violations");
    assert!(counts.iter().all(|count| *count > 0));
}
