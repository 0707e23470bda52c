//! Catalog of one upstream server: what it advertised last, and what of that clients see.

use super::resource_links::ResourceLinks;
use super::{ExposedCatalog, RawCatalog, expose};
use crate::rpc::ListKind;
use crate::sanitize::sanitize_text;
use crate::spec::ServerSpec;
use crate::status::{ServerStatus, StatusKind};
use crate::trust::QuarantinedItem;
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use portcullis_core::json::printable;
use portcullis_core::{CompletionRef, List, NameConflict, ResourceClaim, Target, ToolError};
use portcullis_store::pins::{PinKind, PinStatus, ServerIdentity, ServerSnapshot};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a server advertised on one connection.
#[derive(Clone)]
pub(crate) struct AdvertisedCatalog {
    pub(crate) offer: RawCatalog,
    pub(crate) snapshot: Arc<ServerSnapshot>,
    pub(crate) name: Option<String>,
    pub(crate) revision: Option<&'static str>,
}

/// The lists that clients have to read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangedLists {
    tools: bool,
    prompts: bool,
    resources: bool,
}

impl ChangedLists {
    pub(crate) const ALL: ChangedLists = ChangedLists { tools: true, prompts: true, resources: true };

    pub(crate) fn any(self) -> bool {
        self.tools || self.prompts || self.resources
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = List> {
        let all =
            [(self.tools, List::Tools), (self.prompts, List::Prompts), (self.resources, List::Resources)];
        all.into_iter().filter(|(changed, _)| *changed).map(|(_, list)| list)
    }
}

#[derive(Default)]
pub(crate) struct CatalogState {
    /// What the server advertised last. Locked while the exposed catalog is computed and published, so that no older view
    /// replaces a newer one.
    advertised: Mutex<Option<Arc<AdvertisedCatalog>>>,
    pub(crate) exposed: ArcSwap<ExposedCatalog>,
    /// Names of exposed items that other providers have.
    conflicts: ArcSwap<Vec<NameConflict>>,
    /// The instructions that agents see.
    pub(crate) instructions: ArcSwapOption<String>,
    /// Resources that the server's results link to.
    pub(crate) links: ResourceLinks,
    /// Whether the supervisor still waits for a list that is late.
    awaits_lists: AtomicBool,
}

impl CatalogState {
    pub(crate) fn advertised(&self) -> Option<Arc<AdvertisedCatalog>> {
        self.advertised.lock().clone()
    }

    /// Replaces what the server advertised. [`CatalogState::recompute`] makes it visible.
    pub(crate) fn set_advertised(&self, advertised: AdvertisedCatalog) {
        *self.advertised.lock() = Some(Arc::new(advertised));
    }

    /// Takes the catalog of another instance of the same server until this one has listed its own.
    pub(crate) fn inherit(&self, other: &CatalogState) {
        let Some(other) = other.advertised() else { return };
        let offer = RawCatalog { late: BTreeSet::from(ListKind::ALL), ..other.offer.clone() };
        self.set_advertised(AdvertisedCatalog { offer, ..AdvertisedCatalog::clone(&other) });
    }

    pub(crate) fn is_known(&self) -> bool {
        self.advertised.lock().is_some()
    }

    /// Returns whether the server itself has listed this kind.
    pub(crate) fn has_listed(&self, list: ListKind) -> bool {
        self.advertised.lock().as_ref().is_some_and(|advertised| !advertised.offer.late.contains(&list))
    }

    /// Returns what was advertised last, if that was by a server of the same identity.
    pub(crate) fn last_offer(&self, identity: &ServerIdentity) -> RawCatalog {
        self.advertised()
            .filter(|advertised| advertised.snapshot.identity == *identity)
            .map_or_else(RawCatalog::default, |advertised| advertised.offer.clone())
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<ServerSnapshot>> {
        self.advertised.lock().as_ref().map(|advertised| advertised.snapshot.clone())
    }

    pub(crate) fn set_awaits_lists(&self, awaits: bool) {
        self.awaits_lists.store(awaits, Ordering::Relaxed);
    }

    /// Returns whether a list is late, and still waited for.
    pub(crate) fn is_partial(&self) -> bool {
        let is_partial = |advertised: &Arc<AdvertisedCatalog>| {
            !advertised.offer.is_whole() && self.awaits_lists.load(Ordering::Relaxed)
        };
        self.advertised.lock().as_ref().is_some_and(is_partial)
    }

    /// Exposes nothing any more.
    pub(crate) fn clear(&self) {
        let mut advertised = self.advertised.lock();
        *advertised = None;
        self.instructions.store(None);
        self.exposed.store(Arc::default());
    }

    /// Computes what clients see, and publishes it while no other view can be computed. Returns whether any list changed;
    /// `false` where nothing was advertised yet.
    pub(crate) fn recompute(
        &self,
        spec: &ServerSpec,
        publish: impl FnOnce(ChangedLists, ServerStatus),
    ) -> bool {
        let advertised = self.advertised.lock();
        let Some(said) = advertised.as_ref() else { return false };
        let seen = &said.snapshot;
        let (name, trust) = (spec.name.as_str(), &spec.trust);
        let is_known = trust.is_trusted_identity(name, &seen.identity);
        let standing = |kind: PinKind, own: &str| trust.standing(name, seen, kind, own);
        let mut exposed = expose(&said.offer, spec, standing, is_known);
        let instructions = seen.instructions.clone().filter(|text| !text.trim().is_empty());
        let is_trusted = instructions.is_none() || trust.are_instructions_trusted(name, seen);
        if !is_trusted {
            let why = if is_known { PinStatus::Changed } else { PinStatus::Server };
            exposed.quarantined.push(QuarantinedItem::new("instructions", "", why));
        }
        let differing = trust.differing(name, &seen.identity);
        if !differing.is_empty() {
            for item in &mut exposed.quarantined {
                item.why = format!("another server than the trusted one: {}", differing.join(", "));
            }
        }
        let instructions = instructions.filter(|_| is_trusted).map(|mut text| {
            sanitize_text(&mut text);
            Arc::new(text)
        });
        self.instructions.store(instructions);
        let before = self.exposed.load_full();
        if !exposed.quarantined.is_empty() && exposed.quarantined != before.quarantined {
            let waiting: Vec<&str> = exposed.quarantined.iter().map(|item| item.name.as_str()).collect();
            tracing::warn!(target: "upstream", server = %name, waiting = %waiting.join(" "),
                "definitions need review: run `portcullis mcp trust {name}`");
        }
        let changed = changed_lists(&before, &exposed);
        let status = ServerStatus {
            server: said.name.clone(),
            revision: said.revision,
            quarantined: exposed.quarantined.clone(),
            ..ServerStatus::of(StatusKind::Connected)
        };
        self.exposed.store(Arc::new(exposed));
        publish(changed, status);
        changed.any()
    }

    /// Takes note of names that other providers have. Returns whether these are others than before.
    pub(crate) fn set_conflicts(&self, server: &str, conflicts: Vec<NameConflict>) -> bool {
        if **self.conflicts.load() == conflicts {
            return false;
        }
        if !conflicts.is_empty() {
            let names: Vec<&str> = conflicts.iter().map(|conflict| conflict.name.as_str()).collect();
            tracing::warn!(target: "upstream", %server, names = %names.join(" "), "names are taken by other servers");
        }
        self.conflicts.store(Arc::new(conflicts));
        true
    }

    /// Counts in the status what is exposed, and lists what is not. Called while the status is locked, so that the last
    /// count is of the last catalog.
    pub(crate) fn count(&self, status: &mut ServerStatus) {
        let (exposed, conflicts) = (self.exposed.load(), self.conflicts.load());
        let outranked =
            |kind: &str| conflicts.iter().filter(|one| one.kind == kind && one.instead.is_none()).count();
        let tools = exposed.tool_names.len() - exposed.second.len();
        status.tools = tools.saturating_sub(outranked("tool"));
        status.prompts = exposed.prompts.len().saturating_sub(outranked("prompt"));
        status.resources = exposed.resources.len().saturating_sub(outranked("resource"));
        status.dropped.clone_from(&exposed.dropped);
        let others =
            conflicts.iter().map(|one| (printable(exposed.own_name(one.kind, &one.name)), one.why()));
        status.dropped.extend(others);
    }

    /// Returns whether an administrator trusts the server as it is now.
    pub(crate) fn is_trusted(&self, spec: &ServerSpec) -> bool {
        let Some(advertised) = self.advertised() else { return false };
        spec.trust.is_trusted_identity(&spec.name, &advertised.snapshot.identity)
    }

    /// Refuses a call unless the definition that it was decided by is pinned, at this moment.
    pub(crate) fn verify_pin(
        &self,
        spec: &ServerSpec,
        call: &portcullis_core::Call,
    ) -> Result<(), ToolError> {
        let Some(advertised) = self.advertised() else { return Ok(()) };
        let (seen, name, trust) = (&advertised.snapshot, spec.name.as_str(), &spec.trust);
        let exposed = self.exposed.load();
        let is_pinned = |kind, own: &str| trust.standing(name, seen, kind, own) == PinStatus::Trusted;
        let holds = match &call.target {
            Target::Tool(tool) => exposed.tool_names.get(tool).is_some_and(|own| {
                let is_same = call
                    .tool()
                    .is_none_or(|asked| Arc::ptr_eq(asked, &own.def) || asked.digest() == own.def.digest());
                is_same && is_pinned(PinKind::Tool, &own.name)
            }),
            Target::Prompt(prompt) | Target::Completion(CompletionRef::Prompt(prompt)) => {
                exposed.prompt_names.get(prompt).is_some_and(|own| is_pinned(PinKind::Prompt, own))
            }
            // A listed resource comes with the server; one that only matches a template comes with the template.
            Target::Resource(uri) if exposed.owns(uri) == ResourceClaim::ByForm => {
                exposed.forms_of(uri).any(|form| is_pinned(PinKind::Template, form))
            }
            Target::Resource(_) => trust.is_trusted_identity(name, &seen.identity),
            // The pin was verified when the call that became the task was made.
            Target::Task(..) => true,
            Target::Completion(CompletionRef::Template(form)) => is_pinned(PinKind::Template, form),
        };
        if holds {
            return Ok(());
        }
        let (kind, what) = (call.target.kind(), call.target.name());
        Err(ToolError::unavailable(format!("{kind} `{what}` is not the reviewed definition"))
            .hint(format!("ask a person to run `portcullis mcp trust {name}`, then list again")))
    }
}

fn changed_lists(before: &ExposedCatalog, now: &ExposedCatalog) -> ChangedLists {
    let digests = |catalog: &ExposedCatalog| {
        // Of a tool that is the same, the decision may be another.
        catalog.tools.iter().map(|tool| (tool.digest(), tool.default_decision)).collect::<Vec<_>>()
    };
    // Names that were reserved for late prompts become free, though nothing else is different.
    let arrived = before.late.contains(&ListKind::Prompts) && !now.late.contains(&ListKind::Prompts);
    ChangedLists {
        tools: digests(before) != digests(now),
        prompts: arrived || before.prompts != now.prompts,
        resources: before.resources != now.resources || before.templates != now.templates,
    }
}
