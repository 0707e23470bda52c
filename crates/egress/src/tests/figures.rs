//! The corpora against the client: no canary is reached, and every page that should be is.

use super::canaries::{World, corpus, inside};
use super::weak::{Mistake, Weak};
use super::{UNHURRIED, tls};
use crate::{Egress, EgressSettings, NoSecrets, PlainHttp, Timeouts};
use portcullis_core::SystemClock;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

enum Client {
    Ours(Box<Egress>),
    Weak(Weak),
}

impl Client {
    fn ours(world: &World) -> Client {
        let settings = EgressSettings {
            per_host: UNHURRIED,
            timeouts: Timeouts { resolve: Duration::from_millis(500), ..Timeouts::default() },
            extra_roots: vec![tls::authority()],
            ..EgressSettings::default()
        };
        let egress = Egress::new(settings, world.names.clone(), Arc::new(NoSecrets), Arc::new(SystemClock));
        Client::Ours(Box::new(egress.unwrap()))
    }

    /// Returns the status of a page that was fetched.
    async fn fetch(&self, url: &str) -> Option<u16> {
        match self {
            // With http:// allowed, because nearly all of the addresses have it.
            Client::Ours(egress) => {
                egress.get(url).plain_http(PlainHttp::Allowed).send().await.ok().map(|page| page.status)
            }
            Client::Weak(weak) => weak.fetch(url).await,
        }
    }
}

/// What a client did in the world.
#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    cases: usize,
    /// Connections that canaries got.
    hits: usize,
    /// Fetched although it should have been refused.
    wrongly_fetched: Vec<String>,
    /// Refused although it should have been fetched.
    wrongly_refused: Vec<String>,
}

async fn score(world: &World, client: &Client) -> Score {
    let mut score = Score::default();
    let mut check = async |name: String, url: &str, expected: Option<bool>| {
        score.cases += 1;
        let fetched = client.fetch(url).await.is_some();
        match expected {
            Some(false) if fetched => score.wrongly_fetched.push(name),
            Some(true) if !fetched => score.wrongly_refused.push(name),
            _ => {}
        }
    };
    for case in corpus("ssrf_urls.jsonl") {
        let url = case["url"].as_str().unwrap();
        let expected = case["expect"].as_str().unwrap().starts_with("deny").then_some(false);
        check(format!("{url:?}"), url, expected).await;
    }
    for case in corpus("ssrf_allow.jsonl") {
        let url = case["url"].as_str().unwrap();
        check(format!("{url:?}"), url, Some(true)).await;
    }
    for case in corpus("ssrf_dns.jsonl").iter().chain(&rebinding()) {
        let host = case["host"].as_str().unwrap();
        let answers = case["answers"].as_array().unwrap().iter().filter_map(|answer| {
            let addresses = answer.as_array()?.iter();
            Some(addresses.map(|address| address.as_str().unwrap().parse::<IpAddr>().unwrap()).collect())
        });
        world.names.script(host, answers.collect());
        let expected = match case["expect"].as_str().unwrap() {
            "allow" => Some(true),
            "either" => None,
            _ => Some(false),
        };
        check(host.to_owned(), &format!("http://{host}/"), expected).await;
    }
    for (number, case) in world.redirects.iter().enumerate() {
        // What sends nobody on is read; nothing in it is followed.
        let sends_on = [301, 302, 303, 307, 308].contains(&case["status"].as_u64().unwrap());
        let expected = Some(!sends_on);
        check(case.to_string(), &format!("http://public.test/redirect/{number}"), expected).await;
    }
    score.hits = world.hits().await.len();
    score
}

/// Names whose address changes between a check and its use. Either is right, as long as no canary is reached.
fn rebinding() -> Vec<serde_json::Value> {
    let public = "93.184.216.34";
    vec![
        serde_json::json!({ "host": "rebind.test", "answers": [[public], ["127.0.0.1"]], "expect": "either" }),
        serde_json::json!({ "host": "rebind-meta.test", "answers": [[public], ["169.254.169.254"]], "expect": "either" }),
        serde_json::json!({ "host": "mixed.test", "answers": [[public, "127.0.0.1"]], "expect": "deny" }),
    ]
}

#[test]
fn no_canary_is_reached() {
    if !inside("tests::figures::no_canary_is_reached") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::open().await;
        let ours = score(&world, &Client::ours(&world)).await;
        eprintln!("ours: {} cases, {} connections to canaries", ours.cases, ours.hits);
        assert_eq!(ours, Score { cases: ours.cases, ..Score::default() });
        for mistake in
            [Mistake::FewRanges, Mistake::ResolvesAgain, Mistake::LooksAtOneAddress, Mistake::FollowsBlindly]
        {
            let weak = score(&world, &Client::Weak(Weak { mistake, names: world.names.clone() })).await;
            eprintln!("{mistake:?}: {} connections to canaries", weak.hits);
            assert!(weak.hits > 0, "{mistake:?}: the same test notices");
        }
    });
}
