//! Which entries of a list changed, so that only clients that see one of them are notified.
//!
//! Invariant: a client that sees nothing of a server gets no notification about it, which would reveal that it exists.

use super::index::NameIndex;
use super::{PromptDef, Provider};
use crate::call::ToolView;
use crate::effect::{Effect, Reach};
use crate::gate::PolicySubject;
use crate::label::Labels;
use crate::tool::{DefaultDecision, ToolDef};
use std::collections::{HashMap, HashSet};

/// A list of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Tools,
    Prompts,
    Resources,
}

impl List {
    fn has(self, kind: &str) -> bool {
        match self {
            List::Tools => kind == "tool",
            List::Prompts => kind == "prompt",
            List::Resources => kind == "resource",
        }
    }
}

/// A list entry with all that policy needs. The entry may no longer exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Affected {
    kind: &'static str,
    name: String,
    also: Option<String>,
    effect: Effect,
    reach: Reach,
    labels: Labels,
    default_decision: DefaultDecision,
    in_every_scope: bool,
    view: Option<ToolView>,
}

impl Affected {
    /// A resource URI or a template.
    pub fn resource(uri: &str, default_decision: DefaultDecision) -> Affected {
        Affected::of(&PolicySubject::of_read("resource", uri, default_decision), None)
    }

    fn prompt(name: &str, default_decision: DefaultDecision) -> Affected {
        Affected::of(&PolicySubject::of_read("prompt", name, default_decision), None)
    }

    fn tool(tool: &ToolDef) -> Affected {
        Affected::of(&PolicySubject::of_tool(tool), tool.view)
    }

    fn of(listing: &PolicySubject<'_>, view: Option<ToolView>) -> Affected {
        Affected {
            kind: listing.kind,
            name: listing.name.to_owned(),
            also: listing.also.map(str::to_owned),
            effect: listing.effect,
            reach: listing.reach,
            labels: listing.labels,
            default_decision: listing.default_decision,
            in_every_scope: listing.in_every_scope,
            view,
        }
    }

    pub(crate) fn is_for(&self, view: ToolView) -> bool {
        self.view.is_none_or(|only| only == view)
    }

    pub(crate) fn listing(&self) -> PolicySubject<'_> {
        PolicySubject {
            kind: self.kind,
            name: &self.name,
            also: self.also.as_deref(),
            effect: self.effect,
            reach: self.reach,
            labels: self.labels,
            default_decision: self.default_decision,
            in_every_scope: self.in_every_scope,
        }
    }
}

/// The differences since the last announcement: entries as they were and as they are.
#[derive(Default)]
pub(super) struct Unannounced(HashSet<Affected>);

impl Unannounced {
    /// Adds the differences between two indexes.
    pub(super) fn note(&mut self, before: &NameIndex, now: &NameIndex) {
        for (one, other) in [(before, now), (now, before)] {
            for tool in &one.catalog.tools {
                let same = other.tools.get(&tool.name).filter(|(known, _)| known.withheld.is_none());
                if same.is_none_or(|(known, _)| known.digest() != tool.digest()) {
                    self.0.insert(Affected::tool(tool));
                }
            }
            let known: HashMap<&str, &PromptDef> =
                other.catalog.prompts.iter().map(|prompt| (prompt.name.as_str(), &**prompt)).collect();
            for prompt in &one.catalog.prompts {
                if known.get(prompt.name.as_str()) != Some(&&**prompt) {
                    self.0.insert(Affected::prompt(
                        &prompt.name,
                        one.default_decision_for_prompt(&prompt.name),
                    ));
                }
            }
            for (uri, default_decision) in one.addresses.difference(&other.addresses) {
                self.0.insert(Affected::resource(uri, *default_decision));
            }
        }
    }

    /// Removes and returns the entries of a list.
    pub(super) fn take(&mut self, list: List) -> Vec<Affected> {
        self.0.extract_if(|affected| list.has(affected.kind)).collect()
    }
}

/// Returns all current entries of a provider's list.
pub(super) fn listed_by(provider: &dyn Provider, list: List) -> Vec<Affected> {
    let (catalog, default_decision) = (provider.catalog(), provider.default_decision());
    match list {
        List::Tools => {
            let tools = catalog.tools.iter().filter(|tool| tool.withheld.is_none());
            tools.chain(catalog.second.values()).map(|tool| Affected::tool(tool)).collect()
        }
        List::Prompts => {
            catalog.prompts.iter().map(|prompt| Affected::prompt(&prompt.name, default_decision)).collect()
        }
        List::Resources => {
            let templates = catalog.templates.iter().map(|template| template.uri_template.as_str());
            let addresses = catalog.resources.iter().map(String::as_str).chain(templates);
            addresses.map(|uri| Affected::resource(uri, default_decision)).collect()
        }
    }
}
