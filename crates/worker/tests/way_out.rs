//! SSRF from scripts: hostile URLs, names and redirects reach no canary, and reach every page that they should.
//!
//! Every host in a case is granted, so that the host allowlist is not the reason for a refusal. Grants are tested at
//! the end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use data_encoding::HEXLOWER;
use portcullis_core::{
    Arguments, Call, CallCtx, Client, Gate, GateHandle, Output, Registry, Scope, SystemClock, Target,
};
use portcullis_egress::{
    AllowlistEntry, EgressClient, EgressSettings, EgressTimeouts, HostRateLimit, NoSecrets, Url,
};
use portcullis_script::{PoolSettings, SandboxStrictness, WorkerPool};
use portcullis_testkit::canary_network::{
    CANARY_PORT, CanaryNetwork, EgressCase, EgressScore, PUBLIC, UrlSchemes, authority, inside, score,
};
use portcullis_tools::ScriptsConfig;
use portcullis_tools::scripts::{PreapprovedScript, ScriptPermissions, ScriptStore};
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
/// Each of the functions that send a request.
const HOWS: [&str; 3] = ["get", "post", "HEAD"];
/// For a busy machine and the slowest name server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Scripts that share one egress client.
struct ScriptEgress {
    egress: Arc<EgressClient>,
    pool: WorkerPool,
    folder: tempfile::TempDir,
    /// Granted in addition to the host of the URL.
    hosts: BTreeSet<String>,
    asked: Cell<usize>,
}

impl ScriptEgress {
    fn open(world: &CanaryNetwork, exceptions: Vec<AllowlistEntry>) -> ScriptEgress {
        let settings = EgressSettings {
            exceptions,
            per_host: HostRateLimit { per_minute: 1_000_000, burst: 1_000_000 },
            timeouts: EgressTimeouts { resolve: Duration::from_millis(500), ..EgressTimeouts::default() },
            extra_roots: vec![authority()],
        };
        let (names, clock) = (world.names.clone(), Arc::new(SystemClock));
        let egress = Arc::new(EgressClient::new(settings, names, Arc::new(NoSecrets), clock).unwrap());
        let pool = WorkerPool::new(PoolSettings {
            program: env!("CARGO_BIN_EXE_script_worker").into(),
            arguments: vec!["worker".to_owned()],
            memory_bytes_max: 128 * 1024 * 1024,
            strictness: SandboxStrictness::Required,
            warm: 2,
            running_max: 2,
            idle: Duration::from_secs(5),
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scripts")).unwrap();
        std::fs::write(folder.path().join("scripts/ask.star"), SOURCE).unwrap();
        let sent_to = world.redirects.iter().filter_map(|case| host_of(case["location_or_field"].as_str()?));
        ScriptEgress { egress, pool, folder, hosts: sent_to.collect(), asked: Cell::default() }
    }

    /// A gate to a script with grants for these hosts.
    fn gate(&self, hosts: BTreeSet<String>) -> Gate {
        let granted = ScriptPermissions { hosts, ..ScriptPermissions::default() };
        let sha256 = HEXLOWER.encode(&Sha256::digest(SOURCE));
        let allowed = PreapprovedScript { name: "ask".parse().unwrap(), sha256, granted };
        let folder = self.folder.path().join("scripts");
        let egress = self.egress.clone();
        let scripts = ScriptsConfig {
            scripts: Arc::new(ScriptStore::open(
                &folder,
                &portcullis_store::open_in_memory(&portcullis_tools::tables()).unwrap(),
                vec![allowed],
                Arc::new(SystemClock),
            )),
            pool: self.pool.clone(),
            egress: Arc::new(move || Ok(egress.clone())),
            has_secret: Arc::new(|_| false),
            timeout: TIMEOUT,
            exec: ScriptPermissions::default(),
        };
        let registry = Registry::default();
        registry.add(portcullis_tools::scripts::family(scripts, GateHandle::default())).unwrap();
        Gate::new(registry, vec![])
    }

    /// Runs the script, and returns the status or the error.
    async fn ask(&self, hosts: BTreeSet<String>, how: &str, url: &str) -> Result<u64, String> {
        let client = Arc::new(Client { name: "test".to_owned(), scope: Scope::everything(), token: None });
        let arguments = Arguments::of(&json!({ "name": "ask", "args": [how, url] }));
        let call = Call::new(client, Target::Tool("script_run".to_owned()), arguments, CallCtx::detached());
        match self.gate(hosts).call(call).await.map_err(|error| error.message)? {
            Output::Tool(output) => Ok(output.structured.unwrap()["value"].as_u64().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether there was a response with any status.
    async fn reaches(&self, url: &str) -> bool {
        let mut hosts = self.hosts.clone();
        hosts.extend(host_of(url));
        // The functions take turns. A redirect depends on the method, so there each is tried.
        let next = self.asked.replace(self.asked.get() + 1) % HOWS.len();
        let hows = if url.contains("/redirect/") { &HOWS[..] } else { &HOWS[next..=next] };
        let mut reached = false;
        for how in hows {
            let outcome = self.ask(hosts.clone(), how, url).await;
            reached |= match outcome {
                Ok(_) => true,
                Err(problem) => {
                    assert!(problem.contains("http: "), "it got as far as asking: {problem}");
                    assert!(!problem.contains("not granted"), "that is not what is tried here: {problem}");
                    // A certificate error means that a connection was made.
                    problem.contains("failed TLS certificate verification")
                }
            };
        }
        reached
    }
}

/// The host as in a grant. Some hosts cannot be granted; they are tried all the same.
fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(&url.replace("{PORT}", &CANARY_PORT.to_string())).ok()?;
    url.host_str().map(str::to_ascii_lowercase)
}

/// All corpora, unchanged and with https://. Scripts may not use http://, so most unchanged ones would be refused
/// before their address is checked.
fn cases(world: &CanaryNetwork) -> Vec<EgressCase> {
    let mut cases = world.cases(UrlSchemes::AsTheyAre);
    for case in cases.iter_mut().filter(|case| case.url.starts_with("http://")) {
        case.expected = Some(false);
    }
    let known: BTreeSet<String> = cases.iter().map(|case| case.url.clone()).collect();
    cases.extend(world.cases(UrlSchemes::Tls).into_iter().filter(|case| !known.contains(&case.url)));
    cases
}

fn in_a_world(name: &str, test: impl AsyncFnOnce(CanaryNetwork)) {
    if inside(name) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(CanaryNetwork::open().await).await });
    }
}

#[test]
fn no_canary_is_reached_by_a_script() {
    in_a_world("no_canary_is_reached_by_a_script", async |world| {
        let cases = cases(&world);
        let way = ScriptEgress::open(&world, Vec::new());
        let ours = score(&world, &cases, async |url| way.reaches(url).await).await;
        eprintln!("figure: scripts: {} cases, {} connections to canaries", ours.cases, ours.hits);
        assert_eq!(ours, EgressScore { cases: cases.len(), ..EgressScore::default() });

        // Control: a client whose allowlist has a canary. Then scripts do reach it, with the same grants.
        let exceptions = vec!["127.0.0.1:443".parse().unwrap(), "127.0.0.1:80".parse().unwrap()];
        let weak = ScriptEgress::open(&world, exceptions);
        let some: Vec<EgressCase> =
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
        let way = ScriptEgress::open(&world, Vec::new());
        let elsewhere = format!("[{}]", PUBLIC[2]);
        let granted = |host: &str| BTreeSet::from([host.to_owned()]);
        let direct = format!("https://{elsewhere}/");
        for how in HOWS {
            let outcome = way.ask(granted("example.com"), how, &direct).await.unwrap_err();
            assert!(outcome.contains(&format!("host `{elsewhere}` was not granted")), "{outcome}");
            // Nor through a redirect from a granted host.
            let sent_on = format!("https://example.com/go/{direct}");
            let outcome = way.ask(granted("example.com"), how, &sent_on).await.unwrap_err();
            assert!(outcome.contains(&format!("host `{elsewhere}` is not allowed")), "{outcome}");
        }
        assert_eq!(world.visits(PUBLIC[2]).await, 0);
        // With a grant it is reachable.
        assert_eq!(way.ask(granted(&elsewhere), "get", &direct).await, Ok(200));
        assert_eq!(world.visits(PUBLIC[2]).await, 1, "the same count notices");
        assert_eq!(world.hits().await, []);
    });
}
