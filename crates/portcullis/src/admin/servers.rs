//! The servers behind the hub.

use super::differences::change;
use super::{HubDesk, blocking, by, done, edit_problem, explained, load};
use crate::commands::environment;
use crate::commands::mcp::import::{around, in_usual_places};
use crate::commands::mcp::look::look_at;
use crate::commands::mcp::trust::{change as how, lines, runs_with, switch_on};
use crate::commands::mcp::{Desk as CommandDesk, may_run, reached};
use crate::compose::Composed;
use crate::config::{self, McpServer, NewServer};
use crate::import::{self, Around, Found};
use crate::login;
use crate::private::Extent;
use portcullis_admin::Problem;
use portcullis_admin::desk::{
    Actor, AddServer, DefinitionChange, DefinitionShown, Done, Importable, ImportableFile, ImportableServer,
    NamedReason, SHOWN_HERE, ServerBrief, ServerShown, ServerWhole, Servers, Showing, SignInPage,
    TrustServer, TrustedShown, Waiting,
};
use portcullis_core::json::printable;
use portcullis_core::{BoxFuture, Secret};
use portcullis_store::pins::{Difference, Kind, Snapshot, differences, digest};
use portcullis_upstream::{Consent, Status};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What servers that do not run were when somebody looked, by name.
pub(super) type LookedAt = BTreeMap<String, Arc<Snapshot>>;
/// Logins that wait for a person, by name.
pub(super) type Logins = BTreeMap<String, JoinHandle<()>>;

/// How long a server may take to say where to log in.
const LOGIN_PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Returns how every server stands.
pub(super) fn briefs(composed: &Composed) -> Vec<ServerBrief> {
    composed.servers.statuses().into_iter().map(|(name, status)| brief(name, &status)).collect()
}

fn brief(name: String, status: &Status) -> ServerBrief {
    ServerBrief {
        name,
        status: status.kind.as_str().to_owned(),
        reason: status.reason.clone(),
        tools: status.tools,
        waiting: status.quarantined.len(),
    }
}

impl HubDesk {
    pub(super) async fn list_servers(&self) -> Result<Servers, Problem> {
        let (composed, config) = (self.composed.clone(), self.config());
        blocking(move || {
            let servers = config.mcp.iter().map(|server| shown(&composed, server)).collect();
            Ok(Servers { servers })
        })
        .await
    }

    pub(super) async fn show_server(&self, name: String) -> Result<ServerWhole, Problem> {
        let running = self.composed.servers.upstream(&name).and_then(|upstream| upstream.seen());
        let seen = running.or_else(|| locked(&self.looked_at).get(&name).cloned());
        let (composed, config) = (self.composed.clone(), self.config());
        blocking(move || {
            let server = find(&config, &name)?;
            Ok(whole(&composed, server, seen))
        })
        .await
    }

    pub(super) async fn look_at(&self, name: String, actor: Actor) -> Result<ServerWhole, Problem> {
        let config = self.config();
        let server = find(&config, &name)?;
        if self.composed.servers.upstream(&name).is_some() {
            return self.show_server(name).await;
        }
        tracing::info!(target: "admin", admin = actor.name, server = %server.name, "A server is looked at.");
        let looked = look_at(server, &config, &self.composed.servers.makers).await.map_err(explained)?;
        let seen = looked.connected(&name).map_err(explained)?;
        {
            let mut known = locked(&self.looked_at);
            known.retain(|name, _| config.mcp.iter().any(|server| server.name == *name));
            known.insert(name.clone(), seen);
        }
        self.show_server(name).await
    }

    pub(super) async fn let_in(
        &self,
        name: String,
        trust: TrustServer,
        actor: Actor,
    ) -> Result<Done, Problem> {
        let upstream = self.composed.servers.upstream(&name);
        // Asked first: what is seen after it is at least what this was said of.
        let is_part = upstream.as_ref().is_some_and(|upstream| upstream.is_seen_in_part());
        let running = upstream.and_then(|upstream| upstream.seen());
        let seen = running.or_else(|| locked(&self.looked_at).get(&name).cloned());
        let (composed, config) = (self.composed.clone(), self.config());
        let said = blocking(move || {
            let server = find(&config, &name)?;
            // Trusted so, what is not there yet would have to be looked at again, whoever looked at it before.
            if is_part {
                return Err(Problem::conflict(format!("`{name}` has not said yet all that it offers")).hint(
                    format!("try again in a moment; `portcullis mcp trust {name}` waits longer, and then does without"),
                ));
            }
            let seen = seen.ok_or_else(|| {
                Problem::conflict(format!("nobody knows yet what `{name}` offers")).hint("look at it first")
            })?;
            if mark(&seen) != trust.seen {
                return Err(Problem::changed(format!("`{name}` is not what was shown any more"))
                    .hint("look at it again, then decide"));
            }
            let makers = &composed.servers.makers;
            let failed = |error: anyhow::Error| explained(error);
            makers.activate_secrets(server).map_err(|error| failed(error.into()))?;
            makers.pins.trust(&name, (*seen).clone(), &by(&actor)).map_err(|error| failed(error.into()))?;
            let on = if switch_on(makers, &name).map_err(failed)? { ", and switched on" } else { "" };
            tracing::info!(target: "admin", admin = actor.name, server = %name, "A server was trusted.");
            Ok(format!("Server `{name}` is trusted as it is{on}. What changes waits until you look again."))
        })
        .await?;
        Ok(done(said))
    }

    pub(super) async fn keep_out(&self, name: String, actor: Actor) -> Result<Done, Problem> {
        self.change(name, actor, "trust in a server was taken back", |composed, server| {
            composed.servers.makers.pins.revoke(&server.name)?;
            let always = if server.always_trusted { " The configuration trusts it in any case." } else { "" };
            Ok(format!("Server `{}` is not trusted any more; nothing of it is let in.{always}", server.name))
        })
        .await
    }

    pub(super) async fn switch(&self, name: String, on: bool, actor: Actor) -> Result<Done, Problem> {
        self.change(name, actor, "a server was switched", move |composed, server| {
            if on {
                may_run(server, &composed.servers.makers).map_err(anyhow::Error::msg)?;
            }
            // What the configuration says anyway needs no word of its own.
            let wish = (server.enabled != on).then_some(on);
            composed.servers.makers.toggles.set(&server.name, wish)?;
            Ok(format!("Server `{}` is switched {}.", server.name, if on { "on" } else { "off" }))
        })
        .await
    }

    pub(super) async fn restart(&self, name: String, actor: Actor) -> Result<Done, Problem> {
        self.change(name, actor, "a server connects anew", |composed, server| {
            composed.servers.makers.toggles.reload(&server.name)?;
            Ok(format!("Server `{}` connects anew.", server.name))
        })
        .await
    }

    /// Changes something about a server that is configured.
    async fn change(
        &self,
        name: String,
        actor: Actor,
        what: &'static str,
        change: impl FnOnce(&Composed, &McpServer) -> anyhow::Result<String> + Send + 'static,
    ) -> Result<Done, Problem> {
        let (composed, config) = (self.composed.clone(), self.config());
        blocking(move || {
            let server = find(&config, &name)?;
            let said = change(&composed, server).map_err(explained)?;
            tracing::info!(target: "admin", admin = actor.name, server = %name, "By an administrator: {what}.");
            Ok(done(said))
        })
        .await
    }

    pub(super) async fn write_server(&self, new: AddServer, actor: Actor) -> Result<Done, Problem> {
        let (home, composed) = (self.home.clone(), self.composed.clone());
        blocking(move || {
            let server = NewServer {
                name: new.name.clone(),
                command: new.command.filter(|text| !text.is_empty()),
                args: new.args,
                cwd: new.cwd.filter(|text| !text.is_empty()),
                env: new.env.into_iter().collect(),
                url: new.url.filter(|text| !text.is_empty()),
                headers: new.headers.into_iter().collect(),
                comment: Some(format!("Added by {}.", by(&actor))),
                ..NewServer::default()
            };
            config::check_server(home.path(), &environment, &server).map_err(edit_problem)?;
            let all = [server];
            // Before anything is kept: what cannot be written must not leave half of itself behind.
            config::preview_servers(home.path(), &environment, &all).map_err(edit_problem)?;
            let makers = &composed.servers.makers;
            // One that had the name before is not this one; and it is off before it is configured.
            let prepared = makers.pins.revoke(&new.name).map_err(anyhow::Error::from);
            let prepared = prepared.and_then(|_| Ok(makers.toggles.hold(&new.name)?));
            prepared.map_err(explained)?;
            let path = config::add_servers(home.path(), &environment, &all).map_err(edit_problem)?;
            tracing::info!(target: "admin", admin = actor.name, server = %new.name, "A server was added.");
            let path = path.display();
            Ok(done(format!("Server `{}` is in {path}, switched off until somebody looks at it.", new.name)))
        })
        .await
    }

    pub(super) async fn take_server_out(&self, name: String, actor: Actor) -> Result<Done, Problem> {
        let (home, composed) = (self.home.clone(), self.composed.clone());
        // Looked for first: it goes with the server. One that is switched off may have a login all the same.
        let login = composed.servers.login(&name).or_else(|| {
            let config = self.config();
            let server = config.mcp.iter().find(|server| server.name == name)?;
            login::to_end(server, &config, composed.servers.makers.secrets.clone()).map(Arc::new)
        });
        let (server, by, has_login) = (name.clone(), actor.name, login.is_some());
        let (said, left) = blocking(move || {
            let path = config::remove_server(home.path(), &environment, &name).map_err(edit_problem)?;
            composed.servers.makers.forget(&name).map_err(explained)?;
            let makers = &composed.servers.makers;
            // A store that is locked keeps what it has; it is no reason to keep the server.
            let left = !has_login && login::forget_left(&makers.secrets, &name).unwrap_or(false);
            Ok((format!("Server `{name}` is out of {}, and no longer trusted.", path.display()), left))
        })
        .await?;
        tracing::info!(target: "admin", admin = by, %server, "A server was removed.");
        let ended = match login {
            Some(login) => crate::commands::mcp_auth::ended(&server, login.oauth().log_out().await),
            None if left => crate::commands::mcp_auth::ended(&server, Ok(crate::commands::mcp_auth::left())),
            None => None,
        };
        Ok(done([Some(said), ended].into_iter().flatten().collect::<Vec<_>>().join(" ")))
    }

    /// Looks what could be taken over; with an actor, takes it over.
    pub(super) async fn import(
        &self,
        text: Option<String>,
        only: Vec<String>,
        actor: Option<Actor>,
    ) -> Result<Importable, Problem> {
        let (home, store) = (self.home.clone(), self.composed.secrets.clone());
        let live = self.composed.live_secrets.clone();
        blocking(move || {
            let mut files: Vec<Found> = match text.filter(|text| !text.trim().is_empty()) {
                Some(text) => {
                    let read = |around: &Around<'_>| import::of_text(Path::new("pasted text"), &text, around);
                    vec![around(None, read).map_err(Problem::invalid)?]
                }
                None => in_usual_places(None).into_iter().filter_map(|(_, found)| found.ok()).collect(),
            };
            let desk = CommandDesk { config: load(&home)?.config, home, as_json: false };
            let any = desk.settle(&mut files, &only);
            let mut written_to = None;
            if let Some(actor) = actor.filter(|_| any) {
                let path = desk.take_over(&mut files, Some(store)).map_err(explained)?;
                live.apply();
                tracing::info!(target: "admin", admin = actor.name, "Servers were taken over.");
                written_to = Some(path.display().to_string());
            }
            Ok(Importable { files: files.iter().map(importable).collect(), written_to })
        })
        .await
    }

    pub(super) async fn begin_login(
        &self,
        name: String,
        actor: Actor,
    ) -> Result<Showing<SignInPage>, Problem> {
        let config = self.config();
        find(&config, &name)?;
        let login = self.composed.servers.login(&name).ok_or_else(|| {
            Problem::conflict(format!("`{name}` is not set to log in, or does not run"))
                .hint(format!("add `oauth = true` to `mcp.{name}` in the configuration, and switch it on"))
        })?;
        let (send, page) = oneshot::channel();
        let (failed, why) = oneshot::channel();
        let (servers, own) = (self.composed.servers.clone(), name.clone());
        let waiting = tokio::spawn(async move {
            let person = Person(Mutex::new(Some(send)));
            match login.oauth().log_in(&person).await {
                Ok(_) => {
                    tracing::info!(target: "admin", server = %own, "Somebody logged in to a server.");
                    if let Some(upstream) = servers.upstream(&own) {
                        upstream.again();
                    }
                }
                Err(error) => {
                    tracing::warn!(target: "admin", server = %own, %error, "A login to a server failed.");
                    let _ = failed.send(error.to_string());
                }
            }
        });
        tracing::info!(target: "admin", admin = actor.name, server = %name, "A login to a server was begun.");
        // Of two logins to one server the newer counts.
        if let Some(older) = locked(&self.logins).insert(name, waiting) {
            older.abort();
        }
        let url = tokio::select! {
            url = page => url.map_err(|_| None),
            why = why => Err(why.ok()),
            () = tokio::time::sleep(LOGIN_PAGE_WITHIN) => Err(None),
        };
        let url = url.map_err(|why| {
            Problem::unavailable(why.unwrap_or_else(|| "the server did not say where to log in".to_owned()))
        })?;
        Ok(Showing { answer: SignInPage { url: SHOWN_HERE.to_owned() }, shown: Secret::new(url) })
    }
}

/// The person at the page, who is told where to log in.
struct Person(Mutex<Option<oneshot::Sender<String>>>);

impl Consent for Person {
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        let sent = locked(&self.0).take().and_then(|person| person.send(url.to_owned()).ok());
        Box::pin(async move { sent.ok_or_else(|| "nobody waits for the login any more".to_owned()) })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find<'c>(config: &'c config::Config, name: &str) -> Result<&'c McpServer, Problem> {
    let found = config.mcp.iter().find(|server| server.name == name);
    found.ok_or_else(|| Problem::not_found(format!("no server is named `{}`", printable(name))))
}

/// Tells one state of a server from another.
fn mark(seen: &Snapshot) -> String {
    digest(&serde_json::to_string(seen).unwrap_or_default())
}

fn shown(composed: &Composed, server: &McpServer) -> ServerShown {
    let statuses = composed.servers.statuses();
    let status = statuses.into_iter().find(|(name, _)| *name == server.name).map(|(_, status)| status);
    let status = status.unwrap_or_else(|| Status::of(portcullis_upstream::StatusKind::Disabled));
    let makers = &composed.servers.makers;
    ServerShown {
        brief: brief(server.name.clone(), &status),
        reached_by: reached(server, Extent::Full),
        prefix: Some(server.prefix.clone()),
        enabled: makers.is_wanted(server),
        enabled_in_configuration: server.enabled,
        prompts: status.prompts,
        resources: status.resources,
        own_name: status.server.clone(),
        revision: status.revision.map(str::to_owned),
        stderr: status.stderr.clone(),
        dropped: status.dropped.iter().map(|(name, why)| reason(name, why)).collect(),
        waiting_for: status
            .quarantined
            .iter()
            .map(|what| Waiting {
                kind: what.kind.to_owned(),
                name: what.name.clone(),
                why: what.why.clone(),
            })
            .collect(),
        trusted: makers
            .pins
            .of(&server.name)
            .map(|trusted| TrustedShown { since: trusted.since, by: trusted.by.clone() }),
        always_trusted: server.always_trusted,
        may_sign_in: composed.servers.login(&server.name).is_some(),
    }
}

fn reason(name: &str, why: &str) -> NamedReason {
    NamedReason { name: name.to_owned(), why: why.to_owned() }
}

fn whole(composed: &Composed, server: &McpServer, seen: Option<Arc<Snapshot>>) -> ServerWhole {
    let trusted = composed.servers.makers.pins.of(&server.name);
    let nothing = Snapshot::default();
    let (now, known) = (seen.as_deref(), trusted.as_ref().map_or(&nothing, |trusted| &trusted.as_it_was));
    let mut definitions = Vec::new();
    for (kind, seen) in Kind::ALL.into_iter().flat_map(|kind| now.map(|seen| (kind, seen))) {
        for (name, pin) in seen.pins(kind) {
            let value: Value = serde_json::from_str(&pin.definition).unwrap_or_default();
            let said = value["description"].as_str().or(value["title"].as_str()).unwrap_or_default();
            let standing = match (&trusted, server.always_trusted) {
                (_, true) => "trusted",
                (Some(trusted), _) => trusted.standing(&seen.identity, kind, name, &pin.sha256).as_str(),
                (None, _) => "server not trusted",
            };
            definitions.push(DefinitionShown {
                kind: kind.as_str().to_owned(),
                own_name: name.clone(),
                description: said.to_owned(),
                standing: standing.to_owned(),
            });
        }
    }
    let difference = |one: &Difference| {
        let (before, after) = lines(one);
        DefinitionChange {
            kind: one.kind.to_owned(),
            name: one.name.clone(),
            how: how(one).to_owned(),
            change: change(before, after),
        }
    };
    ServerWhole {
        server: shown(composed, server),
        runs_with: runs_with(server, Extent::Full),
        instructions: now.and_then(|seen| seen.instructions.clone()),
        definitions,
        differences: now
            .map(|seen| differences(known, seen).iter().map(difference).collect())
            .unwrap_or_default(),
        seen: now.map(mark),
    }
}

fn importable(found: &Found) -> ImportableFile {
    ImportableFile {
        path: found.path.display().to_string(),
        servers: found
            .servers
            .iter()
            .map(|imported| ImportableServer {
                name: imported.server.name.clone(),
                own_name: imported.own.clone(),
                entry: imported.server.shown().written(),
                secrets: imported.secrets.iter().map(|secret| secret.name.clone()).collect(),
                notes: imported.told(),
            })
            .collect(),
        skipped: found.skipped.iter().map(|(own, why)| reason(own, why)).collect(),
    }
}
