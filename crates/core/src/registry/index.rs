//! Name resolution: which provider owns a name.
//!
//! Native families come first. Among upstream servers that offer the same name, the one with the longer prefix owns it, then
//! the first by server name; the order of connection never matters. Names of a configured server stay reserved while it is
//! down, so that no other server can impersonate it. A tool of a server without a prefix whose name is taken gets
//! [`fallback_name`], if that is free. Native names are reserved in any case: people and models do not distinguish
//! `Workspace_read` from `workspace_read`, and URI schemes are case-insensitive.

use super::{Catalog, NameConflict, Provider, RegistryError, ResourceClaim, fallback_name};
use crate::call::{CompletionRef, Target};
use crate::tool::{DefaultDecision, ToolDef};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct NameIndex {
    pub(super) catalog: Catalog,
    pub(super) tools: HashMap<String, (Arc<ToolDef>, usize)>,
    prompts: HashMap<String, usize>,
    templates: HashMap<String, usize>,
    pub(super) providers: Vec<Arc<dyn Provider>>,
    /// Indexes of the providers, by precedence.
    by_claim: Vec<usize>,
    /// The lowercase schemes of native URIs. No server may own a URI with one of them.
    reserved_schemes: HashSet<String>,
    /// The listed URIs and templates, with the decision if no rule matches.
    pub(super) addresses: HashSet<(String, DefaultDecision)>,
}

/// Names of a configured server, connected or not.
#[derive(Default)]
pub(super) struct ReservedNames {
    pub(super) prefix: String,
    /// Identifies the naming configuration. If it changes, the names are released.
    pub(super) naming: String,
    pub(super) tools: HashSet<String>,
    pub(super) prompts: HashSet<String>,
}

/// A provider or an absent server that owns names, by precedence.
struct Claimant<'a> {
    prefix: Option<&'a str>,
    name: &'a str,
    /// Index among the providers; `None` for an absent server.
    at: Option<usize>,
}

/// The owner of each name, as an index into the claimants.
#[derive(Default)]
struct Holders<'a> {
    tools: HashMap<&'a str, usize>,
    prompts: HashMap<&'a str, usize>,
    templates: HashMap<&'a str, usize>,
    resources: HashMap<&'a str, usize>,
    second_tools: HashMap<String, usize>,
    reserved: Reserved,
}

/// Lowercase native tool names and URI schemes, with their owner.
#[derive(Default)]
struct Reserved {
    tools: HashMap<String, usize>,
    schemes: HashMap<String, usize>,
}

impl Reserved {
    fn add(&mut self, offer: &Catalog, place: usize) {
        for tool in &offer.tools {
            self.tools.entry(tool.name.to_ascii_lowercase()).or_insert(place);
        }
        for scheme in offer.templates.iter().filter_map(|template| scheme(&template.uri_template)) {
            self.schemes.entry(scheme).or_insert(place);
        }
    }

    /// Returns the native family that a server's tool name could be confused with.
    fn tool(&self, name: &str) -> Option<usize> {
        self.tools.get(&name.to_ascii_lowercase()).copied()
    }

    fn address(&self, uri: &str) -> Option<usize> {
        self.schemes.get(&scheme(uri)?).copied()
    }
}

/// Returns the lowercase scheme of a URI or template.
fn scheme(uri: &str) -> Option<String> {
    let (scheme, _) = uri.trim_start().split_once(':')?;
    Some(scheme.to_ascii_lowercase())
}

impl NameIndex {
    /// Assigns every name to one provider. Also returns, per provider, the names that it did not get.
    pub(super) fn new(
        providers: &[Arc<dyn Provider>],
        reserved_names: &mut BTreeMap<String, ReservedNames>,
    ) -> (NameIndex, Vec<Vec<NameConflict>>) {
        let mut offers: Vec<Catalog> = providers.iter().map(|provider| provider.catalog()).collect();
        let mut waiting = Vec::new();
        for ((provider, offer), at) in providers.iter().zip(&mut offers).zip(0..) {
            let held = offer.tools.extract_if(.., |tool| tool.withheld.is_some());
            let from = waiting.len();
            waiting.extend(held.map(|tool| (tool, at)));
            if let Some(reserved_names) = reserved_names.get_mut(provider.name())
                && provider.prefix().is_some()
                && provider.is_known()
            {
                reserved_names.update(offer, &waiting[from..]);
            }
        }
        let claimants = claimants(providers, reserved_names);
        let holders = holders(&claimants, &offers, reserved_names);
        let by_claim = claimants.iter().filter_map(|claimant| claimant.at).collect();
        let reserved_schemes = holders.reserved.schemes.keys().cloned().collect();
        let mut index =
            NameIndex { providers: providers.to_vec(), by_claim, reserved_schemes, ..NameIndex::default() };
        let mut taken: Vec<Vec<NameConflict>> = providers.iter().map(|_| Vec::new()).collect();
        let mut places = vec![0; providers.len()];
        for (place, claimant) in claimants.iter().enumerate() {
            if let Some(at) = claimant.at {
                places[at] = place;
            }
        }
        for (at, offer) in offers.iter().enumerate() {
            // Returns whether this provider owns a name, and records the conflict otherwise.
            let mut has = |kind, holders: &HashMap<&str, usize>, name: &str, instead: Option<&String>| {
                let holder = holders.get(name).copied().unwrap_or(places[at]);
                if holder != places[at] {
                    let who = &claimants[holder];
                    let server = who.prefix.map(|_| who.name.to_owned());
                    let (name, instead) = (name.to_owned(), instead.cloned());
                    taken[at].push(NameConflict { kind, name, instead, server, is_there: who.at.is_some() });
                }
                holder == places[at]
            };
            for first in &offer.tools {
                let second = offer.second.get(&first.name);
                let second = second.filter(|tool| holders.second_tools.get(&tool.name) == Some(&places[at]));
                let is_first = has("tool", &holders.tools, &first.name, second.map(|tool| &tool.name));
                if let Some(tool) = Some(first).filter(|_| is_first).or(second) {
                    index.tools.insert(tool.name.clone(), (tool.clone(), at));
                    index.catalog.tools.push(tool.clone());
                }
            }
            let prompts = &holders.prompts;
            for one in offer.prompts.iter().filter(|one| has("prompt", prompts, &one.name, None)) {
                index.prompts.insert(one.name.clone(), at);
                index.catalog.prompts.push(one.clone());
            }
            let templates = &holders.templates;
            for one in
                offer.templates.iter().filter(|one| has("template", templates, &one.uri_template, None))
            {
                index.templates.insert(one.uri_template.clone(), at);
                index.catalog.templates.push(one.clone());
            }
            for uri in &offer.resources {
                has("resource", &holders.resources, uri, None);
            }
        }
        for (provider, offer) in providers.iter().zip(&offers) {
            let templates = offer.templates.iter().map(|template| &template.uri_template);
            let addresses = offer.resources.iter().chain(templates);
            index.addresses.extend(addresses.map(|uri| (uri.clone(), provider.default_decision())));
        }
        // Tools that wait for review are callable by name (to be refused) but not listed, and take no name from others.
        for (tool, at) in &waiting {
            let holder = holders.tools.get(tool.name.as_str()).copied().or_else(|| {
                // A native tool may wait under its own name.
                let is_server = providers[*at].prefix().is_some();
                holders.reserved.tool(&tool.name).filter(|_| is_server)
            });
            if holder.is_none_or(|holder| holder == places[*at]) {
                index.tools.entry(tool.name.clone()).or_insert((tool.clone(), *at));
            }
        }
        (index, taken)
    }

    /// Returns an error if a name of a native family is taken or a duplicate. Withheld tools do not count.
    pub(super) fn check_unique_names(&self, provider: &dyn Provider) -> Result<(), RegistryError> {
        let (catalog, second) = (provider.catalog(), provider.name());
        let taken = |kind, name: &str, first: Option<usize>| RegistryError::Taken {
            kind,
            name: name.to_owned(),
            first: first.map_or(second, |first| self.providers[first].name()).to_owned(),
            second: second.to_owned(),
        };
        let mut own = HashSet::new();
        for tool in catalog.tools.iter().filter(|tool| tool.withheld.is_none()) {
            let other = self.tools.get(&tool.name).filter(|(tool, _)| tool.withheld.is_none());
            if other.is_some() || !own.insert(("tool", &tool.name)) {
                return Err(taken("tool", &tool.name, other.map(|(_, at)| *at)));
            }
        }
        for prompt in &catalog.prompts {
            let other = self.prompts.get(&prompt.name).copied();
            if other.is_some() || !own.insert(("prompt", &prompt.name)) {
                return Err(taken("prompt", &prompt.name, other));
            }
        }
        Ok(())
    }

    pub(super) fn provider_of(&self, target: &Target, client: &str) -> Option<Arc<dyn Provider>> {
        let at = match target {
            Target::Tool(name) => self.tools.get(name).map(|(_, at)| *at),
            Target::Prompt(name) | Target::Completion(CompletionRef::Prompt(name)) => {
                self.prompts.get(name).copied()
            }
            Target::Completion(CompletionRef::Template(uri)) => self.templates.get(uri).copied(),
            Target::Resource(uri) => self.owner_of(uri, client),
            Target::Task(_, task) => return self.server(&task.server),
        };
        at.map(|at| self.providers[at].clone())
    }

    /// Returns the decision about a prompt if no rule matches.
    pub(super) fn default_decision_for_prompt(&self, name: &str) -> DefaultDecision {
        self.prompts.get(name).map(|at| self.providers[*at].default_decision()).unwrap_or_default()
    }

    pub(super) fn server(&self, name: &str) -> Option<Arc<dyn Provider>> {
        let is_meant = |known: &&Arc<dyn Provider>| known.name() == name && known.prefix().is_some();
        self.providers.iter().find(is_meant).cloned()
    }

    /// Returns the owner of a URI: a provider that lists it, else one with a matching template, else one that mentioned it.
    pub(super) fn owner_of(&self, uri: &str, client: &str) -> Option<usize> {
        let (mut by_form, mut linked) = (None, None);
        let is_reserved = scheme(uri).is_some_and(|scheme| self.reserved_schemes.contains(&scheme));
        for at in self.by_claim.iter().copied() {
            if is_reserved && self.providers[at].prefix().is_some() {
                continue;
            }
            match self.providers[at].owns_resource(uri, client) {
                ResourceClaim::Listed => return Some(at),
                ResourceClaim::ByForm => by_form = by_form.or(Some(at)),
                ResourceClaim::Linked => linked = linked.or(Some(at)),
                ResourceClaim::Not => {}
            }
        }
        by_form.or(linked)
    }
}

impl ReservedNames {
    /// Updates the names to the current offer. Withheld tools that were listed before stay reserved, and so do all names of
    /// a kind that the server has not listed yet.
    fn update(&mut self, offer: &Catalog, waiting: &[(Arc<ToolDef>, usize)]) {
        let held =
            waiting.iter().map(|(tool, _)| tool.name.as_str()).filter(|name| self.tools.contains(*name));
        let tools: HashSet<&str> = offer.tools.iter().map(|tool| tool.name.as_str()).chain(held).collect();
        if !offer.tools_are_late && !is_same(&self.tools, &tools) {
            self.tools = tools.into_iter().map(str::to_owned).collect();
        }
        let prompts = offer.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        if !offer.prompts_are_late && !is_same(&self.prompts, &prompts) {
            self.prompts = prompts.into_iter().map(str::to_owned).collect();
        }
    }
}

fn is_same(before: &HashSet<String>, now: &HashSet<&str>) -> bool {
    before.len() == now.len() && now.iter().all(|name| before.contains(*name))
}

/// Returns all owners of names, by precedence.
fn claimants<'a>(
    providers: &'a [Arc<dyn Provider>],
    reserved_names: &'a BTreeMap<String, ReservedNames>,
) -> Vec<Claimant<'a>> {
    let mut claimants: Vec<Claimant<'a>> = providers
        .iter()
        .enumerate()
        .map(|(at, provider)| Claimant { prefix: provider.prefix(), name: provider.name(), at: Some(at) })
        .collect();
    let servers: HashSet<&str> =
        claimants.iter().filter(|one| one.prefix.is_some()).map(|one| one.name).collect();
    let gone = reserved_names.iter().filter(|(name, _)| !servers.contains(name.as_str()));
    claimants.extend(gone.map(|(name, reserved_names)| Claimant {
        prefix: Some(&reserved_names.prefix),
        name,
        at: None,
    }));
    claimants.sort_by_key(|one| one.prefix.map(|prefix| (Reverse(prefix.len()), one.name)));
    claimants
}

/// Assigns every name to the first claimant.
fn holders<'a>(
    claimants: &[Claimant<'a>],
    offers: &'a [Catalog],
    reserved_names: &'a BTreeMap<String, ReservedNames>,
) -> Holders<'a> {
    let mut holders = Holders::default();
    for (place, claimant) in claimants.iter().enumerate() {
        if let Some(offer) = claimant.at.map(|at| &offers[at]) {
            if claimant.prefix.is_none() {
                holders.reserved.add(offer, place);
            }
            let is_server = claimant.prefix.is_some();
            // Native families come first, so `reserved` is complete before the first server.
            let reserved = &holders.reserved;
            let address = |uri: &str| reserved.address(uri).filter(|_| is_server).unwrap_or(place);
            for tool in &offer.tools {
                let holder = reserved.tool(&tool.name).filter(|_| is_server).unwrap_or(place);
                holders.tools.entry(&tool.name).or_insert(holder);
            }
            for prompt in &offer.prompts {
                holders.prompts.entry(&prompt.name).or_insert(place);
            }
            for template in &offer.templates {
                holders.templates.entry(&template.uri_template).or_insert(address(&template.uri_template));
            }
            for uri in &offer.resources {
                holders.resources.entry(uri).or_insert(address(uri));
            }
        }
        if let Some(reserved_names) = claimant.prefix.and_then(|_| reserved_names.get(claimant.name)) {
            for tool in &reserved_names.tools {
                holders.tools.entry(tool).or_insert(place);
            }
            for prompt in &reserved_names.prompts {
                holders.prompts.entry(prompt).or_insert(place);
            }
        }
    }
    let bare = claimants.iter().enumerate().filter(|(_, claimant)| claimant.prefix == Some(""));
    for (place, claimant) in bare {
        let (offer, reserved_names) = (claimant.at.map(|at| &offers[at]), reserved_names.get(claimant.name));
        let tools = offer.into_iter().flat_map(|offer| offer.tools.iter().map(|tool| &tool.name));
        let tools = tools.chain(reserved_names.into_iter().flat_map(|reserved_names| &reserved_names.tools));
        give_second(
            place,
            claimant.name,
            tools,
            &holders.tools,
            &holders.reserved,
            &mut holders.second_tools,
        );
    }
    holders
}

/// Assigns fallback names to a server's tools whose names are taken. A fallback name must not be any tool's own name.
fn give_second<'a>(
    place: usize,
    server: &str,
    names: impl Iterator<Item = &'a String>,
    first: &HashMap<&str, usize>,
    reserved: &Reserved,
    second: &mut HashMap<String, usize>,
) {
    for name in names.filter(|name| first.get(name.as_str()) != Some(&place)) {
        let is_free = |name: &String| !first.contains_key(name.as_str()) && reserved.tool(name).is_none();
        if let Some(name) = fallback_name(server, name).filter(is_free) {
            second.entry(name).or_insert(place);
        }
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
