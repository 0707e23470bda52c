//! Scripts that ask hostile addresses, names and redirects: no canary is reached, and every page that should be is.
//!
//! A person has granted every host that a case names, so that the list of hosts is not what refuses. What is granted and
//! what is not is tried at the end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use portcullis_core::{
    Arguments, Call, CallCtx, Caller, Client, Gate, Origin, Output, Registry, Scope, SystemClock, Target,
};
use portcullis_egress::{Egress, EgressSettings, Exception, NoSecrets, PerHost, Timeouts, Url};
use portcullis_script::{Pool, PoolSettings, Strictness};
use portcullis_store::scripts::{Allowed, Capabilities, Scripts};
use portcullis_testkit::world::{CANARY_PORT, Case, PUBLIC, Schemes, Score, World, authority, inside, score};
use portcullis_tools::{ScriptsConfig, ToolsConfig};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const SOURCE: &str = "def main(how, url):\n    \
                      if how == \"get\":\n        return http.get(url)[\"status\"]\n    \
                      if how == \"post\":\n        return http.post(url, body = \"x\")[\"status\"]\n    \
                      return http.request(how, url)[\"status\"]\n";
/// Each of the functions that ask.
const HOWS: [&str; 3] = ["get", "post", "HEAD"];
/// Of a machine that does much else, and of the slowest name server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Scripts that go out by one client.
struct Way {
    egress: Arc<Egress>,
    pool: Pool,
    folder: tempfile::TempDir,
    /// Granted besides the host of the address.
    hosts: BTreeSet<String>,
    asked: Cell<usize>,
}

impl Way {
    fn open(world: &World, exceptions: Vec<Exception>) -> Way {
        let settings = EgressSettings {
            exceptions,
            per_host: PerHost { per_minute: 1_000_000, burst: 1_000_000 },
            timeouts: Timeouts { resolve: Duration::from_millis(500), ..Timeouts::default() },
            extra_roots: vec![authority()],
        };
        let (names, clock) = (world.names.clone(), Arc::new(SystemClock));
        let egress = Arc::new(Egress::new(settings, names, Arc::new(NoSecrets), clock).unwrap());
        let pool = Pool::new(PoolSettings {
            program: env!("CARGO_BIN_EXE_script_worker").into(),
            arguments: vec!["worker".to_owned()],
            memory_bytes_max: 128 * 1024 * 1024,
            strictness: Strictness::Required,
            warm: 2,
            running_max: 2,
            idle: Duration::from_secs(5),
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scripts")).unwrap();
        std::fs::write(folder.path().join("scripts/ask.star"), SOURCE).unwrap();
        let sent_to = world.redirects.iter().filter_map(|case| host_of(case["location_or_field"].as_str()?));
        Way { egress, pool, folder, hosts: sent_to.collect(), asked: Cell::default() }
    }

    /// A gate before a script that was granted these hosts.
    fn gate(&self, hosts: BTreeSet<String>) -> Gate {
        let granted = Capabilities { hosts, ..Capabilities::default() };
        let sha256 = Sha256::digest(SOURCE).iter().map(|byte| format!("{byte:02x}")).collect();
        let allowed = Allowed { name: "ask".parse().unwrap(), sha256, granted };
        let (folder, secure) = (self.folder.path().join("scripts"), self.folder.path().join("secure"));
        let egress = self.egress.clone();
        let scripts = ScriptsConfig {
            scripts: Arc::new(Scripts::open(&folder, &secure, vec![allowed], Arc::new(SystemClock))),
            pool: self.pool.clone(),
            egress: Arc::new(move || Ok(egress.clone())),
            has_secret: Arc::new(|_| false),
            timeout: TIMEOUT,
            exec: Capabilities::default(),
            gate: Arc::default(),
        };
        let local =
            ToolsConfig::local(self.folder.path().join("ai-data"), self.folder.path().join("prompts"));
        let registry = Registry::default();
        portcullis_tools::register(&ToolsConfig { scripts: Some(scripts), ..local }, &registry).unwrap();
        Gate::new(registry, vec![])
    }

    /// Runs the script, and returns the status or why there is none.
    async fn ask(&self, hosts: BTreeSet<String>, how: &str, url: &str) -> Result<u64, String> {
        let client = Arc::new(Client { name: "test".to_owned(), scope: Scope::everything(), token: None });
        let arguments = Arguments::of(&json!({ "name": "ask", "args": [how, url] }));
        let caller = Caller { client, origin: Origin::Client };
        let call = Call::new(caller, Target::Tool("script_run".to_owned()), arguments, CallCtx::detached());
        match self.gate(hosts).call(call).await.map_err(|error| error.message)? {
            Output::Tool(output) => Ok(output.structured.unwrap()["value"].as_u64().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether there was an answer, of whatever kind.
    async fn reaches(&self, url: &str) -> bool {
        let mut hosts = self.hosts.clone();
        hosts.extend(host_of(url));
        // One function after the other; where it is sent depends on how it asks, so there each is tried.
        let next = self.asked.replace(self.asked.get() + 1) % HOWS.len();
        let hows = if url.contains("/redirect/") { &HOWS[..] } else { &HOWS[next..=next] };
        let mut reached = false;
        for how in hows {
            let told = self.ask(hosts.clone(), how, url).await;
            reached |= match told {
                Ok(_) => true,
                Err(problem) => {
                    assert!(problem.contains("http: "), "it got as far as asking: {problem}");
                    assert!(!problem.contains("not granted"), "that is not what is tried here: {problem}");
                    // Whoever learns that a name and its certificate differ has been there.
                    problem.contains("could not prove who it is")
                }
            };
        }
        reached
    }
}

/// The host as a grant names it. Some of them nobody could grant; they are tried all the same.
fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(&url.replace("{PORT}", &CANARY_PORT.to_string())).ok()?;
    url.host_str().map(str::to_ascii_lowercase)
}

/// All of the corpora, as they are and with https://: scripts may not use http:// at all, so that as they are most say
/// nothing of their addresses.
fn cases(world: &World) -> Vec<Case> {
    let mut cases = world.cases(Schemes::AsTheyAre);
    for case in cases.iter_mut().filter(|case| case.url.starts_with("http://")) {
        case.expected = Some(false);
    }
    let known: BTreeSet<String> = cases.iter().map(|case| case.url.clone()).collect();
    cases.extend(world.cases(Schemes::Tls).into_iter().filter(|case| !known.contains(&case.url)));
    cases
}

fn in_a_world(name: &str, test: impl AsyncFnOnce(World)) {
    if inside(name) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(World::open().await).await });
    }
}

#[test]
fn no_canary_is_reached_by_a_script() {
    in_a_world("no_canary_is_reached_by_a_script", async |world| {
        let cases = cases(&world);
        let way = Way::open(&world, Vec::new());
        let ours = score(&world, &cases, async |url| way.reaches(url).await).await;
        eprintln!("figure: scripts: {} cases, {} connections to canaries", ours.cases, ours.hits);
        assert_eq!(ours, Score { cases: cases.len(), ..Score::default() });

        // The weak variant: a client to which a canary is a page like others. Then scripts do reach it, by the same grants.
        let exceptions = vec!["127.0.0.1:443".parse().unwrap(), "127.0.0.1:80".parse().unwrap()];
        let weak = Way::open(&world, exceptions);
        let some: Vec<Case> =
            cases.into_iter().filter(|case| host_of(&case.url).as_deref() == Some("127.0.0.1")).collect();
        let hits = score(&world, &some, async |url| weak.reaches(url).await).await;
        eprintln!("figure: a client that lets them: {} connections to canaries", hits.hits);
        assert!(
            some.is_empty() || hits.hits > 0 && !hits.wrongly_reached.is_empty(),
            "the same test notices"
        );
    });
}

#[test]
fn a_host_that_was_not_granted_is_not_asked() {
    in_a_world("a_host_that_was_not_granted_is_not_asked", async |world| {
        let way = Way::open(&world, Vec::new());
        let elsewhere = format!("[{}]", PUBLIC[2]);
        let granted = |host: &str| BTreeSet::from([host.to_owned()]);
        let direct = format!("https://{elsewhere}/");
        for how in HOWS {
            let told = way.ask(granted("example.com"), how, &direct).await.unwrap_err();
            assert!(told.contains(&format!("host `{elsewhere}` was not granted")), "{told}");
            // Nor by way of one that was.
            let sent_on = format!("https://example.com/go/{direct}");
            let told = way.ask(granted("example.com"), how, &sent_on).await.unwrap_err();
            assert!(told.contains(&format!("`{elsewhere}` may not be asked")), "{told}");
        }
        assert_eq!(world.visits(PUBLIC[2]).await, 0);
        // Granted, it is a page like any other.
        assert_eq!(way.ask(granted(&elsewhere), "get", &direct).await, Ok(200));
        assert_eq!(world.visits(PUBLIC[2]).await, 1, "the same count notices");
        assert_eq!(world.hits().await, []);
    });
}
