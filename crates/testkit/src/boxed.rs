//! A hub in a box: the real server and the real gate, in this process, around whatever a test registers.

use anyhow::Context;
use portcullis_core::{Client, Effect, Limits, Pattern, Registry, Scope, SystemClock, Unruled};
use portcullis_guard::{
    ApprovalTimes, AuditSettings, GuardSettings, Handles, Policy, RateSettings, ServerNumbers,
};
use portcullis_server::http::Allowed;
use portcullis_server::{Authenticate, Hub, HubLimits, HubParts, Ops, Readiness, ServerCounts};
use portcullis_upstream::{ServerSpec, Start, TransportSpec, Trust};
use portcullis_wire::era::ServerFace;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Lets everyone in as one client. Only a test may do this: some referees cannot send a token.
pub struct Open(pub Arc<Client>);

impl Authenticate for Open {
    fn authenticate(&self, _: Option<&str>) -> Option<Arc<Client>> {
        Some(self.0.clone())
    }

    fn admitted(&self) -> Option<HashMap<String, Arc<Client>>> {
        Some(HashMap::from([(self.0.name.clone(), self.0.clone())]))
    }
}

struct BoxedOps(Handles);

impl Ops for BoxedOps {
    fn readiness(&self) -> Vec<Readiness> {
        vec![Readiness { component: "audit", state: self.0.audit.health() }]
    }

    fn metrics(&self, counts: &ServerCounts) -> String {
        self.0.metrics.set_server(ServerNumbers {
            connections: counts.connections,
            token_failures: counts.token_failures,
            sources_locked: counts.sources_locked,
        });
        self.0.metrics.encode_without(&self.0.redactor)
    }
}

/// A hub with its own folder, gone when dropped.
pub struct BoxedHub {
    pub hub: Arc<Hub>,
    pub handles: Handles,
    pub client: Arc<Client>,
    pub home: tempfile::TempDir,
}

/// Describes a server that is taken as it is: everything appears under its own name and is only read.
pub fn taken_as_it_is(name: &str, transport: TransportSpec) -> ServerSpec {
    ServerSpec {
        name: name.to_owned(),
        transport,
        timeout: Duration::from_secs(20),
        prefix: String::new(),
        allow: Pattern::any(),
        deny: None,
        rename: Vec::new(),
        effects: vec![(Pattern::any(), Effect::Read)],
        labels: Vec::new(),
        decision: Unruled::Allow,
        trust: Trust::Always,
        start: Start::AtOnce,
        idle_stop: None,
        per_client: None,
        relist_every: ServerSpec::RELIST_EVERY,
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
            rate: RateSettings { per_second: UNHURRIED, burst: UNHURRIED },
            policy: Policy::default(),
            approval_times: ApprovalTimes::default(),
            scope: Scope::everything(),
        }
    }
}

impl BoxedHub {
    /// Builds a hub around what is registered. Needs a runtime.
    pub fn new(registry: Registry, tasks: bool) -> anyhow::Result<BoxedHub> {
        BoxedHub::with_rules(registry, tasks, BoxedRules::default())
    }

    /// Builds a hub with guards that are as strict as `rules`. Needs a runtime.
    pub fn with_rules(registry: Registry, tasks: bool, rules: BoxedRules) -> anyhow::Result<BoxedHub> {
        let home = tempfile::tempdir().context("no temporary folder")?;
        let clock = Arc::new(SystemClock);
        let settings = GuardSettings {
            rate: rules.rate,
            policy: rules.policy,
            secrets: Vec::new(),
            audit: AuditSettings::in_folder(home.path()),
            approvals_dir: home.path().to_owned(),
            approval_times: rules.approval_times,
            ceiling: Limits::CEILING,
        };
        let (gate, handles) = portcullis_guard::stack(registry, settings, clock.clone())?;
        let client = Arc::new(Client { name: "test".to_owned(), scope: rules.scope, token: None });
        let parts = HubParts {
            gate: Arc::new(gate),
            identity: Arc::new(Open(client.clone())),
            local_client: client.clone(),
            ops: Arc::new(BoxedOps(handles.clone())),
            clock,
            face: ServerFace { instructions: None, tasks },
            limits: HubLimits::default(),
            scrub: Arc::new(handles.redactor.clone()),
        };
        let hub = Hub::new(parts)?;
        Ok(BoxedHub { hub, handles, client, home })
    }

    /// Listens on a free port of loopback, or on the one given.
    pub async fn listen(&self, port: u16) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let allowed = Arc::new(Arc::new(Allowed::new(address, &[], &[])).into());
        let serving = portcullis_server::http::serve(self.hub.clone(), listener, allowed, None);
        tokio::spawn(serving);
        Ok(address)
    }
}
