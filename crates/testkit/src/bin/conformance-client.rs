//! Conformance client: a hub with the suite's server as upstream, and an agent that requests everything from
//! the hub. Not shipped.
//!
//! The suite runs `conformance-client URL`, and sets the scenario in the environment.

use anyhow::{Context, bail};
use portcullis_core::{Registry, Secret, SystemClock};
use portcullis_egress::configured_client::ConfiguredEndpoint;
use portcullis_egress::{AllowlistEntry, EgressSettings, HostRateLimit, SystemResolver};
use portcullis_testkit::BoxedHub;
use portcullis_testkit::conformance::agent;
use portcullis_testkit::oauth::TestUser;
use portcullis_testkit::taken_as_it_is;
use portcullis_upstream::{
    ClientSecret, HttpSpec, LoginPrompt, OAuth, OAuthSpec, ServerSpec, Shutdown, StatusKind, Upstream,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Timeout until the suite's server is connected, automatic logins included.
const CONNECTED_WITHIN: Duration = Duration::from_secs(20);
/// How long a new connection is left idle.
const SETTLED_AFTER: Duration = Duration::from_millis(500);
/// The client metadata document that the suite expects.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
/// A rate that no scenario reaches.
const UNHURRIED: HostRateLimit = HostRateLimit { per_minute: 1_000_000, burst: 1_000_000 };

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let url = std::env::args().nth(1).context("`conformance-client URL`")?;
    let said = |name: &str| std::env::var(name).unwrap_or_default();
    let context: Value = serde_json::from_str(&said("MCP_CONFORMANCE_CONTEXT")).unwrap_or_default();
    let scenario = said("MCP_CONFORMANCE_SCENARIO");
    let registry = Registry::default();
    let upstream = Upstream::start(server(&url, &context)?, registry.changes());
    registry.add(upstream.clone())?;
    let boxed = BoxedHub::new(registry, true)?;
    let address = boxed.listen(0).await?;
    let mut status = upstream.watch();
    // A failed attempt is followed by the next, as in a hub.
    let is_settled = |kind| !matches!(kind, StatusKind::Starting | StatusKind::Failed);
    let settled =
        tokio::time::timeout(CONNECTED_WITHIN, status.wait_for(|status| is_settled(status.kind))).await;
    match settled {
        Ok(Ok(status)) if status.kind == StatusKind::Connected => {}
        _ => bail!("the server {}", upstream.status().predicate()),
    }
    // The server's event stream opens concurrently; if a call came first, the suite would take the stream for
    // a resumed one.
    tokio::time::sleep(SETTLED_AFTER).await;
    agent::run(address, &scenario, &context).await?;
    // An immediate exit could not close the session.
    upstream.stop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(boxed);
    Ok(())
}

fn server(url: &str, context: &Value) -> anyhow::Result<ServerSpec> {
    let place: ConfiguredEndpoint = url.parse()?;
    let oauth = oauth(&place, context)?;
    let http = HttpSpec { place, headers: Vec::new(), oauth: Some(Arc::new(oauth)), extra_roots: Vec::new() };
    Ok(taken_as_it_is("suite", http))
}

fn oauth(place: &ConfiguredEndpoint, context: &Value) -> anyhow::Result<OAuth> {
    let person = Arc::new(TestUser::default());
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    let secret = text("client_secret")
        .map(|secret| ClientSecret(Arc::new(move |_: &str| Ok(Secret::new(secret.clone())))));
    let spec = OAuthSpec {
        name: "suite".to_owned(),
        url: place.url().context("no address")?.clone(),
        headers: Vec::new(),
        client_id: text("client_id"),
        client_secret: secret,
        scope: None,
        callback_port: None,
        client_metadata_url: Some(DOCUMENT.to_owned()),
    };
    // The suite's authorization servers use unpredictable ports. A person would allowlist them; here every
    // port that listens on this machine now is allowlisted, by the same rule.
    let exceptions: Result<Vec<AllowlistEntry>, _> =
        listening()?.into_iter().map(|port| format!("localhost:{port}").parse()).collect();
    let settings =
        EgressSettings { exceptions: exceptions?, per_host: UNHURRIED, ..EgressSettings::default() };
    let consent: Arc<dyn LoginPrompt> = person.clone();
    let resolver = Arc::new(SystemResolver::default());
    Ok(OAuth::new(
        spec,
        settings,
        resolver,
        person,
        Arc::new(SystemClock),
        Some(consent),
        Shutdown::default(),
    )?)
}

/// Returns the listening ports of this machine.
fn listening() -> std::io::Result<BTreeSet<u16>> {
    const LISTENS: &str = "0A";
    let mut ports = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(table)?.lines() {
            let mut fields = line.split_whitespace().skip(1);
            let (local, state) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
            let port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
            ports.extend(port.filter(|_| state == LISTENS));
        }
    }
    Ok(ports)
}
