//! Principals, and the calls that the hub makes itself on their behalf.
//!
//! A schedule, a conversation, a script and the admin page reach tools only by [`Gate::call_as`]: the principal says whose
//! scope applies, the origin says what makes the call, and every layer sees both.
//!
//! [`Gate::call_as`]: crate::Gate::call_as

use crate::call::{Arguments, CallId, Client, Scope, Target, Trail};
use crate::context::CallCtx;
use crate::gate::Gate;
use crate::human_wait::HumanWait;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

/// On whose behalf the hub makes a call. Its scope is its owner's or narrower; no method widens it.
#[derive(Debug, Clone)]
pub struct Principal {
    client: Arc<Client>,
}

impl Principal {
    /// Acts with the whole scope of its owner.
    pub fn of(owner: &Arc<Client>) -> Principal {
        Principal { client: owner.clone() }
    }

    /// Acts for an administrator, who may do everything that rules allow. The name has a colon, as in records (`admin:ada`),
    /// which no client's has.
    pub fn administrator(name: String) -> Principal {
        let client = Client { name, scope: Scope::everything(), token: None };
        Principal { client: Arc::new(client) }
    }

    /// Acts with less: what both the given scope and the present one allow.
    #[must_use]
    pub fn narrowed(&self, scope: Scope) -> Principal {
        let scope = scope.within(&self.client.scope);
        Principal { client: Arc::new(Client { scope, ..(*self.client).clone() }) }
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

/// A call that the hub makes itself.
pub struct HubCall {
    pub(crate) id: CallId,
    pub(crate) target: Target,
    pub(crate) arguments: Arguments,
    pub(crate) ctx: CallCtx,
    pub(crate) trail: Arc<Trail>,
}

impl HubCall {
    /// A call without a client that could be asked or told anything.
    pub fn new(target: Target, arguments: Arguments) -> HubCall {
        HubCall { id: CallId::new(), target, arguments, ctx: CallCtx::detached(), trail: Arc::default() }
    }

    /// A call that a running call makes. It has its own pass through the layers, its own audit record and its own decision.
    /// While it waits for a person, the deadline of the running call is paused too.
    pub fn within(outer: &CallCtx, target: Target, arguments: Arguments, ctx: CallCtx) -> HubCall {
        let trail = match outer.running() {
            None => Trail::default(),
            Some(running) => Trail {
                waits: HumanWait::within(running.trail.clone()),
                within: Some(running.id),
                depth: running.trail.depth + 1,
                ..Trail::default()
            },
        };
        HubCall { id: CallId::new(), target, arguments, ctx, trail: Arc::new(trail) }
    }

    /// Returns the id of the call's audit record.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Returns what the layers will report about the call.
    pub fn trail(&self) -> Arc<Trail> {
        self.trail.clone()
    }
}

/// A reference to the gate for what is built before it: families and services.
///
/// Weak, because the gate owns the families.
#[derive(Clone, Default)]
pub struct GateHandle(Arc<OnceLock<Weak<Gate>>>);

impl fmt::Debug for GateHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.get().is_some() { "GateHandle(connected)" } else { "GateHandle" })
    }
}

impl GateHandle {
    /// Connects the handle. Done once, by the composition of the hub.
    pub fn connect(&self, gate: &Arc<Gate>) {
        let _ = self.0.set(Arc::downgrade(gate));
    }

    /// Returns the gate; `None` before the hub is composed and after it is gone.
    pub fn get(&self) -> Option<Arc<Gate>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Effect, EffectSet};
    use crate::pattern::Pattern;
    use proptest::prelude::*;

    const NAMES: [&str; 5] = ["files_read", "files_write", "notes_read", "git_push", "x"];
    const GLOBS: [&str; 6] = ["*", "files_*", "*_read", "git_*", "notes_?ead", "nothing"];

    fn scopes() -> impl Strategy<Value = Scope> {
        let globs = || prop::collection::vec(prop::sample::select(&GLOBS[..]), 1..3);
        let effects = prop::collection::vec(prop::sample::select(&Effect::ALL[..]), 0..4);
        (globs(), prop::option::of(globs()), effects).prop_map(|(allow, deny, effects)| Scope {
            allow: Pattern::new(&allow).unwrap(),
            deny: deny.map(|deny| Pattern::new(&deny).unwrap()),
            effects: effects.into_iter().collect::<EffectSet>(),
            ..Scope::everything()
        })
    }

    proptest! {
        #[test]
        fn a_principal_may_never_do_more_than_its_owner(owner in scopes(), wanted in scopes(), again in scopes()) {
            let owner = Arc::new(Client { name: "ada".to_owned(), scope: owner, token: Some(7) });
            let narrowed = Principal::of(&owner).narrowed(wanted.clone());
            for principal in [narrowed.clone(), narrowed.narrowed(again), narrowed.narrowed(Scope::everything())] {
                let client = principal.client();
                prop_assert!(client.is(&owner));
                for name in NAMES {
                    for effect in Effect::ALL {
                        let allowed = client.scope.covers(name, effect);
                        prop_assert!(!allowed || owner.scope.covers(name, effect), "{name} {effect}");
                        prop_assert!(!allowed || wanted.covers(name, effect), "{name} {effect}");
                        prop_assert!(!allowed || client.scope.effects.contains(effect));
                    }
                    prop_assert!(client.scope.denies(name) || !owner.scope.denies(name), "{name}");
                }
                prop_assert!(!client.scope.is_everything() || owner.scope.is_everything());
            }
            // What both allow stays allowed: narrowing is no refusal.
            for name in NAMES {
                let both = owner.scope.covers(name, Effect::Read) && wanted.covers(name, Effect::Read);
                prop_assert_eq!(narrowed.client().scope.covers(name, Effect::Read), both);
            }
        }
    }
}
