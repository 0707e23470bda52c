//! The desk of a running hub: implements [`Desk`] for the JSON API and the page.
//!
//! It shows what the operations return. Disk access runs on the blocking pool.

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
mod server_login;
mod servers;
mod statistics;
mod tools;

pub use script_status::ScriptStatusWatcher;

use crate::change::ChangeRecorder;
use crate::config::Config;
use crate::context::{HubStores, LiveHub, Operations};
use crate::desk::{
    ActionReceipt, AddClient, AddRule, AddServer, AdminEventStream, ApprovalDetail, ApprovalFilter,
    ApprovalList, AuditPage, AuditVerification, CallHistory, ChangeClient, ClientList, ClientView,
    CreatedClient, DecideApproval, DecisionReceipt, Desk, DeskFuture, GrantSecret, ImportPreview,
    ImportServers, ImportSource, MoveRule, OneTimeReveal, Overview, PolicyExplanation, PolicyView,
    RecentCalls, RemoveRule, ScriptDesk, SearchAudit, SecretList, SecretReceipt, ServerDetail, ServerList,
    ServerLoginUrl, SetSecret, SettingsView, Statistics, StatisticsQuery, SwitchServer, TestPolicy,
    ToolDetail, ToolList, TrustServer, TryTool, TryToolResult,
};
use crate::home::Home;
use crate::policy::policy_rules;
use crate::{Actor, Problem, script_sandbox};
use jiff::Timestamp;
use portcullis_core::{Clock, SystemClock, blocking};
use std::net::SocketAddr;
use std::sync::Arc;

/// The desk of this hub.
pub struct HubDesk {
    ops: Arc<Operations>,
    live: LiveHub,
    started: Timestamp,
    /// Snapshots of disabled servers from probes.
    looked_at: parking_lot::Mutex<servers::ProbedServers>,
    /// Pending logins.
    logins: parking_lot::Mutex<server_login::PendingLogins>,
    /// Last calls before startup, read from the audit log on first use.
    last_calls: tokio::sync::OnceCell<clients::LastCalls>,
    /// Statistics of calls before startup, counted from the audit log on first use.
    past_calls: tokio::sync::OnceCell<statistics::PastCalls>,
    scripts: Option<scripts::HubScripts>,
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemClock.now()).unwrap_or_default()
}

fn done(said: impl Into<String>) -> ActionReceipt {
    ActionReceipt { said: said.into() }
}

impl HubDesk {
    /// Returns the desk of a hub that listens at `address`.
    pub fn new(
        home: Home,
        address: SocketAddr,
        stores: HubStores,
        changes: ChangeRecorder,
        live: LiveHub,
    ) -> HubDesk {
        let ops = Arc::new(Operations::in_hub(home, address, stores, changes, live.clone()));
        let scripts =
            script_sandbox::is_enabled(&ops.config()).then(|| scripts::HubScripts::new(ops.clone()));
        HubDesk {
            ops,
            live,
            started: now(),
            looked_at: parking_lot::Mutex::default(),
            logins: parking_lot::Mutex::default(),
            last_calls: tokio::sync::OnceCell::new(),
            past_calls: tokio::sync::OnceCell::new(),
            scripts,
        }
    }

    /// Returns the watcher of scripts, which the caller has to run; `None` if the hub has no scripts.
    pub fn script_states(&self) -> Option<Arc<ScriptStatusWatcher>> {
        self.scripts.as_ref().map(|scripts| scripts.states.clone())
    }

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
}

impl Desk for HubDesk {
    fn overview(&self) -> DeskFuture<'_, Overview> {
        Box::pin(self.glance())
    }

    fn statistics(&self, wanted: StatisticsQuery) -> DeskFuture<'_, Statistics> {
        Box::pin(self.show_statistics(wanted))
    }

    fn recent_calls(&self) -> DeskFuture<'_, RecentCalls> {
        let calls = self.live.handles.live.recent().iter().map(|call| events::line(call)).collect();
        Box::pin(async { Ok(RecentCalls { calls }) })
    }

    fn listen(&self) -> AdminEventStream {
        events::listen(&self.live, self.scripts.as_ref().map(|scripts| scripts.states.subscribe()))
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
        Box::pin(self.run(move |ops| Ok(done(ops.revoke_client(&name, &actor)?.sentence()))))
    }

    fn secrets(&self) -> DeskFuture<'_, SecretList> {
        Box::pin(self.show_secrets())
    }

    fn set_secret(&self, name: String, new: SetSecret, actor: Actor) -> DeskFuture<'_, SecretReceipt> {
        Box::pin(self.show_set_secret(name, new, actor))
    }

    fn grant_secret(&self, name: String, grants: GrantSecret, actor: Actor) -> DeskFuture<'_, SecretReceipt> {
        Box::pin(self.show_regranted_secret(name, grants, actor))
    }

    fn remove_secret(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.run(move |ops| Ok(done(ops.remove_secret(&name, &actor)?.sentence()))))
    }

    fn servers(&self) -> DeskFuture<'_, ServerList> {
        Box::pin(self.list_servers())
    }

    fn server(&self, name: String) -> DeskFuture<'_, ServerDetail> {
        Box::pin(self.show_server(name))
    }

    fn probe_server(&self, name: String, actor: Actor) -> DeskFuture<'_, ServerDetail> {
        Box::pin(self.look_at(name, actor))
    }

    fn trust_server(&self, name: String, trust: TrustServer, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.let_in(name, trust, actor))
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
        Box::pin(self.show_switched(name, switch, actor))
    }

    fn restart_server(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.show_restarted(name, actor))
    }

    fn add_server(&self, new: AddServer, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.write_server(new, actor))
    }

    fn remove_server(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.remove_configured_server(name, actor))
    }

    fn importable(&self, from: ImportSource) -> DeskFuture<'_, ImportPreview> {
        Box::pin(self.import(from.text, Vec::new(), None))
    }

    fn import_servers(&self, wanted: ImportServers, actor: Actor) -> DeskFuture<'_, ImportPreview> {
        Box::pin(self.import(wanted.text, wanted.only, Some(actor)))
    }

    fn sign_in_to_server(&self, name: String, actor: Actor) -> DeskFuture<'_, OneTimeReveal<ServerLoginUrl>> {
        Box::pin(self.begin_login(name, actor))
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
