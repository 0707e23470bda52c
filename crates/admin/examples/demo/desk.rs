//! The demo desk. Changes are kept in memory, so that forms work.

use crate::approvals::DemoApprovals;
use crate::scripts::DemoScripts;
use crate::{calls, data, servers, tools};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use portcullis_core::Secret;
use portcullis_ops::desk::*;
use portcullis_ops::{Actor, Problem};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// How many events a slow page may be behind.
const EVENTS_MAX: usize = 1024;
const CALLS_MAX: usize = 200;

pub(crate) struct DemoDesk {
    started: Timestamp,
    events: broadcast::Sender<Arc<AdminEvent>>,
    state: Mutex<DemoState>,
    scripts: DemoScripts,
    /// As after the first start: without servers, rules and calls.
    is_fresh: bool,
}

struct DemoState {
    questions: DemoApprovals,
    clients: Vec<ClientView>,
    secrets: Vec<SecretView>,
    policy: PolicyView,
    calls: VecDeque<CallView>,
}

fn ready<'a, T: Send + 'a>(answer: Result<T, Problem>) -> DeskFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}

fn done<'a>(said: impl Into<String>) -> DeskFuture<'a, ActionReceipt> {
    ready(Ok(ActionReceipt { said: said.into() }))
}

impl DemoDesk {
    pub(crate) fn new() -> DemoDesk {
        let secret = |name: &str, grants: &[&str], used| SecretView {
            name: name.into(),
            grants: grants.iter().map(|text| (*text).into()).collect(),
            created: data::ago(60 * 24 * 40),
            updated: data::ago(60 * 24 * 3),
            last_used: used,
        };
        let state = DemoState {
            questions: DemoApprovals::invented(),
            clients: data::clients(),
            secrets: vec![
                secret("GITHUB_TOKEN", &["api.github.com"], Some(data::ago(12))),
                secret("PERSONAL_ICS", &[], None),
            ],
            policy: data::policy(),
            calls: (0..60).map(|n| calls::ended(&calls::call(n))).collect(),
        };
        DemoDesk {
            started: data::ago(60 * 26),
            events: broadcast::Sender::new(EVENTS_MAX),
            state: Mutex::new(state),
            scripts: DemoScripts,
            is_fresh: false,
        }
    }

    /// A hub after its first start.
    pub(crate) fn fresh() -> DemoDesk {
        let desk = DemoDesk { is_fresh: true, ..DemoDesk::new() };
        {
            let mut state = desk.state();
            state.calls.clear();
            state.policy.rules.clear();
            state.clients.retain(|client| client.token_hint.is_none());
            state.clients.iter_mut().for_each(|client| client.last_call = None);
        }
        desk
    }

    /// Lets calls happen.
    pub(crate) async fn live(self: Arc<DemoDesk>, per_second: u64) {
        let tick = Duration::from_millis(20);
        let mut clock = tokio::time::interval(tick);
        let (mut owed, mut number) = (0.0, 1_000u64);
        let mut open: VecDeque<CallView> = VecDeque::new();
        loop {
            clock.tick().await;
            owed += per_second as f64 * tick.as_secs_f64();
            while owed >= 1.0 {
                owed -= 1.0;
                number += 1;
                let call = calls::call(number);
                let _ = self.events.send(Arc::new(AdminEvent::CallOpened(call.clone())));
                open.push_back(call);
            }
            while open.len() > 2 + usize::try_from(per_second).unwrap_or(0) / 50 {
                let Some(call) = open.pop_front() else { break };
                let call = calls::ended(&call);
                let _ = self.events.send(Arc::new(AdminEvent::CallClosed(call.clone())));
                let mut state = self.state();
                state.calls.push_front(call);
                state.calls.truncate(CALLS_MAX);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, DemoState> {
        self.state.lock()
    }

    fn tell_waiting(&self) {
        let waiting = self.state().questions.waiting();
        let _ = self.events.send(Arc::new(AdminEvent::Approvals { waiting }));
    }
}

impl Desk for DemoDesk {
    fn overview(&self) -> DeskFuture<'_, Overview> {
        let part = |name: &str, reason: Option<&str>| ComponentHealth {
            name: name.into(),
            works: reason.is_none(),
            reason: reason.map(Into::into),
        };
        if self.is_fresh {
            return ready(Ok(Overview {
                version: "0.1.0".into(),
                started: data::ago(0),
                now: Timestamp::now(),
                ready: true,
                parts: Vec::new(),
                alerts: Vec::new(),
                approvals_waiting: 0,
                scripts_waiting: Some(0),
                servers: Vec::new(),
                sessions: BTreeMap::new(),
                calls_open: 0,
                minutes: Vec::new(),
            }));
        }
        ready(Ok(Overview {
            version: "0.1.0".into(),
            started: self.started,
            now: Timestamp::now(),
            ready: false,
            parts: vec![
                part("audit", None),
                part("server search", Some("the program ended with exit code 1, 3 times in a row")),
            ],
            alerts: Vec::new(),
            approvals_waiting: self.state().questions.waiting(),
            scripts_waiting: Some(2),
            servers: servers::briefs(),
            sessions: BTreeMap::from([("http".into(), 2), ("stdio".into(), 1)]),
            calls_open: 3,
            minutes: calls::minutes(),
        }))
    }

    fn statistics(&self, wanted: StatisticsQuery) -> DeskFuture<'_, Statistics> {
        ready(Ok(calls::statistics(wanted.range.as_deref().unwrap_or_default())))
    }

    fn recent_calls(&self) -> DeskFuture<'_, RecentCalls> {
        ready(Ok(RecentCalls { calls: self.state().calls.iter().cloned().collect() }))
    }

    fn listen(&self) -> AdminEventStream {
        let heard = futures::stream::unfold(self.events.subscribe(), |mut events| async move {
            let event = match events.recv().await {
                Ok(event) => AdminEvent::clone(&event),
                Err(broadcast::error::RecvError::Lagged(count)) => AdminEvent::Missed { count },
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((event, events))
        });
        AdminEventStream::new(heard)
    }

    fn approvals(&self, wanted: ApprovalFilter) -> DeskFuture<'_, ApprovalList> {
        if self.is_fresh {
            return ready(Ok(ApprovalList { approvals: Vec::new() }));
        }
        ready(Ok(ApprovalList { approvals: self.state().questions.list(wanted.all) }))
    }

    fn approval(&self, id: String) -> DeskFuture<'_, ApprovalDetail> {
        ready(self.state().questions.whole(&id))
    }

    fn decide(&self, id: String, decision: DecideApproval, by: Actor) -> DeskFuture<'_, DecisionReceipt> {
        let decided = self.state().questions.decide(&id, decision, by);
        self.tell_waiting();
        ready(decided)
    }

    fn clients(&self) -> DeskFuture<'_, ClientList> {
        ready(Ok(ClientList {
            url: "http://127.0.0.1:3000/mcp".into(),
            clients: self.state().clients.clone(),
        }))
    }

    fn add_client(&self, new: AddClient, _: Actor) -> DeskFuture<'_, OneTimeReveal<CreatedClient>> {
        let mut state = self.state();
        if new.name.is_empty() || state.clients.iter().any(|one| one.name == new.name) {
            return ready(Err(Problem::conflict(format!("client `{}` already exists", new.name))
                .hint("choose another name")));
        }
        let client = ClientView {
            name: new.name,
            token_hint: Some("pcl_demo".into()),
            allow: new.allow,
            deny: Vec::new(),
            effects: new.effects,
            tools: "all".into(),
            created: Some(Timestamp::now()),
            expires: None,
            expired: false,
            last_call: None,
        };
        state.clients.push(client.clone());
        let snippet = Snippet {
            application: "cursor".into(),
            title: "Cursor".into(),
            transport: "http".into(),
            note: Some("Into ~/.cursor/mcp.json.".into()),
            text: format!(
                "{:#}",
                json!({ "mcpServers": { "portcullis": { "url": "http://127.0.0.1:3000/mcp", "headers": { "Authorization": format!("Bearer {SHOWN_HERE}") } } } })
            ),
        };
        let answer = CreatedClient {
            client,
            token: SHOWN_HERE.into(),
            url: "http://127.0.0.1:3000/mcp".into(),
            snippets: vec![snippet],
        };
        ready(Ok(OneTimeReveal { answer, shown: Secret::new("pcl_demo_d0n0tus3".into()) }))
    }

    fn change_client(&self, name: String, change: ChangeClient, _: Actor) -> DeskFuture<'_, ClientView> {
        let mut state = self.state();
        ready(match state.clients.iter_mut().find(|one| one.name == name) {
            Some(client) => {
                client.allow = change.allow;
                client.effects = change.effects;
                Ok(client.clone())
            }
            None => Err(Problem::not_found("no such client")),
        })
    }

    fn revoke_client(&self, name: String, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        self.state().clients.retain(|one| one.name != name);
        done(format!("Revoked client `{name}`."))
    }

    fn secrets(&self) -> DeskFuture<'_, SecretList> {
        ready(Ok(SecretList { secrets: self.state().secrets.clone() }))
    }

    fn set_secret(&self, name: String, new: SetSecret, _: Actor) -> DeskFuture<'_, SecretReceipt> {
        if new.value.0.expose().len() < 8 {
            return ready(Err(Problem::invalid("the value is shorter than 8 bytes")
                .hint("a shorter value cannot be redacted")));
        }
        let shown = SecretView {
            name,
            grants: new.grants.unwrap_or_default(),
            created: Timestamp::now(),
            updated: Timestamp::now(),
            last_used: None,
        };
        let mut state = self.state();
        state.secrets.retain(|one| one.name != shown.name);
        state.secrets.push(shown.clone());
        let said = format!("Saved secret `{}`.", shown.name);
        ready(Ok(SecretReceipt { secret: shown, said }))
    }

    fn grant_secret(&self, name: String, grants: GrantSecret, _: Actor) -> DeskFuture<'_, SecretReceipt> {
        let mut state = self.state();
        ready(match state.secrets.iter_mut().find(|one| one.name == name) {
            Some(secret) => {
                secret.grants = grants.grants;
                let said = format!("Updated secret `{name}`.");
                Ok(SecretReceipt { secret: secret.clone(), said })
            }
            None => Err(Problem::not_found("no such secret")),
        })
    }

    fn remove_secret(&self, name: String, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        self.state().secrets.retain(|one| one.name != name);
        done(format!("Removed secret `{name}`."))
    }

    fn servers(&self) -> DeskFuture<'_, ServerList> {
        ready(Ok(ServerList { servers: servers::servers() }))
    }

    fn server(&self, name: String) -> DeskFuture<'_, ServerDetail> {
        ready(servers::server(&name).ok_or_else(|| Problem::not_found("no such server")))
    }

    fn probe_server(&self, name: String, _: Actor) -> DeskFuture<'_, ServerDetail> {
        self.server(name)
    }

    fn trust_server(&self, name: String, _: TrustServer, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        done(format!("Server `{name}` is trusted. Later changes need review."))
    }

    fn distrust_server(&self, name: String, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        done(format!("Revoked trust in `{name}`."))
    }

    fn switch_server(&self, name: String, switch: SwitchServer, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        done(format!("{} server `{name}`.", if switch.enabled { "Enabled" } else { "Disabled" }))
    }

    fn restart_server(&self, name: String, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        done(format!("Restarting server `{name}`."))
    }

    fn add_server(&self, new: AddServer, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        if new.command.is_none() == new.url.is_none() {
            return ready(Err(Problem::invalid("set either a command or a URL")));
        }
        done(format!("Added server `{}` to portcullis.toml.", new.name))
    }

    fn remove_server(&self, name: String, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        done(format!("Removed server `{name}`."))
    }

    fn importable(&self, _: ImportSource) -> DeskFuture<'_, ImportPreview> {
        ready(Ok(servers::importable()))
    }

    fn import_servers(&self, _: ImportServers, _: Actor) -> DeskFuture<'_, ImportPreview> {
        ready(Ok(ImportPreview {
            files: Vec::new(),
            written_to: Some("portcullis.toml".into()),
            said: Some("Imported to portcullis.toml, all disabled.".into()),
        }))
    }

    fn sign_in_to_server(&self, _: String, _: Actor) -> DeskFuture<'_, OneTimeReveal<ServerLoginUrl>> {
        ready(Ok(OneTimeReveal {
            answer: ServerLoginUrl { url: SHOWN_HERE.into() },
            shown: Secret::new("https://login.drive.example/authorize?state=x".into()),
        }))
    }

    fn tools(&self) -> DeskFuture<'_, ToolList> {
        ready(Ok(ToolList { tools: tools::tools() }))
    }

    fn tool(&self, name: String) -> DeskFuture<'_, ToolDetail> {
        let found = tools::tools().into_iter().find(|tool| tool.name == name);
        ready(found.ok_or_else(|| Problem::not_found("no such tool")))
    }

    fn try_tool(&self, name: String, arguments: TryTool, _: Actor) -> DeskFuture<'_, TryToolResult> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": arguments.arguments } });
        let reply = json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [{ "type": "text", "text": data::HOSTILE }] } });
        ready(Ok(TryToolResult {
            call: 5_001,
            request,
            reply,
            is_error: false,
            outcome: "ok".into(),
            decision: Some("allow".into()),
            rule: Some("default-allow".into()),
            duration_us: 3_210,
        }))
    }

    fn policy(&self) -> DeskFuture<'_, PolicyView> {
        ready(Ok(self.state().policy.clone()))
    }

    fn test_policy(&self, question: TestPolicy) -> DeskFuture<'_, PolicyExplanation> {
        let step = |rule: &str, matches, why: &str| PolicyStep {
            rule: rule.into(),
            place: None,
            matches,
            why: why.into(),
        };
        let decision = if question.tool == "workspace_write" { "ask" } else { "allow" };
        ready(Ok(PolicyExplanation {
            decision: decision.into(),
            rule: if decision == "ask" { "policy[0]" } else { "default-allow" }.into(),
            place: Some("portcullis.toml:12".into()),
            why: format!("`{}` may call `{}` after approval.", question.client, question.tool),
            steps: vec![
                step("policy[0]", decision == "ask", "tools and clients match"),
                step("policy[1]", false, "it is not between 22:00 and 06:00"),
            ],
            arguments_problem: None,
            nearest: Vec::new(),
        }))
    }

    fn add_rule(&self, rule: AddRule, _: Actor) -> DeskFuture<'_, PolicyView> {
        let mut state = self.state();
        let name = format!("policy[{}]", state.policy.rules.len());
        state.policy.rules.push(RuleView { name, place: None, rule: rule.rule, in_force: true });
        ready(Ok(state.policy.clone()))
    }

    fn remove_rule(&self, rule: RemoveRule, _: Actor) -> DeskFuture<'_, PolicyView> {
        let mut state = self.state();
        if rule.at >= state.policy.rules.len() {
            return ready(Err(Problem::not_found("no such rule")));
        }
        state.policy.rules.remove(rule.at);
        ready(Ok(state.policy.clone()))
    }

    fn move_rule(&self, rule: MoveRule, _: Actor) -> DeskFuture<'_, PolicyView> {
        let mut state = self.state();
        if rule.from.max(rule.to) >= state.policy.rules.len() {
            return ready(Err(Problem::not_found("no such rule")));
        }
        state.policy.rules.swap(rule.from, rule.to);
        ready(Ok(state.policy.clone()))
    }

    fn search_audit(&self, search: SearchAudit) -> DeskFuture<'_, AuditPage> {
        let text = search.text.clone().unwrap_or_default().to_lowercase();
        let is_like = |record: &AuditRecord| format!("{record:?}").to_lowercase().contains(&text);
        let known = if search.calls { calls::calls() } else { calls::records() };
        let fits =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        let fits = |record: &AuditRecord| {
            fits(&search.client, &record.client)
                && fits(&search.outcome, record.outcome.as_deref().unwrap_or_default())
        };
        let records: Vec<_> = known.into_iter().filter(is_like).filter(fits).collect();
        ready(Ok(AuditPage {
            cursor: (!records.is_empty()).then(|| "next".into()),
            records,
            searched: 10_240,
            took_us: 8_700,
        }))
    }

    fn call_history(&self, seq: u64) -> DeskFuture<'_, CallHistory> {
        ready(calls::story(seq).ok_or_else(|| Problem::not_found("no such record")))
    }

    fn verify_audit(&self) -> DeskFuture<'_, AuditVerification> {
        ready(Ok(AuditVerification {
            intact: true,
            state: "intact".into(),
            said: "The audit log is intact: 10240 records in 2 files, checked against 41 anchors.".into(),
            checked: Timestamp::now(),
            records: 10_240,
            files: 2,
            anchors: 41,
            problem: None,
        }))
    }

    fn settings(&self) -> DeskFuture<'_, SettingsView> {
        ready(Ok(SettingsView {
            file: Some("~/.local/share/portcullis/portcullis.toml".into()),
            home: "~/.local/share/portcullis".into(),
            written: json!({ "http": { "port": 3000 }, "vault": { "path": "~/Notes", "git_repo": "git@example.com:me/notes.git" }, "policy": [{ "tools": ["workspace_write"], "decision": "ask" }] }),
            problem: None,
        }))
    }

    fn scripts(&self) -> Option<&dyn ScriptDesk> {
        Some(&self.scripts)
    }
}
