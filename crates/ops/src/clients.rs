//! Clients: the first one, list, add, change scope, revoke.

use crate::context::Operations;
use crate::desk::{AddClient, ChangeClient};
use crate::{Actor, Problem, ProblemCode};
use anyhow::Context;
use portcullis_core::{Effect, EffectSet, Secret, ToolView};
use portcullis_store::clients::{ClientDirectory, ClientInfo, IdentityError, NewClient, parse_duration};
use serde_json::json;

/// Globs per client.
const ALLOW_MAX: usize = 200;

/// Name of the client that the first start creates.
pub const FIRST_CLIENT: &str = "default";

/// Creates a client if there never was one, so that the first start is usable. Returns its token.
pub fn first_client(clients: &ClientDirectory) -> anyhow::Result<Option<Secret<String>>> {
    // If the last client was revoked, none is created.
    if clients.has_been_used() {
        return Ok(None);
    }
    let new = NewClient {
        name: FIRST_CLIENT.to_owned(),
        allow: vec!["*".to_owned()],
        deny: Vec::new(),
        effects: EffectSet::ALL,
        tools: ToolView::All,
        expires_in: None,
    };
    match clients.add(new) {
        Ok((_, token)) => Ok(Some(token)),
        // Another process was faster and printed the token.
        Err(IdentityError::Taken(_)) => Ok(None),
        Err(error) => Err(error).context("the first client"),
    }
}

/// A client that was revoked.
#[derive(Debug)]
pub struct RevokedClient(pub ClientInfo);

impl RevokedClient {
    /// Returns what was done, in one sentence.
    pub fn sentence(&self) -> String {
        format!("Revoked client `{}`.", self.0.name)
    }
}

impl Operations {
    /// Returns the clients that have a token, by name.
    pub fn list_clients(&self) -> Result<Vec<ClientInfo>, Problem> {
        self.clients.list().map_err(problem)
    }

    /// Adds a client. Returns its token, which is stored nowhere.
    pub fn add_client(&self, new: AddClient, by: &Actor) -> Result<(ClientInfo, Secret<String>), Problem> {
        let AddClient { name, allow, deny, effects, tools, expires } = &new;
        let details = json!({
            "name": name, "allow": allow, "deny": deny, "effects": effects, "tools": tools, "expires": expires,
        });
        self.record(by, "clients.add", details, || {
            if new.name == self.config().stdio.client {
                let reason =
                    format!("`{}` is the stdio client (`stdio.client`); choose another name", new.name);
                return Err(Problem::conflict(reason));
            }
            let expires_in = new.expires.as_deref().map(parse_duration).transpose();
            let client = NewClient {
                expires_in: expires_in.map_err(|error| Problem::invalid(error.to_string()))?,
                allow: bounded(if new.allow.is_empty() { vec!["*".to_owned()] } else { new.allow })?,
                deny: bounded(new.deny)?,
                effects: if new.effects.is_empty() { EffectSet::ALL } else { effects_of(&new.effects)? },
                tools: view_of(new.tools.as_deref())?.unwrap_or_default(),
                name: new.name,
            };
            self.clients.add(client).map_err(problem)
        })
    }

    pub fn change_client(&self, name: &str, to: ChangeClient, by: &Actor) -> Result<ClientInfo, Problem> {
        self.record(by, "clients.change", json!({ "name": name, "to": to }), || {
            if name == self.config().stdio.client {
                let reason = "the scope of the stdio client is set in the configuration, at `[stdio]`";
                return Err(Problem::conflict(reason));
            }
            let (effects, tools) = (effects_of(&to.effects)?, view_of(to.tools.as_deref())?);
            let info =
                self.clients.change_scope(name, bounded(to.allow)?, effects, tools).map_err(problem)?;
            if let Some(live) = &self.live {
                live.control.refresh_clients();
                live.control.announce_lists();
            }
            Ok(info)
        })
    }

    pub fn revoke_client(&self, name: &str, by: &Actor) -> Result<RevokedClient, Problem> {
        self.record(by, "clients.revoke", json!({ "name": name }), || {
            let info = self.clients.revoke(name).map_err(problem)?;
            if let Some(live) = &self.live {
                live.control.refresh_clients();
            }
            Ok(RevokedClient(info))
        })
    }
}

fn effects_of(names: &[String]) -> Result<EffectSet, Problem> {
    names.iter().map(|name| name.parse::<Effect>()).collect::<Result<_, _>>().map_err(Problem::invalid)
}

fn view_of(name: Option<&str>) -> Result<Option<ToolView>, Problem> {
    match name {
        None => Ok(None),
        Some("all") => Ok(Some(ToolView::All)),
        Some("search") => Ok(Some(ToolView::Search)),
        Some(_) => Err(Problem::invalid("invalid `tools`: expected `all` or `search`")),
    }
}

fn bounded(globs: Vec<String>) -> Result<Vec<String>, Problem> {
    if globs.len() > ALLOW_MAX {
        return Err(Problem::invalid(format!("`allow` has {} globs: the limit is {ALLOW_MAX}", globs.len())));
    }
    Ok(globs)
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
