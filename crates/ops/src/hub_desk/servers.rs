//! Upstream servers, as the page shows them: status, review, trust, configuration, import.

use super::{HubDesk, done};
use crate::config::secret_detection::ValueDisplay;
use crate::config::{McpServerSettings, NewServer};
use crate::config_file::load;
use crate::context::LiveHub;
use crate::desk::{
    ActionReceipt, AddServer, DefinitionChange, DefinitionView, ImportPreview, ImportableFile,
    ImportableServer, NamedReason, PendingReview, ServerBrief, ServerDetail, ServerList, ServerView,
    SwitchServer, TrustInfo, TrustServer,
};
use crate::hub_desk::differences::change;
use crate::known_tools::tool_rules;
use crate::servers::add::AddedServer;
use crate::servers::import::{ServerImport, read_text, read_usual_places};
use crate::servers::trust::{SeenServer, ServerReview, change_word, definition_text, lines, snapshot_mark};
use crate::servers::{find_server, reached, runs_with};
use crate::{Actor, Problem};
use jiff::Timestamp;
use portcullis_core::Reach;
use portcullis_core::blocking;
use portcullis_guard::default_action;
use portcullis_interop::import::ImportedFile;
use portcullis_store::pins::{AdvertisedHints, PinDifference, PinKind, ServerSnapshot, TrustedServer};
use portcullis_upstream::{ServerStatus, StatusKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Snapshots of disabled servers from probes, by name.
pub(super) type ProbedServers = BTreeMap<String, Arc<ServerSnapshot>>;

/// Returns the status of every server.
pub(super) fn briefs(hub: &LiveHub) -> Vec<ServerBrief> {
    hub.servers.statuses().into_iter().map(|(name, status)| brief(name, &status)).collect()
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
        let (hub, config) = (self.live.clone(), self.config());
        blocking(move || {
            let servers = config.mcp.iter().map(|server| shown(&hub, server)).collect();
            Ok(ServerList { servers })
        })
        .await
    }

    pub(super) async fn show_server(&self, name: String) -> Result<ServerDetail, Problem> {
        let running = self.live.servers.upstream(&name).and_then(|upstream| upstream.snapshot());
        let seen = running.or_else(|| self.looked_at.lock().get(&name).cloned());
        let (hub, config) = (self.live.clone(), self.config());
        blocking(move || {
            let server = find_server(&config, &name)?;
            Ok(whole(&hub, server, seen))
        })
        .await
    }

    pub(super) async fn look_at(&self, name: String, actor: Actor) -> Result<ServerDetail, Problem> {
        let config = self.config();
        let server = find_server(&config, &name)?;
        if self.live.servers.upstream(&name).is_some() {
            return self.show_server(name).await;
        }
        let seen = self.ops.probe_server(server, &config, None, &actor).await?.connected()?;
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
        let upstream = self.live.servers.upstream(&name);
        // Read first: the snapshot read afterwards is at least as complete.
        let is_partial = upstream.as_ref().is_some_and(|upstream| upstream.is_seen_in_part());
        let running = upstream.and_then(|upstream| upstream.snapshot());
        let snapshot = running.or_else(|| self.looked_at.lock().get(&name).cloned());
        let seen = SeenServer { snapshot, is_partial };
        self.run(move |ops| Ok(done(ops.trust_reviewed(&name, seen, &trust, &actor)?.sentence()))).await
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
        switch: SwitchServer,
        actor: Actor,
    ) -> Result<ActionReceipt, Problem> {
        self.run(move |ops| Ok(done(ops.switch_server(&name, &switch, &actor)?.sentence()))).await
    }

    pub(super) async fn show_restarted(&self, name: String, actor: Actor) -> Result<ActionReceipt, Problem> {
        self.run(move |ops| Ok(done(ops.restart_server(&name, &actor)?.sentence(&name)))).await
    }

    pub(super) async fn write_server(&self, new: AddServer, actor: Actor) -> Result<ActionReceipt, Problem> {
        self.run(move |ops| {
            let server = NewServer {
                name: new.name,
                command: new.command.filter(|text| !text.is_empty()),
                args: new.args,
                cwd: new.cwd.filter(|text| !text.is_empty()),
                env: new.env.into_iter().collect(),
                url: new.url.filter(|text| !text.is_empty()),
                headers: new.headers.into_iter().collect(),
                comment: Some(format!("Added by {actor}.")),
                ..NewServer::default()
            };
            Ok(done(ops.add_server(server, AddedServer::Unreviewed, &actor)?.sentence()))
        })
        .await
    }

    pub(super) async fn remove_configured_server(
        &self,
        name: String,
        actor: Actor,
    ) -> Result<ActionReceipt, Problem> {
        let removed = self.run(move |ops| ops.remove_server(&name, &actor)).await?;
        let removal = removed.end_login().await;
        let mut said = removal.sentences();
        said.extend(removal.note());
        Ok(done(said.join(" ")))
    }

    /// Previews an import; with an actor, imports.
    pub(super) async fn import(
        &self,
        text: Option<String>,
        only: Vec<String>,
        actor: Option<Actor>,
    ) -> Result<ImportPreview, Problem> {
        self.run(move |ops| {
            let mut files: Vec<ImportedFile> = match text.filter(|text| !text.trim().is_empty()) {
                Some(text) => vec![read_text(&text).map_err(Problem::invalid)?],
                None => read_usual_places(None).into_iter().filter_map(|(_, found)| found.ok()).collect(),
            };
            let any = ops.select_imports(&load(&ops.home)?.config, &mut files, &only);
            let actor = actor.filter(|_| any);
            let imported = actor.map(|actor| ops.import_servers(&mut files, &actor)).transpose()?;
            Ok(ImportPreview {
                files: files.iter().map(importable).collect(),
                written_to: imported.as_ref().map(|imported| imported.path.display().to_string()),
                said: imported.as_ref().map(ServerImport::sentence),
            })
        })
        .await
    }
}

fn shown(hub: &LiveHub, server: &McpServerSettings) -> ServerView {
    let statuses = hub.servers.statuses();
    let status = statuses.into_iter().find(|(name, _)| *name == server.name).map(|(_, status)| status);
    let status = status.unwrap_or_else(|| ServerStatus::of(StatusKind::Disabled));
    let makers = &hub.servers.makers;
    ServerView {
        brief: brief(server.name.clone(), &status),
        reached_by: reached(server, ValueDisplay::Full),
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
        may_sign_in: hub.servers.login(&server.name).is_some(),
    }
}

fn reason(name: &str, why: &str) -> NamedReason {
    NamedReason { name: name.to_owned(), why: why.to_owned() }
}

fn whole(hub: &LiveHub, server: &McpServerSettings, seen: Option<Arc<ServerSnapshot>>) -> ServerDetail {
    let now = seen.as_deref();
    let review = now.map(|seen| ServerReview::of(&server.name, seen, &hub.servers.makers));
    let trusted = review.as_ref().and_then(|review| review.trusted.as_ref());
    let chosen = now.zip(review.as_ref()).map(|(seen, review)| TrustedServer {
        since: Timestamp::UNIX_EPOCH,
        by: String::new(),
        snapshot: seen.clone(),
        review: Some(review.proposed.clone()),
    });
    let rules = tool_rules(server, chosen.as_ref());
    let mut definitions = Vec::new();
    for (kind, seen) in PinKind::ALL.into_iter().flat_map(|kind| now.map(|seen| (kind, seen))) {
        for (name, pin) in seen.pins(kind) {
            let standing = match (trusted, server.always_trusted) {
                (_, true) => "trusted",
                (Some(trusted), _) => trusted.pin_status(&seen.identity, kind, name, &pin.sha256).as_str(),
                (None, _) => "server not trusted",
            };
            let chosen = review.as_ref().and_then(|review| review.proposed.effects.get(name));
            let effect = chosen.filter(|_| kind == PinKind::Tool).map(|chosen| chosen.effect);
            let (decision, _) = default_action(rules.effect(name), Reach::Outside, rules.decision(name));
            definitions.push(DefinitionView {
                effect: effect.map(|effect| effect.as_str().to_owned()),
                advertised: effect.map(|_| AdvertisedHints::of(pin).to_string()),
                decision: effect.map(|_| decision.as_str().to_owned()),
                kind: kind.as_str().to_owned(),
                own_name: name.clone(),
                description: definition_text(pin),
                standing: standing.to_owned(),
            });
        }
    }
    let difference = |one: &PinDifference| {
        let (before, after) = lines(one);
        DefinitionChange {
            kind: one.kind.to_owned(),
            name: one.name.clone(),
            how: change_word(one).to_owned(),
            change: change(before, after),
        }
    };
    ServerDetail {
        server: shown(hub, server),
        runs_with: runs_with(server, ValueDisplay::Full),
        instructions: now.and_then(|seen| seen.instructions.clone()),
        definitions,
        differences: review.iter().flat_map(|review| &review.differences).map(difference).collect(),
        policy: review.as_ref().map(|review| review.proposed.policy.as_str().to_owned()),
        settled: review.as_ref().is_some_and(|review| review.is_settled(&review.proposed)),
        seen: now.map(snapshot_mark),
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
