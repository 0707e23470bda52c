//! Everything that goes out, against corpora of hostile addresses, names and redirects: no canary is reached, and every page
//! that should be is. The client itself, `web_fetch`, and the feeds of calendars.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use jiff::tz::TimeZone;
use portcullis_core::{
    Arguments, Call, CallCtx, Caller, Client as Who, Gate, Origin, Output, Registry, Scope, Secret,
    SystemClock, Target,
};
use portcullis_egress::{
    Egress, EgressSettings, Exception, HiddenAddress, NoSecrets, PerHost, PlainHttp, Timeouts,
};
use portcullis_testkit::world::{
    CANARY_PORT, Mistake, Schemes, Score, Weak, World, authority, inside, score,
};
use portcullis_tools::{CalendarConfig, CalendarPlace, CalendarSource, ToolsConfig, WebConfig};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A way out.
enum Way {
    Client(Arc<Egress>),
    Page { gate: Gate, _folder: tempfile::TempDir },
    Calendar(Arc<Egress>, tempfile::TempDir),
    Weak(Weak),
}

fn egress(world: &World, exceptions: Vec<Exception>) -> Arc<Egress> {
    let settings = EgressSettings {
        exceptions,
        per_host: PerHost { per_minute: 1_000_000, burst: 1_000_000 },
        timeouts: Timeouts { resolve: Duration::from_millis(500), ..Timeouts::default() },
        extra_roots: vec![authority()],
    };
    Arc::new(Egress::new(settings, world.names.clone(), Arc::new(NoSecrets), Arc::new(SystemClock)).unwrap())
}

fn gate(folder: &tempfile::TempDir, change: impl FnOnce(ToolsConfig) -> ToolsConfig) -> Gate {
    let local = ToolsConfig::local(folder.path().join("ai-data"), folder.path().join("prompts"));
    let registry = Registry::default();
    portcullis_tools::register(&change(local), &registry).unwrap();
    Gate::new(registry, vec![])
}

async fn call(gate: &Gate, tool: &str, arguments: Value) -> Result<Value, String> {
    let client = Arc::new(Who { name: "test".to_owned(), scope: Scope::everything(), token: None });
    let caller = Caller { client, origin: Origin::Client };
    let call =
        Call::new(caller, Target::Tool(tool.to_owned()), Arguments::of(&arguments), CallCtx::detached());
    match gate.call(call).await.map_err(|error| error.message)? {
        Output::Tool(output) => Ok(output.structured.unwrap()),
        other => panic!("{other:?}"),
    }
}

impl Way {
    fn page(egress: Arc<Egress>) -> Way {
        let folder = tempfile::tempdir().unwrap();
        // With http:// allowed, here and below, because nearly all of the addresses have it.
        let web = WebConfig {
            egress,
            clock: Arc::new(SystemClock),
            plain_http: PlainHttp::Allowed,
            respect_robots: false,
            user_agent: None,
            allow: Vec::new(),
            deny: Vec::new(),
        };
        let gate = gate(&folder, |local| ToolsConfig { web: Some(web), ..local });
        Way::Page { gate, _folder: folder }
    }

    fn calendar(egress: Arc<Egress>) -> Way {
        Way::Calendar(egress, tempfile::tempdir().unwrap())
    }

    /// Returns whether there was an answer, of whatever kind.
    async fn reaches(&self, url: &str) -> bool {
        // Whoever got so far as to read a status or a page has been there.
        let was_there =
            |problem: &str| problem.contains(" answered ") || problem.contains("which is not text");
        match self {
            Way::Client(egress) => egress.get(url).plain_http(PlainHttp::Allowed).send().await.is_ok(),
            Way::Weak(weak) => weak.fetch(url).await.is_some(),
            Way::Page { gate, .. } => match call(gate, "web_fetch", json!({ "url": url })).await {
                Ok(_) => true,
                Err(problem) => was_there(&problem),
            },
            Way::Calendar(egress, folder) => {
                let address = HiddenAddress::Given(Secret::new(url.to_owned()));
                let place = CalendarPlace::Address { address, plain_http: PlainHttp::Allowed };
                let calendars = CalendarConfig {
                    egress: egress.clone(),
                    clock: Arc::new(SystemClock),
                    zone: Arc::new(|| TimeZone::UTC),
                    calendars: vec![CalendarSource { name: "feed".to_owned(), place }],
                };
                let gate = gate(folder, |local| ToolsConfig { calendars: Some(calendars), ..local });
                let told = call(&gate, "calendar_read", json!({})).await.unwrap();
                let problem = told["problems"][0]["problem"].as_str().unwrap().to_owned();
                assert!(
                    url.len() < 12 || !told.to_string().contains(url),
                    "its address is not shown: {told}"
                );
                was_there(&problem) || problem == "what is there is not a calendar"
            }
        }
    }
}

async fn tried(world: &World, way: &Way) -> Score {
    score(world, &world.cases(Schemes::AsTheyAre), async |url| way.reaches(url).await).await
}

fn in_a_world(name: &str, test: impl AsyncFnOnce(World)) {
    if inside(name) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(World::open().await).await });
    }
}

#[test]
fn no_canary_is_reached() {
    in_a_world("no_canary_is_reached", async |world| {
        let egress = egress(&world, Vec::new());
        let ways = [
            ("the client", Way::Client(egress.clone())),
            ("web_fetch", Way::page(egress.clone())),
            ("calendars", Way::calendar(egress)),
        ];
        for (name, way) in &ways {
            let ours = tried(&world, way).await;
            eprintln!("figure: {name}: {} cases, {} connections to canaries", ours.cases, ours.hits);
            assert_eq!(ours, Score { cases: ours.cases, ..Score::default() }, "{name}");
        }
        for mistake in
            [Mistake::FewRanges, Mistake::ResolvesAgain, Mistake::LooksAtOneAddress, Mistake::FollowsBlindly]
        {
            let weak = tried(&world, &Way::Weak(Weak { mistake, names: world.names.clone() })).await;
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
        for way in [Way::Client(egress.clone()), Way::page(egress.clone()), Way::calendar(egress)] {
            // A person made it reachable, so that it is reached when it is asked for.
            assert!(way.reaches(&inside).await);
            assert_eq!(world.hits().await.len(), 1);
            // Who is inside may send on, within and out.
            assert!(way.reaches(&format!("http://{place}/go/{inside}")).await);
            assert!(way.reaches(&format!("http://{place}/go/http://public.test/")).await);
            assert_eq!(world.hits().await.len(), 3);
            // A stranger may not, directly or by a detour, however it is written.
            for url in [&from_outside, &by_two, &from_outside.replace("127.0.0.1", "0x7f.1")] {
                assert!(!way.reaches(url).await, "{url}");
            }
            // Nor may one who was inside and went out.
            assert!(!way.reaches(&format!("http://{place}/go/{from_outside}")).await);
            assert_eq!(world.hits().await.len(), 1, "the one that sent us out");
        }
        let weak = Way::Weak(Weak { mistake: Mistake::FollowsBlindly, names: world.names.clone() });
        weak.reaches(&from_outside).await;
        assert!(!world.hits().await.is_empty(), "the same test notices");
    });
}
