//! Clients: list, create, change scope, revoke.

use super::{HubDesk, blocking, done};
use crate::install::{ClientApp, Endpoint, Transport};
use jiff::Timestamp;
use portcullis_core::{Effect, EffectSet, Secret, SystemClock, ToolView};
use portcullis_guard::audit;
use portcullis_ops::desk::{
    ActionReceipt, AddClient, ChangeClient, ClientList, ClientView, CreatedClient, OneTimeReveal, SHOWN_HERE,
    Snippet,
};
use portcullis_ops::{Actor, Problem, ProblemCode};
use portcullis_store::clients::{ClientInfo, IdentityError, NewClient, parse_duration};
use std::collections::{BTreeSet, HashMap};

/// Time of the last call, by client.
pub(super) type LastCalls = HashMap<String, Timestamp>;

/// Globs per client.
const ALLOW_MAX: usize = 200;

impl HubDesk {
    pub(super) async fn list_clients(&self) -> Result<ClientList, Problem> {
        let identity = self.composed.identity.clone();
        let all = blocking(move || identity.list().map_err(problem)).await?;
        let config = self.config();
        let calls = self.last_calls(&all).await;
        let stdio = &config.stdio;
        let local = ClientView {
            name: stdio.client.clone(),
            token_hint: None,
            allow: stdio.scope.allow.globs().iter().map(ToString::to_string).collect(),
            deny: stdio.scope.deny.iter().flat_map(|deny| deny.globs().to_vec()).collect(),
            effects: names(stdio.scope.effects),
            tools: stdio.scope.view.as_str().to_owned(),
            created: None,
            expires: None,
            expired: false,
            last_call: calls.get(&stdio.client).copied(),
        };
        let mut clients = vec![local];
        clients.extend(all.into_iter().map(|info| shown(info, &calls)));
        Ok(ClientList { url: self.url.clone(), clients })
    }

    pub(super) async fn make_client(
        &self,
        new: AddClient,
        actor: Actor,
    ) -> Result<OneTimeReveal<CreatedClient>, Problem> {
        if new.name == self.config().stdio.client {
            let reason = format!("`{}` is the stdio client (`stdio.client`); choose another name", new.name);
            return Err(Problem::conflict(reason));
        }
        let expires_in = new.expires.as_deref().filter(|text| !text.trim().is_empty());
        let expires_in =
            expires_in.map(parse_duration).transpose().map_err(|e| Problem::invalid(e.to_string()))?;
        let allow = bounded(if new.allow.is_empty() { vec!["*".to_owned()] } else { new.allow })?;
        let effects = if new.effects.is_empty() { EffectSet::ALL } else { effects(&new.effects)? };
        let tools = view(new.tools.as_deref())?.unwrap_or_default();
        let wanted = NewClient { name: new.name, allow, deny: Vec::new(), effects, tools, expires_in };
        let identity = self.composed.identity.clone();
        let (info, token) = blocking(move || identity.add(wanted).map_err(problem)).await?;
        tracing::info!(target: "admin", by = %actor, client = info.name, "client created");
        let placeholder = Secret::new(SHOWN_HERE.to_owned());
        let endpoint = Endpoint::of_this_program(self.home.path(), &self.url, &placeholder);
        let mut snippets = Vec::new();
        for (transport, name) in [(Transport::Http, "http"), (Transport::Stdio, "stdio")] {
            snippets.extend(ClientApp::ALL.into_iter().map(|app| Snippet {
                application: app.as_str().to_owned(),
                title: app.title().to_owned(),
                transport: name.to_owned(),
                note: app.note(transport).map(str::to_owned),
                text: app.snippet(transport, &endpoint),
            }));
        }
        let answer = CreatedClient {
            client: shown(info, &HashMap::new()),
            token: SHOWN_HERE.to_owned(),
            url: self.url.clone(),
            snippets,
        };
        Ok(OneTimeReveal { answer, shown: token })
    }

    pub(super) async fn rescope_client(
        &self,
        name: String,
        change: ChangeClient,
        actor: Actor,
    ) -> Result<ClientView, Problem> {
        if name == self.config().stdio.client {
            let reason = "the scope of the stdio client is set in the configuration, at `[stdio]`";
            return Err(Problem::conflict(reason));
        }
        let (allow, effects, tools) =
            (bounded(change.allow)?, effects(&change.effects)?, view(change.tools.as_deref())?);
        let identity = self.composed.identity.clone();
        let (info, all) = blocking(move || {
            let info = identity.change_scope(&name, allow, effects, tools).map_err(problem)?;
            Ok((info, identity.list().map_err(problem)?))
        })
        .await?;
        tracing::info!(target: "admin", by = %actor, client = info.name, "client scope changed");
        self.composed.hub.refresh_clients();
        self.composed.announce_lists();
        Ok(shown(info, &self.last_calls(&all).await))
    }

    pub(super) async fn drop_client(&self, name: String, actor: Actor) -> Result<ActionReceipt, Problem> {
        let identity = self.composed.identity.clone();
        let info = blocking(move || identity.revoke(&name).map_err(problem)).await?;
        tracing::info!(target: "admin", by = %actor, client = info.name, "client revoked");
        self.composed.hub.refresh_clients();
        Ok(done(format!("Revoked client `{}`.", info.name)))
    }

    /// Returns the last call of each client: since startup, or else from the end of the audit log.
    async fn last_calls(&self, all: &[ClientInfo]) -> LastCalls {
        let names: BTreeSet<String> =
            all.iter().map(|info| info.name.clone()).chain([self.config().stdio.client.clone()]).collect();
        let (settings, wanted) = (self.audit_settings(), names.clone());
        // Read from the log once, for all clients: later calls are tracked in memory. If the log cannot be read now, the
        // next request retries.
        let before = self.last_calls.get_or_try_init(|| {
            blocking(move || {
                audit::last_calls(&settings, wanted).map_err(|error| Problem::unavailable(error.to_string()))
            })
        });
        let (before, none) = (before.await, LastCalls::new());
        let before = before.unwrap_or(&none);
        let live = &self.composed.handles.live;
        let last = |name: &String| {
            let since = live.last_call(name).and_then(|at| Timestamp::try_from(at).ok());
            since.or_else(|| before.get(name).copied())
        };
        names.into_iter().filter_map(|name| last(&name).map(|at| (name, at))).collect()
    }
}

fn names(effects: EffectSet) -> Vec<String> {
    effects.iter().map(|effect| effect.as_str().to_owned()).collect()
}

fn effects(names: &[String]) -> Result<EffectSet, Problem> {
    names.iter().map(|name| name.parse::<Effect>()).collect::<Result<_, _>>().map_err(Problem::invalid)
}

fn view(name: Option<&str>) -> Result<Option<ToolView>, Problem> {
    match name {
        None => Ok(None),
        Some("all") => Ok(Some(ToolView::All)),
        Some("search") => Ok(Some(ToolView::Search)),
        Some(_) => Err(Problem::invalid("invalid `tools`: expected `all` or `search`")),
    }
}

fn bounded(allow: Vec<String>) -> Result<Vec<String>, Problem> {
    if allow.len() > ALLOW_MAX {
        return Err(Problem::invalid(format!("`allow` has {} globs: the limit is {ALLOW_MAX}", allow.len())));
    }
    Ok(allow)
}

fn shown(info: ClientInfo, calls: &LastCalls) -> ClientView {
    ClientView {
        expired: info.is_expired(&SystemClock),
        // An earlier client may have had the same name.
        last_call: calls.get(&info.name).copied().filter(|at| *at >= info.created),
        token_hint: Some(info.token_hint),
        allow: info.allow,
        deny: info.deny,
        effects: names(info.effects),
        tools: info.tools.as_str().to_owned(),
        created: Some(info.created),
        expires: info.expires,
        name: info.name,
    }
}

fn problem(error: IdentityError) -> Problem {
    let code = match &error {
        IdentityError::Name(_)
        | IdentityError::NothingAllowed
        | IdentityError::NoEffects
        | IdentityError::Pattern(_)
        | IdentityError::ExpiryTooFar => ProblemCode::Invalid,
        IdentityError::Taken(_) | IdentityError::Full => ProblemCode::Conflict,
        IdentityError::Unknown(_) => ProblemCode::NotFound,
        IdentityError::Corrupt(_) | IdentityError::Database(_) => ProblemCode::Unavailable,
        IdentityError::Random(_) => ProblemCode::Internal,
    };
    Problem::new(code, error.to_string())
}
