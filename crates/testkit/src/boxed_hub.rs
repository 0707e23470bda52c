//! An in-process hub: the real server and the real gate, around what a test registers.

use anyhow::Context;
use portcullis_core::{CallLimits, Client, DefaultDecision, Effect, Pattern, Registry, Scope, SystemClock};
use portcullis_guard::{
    ApprovalTimes, AuditSettings, GuardHandles, GuardSettings, Policy, RateSettings, ServerStats,
};
use portcullis_server::http::HostAllowlist;
use portcullis_server::{
    Authenticate, ClientsUnavailable, Hub, HubLimits, HubParts, LocalClient, Ops, Readiness, ServerCounts,
};
use portcullis_upstream::{ServerSpec, ServerTransport, Shutdown, StartPolicy, Trust};
use portcullis_wire::era::ServerProfile;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Authenticates every request as one client. For tests only: some test suites cannot send a token.
pub struct OpenAuthenticator(pub Arc<Client>);

impl Authenticate for OpenAuthenticator {
    fn authenticate(&self, _: Option<&str>) -> Result<Option<Arc<Client>>, ClientsUnavailable> {
        Ok(Some(self.0.clone()))
    }

    fn named(&self, name: &str) -> Result<Option<Arc<Client>>, ClientsUnavailable> {
        Ok(Some(self.0.clone()).filter(|client| client.name == name))
    }

    fn admitted(&self) -> Option<HashMap<String, Arc<Client>>> {
        Some(HashMap::from([(self.0.name.clone(), self.0.clone())]))
    }
}

struct BoxedOps(GuardHandles);

impl Ops for BoxedOps {
    fn readiness(&self) -> Vec<Readiness> {
        vec![Readiness { component: "audit", state: self.0.audit.health() }]
    }

    fn metrics(&self, counts: &ServerCounts) -> String {
        self.0.metrics.set_server(ServerStats {
            connections: counts.connections,
            token_failures: counts.token_failures,
            sources_locked: counts.sources_locked,
        });
        self.0.metrics.encode_redacted(&self.0.redactor)
    }
}

/// A hub with its own folder, deleted on drop.
pub struct BoxedHub {
    pub hub: Arc<Hub>,
    pub handles: GuardHandles,
    pub client: Arc<Client>,
    pub home: tempfile::TempDir,
}

/// Describes a trusted server without a prefix, whose tools only read.
pub fn taken_as_it_is(name: &str, transport: impl ServerTransport + 'static) -> ServerSpec {
    ServerSpec {
        name: name.to_owned(),
        transport: Arc::new(transport),
        timeout: Duration::from_secs(20),
        start_timeout: Duration::from_secs(60),
        prefix: String::new(),
        allow: Pattern::any(),
        deny: None,
        rename: Vec::new(),
        effects: vec![(Pattern::any(), Effect::Read)],
        labels: Vec::new(),
        decision: Some(DefaultDecision::Allow),
        trust: Trust::Always,
        start: StartPolicy::AtOnce,
        idle_stop: None,
        per_client: None,
        relist_every: ServerSpec::RELIST_EVERY,
        shutdown: Shutdown::default(),
    }
}

/// A limit that no test reaches by accident.
const UNHURRIED: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();

/// How strict the guards of a boxed hub are.
pub struct BoxedRules {
    pub rate: RateSettings,
    pub policy: Policy,
    pub approval_times: ApprovalTimes,
    pub scope: Scope,
}

impl Default for BoxedRules {
    fn default() -> BoxedRules {
        BoxedRules {
            rate: RateSettings { per_second: UNHURRIED, burst: UNHURRIED, wait: Duration::ZERO },
            policy: Policy::default(),
            approval_times: ApprovalTimes::default(),
            scope: Scope::everything(),
        }
    }
}

impl BoxedHub {
    /// Builds a hub around a registry. Needs a runtime.
    pub fn new(registry: Registry, tasks: bool) -> anyhow::Result<BoxedHub> {
        BoxedHub::with_rules(registry, tasks, BoxedRules::default())
    }

    /// Builds a hub with guards as strict as `rules`. Needs a runtime.
    pub fn with_rules(registry: Registry, tasks: bool, rules: BoxedRules) -> anyhow::Result<BoxedHub> {
        let home = tempfile::tempdir().context("no temporary folder")?;
        let clock = Arc::new(SystemClock);
        let client = Arc::new(Client { name: "test".to_owned(), scope: rules.scope, token: None });
        let settings = GuardSettings {
            rate: rules.rate,
            policy: rules.policy,
            secrets: Vec::new(),
            audit: AuditSettings::in_folder(home.path()),
            database: portcullis_store::open(home.path(), &[])?,
            owners: Arc::new(client.clone()),
            approval_times: rules.approval_times,
            ceiling: CallLimits::CEILING,
        };
        let (gate, handles) = portcullis_guard::stack(registry, settings, clock.clone())?;
        let parts = HubParts {
            gate: Arc::new(gate),
            identity: Arc::new(OpenAuthenticator(client.clone())),
            local_client: LocalClient::new(client.clone()),
            ops: Arc::new(BoxedOps(handles.clone())),
            clock,
            face: ServerProfile { instructions: None, tasks },
            limits: HubLimits::default(),
            scrub: Arc::new(handles.redactor.clone()),
        };
        let hub = Hub::new(parts)?;
        hub.start_services(hub.own_services())?;
        Ok(BoxedHub { hub, handles, client, home })
    }

    /// Listens on a free loopback port, or on the given one.
    pub async fn listen(&self, port: u16) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let allowed = Arc::new(Arc::new(HostAllowlist::new(address, &[], &[])).into());
        let serving = portcullis_server::http::serve(self.hub.clone(), listener, allowed, None);
        tokio::spawn(serving);
        Ok(address)
    }
}
