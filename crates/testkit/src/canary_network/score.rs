//! The corpora as one list of addresses, and the score of an HTTP client.

use super::canaries::{CanaryNetwork, corpus};
use serde_json::{Value, json};
use std::net::IpAddr;

/// The scheme of the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlSchemes {
    AsTheyAre,
    /// https:// instead of http://, for a client that refuses the latter before any other check.
    Tls,
}

/// One address to try.
#[derive(Debug, Clone)]
pub struct EgressCase {
    pub name: String,
    pub url: String,
    /// Whether it should be reached; `None` if either is right, as long as no canary is reached.
    pub expected: Option<bool>,
    /// Successive DNS answers of a name.
    answers: Option<(String, Vec<Vec<IpAddr>>)>,
}

/// The score of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EgressScore {
    pub cases: usize,
    /// Connections to canaries.
    pub hits: usize,
    /// Reached although it should have been refused.
    pub wrongly_reached: Vec<String>,
    /// Refused although it should have been reached.
    pub wrongly_refused: Vec<String>,
}

impl CanaryNetwork {
    /// Returns every case of the corpora.
    pub fn cases(&self, schemes: UrlSchemes) -> Vec<EgressCase> {
        let written = |url: &str| match (schemes, url.strip_prefix("http://")) {
            (UrlSchemes::Tls, Some(rest)) => format!("https://{rest}"),
            _ => url.to_owned(),
        };
        let plain = |case: &Value, expected: Option<bool>| {
            let url = written(case["url"].as_str().unwrap());
            EgressCase { name: format!("{url:?}"), url, expected, answers: None }
        };
        let mut cases = Vec::new();
        for case in corpus("ssrf_urls.jsonl") {
            let denied = case["expect"].as_str().unwrap().starts_with("deny");
            cases.push(plain(&case, denied.then_some(false)));
        }
        // A plain clone has no corpora; these few are enough to notice a client that checks too little.
        if cases.is_empty() {
            let few = ["http://0.0.0.0/", "http://[::ffff:127.0.0.1]/", "http://100.64.0.1/"];
            cases.extend(few.iter().map(|url| plain(&json!({ "url": url }), Some(false))));
        }
        cases.extend(corpus("ssrf_allow.jsonl").iter().map(|case| plain(case, Some(true))));
        for case in corpus("ssrf_dns.jsonl").iter().chain(&rebinding()) {
            let host = case["host"].as_str().unwrap();
            let answers = case["answers"].as_array().unwrap().iter().filter_map(|answer| {
                let addresses = answer.as_array()?.iter();
                Some(addresses.map(|address| address.as_str().unwrap().parse().unwrap()).collect())
            });
            let answers = Some((host.to_owned(), answers.collect()));
            let expected = match case["expect"].as_str().unwrap() {
                "allow" => Some(true),
                "either" => None,
                _ => Some(false),
            };
            let url = written(&format!("http://{host}/"));
            cases.push(EgressCase { name: host.to_owned(), url, expected, answers });
        }
        for (number, case) in self.redirects.iter().enumerate() {
            // A status without redirect is read; nothing in it is followed.
            let sends_on = [301, 302, 303, 307, 308].contains(&case["status"].as_u64().unwrap());
            let url = match schemes {
                UrlSchemes::AsTheyAre => format!("http://public.test/redirect/{number}"),
                // The one name with a certificate.
                UrlSchemes::Tls => format!("https://example.com/redirect/{number}/tls"),
            };
            cases.push(EgressCase { name: case.to_string(), url, expected: Some(!sends_on), answers: None });
        }
        cases
    }
}

/// Tries each case. `reaches` returns whether there was any response.
pub async fn score(
    world: &CanaryNetwork,
    cases: &[EgressCase],
    reaches: impl AsyncFn(&str) -> bool,
) -> EgressScore {
    let mut score = EgressScore { cases: cases.len(), ..EgressScore::default() };
    for case in cases {
        if let Some((host, answers)) = &case.answers {
            world.names.script(host, answers.clone());
        }
        match (case.expected, reaches(&case.url).await) {
            (Some(false), true) => score.wrongly_reached.push(case.name.clone()),
            (Some(true), false) => score.wrongly_refused.push(case.name.clone()),
            _ => {}
        }
    }
    score.hits = world.hits().await.len();
    score
}

/// DNS rebinding: names whose address changes between check and use. Either is right, as long as no canary is
/// reached.
fn rebinding() -> Vec<Value> {
    let public = "93.184.216.34";
    vec![
        json!({ "host": "rebind.test", "answers": [[public], ["127.0.0.1"]], "expect": "either" }),
        json!({ "host": "rebind-meta.test", "answers": [[public], ["169.254.169.254"]], "expect": "either" }),
        json!({ "host": "mixed.test", "answers": [[public, "127.0.0.1"]], "expect": "deny" }),
    ]
}
