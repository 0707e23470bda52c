//! An invented hub. What is decided here is remembered until it ends, so that forms do something.

use crate::approvals::Questions;
use crate::scripts::DemoScripts;
use crate::{calls, data, servers, tools};
use jiff::Timestamp;
use portcullis_admin::Problem;
use portcullis_admin::desk::*;
use portcullis_core::Secret;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;

/// How many events a slow page may be behind.
const EVENTS_MAX: usize = 1024;
const CALLS_MAX: usize = 200;

pub(crate) struct DemoDesk {
    started: Timestamp,
    events: broadcast::Sender<Arc<Event>>,
    state: Mutex<State>,
    scripts: DemoScripts,
}

struct State {
    questions: Questions,
    clients: Vec<ClientShown>,
    secrets: Vec<SecretShown>,
    policy: PolicyShown,
    calls: VecDeque<CallLine>,
}

fn ready<'a, T: Send + 'a>(answer: Result<T, Problem>) -> Answer<'a, T> {
    Box::pin(std::future::ready(answer))
}

fn done<'a>(said: impl Into<String>) -> Answer<'a, Done> {
    ready(Ok(Done { said: said.into() }))
}

impl DemoDesk {
    pub(crate) fn new() -> DemoDesk {
        let secret = |name: &str, grants: &[&str], used| SecretShown {
            name: name.into(),
            grants: grants.iter().map(|text| (*text).into()).collect(),
            created: data::ago(60 * 24 * 40),
            updated: data::ago(60 * 24 * 3),
            last_used: used,
        };
        let state = State {
            questions: Questions::invented(),
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
        }
    }

    /// Lets calls happen.
    pub(crate) async fn live(self: Arc<DemoDesk>, per_second: u64) {
        let tick = Duration::from_millis(20);
        let mut clock = tokio::time::interval(tick);
        let (mut owed, mut number) = (0.0, 1_000u64);
        let mut open: VecDeque<CallLine> = VecDeque::new();
        loop {
            clock.tick().await;
            owed += per_second as f64 * tick.as_secs_f64();
            while owed >= 1.0 {
                owed -= 1.0;
                number += 1;
                let call = calls::call(number);
                let _ = self.events.send(Arc::new(Event::CallOpened(call.clone())));
                open.push_back(call);
            }
            while open.len() > 2 + usize::try_from(per_second).unwrap_or(0) / 50 {
                let Some(call) = open.pop_front() else { break };
                let call = calls::ended(&call);
                let _ = self.events.send(Arc::new(Event::CallClosed(call.clone())));
                let mut state = self.state();
                state.calls.push_front(call);
                state.calls.truncate(CALLS_MAX);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_waiting(&self) {
        let waiting = self.state().questions.waiting();
        let _ = self.events.send(Arc::new(Event::Approvals { waiting }));
    }
}

impl Desk for DemoDesk {
    fn overview(&self) -> Answer<'_, Overview> {
        let part = |name: &str, reason: Option<&str>| PartHealth {
            name: name.into(),
            works: reason.is_none(),
            reason: reason.map(Into::into),
        };
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

    fn recent_calls(&self) -> Answer<'_, RecentCalls> {
        ready(Ok(RecentCalls { calls: self.state().calls.iter().cloned().collect() }))
    }

    fn listen(&self) -> Listener {
        let heard = futures::stream::unfold(self.events.subscribe(), |mut events| async move {
            let event = match events.recv().await {
                Ok(event) => Event::clone(&event),
                Err(broadcast::error::RecvError::Lagged(count)) => Event::Missed { count },
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((event, events))
        });
        Listener::new(heard)
    }

    fn approvals(&self, wanted: WantedApprovals) -> Answer<'_, Approvals> {
        ready(Ok(Approvals { approvals: self.state().questions.list(wanted.all) }))
    }

    fn approval(&self, id: String) -> Answer<'_, ApprovalWhole> {
        ready(self.state().questions.whole(&id))
    }

    fn decide(&self, id: String, decision: Decide, by: Actor) -> Answer<'_, Decided> {
        let decided = self.state().questions.decide(&id, decision, by);
        self.tell_waiting();
        ready(decided)
    }

    fn clients(&self) -> Answer<'_, Clients> {
        ready(Ok(Clients { url: "http://127.0.0.1:3000/mcp".into(), clients: self.state().clients.clone() }))
    }

    fn add_client(&self, new: AddClient, _: Actor) -> Answer<'_, Showing<ClientMade>> {
        let mut state = self.state();
        if new.name.is_empty() || state.clients.iter().any(|one| one.name == new.name) {
            return ready(Err(Problem::conflict(format!("there is a client `{}` already", new.name))
                .hint("take another name")));
        }
        let client = ClientShown {
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
        let answer = ClientMade {
            client,
            token: SHOWN_HERE.into(),
            url: "http://127.0.0.1:3000/mcp".into(),
            snippets: vec![snippet],
        };
        ready(Ok(Showing { answer, shown: Secret::new("pcl_demo_d0n0tus3".into()) }))
    }

    fn change_client(&self, name: String, change: ChangeClient, _: Actor) -> Answer<'_, ClientShown> {
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

    fn revoke_client(&self, name: String, _: Actor) -> Answer<'_, Done> {
        self.state().clients.retain(|one| one.name != name);
        done(format!("Client `{name}` is refused from its next request on."))
    }

    fn secrets(&self) -> Answer<'_, Secrets> {
        ready(Ok(Secrets { secrets: self.state().secrets.clone() }))
    }

    fn set_secret(&self, name: String, new: SetSecret, _: Actor) -> Answer<'_, SecretShown> {
        if new.value.0.expose().len() < 8 {
            return ready(Err(
                Problem::invalid("the value has less than 8 bytes").hint("a shorter one could not be masked")
            ));
        }
        let shown = SecretShown {
            name,
            grants: new.grants.unwrap_or_default(),
            created: Timestamp::now(),
            updated: Timestamp::now(),
            last_used: None,
        };
        let mut state = self.state();
        state.secrets.retain(|one| one.name != shown.name);
        state.secrets.push(shown.clone());
        ready(Ok(shown))
    }

    fn grant_secret(&self, name: String, grants: GrantSecret, _: Actor) -> Answer<'_, SecretShown> {
        let mut state = self.state();
        ready(match state.secrets.iter_mut().find(|one| one.name == name) {
            Some(secret) => {
                secret.grants = grants.grants;
                Ok(secret.clone())
            }
            None => Err(Problem::not_found("no such secret")),
        })
    }

    fn remove_secret(&self, name: String, _: Actor) -> Answer<'_, Done> {
        self.state().secrets.retain(|one| one.name != name);
        done(format!("Secret `{name}` is removed."))
    }

    fn servers(&self) -> Answer<'_, Servers> {
        ready(Ok(Servers { servers: servers::servers() }))
    }

    fn server(&self, name: String) -> Answer<'_, ServerWhole> {
        ready(servers::server(&name).ok_or_else(|| Problem::not_found("no server has that name")))
    }

    fn look_at_server(&self, name: String, _: Actor) -> Answer<'_, ServerWhole> {
        self.server(name)
    }

    fn trust_server(&self, name: String, _: TrustServer, _: Actor) -> Answer<'_, Done> {
        done(format!("Server `{name}` is trusted as it is. What changes waits until you look again."))
    }

    fn distrust_server(&self, name: String, _: Actor) -> Answer<'_, Done> {
        done(format!("Server `{name}` is not trusted any more."))
    }

    fn switch_server(&self, name: String, switch: SwitchServer, _: Actor) -> Answer<'_, Done> {
        done(format!("Server `{name}` is switched {}.", if switch.enabled { "on" } else { "off" }))
    }

    fn restart_server(&self, name: String, _: Actor) -> Answer<'_, Done> {
        done(format!("Server `{name}` starts again."))
    }

    fn add_server(&self, new: AddServer, _: Actor) -> Answer<'_, Done> {
        if new.command.is_none() == new.url.is_none() {
            return ready(Err(Problem::invalid("a server has a command or a URL, and not both")));
        }
        done(format!("Server `{}` is written into portcullis.toml.", new.name))
    }

    fn remove_server(&self, name: String, _: Actor) -> Answer<'_, Done> {
        done(format!("Server `{name}` is removed."))
    }

    fn importable(&self, _: ImportFrom) -> Answer<'_, Importable> {
        ready(Ok(servers::importable()))
    }

    fn import_servers(&self, _: ImportServers, _: Actor) -> Answer<'_, Importable> {
        ready(Ok(Importable { files: Vec::new(), written_to: Some("portcullis.toml".into()) }))
    }

    fn sign_in_to_server(&self, _: String, _: Actor) -> Answer<'_, Showing<SignInPage>> {
        ready(Ok(Showing {
            answer: SignInPage { url: SHOWN_HERE.into() },
            shown: Secret::new("https://login.drive.example/authorize?state=x".into()),
        }))
    }

    fn tools(&self) -> Answer<'_, Tools> {
        ready(Ok(Tools { tools: tools::tools() }))
    }

    fn tool(&self, name: String) -> Answer<'_, ToolShown> {
        let found = tools::tools().into_iter().find(|tool| tool.name == name);
        ready(found.ok_or_else(|| Problem::not_found("no tool has that name")))
    }

    fn try_tool(&self, name: String, arguments: TryTool, _: Actor) -> Answer<'_, Tried> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": arguments.arguments } });
        let reply = json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [{ "type": "text", "text": data::HOSTILE }] } });
        ready(Ok(Tried {
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

    fn policy(&self) -> Answer<'_, PolicyShown> {
        ready(Ok(self.state().policy.clone()))
    }

    fn test_policy(&self, question: TestPolicy) -> Answer<'_, PolicyAnswer> {
        let step = |rule: &str, matches, why: &str| PolicyStep {
            rule: rule.into(),
            place: None,
            matches,
            why: why.into(),
        };
        let decision = if question.tool == "workspace_write" { "ask" } else { "allow" };
        ready(Ok(PolicyAnswer {
            decision: decision.into(),
            rule: if decision == "ask" { "policy[0]" } else { "default-allow" }.into(),
            place: Some("portcullis.toml:12".into()),
            why: format!("`{}` may call `{}` if a person says so.", question.client, question.tool),
            steps: vec![
                step("policy[0]", decision == "ask", "tools and clients match"),
                step("policy[1]", false, "it is not between 22:00 and 06:00"),
            ],
            arguments_problem: None,
            nearest: Vec::new(),
        }))
    }

    fn add_rule(&self, rule: AddRule, _: Actor) -> Answer<'_, PolicyShown> {
        let mut state = self.state();
        let name = format!("policy[{}]", state.policy.rules.len());
        state.policy.rules.push(RuleShown { name, place: None, rule: rule.rule, in_force: true });
        ready(Ok(state.policy.clone()))
    }

    fn remove_rule(&self, rule: RemoveRule, _: Actor) -> Answer<'_, PolicyShown> {
        let mut state = self.state();
        if rule.at >= state.policy.rules.len() {
            return ready(Err(Problem::not_found("there is no such rule")));
        }
        state.policy.rules.remove(rule.at);
        ready(Ok(state.policy.clone()))
    }

    fn move_rule(&self, rule: MoveRule, _: Actor) -> Answer<'_, PolicyShown> {
        let mut state = self.state();
        if rule.from.max(rule.to) >= state.policy.rules.len() {
            return ready(Err(Problem::not_found("there is no such rule")));
        }
        state.policy.rules.swap(rule.from, rule.to);
        ready(Ok(state.policy.clone()))
    }

    fn search_audit(&self, search: SearchAudit) -> Answer<'_, AuditPage> {
        let text = search.text.unwrap_or_default().to_lowercase();
        let is_like = |record: &AuditRecord| format!("{record:?}").to_lowercase().contains(&text);
        let records: Vec<_> = calls::records().into_iter().filter(is_like).collect();
        ready(Ok(AuditPage {
            cursor: (!records.is_empty()).then(|| "next".into()),
            records,
            searched: 10_240,
            took_us: 8_700,
        }))
    }

    fn story(&self, seq: u64) -> Answer<'_, Story> {
        ready(calls::story(seq).ok_or_else(|| Problem::not_found("no record has that number")))
    }

    fn verify_audit(&self) -> Answer<'_, AuditVerified> {
        ready(Ok(AuditVerified {
            intact: true,
            checked: Timestamp::now(),
            records: 10_240,
            files: 2,
            anchors: 41,
            problem: None,
        }))
    }

    fn settings(&self) -> Answer<'_, Settings> {
        ready(Ok(Settings {
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
