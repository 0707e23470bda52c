//! Audited events: what is recorded like a call, and is none.

use crate::call::{Caller, Client, Origin, Scope};
use crate::effect::Effect;
use serde_json::Value;
use std::sync::Arc;

/// A request that no provider answers but that belongs on the record: a subscription, or a change that a person makes.
#[derive(Debug, Clone)]
pub struct Event {
    pub caller: Caller,
    /// `subscribe`, `listen` or `change`.
    pub kind: &'static str,
    /// The address that is watched, or what is done: `secrets.set`.
    pub target: String,
    /// What it is done to and with. Never the value of a secret.
    pub details: Value,
    pub effect: Effect,
}

impl Event {
    /// Returns a change by a person: an administrator (`admin:NAME`), or a user at the command line (`user:UID`). No client can
    /// have such a name.
    pub fn change(actor: String, action: impl Into<String>, details: Value) -> Event {
        let client = Arc::new(Client { name: actor, scope: Scope::everything(), token: None });
        let caller = Caller { client, origin: Origin::Admin };
        Event { caller, kind: "change", target: action.into(), details, effect: Effect::Write }
    }

    /// Returns a request of a client's that changes nothing.
    pub fn watch(caller: Caller, kind: &'static str, target: impl Into<String>, details: Value) -> Event {
        Event { caller, kind, target: target.into(), details, effect: Effect::Read }
    }
}
