//! Audited events that are not calls: subscriptions and administrative changes.

use crate::call::{Caller, Client, Origin, Scope, Target};
use crate::effect::{Effect, EffectSet};
use crate::principal::Principal;
use serde_json::Value;
use std::sync::Arc;

/// An audited request that no provider handles.
#[derive(Debug, Clone)]
pub struct Event {
    pub caller: Caller,
    /// `subscribe`, `listen`, `change`, or that of a refused call.
    pub kind: &'static str,
    /// The URI of a subscription, or the action: `secrets.set`.
    pub target: String,
    /// The objects and parameters of the action. Never the value of a secret.
    pub details: Value,
    pub effect: Effect,
}

impl Event {
    /// Returns a change by a person: an administrator (`admin:NAME`) or a user at the command line (`user:UID`). Client names
    /// cannot contain a colon.
    pub fn change(actor: String, action: impl Into<String>, details: Value) -> Event {
        let client = Arc::new(Client { name: actor, scope: Scope::everything(), token: None });
        let caller = Caller::new(client, Origin::Admin);
        Event { caller, kind: "change", target: action.into(), details, effect: Effect::Write }
    }

    /// Returns a call of the hub's own that was refused because its owner is gone.
    pub(crate) fn orphaned_call(principal: &Principal, origin: Origin, target: &Target) -> Event {
        let owner = principal.owner().map_or_else(String::new, |owner| owner.name.clone());
        let scope = Scope { effects: EffectSet::NONE, ..Scope::everything() };
        let client = Arc::new(Client { name: owner, scope, token: None });
        let caller = Caller::new(client, origin);
        let (kind, target) = (target.kind(), target.name().to_owned());
        let details = principal.via().map(|via| ("via".to_owned(), via.into())).into_iter().collect();
        // Nothing ran.
        Event { caller, kind, target, details: Value::Object(details), effect: Effect::Read }
    }

    /// Returns a client's request that changes nothing.
    pub fn watch(caller: Caller, kind: &'static str, target: impl Into<String>, details: Value) -> Event {
        Event { caller, kind, target: target.into(), details, effect: Effect::Read }
    }
}
