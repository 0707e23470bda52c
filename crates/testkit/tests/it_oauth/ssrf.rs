//! SSRF through OAuth: addresses in challenges and metadata that lead to internal hosts.
//!
//! In a network namespace there is one public address, with the MCP server and the response of the case.
//! Every other listener is a canary.

use super::*;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use portcullis_egress::{AllowlistEntry, Resolve};
use portcullis_testkit::canary_network::{CANARY_PORT, PORTS, corpus, inside};
use serde_json::json;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PUBLIC: &str = "93.184.216.34";
const SERVER: &str = "http://mcp.test/mcp";

/// The fields that carry an address.
const FIELDS: [&str; 6] = [
    "resource_metadata",
    "authorization_servers",
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "location",
];

/// The next response of the server.
#[derive(Debug, Clone, Default)]
struct Case {
    field: &'static str,
    address: String,
    status: u16,
}

impl Case {
    fn says(&self, field: &str, otherwise: &str) -> String {
        if self.field == field { self.address.clone() } else { otherwise.to_owned() }
    }
}

#[derive(Default)]
struct Namespace {
    case: Mutex<Case>,
    hits: AtomicUsize,
}

/// Every name but the server's own resolves to loopback, as a hostile name server would have it.
struct Names;

impl Resolve for Names {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let public = ["mcp.test", "example.com", "public.test"].contains(&host.as_str());
        let address: IpAddr = if public { PUBLIC.parse().unwrap() } else { Ipv4Addr::LOCALHOST.into() };
        Box::pin(async move { Ok(vec![address]) })
    }
}

async fn open() -> Arc<Namespace> {
    let namespace = Arc::new(Namespace::default());
    for port in PORTS {
        let listener = TcpListener::bind(("::", port)).await.unwrap();
        let namespace = namespace.clone();
        tokio::spawn(async move {
            while let Ok((visitor, _)) = listener.accept().await {
                let at = visitor.local_addr().unwrap();
                let is_server =
                    at.ip().to_canonical() == PUBLIC.parse::<IpAddr>().unwrap() && at.port() == 80;
                // Requests to public pages are fine; only others count.
                if at.ip().to_canonical() != PUBLIC.parse::<IpAddr>().unwrap() {
                    namespace.hits.fetch_add(1, Ordering::SeqCst);
                }
                if is_server {
                    tokio::spawn(serve(visitor, namespace.case.lock().clone()));
                }
            }
        });
    }
    namespace
}

/// Serves the response of the case.
async fn serve(mut visitor: TcpStream, case: Case) {
    let mut head = vec![0; 16 * 1024];
    let mut filled = 0;
    while !head[..filled].windows(4).any(|end| end == b"\r\n\r\n") && filled < head.len() {
        match visitor.read(&mut head[filled..]).await {
            Ok(read @ 1..) => filled += read,
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head[..filled]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let own = "http://mcp.test";
    let (status, header, body) = match path {
        "/mcp" => {
            let named =
                case.says("resource_metadata", &format!("{own}/.well-known/oauth-protected-resource/mcp"));
            let named = named.replace(['"', '\r', '\n'], "");
            (401, format!("WWW-Authenticate: Bearer resource_metadata=\"{named}\"\r\n"), json!({}))
        }
        "/.well-known/oauth-protected-resource/mcp" if case.field == "location" => {
            let location = case.address.replace(['\r', '\n'], "");
            (case.status, format!("Location: {location}\r\n"), json!({}))
        }
        "/.well-known/oauth-protected-resource/mcp" => {
            let issuer = case.says("authorization_servers", own);
            (200, String::new(), json!({ "resource": SERVER, "authorization_servers": [issuer] }))
        }
        "/.well-known/oauth-authorization-server" => {
            let at = |field: &str, path: &str| case.says(field, &format!("{own}/{path}"));
            let about = json!({
                "issuer": own,
                "authorization_endpoint": at("authorization_endpoint", "authorize"),
                "token_endpoint": at("token_endpoint", "token"),
                "registration_endpoint": at("registration_endpoint", "register"),
                "code_challenge_methods_supported": ["S256"],
            });
            (200, String::new(), about)
        }
        "/register" => (201, String::new(), json!({ "client_id": "someone" })),
        _ => (404, String::new(), json!({})),
    };
    let body = body.to_string();
    let reply = format!(
        "HTTP/1.1 {status} X\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = visitor.write_all(reply.as_bytes()).await;
    let _ = visitor.shutdown().await;
}

/// Counts the pages that a person would have been sent to.
#[derive(Default)]
struct PageCounter(AtomicUsize);

impl LoginPrompt for PageCounter {
    fn show<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Err("enough".to_owned()) })
    }
}

/// Attempts a login, and returns whether the person was sent anywhere.
async fn try_case(namespace: &Namespace, case: Case, exceptions: Vec<AllowlistEntry>) -> bool {
    *namespace.case.lock() = case;
    let settings = EgressSettings { exceptions, per_host: UNHURRIED, ..EgressSettings::default() };
    let (person, shown) = (Arc::new(TestUser::default()), PageCounter::default());
    let oauth = OAuth::new(
        spec(SERVER),
        settings,
        Arc::new(Names),
        person,
        Arc::new(SystemClock),
        None,
        Shutdown::default(),
    )
    .unwrap();
    assert!(oauth.log_in(&shown).await.is_err());
    shown.0.load(Ordering::SeqCst) > 0
}

#[test]
fn no_canary_is_reached_by_anything_that_a_server_says() {
    if !inside("ssrf::no_canary_is_reached_by_anything_that_a_server_says") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let namespace = open().await;
        let (mut cases, mut sent) = (0, Vec::new());
        for entry in corpus("ssrf_urls.jsonl") {
            let url = entry["url"].as_str().unwrap();
            let denied = entry["expect"].as_str().unwrap().starts_with("deny");
            // A refusal of http:// says nothing of the address, so each is tried with https:// too.
            let tls = url.strip_prefix("http://").map(|rest| format!("https://{rest}"));
            for (number, field) in FIELDS.into_iter().take(5).enumerate() {
                let address = match (&tls, number) {
                    (Some(tls), 0..4) => tls.clone(),
                    _ => url.to_owned(),
                };
                cases += 1;
                let case = Case { field, address: address.clone(), status: 0 };
                // A header that is not ASCII is ignored: the well-known paths are used instead, where an
                // honest page is.
                let is_read = field != "resource_metadata" || address.is_ascii();
                if try_case(&namespace, case, Vec::new()).await && denied && is_read {
                    sent.push((field, address));
                }
            }
        }
        for entry in corpus("ssrf_redirects.jsonl") {
            let text =
                entry["location_or_field"].as_str().unwrap().replace("{PORT}", &CANARY_PORT.to_string());
            let quoted = text.split('"').nth(1).unwrap_or_default().to_owned();
            let (field, address) = match text.as_str() {
                text if text.starts_with("WWW-Authenticate") => ("resource_metadata", quoted),
                text if text.starts_with("ASM token_endpoint") => ("token_endpoint", quoted),
                text if text.starts_with("ASM registration_endpoint") => ("registration_endpoint", quoted),
                text => ("location", text.to_owned()),
            };
            cases += 1;
            let status = u16::try_from(entry["status"].as_u64().unwrap()).unwrap();
            if try_case(&namespace, Case { field, address: address.clone(), status }, Vec::new()).await {
                sent.push((field, address));
            }
        }
        let hits = namespace.hits.load(Ordering::SeqCst);
        println!("figure: {cases} cases, {hits} connections to canaries, {} pages shown", sent.len());
        assert_eq!((hits, sent), (0, Vec::new()));

        // With a canary on the allowlist the same count notices it; and a login to an honest server succeeds.
        for field in ["resource_metadata", "token_endpoint"] {
            let address = format!("http://127.0.0.1:{CANARY_PORT}/");
            let exceptions = vec![format!("127.0.0.1:{CANARY_PORT}").parse().unwrap()];
            try_case(&namespace, Case { field, address, status: 0 }, exceptions).await;
        }
        assert_eq!(namespace.hits.load(Ordering::SeqCst), 1, "the document was looked for there");
        assert!(try_case(&namespace, Case::default(), Vec::new()).await);
    });
}
