//! Readiness and metrics of a running hub, component by component.

use crate::mcp::ServerManager;
use crate::secret_store::LiveSecrets;
use parking_lot::Mutex;
use portcullis_family::ReadinessCheck;
use portcullis_guard::{GuardHandles, ServerStats};
use portcullis_server::{Ops, Readiness, ServerCounts};
use portcullis_store::clients::ClientDirectory;
use portcullis_store::pins::PinStore;
use portcullis_upstream::ServerStatus;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Whether the configuration file is in force.
#[derive(Debug, Default)]
pub struct ConfigHealth(Mutex<Option<String>>);

impl ConfigHealth {
    pub fn set(&self, problem: Option<String>) {
        *self.0.lock() = problem;
    }

    pub fn state(&self) -> Result<(), String> {
        match &*self.0.lock() {
            None => Ok(()),
            Some(problem) => Err(problem.clone()),
        }
    }
}

/// `/readyz` is public, so it names no client.
const CLIENTS: &str = "the list of clients is unusable, so all requests are refused; see `portcullis doctor`";

/// Describes an audit log error without its path.
fn no_path(reason: &str) -> String {
    let reason = reason.rsplit(": ").next().unwrap_or(reason);
    format!("the audit log cannot be written: {reason}")
}

/// Readiness and metrics of a running hub.
pub struct HubOps {
    /// Of the families, by name.
    pub families: Vec<(&'static str, ReadinessCheck)>,
    pub handles: GuardHandles,
    pub identity: Arc<ClientDirectory>,
    pub config: Arc<ConfigHealth>,
    pub secrets: Arc<LiveSecrets>,
    pub pins: Arc<PinStore>,
    /// Weak: they end before the hub does.
    pub servers: Weak<ServerManager>,
    pub ai_data: PathBuf,
}

impl Ops for HubOps {
    fn readiness(&self) -> Vec<Readiness> {
        let workspace = match std::fs::metadata(&self.ai_data) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err("the workspace is not a folder".to_owned()),
            Err(error) => Err(format!("the workspace is not accessible: {}", error.kind())),
        };
        let mut components = vec![
            Readiness {
                component: "approvals",
                state: self.handles.approvals.approvals().health().map_err(|error| error.to_string()),
            },
            Readiness { component: "audit", state: self.handles.audit.health().map_err(|e| no_path(&e)) },
            Readiness { component: "clients", state: self.identity.health().map_err(|_| CLIENTS.to_owned()) },
            Readiness { component: "config", state: self.config.state() },
            Readiness { component: "pins", state: self.pins.health() },
            Readiness { component: "secrets", state: self.secrets.health() },
            Readiness { component: "workspace", state: workspace },
        ];
        let families = self.families.iter();
        components.extend(families.map(|(component, check)| Readiness { component, state: check() }));
        components.sort_by_key(|readiness| readiness.component);
        components
    }

    fn metrics(&self, counts: &ServerCounts) -> String {
        self.handles.metrics.set_server(ServerStats {
            connections: counts.connections,
            token_failures: counts.token_failures,
            sources_locked: counts.sources_locked,
        });
        for transport in ["http", "sse", "stdio", "socket"] {
            let open = counts.sessions.get(transport).copied().unwrap_or_default();
            self.handles.metrics.sessions(transport).set(i64::try_from(open).unwrap_or(i64::MAX));
        }
        let servers = self.servers.upgrade().map(|servers| servers.statuses()).unwrap_or_default();
        let waiting =
            |status: &ServerStatus| status.quarantined.iter().filter(|what| what.kind == "tool").count();
        self.handles
            .metrics
            .set_quarantined(servers.iter().map(|(name, status)| (name.clone(), waiting(status))));
        self.handles.metrics.encode_redacted(&self.handles.redactor)
    }
}
