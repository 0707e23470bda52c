//! The admin desk of a running hub: implements `portcullis_admin::Desk`.
//!
//! It uses the same functions as the command line, so each rule exists once. Disk access runs on the blocking pool.

mod approvals;
mod audit;
mod clients;
mod differences;
mod events;
mod overview;
mod policy;
mod script_status;
mod scripts;
mod secrets;
mod servers;
mod tools;

use crate::BadUsage;
use crate::commands::welcome_link;
use crate::compose::ComposedHub;
use crate::config::Config;
use crate::home::Home;
use crate::services::service;
use anyhow::Result;
use jiff::Timestamp;
use portcullis_admin::sign_in::SignIn;
use portcullis_admin::{AdminApp, RedactedDesk};
use portcullis_core::{Clock, Secret, SystemClock, blocking};
use portcullis_ops::change::ChangeRecorder;
use portcullis_ops::config_file::{edit_problem, load};
use portcullis_ops::desk::{
    ActionReceipt, AddClient, AddRule, AddServer, AdminEventStream, ApprovalDetail, ApprovalFilter,
    ApprovalList, AuditPage, AuditVerification, CallHistory, ChangeClient, ClientList, ClientView,
    ComponentHealth, CreatedClient, DecideApproval, DecisionReceipt, Desk, DeskFuture, GrantSecret,
    ImportPreview, ImportServers, ImportSource, MoveRule, OneTimeReveal, Overview, PolicyExplanation,
    PolicyView, RecentCalls, RemoveRule, ScriptDesk, SearchAudit, SecretList, SecretView, ServerDetail,
    ServerList, ServerLoginUrl, SetSecret, SettingsView, SwitchServer, TestPolicy, ToolDetail, ToolList,
    TrustServer, TryTool, TryToolResult,
};
use portcullis_ops::policy::policy_rules;
use portcullis_ops::{Actor, HubControl, HubStores, LiveHub, Operations, Problem, url_of};
use portcullis_server::Readiness;
use portcullis_server::http::MountedRoutes;
use portcullis_store::admins::AdminStore;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The admin endpoint, for `serve`.
pub(crate) struct AdminEndpoint {
    pub(crate) beside: Option<MountedRoutes>,
    /// URL of the page, or why it is not served.
    pub(crate) page: String,
    /// The one-time link for the first password.
    pub(crate) link: Option<Secret<String>>,
}

const NOT_REMOTE: &str = "the hub listens on more than loopback, where others could read passwords; put TLS in front of \
    it and set `admin.allow_remote`";

/// Builds the admin endpoint, if it is enabled.
pub(crate) fn open(
    home: &Home,
    config: &Config,
    composed: &Arc<ComposedHub>,
    address: SocketAddr,
) -> Result<AdminEndpoint> {
    if !config.admin.enabled {
        return Ok(AdminEndpoint { beside: None, page: "disabled".to_owned(), link: None });
    }
    if !address.ip().is_loopback() && !config.admin.allow_remote {
        tracing::warn!(target: "admin", "admin page not served: {NOT_REMOTE}");
        let beside = Some(portcullis_admin::mount_refusal(NOT_REMOTE));
        return Ok(AdminEndpoint { beside, page: format!("not served: {NOT_REMOTE}"), link: None });
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let admins = Arc::new(AdminStore::open(&composed.database, clock.clone()));
    let link = match admins.list() {
        Ok(all) if all.is_empty() => Some(Secret::new(welcome_link(address, &admins.make_link()?))),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(target: "admin", %error, "admin sign-in unavailable");
            None
        }
    };
    let ops = Arc::new(operations(home, composed, address));
    let scripts = config.scripts.enabled;
    let scripts = scripts.then(|| scripts::HubScripts::new(ops.clone()));
    if let Some(scripts) = &scripts {
        let states = scripts.states.clone();
        composed.hub.start_services(vec![service("scripts", move |ctx| states.clone().watch(ctx.shutdown))]);
    }
    let desk = Arc::new(HubDesk {
        ops,
        composed: composed.clone(),
        started: now(),
        looked_at: parking_lot::Mutex::default(),
        logins: parking_lot::Mutex::default(),
        last_calls: tokio::sync::OnceCell::new(),
        scripts,
    });
    let app = AdminApp {
        counter: RedactedDesk::new(desk, Arc::new(composed.handles.redactor.clone())),
        sign_in: Arc::new(SignIn::new(admins, clock)),
        closing: composed.hub.closing(),
    };
    let page = url_of(address).replace("/mcp", "/admin");
    Ok(AdminEndpoint { beside: Some(portcullis_admin::mount(app)), page, link })
}

/// Returns the context of operations in this hub.
fn operations(home: &Home, composed: &Arc<ComposedHub>, address: SocketAddr) -> Operations {
    let stores = HubStores {
        database: composed.database.clone(),
        clients: composed.identity.clone(),
        secrets: composed.secrets.clone(),
        config: composed.config.clone(),
    };
    let live = LiveHub {
        control: composed.clone(),
        secrets: composed.live_secrets.clone(),
        servers: composed.servers.clone(),
        gate: composed.gate.clone(),
        registry: composed.registry.clone(),
        handles: composed.handles.clone(),
    };
    let changes = ChangeRecorder::AuditLog(composed.change_log());
    Operations::in_hub(home.clone(), address, stores, changes, live)
}

impl HubControl for ComposedHub {
    fn refresh_clients(&self) {
        self.hub.refresh_clients();
    }

    fn announce_lists(&self) {
        ComposedHub::announce_lists(self);
    }

    fn components(&self) -> Vec<ComponentHealth> {
        let component = |part: Readiness| ComponentHealth {
            name: part.component.to_owned(),
            works: part.state.is_ok(),
            reason: part.state.err(),
        };
        self.hub.readiness().into_iter().map(component).collect()
    }

    fn sessions(&self) -> BTreeMap<String, usize> {
        self.hub.counts().sessions.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }

    fn config_problem(&self) -> Option<String> {
        self.health.state().err()
    }
}

/// The desk of this hub.
struct HubDesk {
    ops: Arc<Operations>,
    composed: Arc<ComposedHub>,
    started: Timestamp,
    /// Snapshots of disabled servers from probes.
    looked_at: parking_lot::Mutex<servers::ProbedServers>,
    /// Pending logins.
    logins: parking_lot::Mutex<servers::PendingLogins>,
    /// Last calls before startup, read from the audit log on first use.
    last_calls: tokio::sync::OnceCell<clients::LastCalls>,
    scripts: Option<scripts::HubScripts>,
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemClock.now()).unwrap_or_default()
}

/// Maps a command's error to a response: bad input or failure.
fn explained(error: anyhow::Error) -> Problem {
    if error.is::<BadUsage>() { Problem::invalid(crate::with_causes(&error)) } else { Problem::from(error) }
}

fn done(said: impl Into<String>) -> ActionReceipt {
    ActionReceipt { said: said.into() }
}

impl HubDesk {
    /// The configuration in force.
    fn config(&self) -> Arc<Config> {
        self.ops.config()
    }

    /// Runs an operation on the blocking pool.
    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Operations) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let ops = self.ops.clone();
        blocking(move || operation(&ops)).await
    }

    /// Makes a change that is recorded.
    async fn recorded<T>(
        &self,
        actor: Actor,
        action: &'static str,
        details: serde_json::Value,
        change: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        self.ops.changes.record_async(&actor, action, details, change).await
    }
}

impl Desk for HubDesk {
    fn overview(&self) -> DeskFuture<'_, Overview> {
        Box::pin(self.glance())
    }

    fn recent_calls(&self) -> DeskFuture<'_, RecentCalls> {
        let calls = self.composed.handles.live.recent().iter().map(|call| events::line(call)).collect();
        Box::pin(async { Ok(RecentCalls { calls }) })
    }

    fn listen(&self) -> AdminEventStream {
        events::listen(&self.composed, self.scripts.as_ref().map(|scripts| scripts.states.subscribe()))
    }

    fn approvals(&self, wanted: ApprovalFilter) -> DeskFuture<'_, ApprovalList> {
        Box::pin(self.show_approvals(wanted))
    }

    fn approval(&self, id: String) -> DeskFuture<'_, ApprovalDetail> {
        Box::pin(self.show_approval(id))
    }

    fn decide(&self, id: String, decision: DecideApproval, actor: Actor) -> DeskFuture<'_, DecisionReceipt> {
        Box::pin(self.show_decision(id, decision, actor))
    }

    fn clients(&self) -> DeskFuture<'_, ClientList> {
        Box::pin(self.show_clients())
    }

    fn add_client(&self, new: AddClient, actor: Actor) -> DeskFuture<'_, OneTimeReveal<CreatedClient>> {
        Box::pin(self.show_new_client(new, actor))
    }

    fn change_client(&self, name: String, change: ChangeClient, actor: Actor) -> DeskFuture<'_, ClientView> {
        Box::pin(self.show_changed_client(name, change, actor))
    }

    fn revoke_client(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.run(move |ops| {
            let info = ops.revoke_client(&name, &actor)?;
            Ok(done(format!("Revoked client `{}`.", info.name)))
        }))
    }

    fn secrets(&self) -> DeskFuture<'_, SecretList> {
        Box::pin(self.show_secrets())
    }

    fn set_secret(&self, name: String, new: SetSecret, actor: Actor) -> DeskFuture<'_, SecretView> {
        Box::pin(self.show_set_secret(name, new, actor))
    }

    fn grant_secret(&self, name: String, grants: GrantSecret, actor: Actor) -> DeskFuture<'_, SecretView> {
        Box::pin(self.show_regranted_secret(name, grants, actor))
    }

    fn remove_secret(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.run(move |ops| {
            let info = ops.remove_secret(&name, &actor)?;
            Ok(done(format!("Removed secret `{}`; it is no longer redacted.", info.name)))
        }))
    }

    fn servers(&self) -> DeskFuture<'_, ServerList> {
        Box::pin(self.list_servers())
    }

    fn server(&self, name: String) -> DeskFuture<'_, ServerDetail> {
        Box::pin(self.show_server(name))
    }

    fn probe_server(&self, name: String, actor: Actor) -> DeskFuture<'_, ServerDetail> {
        Box::pin(self.recorded(actor.clone(), "mcp.look", json!({ "name": name }), self.look_at(name, actor)))
    }

    fn trust_server(&self, name: String, trust: TrustServer, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.recorded(
            actor.clone(),
            "mcp.trust",
            json!({ "name": name, "seen": trust.seen }),
            self.let_in(name, trust, actor),
        ))
    }

    fn distrust_server(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.show_revoked(name, actor))
    }

    fn switch_server(
        &self,
        name: String,
        switch: SwitchServer,
        actor: Actor,
    ) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.show_switched(name, switch.enabled, actor))
    }

    fn restart_server(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.show_restarted(name, actor))
    }

    fn add_server(&self, new: AddServer, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.recorded(
            actor.clone(),
            "mcp.add",
            json!({ "name": new.name }),
            self.write_server(new, actor),
        ))
    }

    fn remove_server(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.recorded(
            actor.clone(),
            "mcp.remove",
            json!({ "name": name }),
            self.take_server_out(name, actor),
        ))
    }

    fn importable(&self, from: ImportSource) -> DeskFuture<'_, ImportPreview> {
        Box::pin(self.import(from.text, Vec::new(), None))
    }

    fn import_servers(&self, wanted: ImportServers, actor: Actor) -> DeskFuture<'_, ImportPreview> {
        Box::pin(self.recorded(
            actor.clone(),
            "mcp.import",
            json!({ "only": wanted.only }),
            self.import(wanted.text, wanted.only, Some(actor)),
        ))
    }

    fn sign_in_to_server(&self, name: String, actor: Actor) -> DeskFuture<'_, OneTimeReveal<ServerLoginUrl>> {
        Box::pin(self.recorded(
            actor.clone(),
            "mcp.auth",
            json!({ "name": name }),
            self.begin_login(name, actor),
        ))
    }

    fn tools(&self) -> DeskFuture<'_, ToolList> {
        Box::pin(async { Ok(self.list_tools()) })
    }

    fn tool(&self, name: String) -> DeskFuture<'_, ToolDetail> {
        Box::pin(async move { self.show_tool(&name) })
    }

    fn try_tool(&self, name: String, arguments: TryTool, actor: Actor) -> DeskFuture<'_, TryToolResult> {
        Box::pin(self.call_tool(name, arguments, actor))
    }

    fn policy(&self) -> DeskFuture<'_, PolicyView> {
        Box::pin(self.show_policy(|ops| policy_rules(&ops.home)))
    }

    fn test_policy(&self, question: TestPolicy) -> DeskFuture<'_, PolicyExplanation> {
        Box::pin(self.show_explanation(question))
    }

    fn add_rule(&self, rule: AddRule, actor: Actor) -> DeskFuture<'_, PolicyView> {
        Box::pin(self.show_policy(move |ops| ops.add_rule(rule, &actor)))
    }

    fn remove_rule(&self, rule: RemoveRule, actor: Actor) -> DeskFuture<'_, PolicyView> {
        Box::pin(self.show_policy(move |ops| ops.remove_rule(&rule, &actor)))
    }

    fn move_rule(&self, rule: MoveRule, actor: Actor) -> DeskFuture<'_, PolicyView> {
        Box::pin(self.show_policy(move |ops| ops.move_rule(&rule, &actor)))
    }

    fn search_audit(&self, search: SearchAudit) -> DeskFuture<'_, AuditPage> {
        Box::pin(self.run(move |ops| audit::page(ops, search)))
    }

    fn call_history(&self, seq: u64) -> DeskFuture<'_, CallHistory> {
        Box::pin(self.run(move |ops| audit::history(ops, seq)))
    }

    fn verify_audit(&self) -> DeskFuture<'_, AuditVerification> {
        Box::pin(self.run(|ops| Ok(audit::verification(ops))))
    }

    fn settings(&self) -> DeskFuture<'_, SettingsView> {
        Box::pin(self.show_settings())
    }

    fn scripts(&self) -> Option<&dyn ScriptDesk> {
        self.scripts.as_ref().map(|scripts| scripts as &dyn ScriptDesk)
    }
}
