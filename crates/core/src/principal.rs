//! Principals, and the calls that the hub makes itself on their behalf.
//!
//! A schedule, a conversation, a script and the admin page reach tools only by [`Gate::call_as`]: the principal says whose
//! scope applies, the origin says what makes the call, and every layer sees both.
//!
//! [`Gate::call_as`]: crate::Gate::call_as

use crate::call::{Arguments, CallId, Caller, Client, Origin, Scope, Target, Trail};
use crate::context::CallCtx;
use crate::gate::Gate;
use crate::human_wait::HumanWait;
use crate::owner::{OwnerId, Owners};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

/// On whose behalf the hub makes a call: an owner by name, and what it may do less.
///
/// It holds no rights. Each call looks the owner up, so a principal may be kept for as long as a schedule lives: it may do
/// what its owner may do then, and nothing once the owner is gone.
#[derive(Debug, Clone)]
pub struct Principal {
    acts_for: ActsFor,
    /// Less than the owner may do; `None` for all of it.
    narrower: Option<Arc<Scope>>,
    via: Option<Arc<str>>,
}

/// The number of calls that one may be nested in. Scripts have a lower bound of their own; this one is for what nests in
/// another way, as an engine whose tool runs a script.
const CALL_DEPTH_MAX: usize = 16;
/// Bound on [`Principal::via`]: a kind and a name.
const VIA_BYTES_MAX: usize = 128;

#[derive(Debug, Clone)]
enum ActsFor {
    Owner(OwnerId),
    Administrator(Arc<Client>),
}

impl Principal {
    /// Acts for a client. The owner may come from a table: a schedule or a conversation keeps its name and token.
    pub fn of(owner: OwnerId) -> Principal {
        Principal { acts_for: ActsFor::Owner(owner), narrower: None, via: None }
    }

    /// Acts for an administrator, who may do everything that rules allow. The name has a colon, as in records (`admin:ada`),
    /// which no client's has. Only for a call of the admin page, and for calls within it.
    pub fn administrator(name: String) -> Principal {
        let client = Client { name, scope: Scope::everything(), token: None };
        Principal { acts_for: ActsFor::Administrator(Arc::new(client)), narrower: None, via: None }
    }

    /// Acts with less: what both the given scope and the present one allow.
    #[must_use]
    pub fn narrowed(&self, scope: Scope) -> Principal {
        let scope = match &self.narrower {
            None => scope,
            Some(present) => scope.within(present),
        };
        Principal { narrower: Some(Arc::new(scope)), ..self.clone() }
    }

    /// Says what acts for the owner, for the audit record: `schedule:daily-report`, or a conversation. Cut after 128 bytes.
    #[must_use]
    pub fn acting_via(self, what: &str) -> Principal {
        let what = &what[..what.floor_char_boundary(VIA_BYTES_MAX)];
        Principal { via: Some(what.into()), ..self }
    }

    /// Returns what acts for the owner.
    pub fn via(&self) -> Option<&str> {
        self.via.as_deref()
    }

    /// Returns the owner; `None` for an administrator.
    pub fn owner(&self) -> Option<&OwnerId> {
        match &self.acts_for {
            ActsFor::Owner(owner) => Some(owner),
            ActsFor::Administrator(_) => None,
        }
    }

    /// Returns the client of a call made now: the owner with its present scope, and within it what this principal may do.
    /// `None` if the owner is gone.
    pub fn resolve(&self, owners: &dyn Owners) -> Option<Arc<Client>> {
        let client = match &self.acts_for {
            // A directory that returns another client is not believed.
            ActsFor::Owner(owner) => owners.current(owner).filter(|client| owner.is(client))?,
            ActsFor::Administrator(client) => client.clone(),
        };
        let Some(narrower) = &self.narrower else { return Some(client) };
        let scope = Scope::clone(narrower).within(&client.scope);
        Some(Arc::new(Client { name: client.name.clone(), scope, token: client.token }))
    }

    /// Returns whether this principal may make a call with this origin. `admin` is for administrators alone; and they have
    /// no other, except within a call of theirs, as a script that they try. A call within another acts for the same client.
    pub(crate) fn may_make(&self, call: &HubCall, origin: Origin) -> bool {
        let outer = call.outer.as_ref().map(|outer| &*outer.client);
        match (&self.acts_for, origin) {
            (_, Origin::Client) | (ActsFor::Owner(_), Origin::Admin) => false,
            (ActsFor::Owner(owner), _) => outer.is_none_or(|outer| owner.is(outer)),
            (ActsFor::Administrator(client), Origin::Admin) => outer.is_none_or(|outer| outer.is(client)),
            (ActsFor::Administrator(client), _) => outer.is_some_and(|outer| outer.is(client)),
        }
    }
}

/// A call that the hub makes itself.
pub struct HubCall {
    pub(crate) id: CallId,
    pub(crate) target: Target,
    pub(crate) arguments: Arguments,
    pub(crate) ctx: CallCtx,
    pub(crate) trail: Arc<Trail>,
    /// Of the call that makes this one.
    pub(crate) outer: Option<Caller>,
}

impl HubCall {
    /// A call without a client that could be asked or told anything.
    pub fn new(target: Target, arguments: Arguments) -> HubCall {
        let (ctx, trail) = (CallCtx::detached(), Arc::default());
        HubCall { id: CallId::new(), target, arguments, ctx, trail, outer: None }
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
        let outer = outer.running().map(|running| running.caller.clone());
        HubCall { id: CallId::new(), target, arguments, ctx, trail: Arc::new(trail), outer }
    }

    /// Returns whether it is nested too deep to be made.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.trail.depth > CALL_DEPTH_MAX
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
    use crate::call::ToolView;
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
            let narrowed = Principal::of(OwnerId::of(&owner)).narrowed(wanted.clone());
            for principal in [narrowed.clone(), narrowed.narrowed(again), narrowed.narrowed(Scope::everything())] {
                let client = principal.resolve(&owner).unwrap();
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
            let narrowed = narrowed.resolve(&owner).unwrap();
            for name in NAMES {
                let both = owner.scope.covers(name, Effect::Read) && wanted.covers(name, Effect::Read);
                prop_assert_eq!(narrowed.scope.covers(name, Effect::Read), both);
            }
        }
    }

    fn client(name: &str, token: Option<u64>, view: ToolView) -> Arc<Client> {
        let scope = Scope { view, ..Scope::everything() };
        Arc::new(Client { name: name.to_owned(), scope, token })
    }

    #[test]
    fn a_principal_keeps_its_owners_view_and_is_nobody_without_its_owner() {
        let ada = client("ada", Some(7), ToolView::Search);
        let stored = OwnerId { name: "ada".to_owned(), token: Some(7) };
        let principal = Principal::of(stored).narrowed(Scope::everything());
        assert_eq!(principal.resolve(&ada).unwrap().scope.view, ToolView::Search);
        for other in [client("ada", Some(8), ToolView::All), client("ada", None, ToolView::All)] {
            assert!(principal.resolve(&other).is_none(), "the name was issued again");
        }
        assert!(principal.resolve(&crate::NoOwners).is_none());
        // A directory that returns another client is not believed.
        struct Liar;
        impl Owners for Liar {
            fn current(&self, _: &OwnerId) -> Option<Arc<Client>> {
                Some(client("eve", None, ToolView::All))
            }
        }
        assert!(principal.resolve(&Liar).is_none());
    }

    #[test]
    fn an_origin_cannot_be_forged() {
        const OWN: [Origin; 4] = [Origin::Schedule, Origin::Script, Origin::Chat, Origin::Engine];
        let (ada, bob) = (client("ada", Some(7), ToolView::All), client("bob", Some(8), ToolView::All));
        let administrator = Principal::administrator("admin:ada".to_owned());
        let by_administrator = administrator.resolve(&crate::NoOwners).unwrap();
        let of_ada = Principal::of(OwnerId::of(&ada));
        let call = |outer: Option<&Arc<Client>>| {
            let call = HubCall::new(Target::Tool("x".to_owned()), Arguments::empty());
            HubCall { outer: outer.map(|outer| Caller::new(outer.clone(), Origin::Client)), ..call }
        };
        /// The principal, the client of the call around, and the allowed origins.
        type OriginCase<'a> = (&'a Principal, Option<&'a Arc<Client>>, &'a [Origin]);
        let cases: [OriginCase<'_>; 6] = [
            (&of_ada, None, &OWN),
            (&of_ada, Some(&ada), &OWN),
            (&of_ada, Some(&bob), &[]),
            (&administrator, None, &[Origin::Admin]),
            (&administrator, Some(&ada), &[]),
            (
                &administrator,
                Some(&by_administrator),
                &[Origin::Schedule, Origin::Script, Origin::Chat, Origin::Engine, Origin::Admin],
            ),
        ];
        for (principal, outer, expected) in cases {
            let may = |origin: &Origin| principal.may_make(&call(outer), *origin);
            let allowed: Vec<Origin> = Origin::ALL.into_iter().filter(may).collect();
            assert_eq!(allowed, expected, "{principal:?} within {outer:?}");
        }
    }

    #[test]
    fn a_context_that_no_gate_made_acts_for_nobody() {
        let namesake = client("detached", None, ToolView::All);
        let resolved = CallCtx::detached().principal().resolve(&namesake);
        assert!(resolved.is_none_or(|client| client.scope.effects == EffectSet::NONE));
    }
}
