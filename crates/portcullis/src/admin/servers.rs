//! Upstream servers: status, review, trust, configuration, import, login.

use super::differences::change;
use super::{HubDesk, done, edit_problem, explained, load};
use crate::commands::environment;
use crate::commands::mcp::import::{around, in_usual_places};
use crate::commands::mcp::probe::probe_server;
use crate::commands::mcp::trust::{change as how, lines, runs_with, switch_on};
use crate::commands::mcp::{McpCommandContext as CommandDesk, reached};
use crate::compose::ComposedHub;
use crate::config::{self, McpServerSettings, NewServer};
use crate::import::{self, ImportEnvironment, ImportedFile};
use crate::login;
use crate::secret_detection::Extent;
use parking_lot::Mutex;
use portcullis_core::{BoxFuture, Secret, blocking};
use portcullis_ops::desk::{
    ActionReceipt, AddServer, DefinitionChange, DefinitionView, ImportPreview, ImportableFile,
    ImportableServer, NamedReason, OneTimeReveal, PendingReview, SHOWN_HERE, ServerBrief, ServerDetail,
    ServerList, ServerLoginUrl, ServerView, TrustInfo, TrustServer,
};
use portcullis_ops::servers::{RestartOutcome, find_server};
use portcullis_ops::{Actor, Problem};
use portcullis_store::pins::{PinDifference, PinKind, ServerSnapshot, differences, digest};
use portcullis_upstream::{Consent, ServerStatus};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Snapshots of disabled servers from probes, by name.
pub(super) type ProbedServers = BTreeMap<String, Arc<ServerSnapshot>>;
/// Pending logins, by server.
pub(super) type PendingLogins = BTreeMap<String, JoinHandle<()>>;

/// How long a server may take to return its authorization URL.
const LOGIN_PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Returns the status of every server.
pub(super) fn briefs(composed: &ComposedHub) -> Vec<ServerBrief> {
    composed.servers.statuses().into_iter().map(|(name, status)| brief(name, &status)).collect()
}

fn brief(name: String, status: &ServerStatus) -> ServerBrief {
    ServerBrief {
        name,
        status: status.kind.as_str().to_owned(),
        reason: status.reason.clone(),
        tools: status.tools,
        waiting: status.quarantined.len(),
    }
}

impl HubDesk {
    pub(super) async fn list_servers(&self) -> Result<ServerList, Problem> {
        let (composed, config) = (self.composed.clone(), self.config());
        blocking(move || {
            let servers = config.mcp.iter().map(|server| shown(&composed, server)).collect();
            Ok(ServerList { servers })
        })
        .await
    }

    pub(super) async fn show_server(&self, name: String) -> Result<ServerDetail, Problem> {
        let running = self.composed.servers.upstream(&name).and_then(|upstream| upstream.snapshot());
        let seen = running.or_else(|| self.looked_at.lock().get(&name).cloned());
        let (composed, config) = (self.composed.clone(), self.config());
        blocking(move || {
            let server = find_server(&config, &name)?;
            Ok(whole(&composed, server, seen))
        })
        .await
    }

    pub(super) async fn look_at(&self, name: String, actor: Actor) -> Result<ServerDetail, Problem> {
        let config = self.config();
        let server = find_server(&config, &name)?;
        if self.composed.servers.upstream(&name).is_some() {
            return self.show_server(name).await;
        }
        tracing::info!(target: "admin", by = %actor, server = %server.name, "server probed");
        let looked = probe_server(server, &config, &self.composed.servers.makers).await.map_err(explained)?;
        let seen = looked.connected(&name).map_err(explained)?;
        {
            let mut known = self.looked_at.lock();
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
    ) -> Result<ActionReceipt, Problem> {
        let upstream = self.composed.servers.upstream(&name);
        // Read first: the snapshot read afterwards is at least as complete.
        let is_part = upstream.as_ref().is_some_and(|upstream| upstream.is_seen_in_part());
        let running = upstream.and_then(|upstream| upstream.snapshot());
        let seen = running.or_else(|| self.looked_at.lock().get(&name).cloned());
        let (composed, config) = (self.composed.clone(), self.config());
        let said = blocking(move || {
            let server = find_server(&config, &name)?;
            // Pinning a partial list would send the rest back to review.
            if is_part {
                return Err(Problem::conflict(format!("`{name}` is still listing its tools")).hint(format!(
                    "retry in a moment, or run `portcullis mcp trust {name}`, which waits longer"
                )));
            }
            let seen = seen.ok_or_else(|| {
                Problem::conflict(format!("`{name}` was not reviewed yet"))
                    .hint("connect and review it first")
            })?;
            if mark(&seen) != trust.seen {
                return Err(Problem::changed(format!("`{name}` changed since it was shown"))
                    .hint("review it again, then decide"));
            }
            let makers = &composed.servers.makers;
            let failed = |error: anyhow::Error| explained(error);
            makers.activate_secrets(server).map_err(|error| failed(error.into()))?;
            makers
                .pins
                .trust(&name, (*seen).clone(), &actor.to_string())
                .map_err(|error| failed(error.into()))?;
            let on = if switch_on(makers, &name).map_err(failed)? { " and enabled" } else { "" };
            tracing::info!(target: "admin", by = %actor, server = %name, "server trusted");
            Ok(format!("Server `{name}` is trusted{on}. Later changes need review."))
        })
        .await?;
        Ok(done(said))
    }

    pub(super) async fn show_revoked(&self, name: String, actor: Actor) -> Result<ActionReceipt, Problem> {
        self.run(move |ops| {
            let revoked = ops.revoke_trust(&name, &actor)?;
            let said = [Some(revoked.sentence(&name)), revoked.note(&name)];
            Ok(done(said.into_iter().flatten().collect::<Vec<_>>().join(" ")))
        })
        .await
    }

    pub(super) async fn show_switched(
        &self,
        name: String,
        on: bool,
        actor: Actor,
    ) -> Result<ActionReceipt, Problem> {
        self.run(move |ops| {
            ops.switch_server(&name, on, &actor)?;
            Ok(done(format!("{} server `{name}`.", if on { "Enabled" } else { "Disabled" })))
        })
        .await
    }

    pub(super) async fn show_restarted(&self, name: String, actor: Actor) -> Result<ActionReceipt, Problem> {
        self.run(move |ops| {
            Ok(done(match ops.restart_server(&name, &actor)? {
                RestartOutcome::Restarting => format!("Restarting server `{name}`."),
                RestartOutcome::Disabled | RestartOutcome::Unreviewed => {
                    format!("Server `{name}` is disabled, so it does not connect.")
                }
            }))
        })
        .await
    }

    pub(super) async fn write_server(&self, new: AddServer, actor: Actor) -> Result<ActionReceipt, Problem> {
        let (home, composed) = (self.ops.home.clone(), self.composed.clone());
        blocking(move || {
            let server = NewServer {
                name: new.name.clone(),
                command: new.command.filter(|text| !text.is_empty()),
                args: new.args,
                cwd: new.cwd.filter(|text| !text.is_empty()),
                env: new.env.into_iter().collect(),
                url: new.url.filter(|text| !text.is_empty()),
                headers: new.headers.into_iter().collect(),
                comment: Some(format!("Added by {actor}.")),
                ..NewServer::default()
            };
            config::check_server(home.path(), &environment, &server).map_err(edit_problem)?;
            let all = [server];
            // Validated before anything is stored, so that a failure leaves nothing half done.
            config::preview_servers(home.path(), &environment, &all).map_err(edit_problem)?;
            let makers = &composed.servers.makers;
            // An earlier server of that name is another one; and it is disabled before it is configured.
            let prepared = makers.pins.revoke(&new.name).map_err(anyhow::Error::from);
            let prepared = prepared.and_then(|_| Ok(makers.toggles.quarantine(&new.name)?));
            prepared.map_err(explained)?;
            let path = config::add_servers(home.path(), &environment, &all).map_err(edit_problem)?;
            tracing::info!(target: "admin", by = %actor, server = %new.name, "server added");
            let path = path.display();
            Ok(done(format!("Added server `{}` to {path}, disabled until you trust it.", new.name)))
        })
        .await
    }

    pub(super) async fn take_server_out(&self, name: String, actor: Actor) -> Result<ActionReceipt, Problem> {
        let (home, composed) = (self.ops.home.clone(), self.composed.clone());
        // Found first: it goes with the server. A disabled server may have a login too.
        let login = composed.servers.login(&name).or_else(|| {
            let config = self.config();
            let server = config.mcp.iter().find(|server| server.name == name)?;
            login::to_end(server, &config, composed.servers.makers.secrets.clone()).map(Arc::new)
        });
        let (server, has_login) = (name.clone(), login.is_some());
        let (said, left) = blocking(move || {
            let path = config::remove_server(home.path(), &environment, &name).map_err(edit_problem)?;
            composed.servers.makers.forget(&name).map_err(explained)?;
            let makers = &composed.servers.makers;
            // A locked store keeps its tokens; that must not prevent the removal.
            let left = !has_login && login::forget_orphaned(&makers.secrets, &name).unwrap_or(false);
            Ok::<_, Problem>((
                format!("Removed server `{name}` from {} and revoked its trust.", path.display()),
                left,
            ))
        })
        .await?;
        tracing::info!(target: "admin", by = %actor, %server, "server removed");
        let ended = match login {
            Some(login) => crate::commands::mcp_auth::ended(&server, login.oauth().log_out().await),
            None if left => crate::commands::mcp_auth::ended(&server, Ok(crate::commands::mcp_auth::left())),
            None => None,
        };
        Ok(done([Some(said), ended].into_iter().flatten().collect::<Vec<_>>().join(" ")))
    }

    /// Previews an import; with an actor, imports.
    pub(super) async fn import(
        &self,
        text: Option<String>,
        only: Vec<String>,
        actor: Option<Actor>,
    ) -> Result<ImportPreview, Problem> {
        let (home, store) = (self.ops.home.clone(), self.composed.secrets.clone());
        let live = self.composed.live_secrets.clone();
        blocking(move || {
            let mut files: Vec<ImportedFile> = match text.filter(|text| !text.trim().is_empty()) {
                Some(text) => {
                    let read = |around: &ImportEnvironment<'_>| {
                        import::of_text(Path::new("pasted text"), &text, around)
                    };
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
                tracing::info!(target: "admin", by = %actor, "servers imported");
                written_to = Some(path.display().to_string());
            }
            Ok(ImportPreview { files: files.iter().map(importable).collect(), written_to })
        })
        .await
    }

    pub(super) async fn begin_login(
        &self,
        name: String,
        actor: Actor,
    ) -> Result<OneTimeReveal<ServerLoginUrl>, Problem> {
        let config = self.config();
        find_server(&config, &name)?;
        let login = self.composed.servers.login(&name).ok_or_else(|| {
            Problem::conflict(format!("login is not configured for `{name}`, or it is not running")).hint(
                format!("add `oauth = true` to `mcp.{name}` in the configuration and enable the server"),
            )
        })?;
        let (send, page) = oneshot::channel();
        let (failed, why) = oneshot::channel();
        let (servers, own) = (self.composed.servers.clone(), name.clone());
        let waiting = tokio::spawn(async move {
            let person = PageConsent(Mutex::new(Some(send)));
            match login.oauth().log_in(&person).await {
                Ok(_) => {
                    tracing::info!(target: "admin", server = %own, "logged in to server");
                    if let Some(upstream) = servers.upstream(&own) {
                        upstream.reconnect();
                    }
                }
                Err(error) => {
                    tracing::warn!(target: "admin", server = %own, %error, "login to server failed");
                    let _ = failed.send(error.to_string());
                }
            }
        });
        tracing::info!(target: "admin", by = %actor, server = %name, "login to server started");
        // A newer login to the same server replaces the older one.
        if let Some(older) = self.logins.lock().insert(name, waiting) {
            older.abort();
        }
        let url = tokio::select! {
            url = page => url.map_err(|_| None),
            why = why => Err(why.ok()),
            () = tokio::time::sleep(LOGIN_PAGE_WITHIN) => Err(None),
        };
        let url = url.map_err(|why| {
            Problem::unavailable(why.unwrap_or_else(|| "the server did not return a login URL".to_owned()))
        })?;
        Ok(OneTimeReveal { answer: ServerLoginUrl { url: SHOWN_HERE.to_owned() }, shown: Secret::new(url) })
    }
}

/// Sends the authorization URL to the page.
struct PageConsent(Mutex<Option<oneshot::Sender<String>>>);

impl Consent for PageConsent {
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        let sent = self.0.lock().take().and_then(|person| person.send(url.to_owned()).ok());
        Box::pin(async move { sent.ok_or_else(|| "the login was abandoned".to_owned()) })
    }
}

/// Digest of a snapshot, for optimistic concurrency.
fn mark(seen: &ServerSnapshot) -> String {
    digest(&serde_json::to_string(seen).unwrap_or_default())
}

fn shown(composed: &ComposedHub, server: &McpServerSettings) -> ServerView {
    let statuses = composed.servers.statuses();
    let status = statuses.into_iter().find(|(name, _)| *name == server.name).map(|(_, status)| status);
    let status = status.unwrap_or_else(|| ServerStatus::of(portcullis_upstream::StatusKind::Disabled));
    let makers = &composed.servers.makers;
    ServerView {
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
            .map(|what| PendingReview {
                kind: what.kind.to_owned(),
                name: what.name.clone(),
                why: what.why.clone(),
            })
            .collect(),
        trusted: makers
            .pins
            .of(&server.name)
            .map(|trusted| TrustInfo { since: trusted.since, by: trusted.by.clone() }),
        always_trusted: server.always_trusted,
        may_sign_in: composed.servers.login(&server.name).is_some(),
    }
}

fn reason(name: &str, why: &str) -> NamedReason {
    NamedReason { name: name.to_owned(), why: why.to_owned() }
}

fn whole(
    composed: &ComposedHub,
    server: &McpServerSettings,
    seen: Option<Arc<ServerSnapshot>>,
) -> ServerDetail {
    let trusted = composed.servers.makers.pins.of(&server.name);
    let nothing = ServerSnapshot::default();
    let (now, known) = (seen.as_deref(), trusted.as_ref().map_or(&nothing, |trusted| &trusted.as_it_was));
    let mut definitions = Vec::new();
    for (kind, seen) in PinKind::ALL.into_iter().flat_map(|kind| now.map(|seen| (kind, seen))) {
        for (name, pin) in seen.pins(kind) {
            let value: Value = serde_json::from_str(&pin.definition).unwrap_or_default();
            let said = value["description"].as_str().or(value["title"].as_str()).unwrap_or_default();
            let standing = match (&trusted, server.always_trusted) {
                (_, true) => "trusted",
                (Some(trusted), _) => trusted.pin_status(&seen.identity, kind, name, &pin.sha256).as_str(),
                (None, _) => "server not trusted",
            };
            definitions.push(DefinitionView {
                kind: kind.as_str().to_owned(),
                own_name: name.clone(),
                description: said.to_owned(),
                standing: standing.to_owned(),
            });
        }
    }
    let difference = |one: &PinDifference| {
        let (before, after) = lines(one);
        DefinitionChange {
            kind: one.kind.to_owned(),
            name: one.name.clone(),
            how: how(one).to_owned(),
            change: change(before, after),
        }
    };
    ServerDetail {
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

fn importable(found: &ImportedFile) -> ImportableFile {
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
                notes: imported.all_notes(),
            })
            .collect(),
        skipped: found.skipped.iter().map(|(own, why)| reason(own, why)).collect(),
    }
}
