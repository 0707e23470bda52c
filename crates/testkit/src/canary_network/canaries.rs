//! A network namespace with a site on public addresses, and canaries everywhere else.
//!
//! One listener takes every address of the namespace. A connection to an address that is not one of the
//! public ones is a hit.

use super::site::{acceptor, answer, head, redirect};
use parking_lot::Mutex;
use portcullis_egress::Resolve;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Addresses with pages.
pub const PUBLIC: [&str; 3] = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946"];
/// Addresses with canaries, besides all of 127.0.0.0/8 and ::1.
const PRIVATE: [&str; 8] = [
    "10.0.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "100.64.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "192.168.1.1",
    "fd00:ec2::254",
];
/// Ports of canaries: those of the corpora, and one for redirects.
pub const PORTS: [u16; 7] = [80, 443, 22, 2379, 6379, 8080, CANARY_PORT];
pub const CANARY_PORT: u16 = 45_454;
/// Set in the process inside the namespace.
const VARIABLE: &str = "PORTCULLIS_TEST_NAMESPACE";
/// Delay of a slow name server in the corpora.
const SLOW: Duration = Duration::from_secs(30);

/// Runs a test in a namespace: the whole program again, with only this test. Returns whether the caller is
/// inside it; prints a note if namespaces are not permitted.
pub fn inside(name: &str) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let addresses = PUBLIC.iter().chain(&PRIVATE);
    let script: String = addresses.map(|at| format!("ip addr add {at}/{} dev lo && ", prefix(at))).collect();
    let script = format!("ip link set lo up && {script} exec \"$@\"");
    let probe = "ip link set lo up && ip addr add 10.0.0.1/32 dev lo";
    let may = std::process::Command::new("unshare").args(["-rn", "sh", "-c", probe]).output();
    if !may.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: network namespaces (`unshare -rn`, `ip`) are not permitted here");
        return false;
    }
    let command = ["unshare", "-rn", "sh", "-c", &script, "sh"];
    assert_eq!(again(name, &command), Some(true));
    false
}

/// Runs the test `name` again in a separate process, through `command`. Returns whether that was possible.
fn again(name: &str, command: &[&str]) -> Option<bool> {
    let program = std::env::current_exe().unwrap();
    let status = std::process::Command::new(command[0])
        .args(&command[1..])
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, "1")
        .status();
    status.ok().map(|status| status.success())
}

fn prefix(address: &str) -> u8 {
    if address.contains(':') { 128 } else { 32 }
}

/// Reads a corpus, or prints that it is skipped.
pub fn corpus(name: &str) -> Vec<Value> {
    let root = match std::env::var_os("PORTCULLIS_SHARED") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    match std::fs::read_to_string(root.join("fixtures/corpora").join(name)) {
        Ok(text) => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        Err(_) => {
            eprintln!("skipped: {name} is not there");
            Vec::new()
        }
    }
}

/// DNS records. An unknown name resolves to loopback, as a hostile name server would have it.
#[derive(Default)]
pub struct ScriptedResolver {
    /// Successive answers; the last repeats.
    scripted: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
}

impl ScriptedResolver {
    pub fn script(&self, host: &str, answers: Vec<Vec<IpAddr>>) {
        self.scripted.lock().insert(host.to_owned(), answers);
    }

    pub fn answer(&self, host: &str) -> Option<Vec<IpAddr>> {
        if let Some(answers) = self.scripted.lock().get_mut(host) {
            return match answers.len() {
                0 => None,
                1 => Some(answers[0].clone()),
                _ => Some(answers.remove(0)),
            };
        }
        Some(vec![match host {
            "example.com" | "public.test" => PUBLIC[0].parse().unwrap(),
            _ => Ipv4Addr::LOCALHOST.into(),
        }])
    }
}

impl Resolve for ScriptedResolver {
    fn resolve(&self, host: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        let answer = self.answer(&host);
        Box::pin(async move {
            match answer {
                Some(addresses) => Ok(addresses),
                None => {
                    tokio::time::sleep(SLOW).await;
                    Ok(vec![Ipv4Addr::LOCALHOST.into()])
                }
            }
        })
    }
}

/// The network: its names, its redirects, and the connections it got.
pub struct CanaryNetwork {
    pub names: Arc<ScriptedResolver>,
    pub redirects: Vec<Value>,
    reached: Arc<Mutex<Vec<SocketAddr>>>,
}

fn is_public_page(at: &SocketAddr) -> bool {
    PUBLIC.iter().any(|public| at.ip().to_canonical() == public.parse::<IpAddr>().unwrap())
}

impl CanaryNetwork {
    pub async fn open() -> CanaryNetwork {
        let mut redirects = corpus("ssrf_redirects.jsonl");
        if redirects.is_empty() {
            redirects.push(json!({ "status": 302, "location_or_field": "http://127.0.0.1:{PORT}/canary" }));
        }
        let world =
            CanaryNetwork { names: Arc::default(), redirects: redirects.clone(), reached: Arc::default() };
        for port in PORTS {
            let listener = TcpListener::bind(("::", port)).await.unwrap();
            let (reached, redirects) = (world.reached.clone(), redirects.clone());
            tokio::spawn(async move {
                while let Ok((visitor, _)) = listener.accept().await {
                    reached.lock().push(visitor.local_addr().unwrap());
                    tokio::spawn(serve(visitor, port, redirects.clone()));
                }
            });
        }
        world
    }

    /// Returns the canaries that were reached since the last call.
    pub async fn hits(&self) -> Vec<SocketAddr> {
        self.settle().await;
        let reached = std::mem::take(&mut *self.reached.lock());
        reached.into_iter().filter(|at| !is_public_page(at)).collect()
    }

    /// Returns the requests to the page at a public address since the last [`CanaryNetwork::hits`]. Not for
    /// the first address.
    pub async fn visits(&self, address: &str) -> usize {
        self.settle().await;
        let address: IpAddr = address.parse().unwrap();
        self.reached.lock().iter().filter(|at| at.ip().to_canonical() == address).count()
    }

    async fn settle(&self) {
        // A connection exists before it is accepted: queue behind all pending ones.
        for port in PORTS {
            #[expect(clippy::disallowed_methods, reason = "a test, to itself")]
            drop(TcpStream::connect((PUBLIC[0], port)).await.unwrap());
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

async fn serve(visitor: TcpStream, port: u16, redirects: Vec<Value>) {
    match port {
        443 => {
            if let Ok(visitor) = acceptor().accept(visitor).await {
                converse(visitor, &redirects).await;
            }
        }
        _ => converse(visitor, &redirects).await,
    }
}

/// Serves a page. `/go/ADDRESS` redirects there, `/redirect/NUMBER` responds like that case of the corpus,
/// and `/redirect/NUMBER/tls` like that case with https://.
async fn converse(mut visitor: impl AsyncRead + AsyncWrite + Unpin, redirects: &[Value]) {
    let request = head(&mut visitor).await;
    let path = request.split(' ').nth(1).unwrap_or_default();
    let case = path.strip_prefix("/redirect/").and_then(|rest| {
        let (number, tls) = rest.strip_suffix("/tls").map_or((rest, false), |number| (number, true));
        Some((redirects.get(number.parse::<usize>().ok()?)?, tls))
    });
    let reply = match (path.strip_prefix("/go/"), case) {
        (Some(target), _) => redirect(302, target),
        (None, Some((case, tls))) => case_reply(case, tls),
        (None, None) => answer(200, &[], "a page"),
    };
    let _ = visitor.write_all(&reply).await;
    let _ = visitor.shutdown().await;
}

fn case_reply(case: &Value, tls: bool) -> Vec<u8> {
    let status = u16::try_from(case["status"].as_u64().unwrap()).unwrap();
    let field = case["location_or_field"].as_str().unwrap().replace("{PORT}", &CANARY_PORT.to_string());
    let field = if tls { field.replacen("http://", "https://", 1) } else { field };
    match field.split_once(": ") {
        Some((name @ ("Refresh" | "WWW-Authenticate"), value)) => answer(status, &[(name, value)], "<p>"),
        _ if field.starts_with("ASM ") => answer(status, &[("content-type", "application/json")], &field),
        _ => redirect(status, &field),
    }
}
