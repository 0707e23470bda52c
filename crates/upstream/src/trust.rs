//! Trust: which definitions an administrator has pinned, and what is quarantined until then.

use portcullis_core::json::printable;
use portcullis_store::pins::{PinKind, PinStatus, PinStore, ServerIdentity, ServerSnapshot, TrustedServer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether a server's definitions need review.
#[derive(Debug, Clone)]
pub enum Trust {
    /// They are exposed without review.
    Always,
    /// Only pinned definitions are exposed.
    Pinned(Arc<PinStore>),
}

/// One definition that needs review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedItem {
    /// `tool`, `prompt`, `template`, `instructions` or `resources`.
    pub kind: &'static str,
    /// Its own name, with invisible characters escaped.
    pub name: String,
    pub why: String,
}

impl QuarantinedItem {
    pub(crate) fn new(kind: &'static str, name: &str, standing: PinStatus) -> QuarantinedItem {
        QuarantinedItem { kind, name: printable(name), why: standing.as_str().to_owned() }
    }
}

impl Trust {
    /// Returns the pins of a server, where they count.
    pub(crate) fn trusted(&self, server: &str) -> Option<Arc<TrustedServer>> {
        match self {
            Trust::Always => None,
            Trust::Pinned(pins) => pins.of(server),
        }
    }

    /// Returns the pin status of a definition now. With pins this costs one `stat`.
    pub(crate) fn standing(
        &self,
        server: &str,
        seen: &ServerSnapshot,
        kind: PinKind,
        name: &str,
    ) -> PinStatus {
        let Trust::Pinned(pins) = self else { return PinStatus::Trusted };
        match (pins.of(server), seen.pins(kind).get(name)) {
            (Some(trusted), Some(pin)) => trusted.pin_status(&seen.identity, kind, name, &pin.sha256),
            _ => PinStatus::Server,
        }
    }

    /// Returns the facts that differ from the trusted server of this name; empty where none is trusted.
    pub(crate) fn differing(&self, server: &str, identity: &ServerIdentity) -> Vec<String> {
        let Trust::Pinned(pins) = self else { return Vec::new() };
        let Some(trusted) = pins.of(server) else { return Vec::new() };
        let known = &trusted.snapshot.identity;
        let facts: BTreeSet<&String> = known.keys().chain(identity.keys()).collect();
        let differ = facts.into_iter().filter(|fact| known.get(*fact) != identity.get(*fact));
        differ.map(|fact| printable(fact)).collect()
    }

    /// Returns whether a server of this identity is trusted, whatever it advertises.
    pub(crate) fn is_trusted_identity(&self, server: &str, identity: &ServerIdentity) -> bool {
        match self {
            Trust::Always => true,
            Trust::Pinned(pins) => {
                pins.of(server).is_some_and(|trusted| trusted.snapshot.identity == *identity)
            }
        }
    }

    pub(crate) fn are_instructions_trusted(&self, server: &str, seen: &ServerSnapshot) -> bool {
        match self {
            Trust::Always => true,
            Trust::Pinned(pins) => pins.of(server).is_some_and(|trusted| {
                trusted.are_instructions_trusted(&seen.identity, seen.instructions.as_deref())
            }),
        }
    }
}
