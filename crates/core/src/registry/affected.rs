//! Whom a changed list concerns: whoever sees something of what changed, as it was or as it is.
//!
//! A client that sees nothing of a server learns nothing of it, not even that something happened there.

use super::index::Index;
use super::{PromptDef, Provider};
use crate::call::ToolView;
use crate::effect::{Effect, Reach};
use crate::gate::Listing;
use crate::label::Labels;
use crate::tool::{ToolDef, Unruled};
use std::collections::{HashMap, HashSet};

/// A list that clients ask for.
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

/// Something on a list, as the rules see it. It may be there no more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Affected {
    kind: &'static str,
    name: String,
    also: Option<String>,
    effect: Effect,
    reach: Reach,
    labels: Labels,
    unruled: Unruled,
    in_every_scope: bool,
    view: Option<ToolView>,
}

impl Affected {
    /// An address, or the form of some.
    pub fn resource(uri: &str, unruled: Unruled) -> Affected {
        Affected::of(&Listing::of_read("resource", uri, unruled), None)
    }

    fn prompt(name: &str, unruled: Unruled) -> Affected {
        Affected::of(&Listing::of_read("prompt", name, unruled), None)
    }

    fn tool(tool: &ToolDef) -> Affected {
        Affected::of(&Listing::of_tool(tool), tool.view)
    }

    fn of(listing: &Listing<'_>, view: Option<ToolView>) -> Affected {
        Affected {
            kind: listing.kind,
            name: listing.name.to_owned(),
            also: listing.also.map(str::to_owned),
            effect: listing.effect,
            reach: listing.reach,
            labels: listing.labels,
            unruled: listing.unruled,
            in_every_scope: listing.in_every_scope,
            view,
        }
    }

    pub(crate) fn is_for(&self, view: ToolView) -> bool {
        self.view.is_none_or(|only| only == view)
    }

    pub(crate) fn listing(&self) -> Listing<'_> {
        Listing {
            kind: self.kind,
            name: &self.name,
            also: self.also.as_deref(),
            effect: self.effect,
            reach: self.reach,
            labels: self.labels,
            unruled: self.unruled,
            in_every_scope: self.in_every_scope,
        }
    }
}

/// What differs from what clients were last told of, as it was and as it is.
#[derive(Default)]
pub(super) struct Unannounced(HashSet<Affected>);

impl Unannounced {
    /// Notes what differs between two indexes.
    pub(super) fn note(&mut self, before: &Index, now: &Index) {
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
                    self.0.insert(Affected::prompt(&prompt.name, one.unruled_of_prompt(&prompt.name)));
                }
            }
            for (uri, unruled) in one.addresses.difference(&other.addresses) {
                self.0.insert(Affected::resource(uri, *unruled));
            }
        }
    }

    /// Takes what belongs to a list.
    pub(super) fn take(&mut self, list: List) -> Vec<Affected> {
        self.0.extract_if(|affected| list.has(affected.kind)).collect()
    }
}

/// Returns all that a provider has on a list now.
pub(super) fn listed_by(provider: &dyn Provider, list: List) -> Vec<Affected> {
    let (catalog, unruled) = (provider.catalog(), provider.unruled());
    match list {
        List::Tools => {
            let tools = catalog.tools.iter().filter(|tool| tool.withheld.is_none());
            tools.chain(catalog.second.values()).map(|tool| Affected::tool(tool)).collect()
        }
        List::Prompts => {
            catalog.prompts.iter().map(|prompt| Affected::prompt(&prompt.name, unruled)).collect()
        }
        List::Resources => {
            let templates = catalog.templates.iter().map(|template| template.uri_template.as_str());
            let addresses = catalog.resources.iter().map(String::as_str).chain(templates);
            addresses.map(|uri| Affected::resource(uri, unruled)).collect()
        }
    }
}
