//! SSRF: all outbound requests against corpora of hostile addresses, names and redirects. No canary is
//! reached, and every public page is. Covers the client itself, `web_fetch`, and calendar feeds.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use jiff::tz::TimeZone;
use portcullis_core::{
    Arguments, Call, CallCtx, Client as Who, Family, Gate, Output, Registry, Scope, Secret, SystemClock,
    Target,
};
use portcullis_egress::{
    AllowlistEntry, EgressClient, EgressSettings, EgressTimeouts, HostRateLimit, NoSecrets, PlainHttp,
    SecretUrl,
};
use portcullis_testkit::canary_network::{
    CANARY_PORT, CanaryNetwork, EgressScore, SsrfMistake, UrlSchemes, WeakClient, authority, inside, score,
};
use portcullis_tools::{
    CalendarConfig, CalendarLocation, CalendarSource, WebConfig, WebSettings, calendar, web,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// An outbound client.
enum EgressRoute {
    Client(Arc<EgressClient>),
    Page(Gate),
    Calendar(Arc<EgressClient>),
    Weak(WeakClient),
}

fn egress(world: &CanaryNetwork, exceptions: Vec<AllowlistEntry>) -> Arc<EgressClient> {
    let settings = EgressSettings {
        exceptions,
        per_host: HostRateLimit { per_minute: 1_000_000, burst: 1_000_000 },
        timeouts: EgressTimeouts { resolve: Duration::from_millis(500), ..EgressTimeouts::default() },
        extra_roots: vec![authority()],
    };
    Arc::new(
        EgressClient::new(settings, world.names.clone(), Arc::new(NoSecrets), Arc::new(SystemClock)).unwrap(),
    )
}

fn gate(family: Family) -> Gate {
    let registry = Registry::default();
    registry.add(family).unwrap();
    Gate::new(registry, vec![])
}

async fn call(gate: &Gate, tool: &str, arguments: Value) -> Result<Value, String> {
    let client = Arc::new(Who { name: "test".to_owned(), scope: Scope::everything(), token: None });
    let call =
        Call::new(client, Target::Tool(tool.to_owned()), Arguments::of(&arguments), CallCtx::detached());
    match gate.call(call).await.map_err(|error| error.message)? {
        Output::Tool(output) => Ok(output.structured.unwrap()),
        other => panic!("{other:?}"),
    }
}

impl EgressRoute {
    fn page(egress: Arc<EgressClient>) -> EgressRoute {
        // With http:// allowed, here and below, because nearly all of the addresses have it.
        let settings = WebSettings {
            plain_http: PlainHttp::Allowed,
            respect_robots: false,
            user_agent: None,
            allow: Vec::new(),
            deny: Vec::new(),
        };
        let config = WebConfig { egress, clock: Arc::new(SystemClock), settings };
        EgressRoute::Page(gate(web::family(config)))
    }

    fn calendar(egress: Arc<EgressClient>) -> EgressRoute {
        EgressRoute::Calendar(egress)
    }

    /// Returns whether there was any response.
    async fn reaches(&self, url: &str) -> bool {
        // A request that got a status or a page has reached its target.
        let was_there =
            |problem: &str| problem.contains(" answered ") || problem.contains("which is not text");
        match self {
            EgressRoute::Client(egress) => {
                egress.get(url).plain_http(PlainHttp::Allowed).send().await.is_ok()
            }
            EgressRoute::Weak(weak) => weak.fetch(url).await.is_some(),
            EgressRoute::Page(gate) => match call(gate, "web_fetch", json!({ "url": url })).await {
                Ok(_) => true,
                Err(problem) => was_there(&problem),
            },
            EgressRoute::Calendar(egress) => {
                let address = SecretUrl::Given(Secret::new(url.to_owned()));
                let place = CalendarLocation::Address { address, plain_http: PlainHttp::Allowed };
                let calendars = CalendarConfig {
                    egress: egress.clone(),
                    clock: Arc::new(SystemClock),
                    zone: Arc::new(|| TimeZone::UTC),
                    calendars: vec![CalendarSource { name: "feed".to_owned(), place }],
                };
                let gate = gate(calendar::family(calendars));
                let told = call(&gate, "calendar_read", json!({})).await.unwrap();
                let problem = told["problems"][0]["problem"].as_str().unwrap().to_owned();
                assert!(
                    url.len() < 12 || !told.to_string().contains(url),
                    "its address is not shown: {told}"
                );
                was_there(&problem) || problem == "the URL does not return a calendar"
            }
        }
    }
}

async fn tried(world: &CanaryNetwork, way: &EgressRoute) -> EgressScore {
    score(world, &world.cases(UrlSchemes::AsTheyAre), async |url| way.reaches(url).await).await
}

fn in_a_world(name: &str, test: impl AsyncFnOnce(CanaryNetwork)) {
    if inside(name) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(CanaryNetwork::open().await).await });
    }
}

#[test]
fn no_canary_is_reached() {
    in_a_world("no_canary_is_reached", async |world| {
        let egress = egress(&world, Vec::new());
        let ways = [
            ("the client", EgressRoute::Client(egress.clone())),
            ("web_fetch", EgressRoute::page(egress.clone())),
            ("calendars", EgressRoute::calendar(egress)),
        ];
        for (name, way) in &ways {
            let ours = tried(&world, way).await;
            eprintln!("figure: {name}: {} cases, {} connections to canaries", ours.cases, ours.hits);
            assert_eq!(ours, EgressScore { cases: ours.cases, ..EgressScore::default() }, "{name}");
        }
        for mistake in [
            SsrfMistake::FewRanges,
            SsrfMistake::ResolvesAgain,
            SsrfMistake::LooksAtOneAddress,
            SsrfMistake::FollowsBlindly,
        ] {
            let weak =
                tried(&world, &EgressRoute::Weak(WeakClient { mistake, names: world.names.clone() })).await;
            eprintln!("figure: {mistake:?}: {} connections to canaries", weak.hits);
            assert!(weak.hits > 0, "{mistake:?}: the same test notices");
        }
    });
}

#[test]
fn a_public_page_cannot_send_us_to_an_exception() {
    in_a_world("a_public_page_cannot_send_us_to_an_exception", async |world| {
        let place = format!("127.0.0.1:{CANARY_PORT}");
        let inside = format!("http://{place}/admin");
        let from_outside = format!("http://public.test/go/{inside}");
        let by_two = format!("http://public.test/go/http://public.test/go/{inside}");
        let egress = egress(&world, vec![place.parse().unwrap()]);
        for way in [
            EgressRoute::Client(egress.clone()),
            EgressRoute::page(egress.clone()),
            EgressRoute::calendar(egress),
        ] {
            // On the allowlist, so a direct request reaches it.
            assert!(way.reaches(&inside).await);
            assert_eq!(world.hits().await.len(), 1);
            // An allowlisted host may redirect, within and out.
            assert!(way.reaches(&format!("http://{place}/go/{inside}")).await);
            assert!(way.reaches(&format!("http://{place}/go/http://public.test/")).await);
            assert_eq!(world.hits().await.len(), 3);
            // A third party may not redirect to it, directly or indirectly, in any spelling.
            for url in [&from_outside, &by_two, &from_outside.replace("127.0.0.1", "0x7f.1")] {
                assert!(!way.reaches(url).await, "{url}");
            }
            // Nor after a redirect that left the allowlisted host.
            assert!(!way.reaches(&format!("http://{place}/go/{from_outside}")).await);
            assert_eq!(world.hits().await.len(), 1, "the one that sent us out");
        }
        let weak = EgressRoute::Weak(WeakClient {
            mistake: SsrfMistake::FollowsBlindly,
            names: world.names.clone(),
        });
        weak.reaches(&from_outside).await;
        assert!(!world.hits().await.is_empty(), "the same test notices");
    });
}
