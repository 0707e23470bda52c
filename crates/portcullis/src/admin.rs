//! Where people look and decide, in a running hub: what the desk of `portcullis-admin` is filled with.
//!
//! The same functions as the command line's, so that a rule is in one place. What waits for the disk is done on a thread
//! that may wait.

mod approvals;
mod audit;
mod changes;
mod clients;
mod differences;
mod events;
mod overview;
mod policy;
mod scripts;
mod secrets;
mod servers;
mod stands;
mod tools;

use crate::BadUsage;
use crate::commands::{environment, url_of, welcome_link};
use crate::compose::Composed;
use crate::config::{Config, ConfigErrors, EditError, Loaded};
use crate::home::Home;
use anyhow::Result;
use changes::Change;
use jiff::Timestamp;
use portcullis_admin::desk::{
    Actor, AddClient, AddRule, AddServer, Answer, ApprovalWhole, Approvals, AuditPage, AuditVerified,
    ChangeClient, ClientMade, ClientShown, Clients, Decide, Decided, Desk, Done, GrantSecret, ImportFrom,
    ImportServers, Importable, Listener, MoveRule, Overview, PolicyAnswer, PolicyShown, RecentCalls,
    RemoveRule, ScriptDesk, SearchAudit, SecretShown, Secrets, ServerWhole, Servers, SetSecret, Settings,
    Showing, SignInPage, Story, SwitchServer, TestPolicy, ToolShown, Tools, Tried, TrustServer, TryTool,
    WantedApprovals,
};
use portcullis_admin::sign_in::SignIn;
use portcullis_admin::{App, Counter, Problem};
use portcullis_core::{Clock, Secret, SystemClock};
use portcullis_guard::AuditSettings;
use portcullis_guard::audit::ChangeLog;
use portcullis_server::http::Beside;
use portcullis_store::admins::Admins;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What `serve` needs to know.
pub(crate) struct People {
    pub(crate) beside: Option<Beside>,
    /// Where the page is, or why it is not.
    pub(crate) page: String,
    /// By which the first person sets a password.
    pub(crate) link: Option<Secret<String>>,
}

const NOT_REMOTE: &str = "the hub listens on more than loopback, where others could read passwords; put TLS in front of \
    it and set `admin.allow_remote`";

/// Opens the door for people, if there is to be one.
pub(crate) fn open(
    home: &Home,
    config: &Config,
    composed: &Arc<Composed>,
    address: SocketAddr,
) -> Result<People> {
    if !config.admin.enabled {
        return Ok(People { beside: None, page: "switched off".to_owned(), link: None });
    }
    if !address.ip().is_loopback() && !config.admin.allow_remote {
        tracing::warn!(target: "admin", "The admin page is not served: {NOT_REMOTE}.");
        let beside = Some(portcullis_admin::refusing(NOT_REMOTE));
        return Ok(People { beside, page: format!("not served: {NOT_REMOTE}"), link: None });
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let admins = Arc::new(Admins::open(&config.workspace.secure_dir(), clock.clone()));
    let link = match admins.list() {
        Ok(all) if all.is_empty() => Some(Secret::new(welcome_link(address, &admins.make_link()?))),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(target: "admin", %error, "Nobody can sign in to the admin page.");
            None
        }
    };
    let closing = CancellationToken::new();
    let (hub, token) = (composed.hub.clone(), closing.clone());
    tokio::spawn(async move {
        hub.closed().await;
        token.cancel();
    });
    let changes = composed.change_log();
    let scripts = config.scripts.enabled;
    let scripts = scripts.then(|| scripts::HubScripts::new(crate::scripts::desk(config), changes.clone()));
    if let Some(scripts) = &scripts {
        let (secure, hub) = (config.workspace.secure_dir(), composed.hub.clone());
        tokio::spawn(scripts.stands.clone().watch(secure, hub));
    }
    let desk = Arc::new(HubDesk {
        home: home.clone(),
        composed: composed.clone(),
        url: url_of(address),
        started: now(),
        looked_at: std::sync::Mutex::default(),
        logins: std::sync::Mutex::default(),
        last_calls: tokio::sync::OnceCell::new(),
        scripts,
        changes,
    });
    let app = App {
        counter: Counter::new(desk, Arc::new(composed.handles.redactor.clone())),
        sign_in: Arc::new(SignIn::new(admins, clock)),
        closing,
    };
    let page = url_of(address).replace("/mcp", "/admin");
    Ok(People { beside: Some(portcullis_admin::beside(app)), page, link })
}

/// What an administrator sees and does, in this hub.
struct HubDesk {
    home: Home,
    composed: Arc<Composed>,
    /// Where agents find the hub.
    url: String,
    started: Timestamp,
    /// Servers that do not run, as they were when somebody looked at them from here.
    looked_at: std::sync::Mutex<servers::LookedAt>,
    /// Logins that wait for a person.
    logins: std::sync::Mutex<servers::Logins>,
    /// When clients last called before this hub started. Looked up when somebody wants to know.
    last_calls: tokio::sync::OnceCell<clients::LastCalls>,
    scripts: Option<scripts::HubScripts>,
    changes: ChangeLog,
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemClock.now()).unwrap_or_default()
}

/// How an administrator is named in records.
fn by(actor: &Actor) -> String {
    format!("admin {}", actor.name)
}

/// Does work that waits for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(Problem::internal("this failed inside the hub; its log says why")),
    }
}

/// Says what a command would say: whether the words were wrong, or the work failed.
fn explained(error: anyhow::Error) -> Problem {
    let message = crate::with_causes(&error);
    if error.is::<BadUsage>() || error.is::<ConfigErrors>() {
        Problem::invalid(message)
    } else {
        Problem::conflict(message)
    }
}

fn edit_problem(error: EditError) -> Problem {
    let message = error.to_string();
    match error {
        EditError::Config(_) | EditError::Unfit { .. } => Problem::invalid(message),
        EditError::Unknown(_) => Problem::not_found(message),
        EditError::Changed(_) => Problem::changed(message),
        EditError::Taken(_)
        | EditError::Form(_)
        | EditError::ByHand { .. }
        | EditError::Io { .. }
        | EditError::Held(_) => Problem::conflict(message),
    }
}

fn done(said: impl Into<String>) -> Done {
    Done { said: said.into() }
}

impl HubDesk {
    /// The configuration in force.
    fn config(&self) -> Arc<Config> {
        self.composed.config.load_full()
    }

    /// A change that an administrator is about to make.
    fn recorded(&self, actor: &Actor, action: &'static str, details: serde_json::Value) -> Change {
        Change::new(&self.changes, actor, action, details)
    }

    fn audit_settings(&self) -> AuditSettings {
        AuditSettings::in_folder(&self.config().workspace.secure_dir())
    }
}

/// The configuration as the file has it now.
fn load(home: &Home) -> Result<Loaded, Problem> {
    Config::load(home.path(), &environment).map_err(|errors| {
        Problem::conflict(format!("the configuration has errors: {errors}"))
            .hint("mend the file first; `portcullis doctor` names what is wrong")
    })
}

impl Desk for HubDesk {
    fn overview(&self) -> Answer<'_, Overview> {
        Box::pin(self.glance())
    }

    fn recent_calls(&self) -> Answer<'_, RecentCalls> {
        let calls = self.composed.handles.live.recent().iter().map(|call| events::line(call)).collect();
        Box::pin(async { Ok(RecentCalls { calls }) })
    }

    fn listen(&self) -> Listener {
        events::listen(&self.composed, self.scripts.as_ref().map(|scripts| scripts.stands.subscribe()))
    }

    fn approvals(&self, wanted: WantedApprovals) -> Answer<'_, Approvals> {
        Box::pin(self.list_approvals(wanted))
    }

    fn approval(&self, id: String) -> Answer<'_, ApprovalWhole> {
        Box::pin(self.show_approval(id))
    }

    fn decide(&self, id: String, decision: Decide, actor: Actor) -> Answer<'_, Decided> {
        let change = self.recorded(
            &actor,
            "approvals.decide",
            json!({ "id": id, "decision": decision.decision, "digest": decision.digest }),
        );
        Box::pin(change.made(self.decide_approval(id, decision, actor)))
    }

    fn clients(&self) -> Answer<'_, Clients> {
        Box::pin(self.list_clients())
    }

    fn add_client(&self, new: AddClient, actor: Actor) -> Answer<'_, Showing<ClientMade>> {
        let change = self.recorded(&actor, "clients.add", json!(new));
        Box::pin(change.made(self.make_client(new, actor)))
    }

    fn change_client(&self, name: String, change: ChangeClient, actor: Actor) -> Answer<'_, ClientShown> {
        let recorded = self.recorded(&actor, "clients.change", json!({ "name": name, "to": change }));
        Box::pin(recorded.made(self.rescope_client(name, change, actor)))
    }

    fn revoke_client(&self, name: String, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "clients.revoke", json!({ "name": name }));
        Box::pin(change.made(self.drop_client(name, actor)))
    }

    fn secrets(&self) -> Answer<'_, Secrets> {
        Box::pin(self.list_secrets())
    }

    fn set_secret(&self, name: String, new: SetSecret, actor: Actor) -> Answer<'_, SecretShown> {
        let change = self.recorded(&actor, "secrets.set", json!({ "name": name, "grants": new.grants }));
        Box::pin(change.made(self.keep_secret(name, new, actor)))
    }

    fn grant_secret(&self, name: String, grants: GrantSecret, actor: Actor) -> Answer<'_, SecretShown> {
        let change = self.recorded(&actor, "secrets.grant", json!({ "name": name, "grants": grants.grants }));
        Box::pin(change.made(self.regrant_secret(name, grants, actor)))
    }

    fn remove_secret(&self, name: String, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "secrets.remove", json!({ "name": name }));
        Box::pin(change.made(self.forget_secret(name, actor)))
    }

    fn servers(&self) -> Answer<'_, Servers> {
        Box::pin(self.list_servers())
    }

    fn server(&self, name: String) -> Answer<'_, ServerWhole> {
        Box::pin(self.show_server(name))
    }

    fn look_at_server(&self, name: String, actor: Actor) -> Answer<'_, ServerWhole> {
        let change = self.recorded(&actor, "mcp.look", json!({ "name": name }));
        Box::pin(change.made(self.look_at(name, actor)))
    }

    fn trust_server(&self, name: String, trust: TrustServer, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "mcp.trust", json!({ "name": name, "seen": trust.seen }));
        Box::pin(change.made(self.let_in(name, trust, actor)))
    }

    fn distrust_server(&self, name: String, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "mcp.distrust", json!({ "name": name }));
        Box::pin(change.made(self.keep_out(name, actor)))
    }

    fn switch_server(&self, name: String, switch: SwitchServer, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "mcp.switch", json!({ "name": name, "enabled": switch.enabled }));
        Box::pin(change.made(self.switch(name, switch.enabled, actor)))
    }

    fn restart_server(&self, name: String, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "mcp.restart", json!({ "name": name }));
        Box::pin(change.made(self.restart(name, actor)))
    }

    fn add_server(&self, new: AddServer, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "mcp.add", json!({ "name": new.name }));
        Box::pin(change.made(self.write_server(new, actor)))
    }

    fn remove_server(&self, name: String, actor: Actor) -> Answer<'_, Done> {
        let change = self.recorded(&actor, "mcp.remove", json!({ "name": name }));
        Box::pin(change.made(self.take_server_out(name, actor)))
    }

    fn importable(&self, from: ImportFrom) -> Answer<'_, Importable> {
        Box::pin(self.import(from.text, Vec::new(), None))
    }

    fn import_servers(&self, wanted: ImportServers, actor: Actor) -> Answer<'_, Importable> {
        let change = self.recorded(&actor, "mcp.import", json!({ "only": wanted.only }));
        Box::pin(change.made(self.import(wanted.text, wanted.only, Some(actor))))
    }

    fn sign_in_to_server(&self, name: String, actor: Actor) -> Answer<'_, Showing<SignInPage>> {
        let change = self.recorded(&actor, "mcp.auth", json!({ "name": name }));
        Box::pin(change.made(self.begin_login(name, actor)))
    }

    fn tools(&self) -> Answer<'_, Tools> {
        Box::pin(async { Ok(self.list_tools()) })
    }

    fn tool(&self, name: String) -> Answer<'_, ToolShown> {
        Box::pin(async move { self.show_tool(&name) })
    }

    fn try_tool(&self, name: String, arguments: TryTool, actor: Actor) -> Answer<'_, Tried> {
        Box::pin(self.call_tool(name, arguments, actor))
    }

    fn policy(&self) -> Answer<'_, PolicyShown> {
        Box::pin(self.show_policy())
    }

    fn test_policy(&self, question: TestPolicy) -> Answer<'_, PolicyAnswer> {
        Box::pin(self.explain_policy(question))
    }

    fn add_rule(&self, rule: AddRule, actor: Actor) -> Answer<'_, PolicyShown> {
        let change = self.recorded(&actor, "policy.add", json!({ "rule": rule.rule, "before": rule.before }));
        Box::pin(change.made(self.write_rule(rule, actor)))
    }

    fn remove_rule(&self, rule: RemoveRule, actor: Actor) -> Answer<'_, PolicyShown> {
        let change =
            self.recorded(&actor, "policy.remove", json!({ "at": rule.at, "version": rule.version }));
        Box::pin(change.made(self.take_rule_out(rule, actor)))
    }

    fn move_rule(&self, rule: MoveRule, actor: Actor) -> Answer<'_, PolicyShown> {
        let change = self.recorded(
            &actor,
            "policy.move",
            json!({ "from": rule.from, "to": rule.to, "version": rule.version }),
        );
        Box::pin(change.made(self.move_rule_to(rule, actor)))
    }

    fn search_audit(&self, search: SearchAudit) -> Answer<'_, AuditPage> {
        Box::pin(self.search_records(search))
    }

    fn story(&self, seq: u64) -> Answer<'_, Story> {
        Box::pin(self.tell_story(seq))
    }

    fn verify_audit(&self) -> Answer<'_, AuditVerified> {
        Box::pin(self.verify_records())
    }

    fn settings(&self) -> Answer<'_, Settings> {
        Box::pin(self.show_settings())
    }

    fn scripts(&self) -> Option<&dyn ScriptDesk> {
        self.scripts.as_ref().map(|scripts| scripts as &dyn ScriptDesk)
    }
}
