//! The client that the official conformance suite is run against: a hub with the suite's server behind it, and an agent
//! that asks the hub for everything there is. Not part of what is shipped.
//!
//! The suite runs `conformance-client URL`, and says in the environment what it wants to see.

use anyhow::{Context, bail};
use portcullis_core::{Registry, Secret, SystemClock};
use portcullis_egress::own::Place;
use portcullis_egress::{EgressSettings, Exception, PerHost, SystemResolver};
use portcullis_testkit::BoxedHub;
use portcullis_testkit::conformance::agent;
use portcullis_testkit::oauth::Person;
use portcullis_testkit::taken_as_it_is;
use portcullis_upstream::{
    ClientSecret, Consent, HttpSpec, OAuth, OAuthSpec, ServerSpec, StatusKind, TransportSpec, Upstream,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long the suite's server may take to be connected. Logins included, which nobody types.
const CONNECTED_WITHIN: Duration = Duration::from_secs(20);
/// How long a connection that is just made is left alone.
const SETTLED_AFTER: Duration = Duration::from_millis(500);
/// What the suite expects of clients that are documents.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
/// A pace that no scenario reaches.
const UNHURRIED: PerHost = PerHost { per_minute: 1_000_000, burst: 1_000_000 };

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
    // One attempt that failed is followed by the next, as it is in a hub.
    let is_settled = |kind| !matches!(kind, StatusKind::Starting | StatusKind::Failed);
    let settled =
        tokio::time::timeout(CONNECTED_WITHIN, status.wait_for(|status| is_settled(status.kind))).await;
    match settled {
        Ok(Ok(status)) if status.kind == StatusKind::Connected => {}
        _ => bail!("{}", upstream.status().sentence()),
    }
    // The stream on which a server speaks by itself is opened beside; the suite would take it for one that is resumed if a
    // call came first.
    tokio::time::sleep(SETTLED_AFTER).await;
    agent::run(address, &scenario, &context).await?;
    // Whoever ends at once cannot say goodbye.
    upstream.stop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(boxed);
    Ok(())
}

fn server(url: &str, context: &Value) -> anyhow::Result<ServerSpec> {
    let place: Place = url.parse()?;
    let oauth = oauth(&place, context)?;
    let http = HttpSpec { place, headers: Vec::new(), oauth: Some(Arc::new(oauth)), extra_roots: Vec::new() };
    Ok(taken_as_it_is("suite", TransportSpec::Http(http)))
}

fn oauth(place: &Place, context: &Value) -> anyhow::Result<OAuth> {
    let person = Arc::new(Person::default());
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
    // The suite's authorization servers are on ports that nobody knows beforehand. A person would name them; here it is
    // whatever listens on this machine now, by the same rule.
    let exceptions: Result<Vec<Exception>, _> =
        listening()?.into_iter().map(|port| format!("localhost:{port}").parse()).collect();
    let settings =
        EgressSettings { exceptions: exceptions?, per_host: UNHURRIED, ..EgressSettings::default() };
    let consent: Arc<dyn Consent> = person.clone();
    let resolver = Arc::new(SystemResolver::default());
    Ok(OAuth::new(spec, settings, resolver, person, Arc::new(SystemClock), Some(consent))?)
}

/// Returns the ports of this machine on which somebody listens.
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
