//! Probe: connects to a server once and lists what it provides.

use super::{action, sign_in_hint};
use crate::config::{Config, McpServerSettings};
use crate::context::Operations;
use crate::mcp::{ServerFactory, shown};
use crate::secret_store::PassphrasePrompt;
use crate::{Actor, Problem};
use portcullis_core::Registry;
use portcullis_store::pins::ServerSnapshot;
use portcullis_upstream::{
    ServerStatus, StartPhase, StartPolicy, StartProgress, StatusKind, Trust, Upstream,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout of everything besides start and handshake: identity, lists, a second attempt with another protocol era.
const LOOK_WITHIN: Duration = Duration::from_secs(60);

/// How often the progress of a start is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Shows the progress of a start, and how long it takes so far.
pub type ShowProgress<'a> = &'a (dyn Fn(Duration, &StartProgress) + Sync);

/// Result of a probe.
pub struct ProbeReport {
    pub name: String,
    pub status: ServerStatus,
    /// Snapshot, if the server is connected.
    pub seen: Option<Arc<ServerSnapshot>>,
    /// The server's tool names, with the names in this hub.
    pub tools: Vec<String>,
    pub took: Duration,
    /// The fix, if it needs a login or fails to start.
    pub hint: Option<String>,
}

async fn probe(
    server: &McpServerSettings,
    config: &Config,
    factory: &ServerFactory,
    show: Option<ShowProgress<'_>>,
) -> Result<ProbeReport, Problem> {
    let (mut spec, _) = factory.spec(server, config);
    // Everything is listed, trusted or not.
    spec.trust = Trust::Always;
    // No cached catalog: the review needs the current state.
    (spec.start, spec.idle_stop, spec.per_client) = (StartPolicy::ToBeSeen, None, None);
    let (registry, began) = (Registry::default(), Instant::now());
    if spec.transport.is_local() {
        factory.guard();
    }
    let upstream = Upstream::start(spec, registry.changes());
    registry.add(upstream.clone()).map_err(anyhow::Error::from)?;
    let within = server.start_timeout + LOOK_WITHIN;
    let status = match tokio::time::timeout(within, settled(&upstream, began, show)).await {
        Ok(status) => status,
        Err(_) => {
            let reason = Some(format!("timed out after {} s", within.as_secs()));
            ServerStatus { reason, ..ServerStatus::of(StatusKind::Failed) }
        }
    };
    let took = began.elapsed();
    let hint = sign_in_hint(server, status.kind.as_str()).or_else(|| slow_start_hint(server, &status, took));
    let seen = upstream.snapshot().filter(|_| status.kind == StatusKind::Connected);
    let tools = registry.tools().iter().map(|tool| tool.name.clone()).collect();
    upstream.stop();
    // The process gets the same grace period as at a hub's shutdown.
    let mut ended = upstream.watch();
    let _ = ended.wait_for(|status| status.kind == StatusKind::Disabled).await;
    Ok(ProbeReport { name: server.name.clone(), status, seen, tools, took, hint })
}

/// Waits until the server is connected or has failed, and shows the progress meanwhile.
async fn settled(upstream: &Upstream, began: Instant, show: Option<ShowProgress<'_>>) -> ServerStatus {
    let Some(show) = show else { return upstream.settled().await };
    let shown = async {
        let mut ticks = tokio::time::interval(PROGRESS_EVERY);
        loop {
            ticks.tick().await;
            show(began.elapsed(), &upstream.start_progress());
        }
    };
    tokio::select! {
        status = upstream.settled() => status,
        () = shown => ServerStatus::of(StatusKind::Disabled),
    }
}

impl ProbeReport {
    /// Returns the snapshot, or why the server is not connected.
    pub fn connected(&self) -> Result<Arc<ServerSnapshot>, Problem> {
        self.seen.clone().ok_or_else(|| Problem::conflict(self.failure()))
    }

    /// Returns the report as `--json` prints it.
    pub fn listing(&self) -> Value {
        let mut value = shown(&self.status);
        value["name"] = self.name.as_str().into();
        value["took_ms"] = json!(u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX));
        value["names"] = json!(self.tools);
        value["hint"] = json!(self.hint);
        value
    }

    fn failure(&self) -> String {
        let mut text = format!("server `{}` {}", self.name, self.status.predicate());
        if !self.status.stderr.is_empty() {
            text.push_str(&format!("\nstderr:\n  {}", self.status.stderr.join("\n  ")));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{hint}"));
        }
        text
    }
}

impl Operations {
    /// Connects, lists and disconnects. Calls nothing, exposes nothing. `config` may be one that is not in force yet, and
    /// `show` is called a few times a second until the server is connected or has failed.
    pub async fn probe_server(
        &self,
        server: &McpServerSettings,
        config: &Config,
        show: Option<ShowProgress<'_>>,
        by: &Actor,
    ) -> Result<ProbeReport, Problem> {
        let factory = self.server_factory()?;
        let details = json!({ "name": server.name });
        self.changes.record_async(by, action::PROBE, details, probe(server, config, factory, show)).await
    }

    /// Returns the stores about servers. Asks the user of a command for the passphrase, if the server needs a secret.
    pub fn server_factory_for(&self, server: &McpServerSettings) -> anyhow::Result<&ServerFactory> {
        if needs_secrets(server) {
            self.unlock_secrets(PassphrasePrompt::ToOpen)?;
        }
        Ok(self.server_factory()?)
    }
}

/// Returns the setting that helps a server that only needs more time to start.
fn slow_start_hint(server: &McpServerSettings, status: &ServerStatus, took: Duration) -> Option<String> {
    let is_late = status.phase == Some(StartPhase::Handshake) && took >= server.start_timeout;
    is_late.then(|| {
        format!(
            "it may need longer to start, as for a download: `mcp.{}.start_timeout_ms` is {}",
            server.name,
            server.start_timeout.as_millis()
        )
    })
}

/// Returns whether a server needs the secret store.
fn needs_secrets(server: &McpServerSettings) -> bool {
    let is_secret = |value: &String| value.contains("secret:");
    server.oauth.is_some()
        || server.env.iter().any(|(_, value)| is_secret(value))
        || server.headers.iter().any(|(_, value)| is_secret(value))
}
