//! Which of the providers answers to a name.
//!
//! Native families come first. Of servers that offer the same name, the one with the longer prefix has it, then the first
//! in the order of their names: never the one that was there first. What a configured server had before stays its own
//! while it is not there, so that no other can step into its place. Something of a server without a prefix that does not
//! get its name appears with the server before it, unless that is anybody's name. What is native is reserved however it is
//! spelt: people and models do not tell `Workspace_read` from `workspace_read`, nor do schemes of addresses have a case.

use super::{Catalog, Owns, Provider, RegistryError, Taken, second_name};
use crate::call::{CompletionOf, Target};
use crate::tool::{ToolDef, Unruled};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Index {
    pub(super) catalog: Catalog,
    pub(super) tools: HashMap<String, (Arc<ToolDef>, usize)>,
    prompts: HashMap<String, usize>,
    templates: HashMap<String, usize>,
    pub(super) providers: Vec<Arc<dyn Provider>>,
    /// The places of all providers, in the order in which names are given.
    by_claim: Vec<usize>,
    /// The schemes of native addresses, in small letters. No server has an address with one of them.
    reserved_schemes: HashSet<String>,
    /// The addresses and forms that are listed, with what is decided about them where no rule speaks.
    pub(super) addresses: HashSet<(String, Unruled)>,
}

/// Names that are a configured server's, whether it is there or not.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) prefix: String,
    /// What its names come from: where that is another, they are others.
    pub(super) naming: String,
    pub(super) tools: HashSet<String>,
    pub(super) prompts: HashSet<String>,
}

/// Somebody who has names, in the order in which names are given.
struct Claimant<'a> {
    prefix: Option<&'a str>,
    name: &'a str,
    /// Where among the providers; `None` for one that is not there.
    at: Option<usize>,
}

/// Who has which name, by the place among the claimants.
#[derive(Default)]
struct Holders<'a> {
    tools: HashMap<&'a str, usize>,
    prompts: HashMap<&'a str, usize>,
    templates: HashMap<&'a str, usize>,
    resources: HashMap<&'a str, usize>,
    second_tools: HashMap<String, usize>,
    reserved: Reserved,
}

/// The names of native tools and the schemes of native addresses, in small letters, by whose they are.
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

    /// Returns which native family a server's name is too close to.
    fn tool(&self, name: &str) -> Option<usize> {
        self.tools.get(&name.to_ascii_lowercase()).copied()
    }

    fn address(&self, uri: &str) -> Option<usize> {
        self.schemes.get(&scheme(uri)?).copied()
    }
}

/// Returns the scheme of an address or of a template, in small letters.
fn scheme(uri: &str) -> Option<String> {
    let (scheme, _) = uri.trim_start().split_once(':')?;
    Some(scheme.to_ascii_lowercase())
}

impl Index {
    /// Gives every name to one provider. Also returns, by provider, which names it wanted and did not get.
    pub(super) fn new(
        providers: &[Arc<dyn Provider>],
        kept: &mut BTreeMap<String, Kept>,
    ) -> (Index, Vec<Vec<Taken>>) {
        let mut offers: Vec<Catalog> = providers.iter().map(|provider| provider.catalog()).collect();
        let mut waiting = Vec::new();
        for ((provider, offer), at) in providers.iter().zip(&mut offers).zip(0..) {
            let held = offer.tools.extract_if(.., |tool| tool.withheld.is_some());
            let from = waiting.len();
            waiting.extend(held.map(|tool| (tool, at)));
            if let Some(kept) = kept.get_mut(provider.name())
                && provider.prefix().is_some()
                && provider.is_known()
            {
                kept.now(offer, &waiting[from..]);
            }
        }
        let claimants = claimants(providers, kept);
        let holders = holders(&claimants, &offers, kept);
        let by_claim = claimants.iter().filter_map(|claimant| claimant.at).collect();
        let reserved_schemes = holders.reserved.schemes.keys().cloned().collect();
        let mut index =
            Index { providers: providers.to_vec(), by_claim, reserved_schemes, ..Index::default() };
        let mut taken: Vec<Vec<Taken>> = providers.iter().map(|_| Vec::new()).collect();
        let mut places = vec![0; providers.len()];
        for (place, claimant) in claimants.iter().enumerate() {
            if let Some(at) = claimant.at {
                places[at] = place;
            }
        }
        for (at, offer) in offers.iter().enumerate() {
            // Returns whether a name is this one's, and notes whose it is otherwise.
            let mut has = |kind, holders: &HashMap<&str, usize>, name: &str, instead: Option<&String>| {
                let holder = holders.get(name).copied().unwrap_or(places[at]);
                if holder != places[at] {
                    let who = &claimants[holder];
                    let server = who.prefix.map(|_| who.name.to_owned());
                    let (name, instead) = (name.to_owned(), instead.cloned());
                    taken[at].push(Taken { kind, name, instead, server, is_there: who.at.is_some() });
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
            index.addresses.extend(addresses.map(|uri| (uri.clone(), provider.unruled())));
        }
        // What waits is known by name and not listed, and takes nobody's name away.
        for (tool, at) in &waiting {
            let holder = holders.tools.get(tool.name.as_str()).copied().or_else(|| {
                // What is native and waits is its own.
                let is_server = providers[*at].prefix().is_some();
                holders.reserved.tool(&tool.name).filter(|_| is_server)
            });
            if holder.is_none_or(|holder| holder == places[*at]) {
                index.tools.entry(tool.name.clone()).or_insert((tool.clone(), *at));
            }
        }
        (index, taken)
    }

    /// Says whether a name that a native family offers is another's, or its own twice. What waits has no name to defend.
    pub(super) fn has_room_for(&self, provider: &dyn Provider) -> Result<(), RegistryError> {
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
            Target::Prompt(name) | Target::Completion(CompletionOf::Prompt(name)) => {
                self.prompts.get(name).copied()
            }
            Target::Completion(CompletionOf::Template(uri)) => self.templates.get(uri).copied(),
            Target::Resource(uri) => self.owner_of(uri, client),
            Target::Task(_, task) => return self.server(&task.server),
        };
        at.map(|at| self.providers[at].clone())
    }

    /// Returns what is decided about a prompt where no rule speaks.
    pub(super) fn unruled_of_prompt(&self, name: &str) -> Unruled {
        self.prompts.get(name).map(|at| self.providers[*at].unruled()).unwrap_or_default()
    }

    pub(super) fn server(&self, name: &str) -> Option<Arc<dyn Provider>> {
        let is_meant = |known: &&Arc<dyn Provider>| known.name() == name && known.prefix().is_some();
        self.providers.iter().find(is_meant).cloned()
    }

    /// Returns who answers for an address: whoever lists it, before those who only have a form that it fits, and those before
    /// whoever has only named it.
    pub(super) fn owner_of(&self, uri: &str, client: &str) -> Option<usize> {
        let (mut by_form, mut linked) = (None, None);
        let is_reserved = scheme(uri).is_some_and(|scheme| self.reserved_schemes.contains(&scheme));
        for at in self.by_claim.iter().copied() {
            if is_reserved && self.providers[at].prefix().is_some() {
                continue;
            }
            match self.providers[at].owns_resource(uri, client) {
                Owns::Listed => return Some(at),
                Owns::ByForm => by_form = by_form.or(Some(at)),
                Owns::Linked => linked = linked.or(Some(at)),
                Owns::Not => {}
            }
        }
        by_form.or(linked)
    }
}

impl Kept {
    /// Takes over what a server offers now. What it had and what now waits for a person stays its own, and so does all that it
    /// had of a kind that it has not spoken of yet.
    fn now(&mut self, offer: &Catalog, waiting: &[(Arc<ToolDef>, usize)]) {
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

/// Returns everybody who has names, in the order in which names are given.
fn claimants<'a>(providers: &'a [Arc<dyn Provider>], kept: &'a BTreeMap<String, Kept>) -> Vec<Claimant<'a>> {
    let mut claimants: Vec<Claimant<'a>> = providers
        .iter()
        .enumerate()
        .map(|(at, provider)| Claimant { prefix: provider.prefix(), name: provider.name(), at: Some(at) })
        .collect();
    let servers: HashSet<&str> =
        claimants.iter().filter(|one| one.prefix.is_some()).map(|one| one.name).collect();
    let gone = kept.iter().filter(|(name, _)| !servers.contains(name.as_str()));
    claimants.extend(gone.map(|(name, kept)| Claimant { prefix: Some(&kept.prefix), name, at: None }));
    claimants.sort_by_key(|one| one.prefix.map(|prefix| (Reverse(prefix.len()), one.name)));
    claimants
}

/// Gives every name to the first who has it.
fn holders<'a>(
    claimants: &[Claimant<'a>],
    offers: &'a [Catalog],
    kept: &'a BTreeMap<String, Kept>,
) -> Holders<'a> {
    let mut holders = Holders::default();
    for (place, claimant) in claimants.iter().enumerate() {
        if let Some(offer) = claimant.at.map(|at| &offers[at]) {
            if claimant.prefix.is_none() {
                holders.reserved.add(offer, place);
            }
            let is_server = claimant.prefix.is_some();
            // Who comes first in the order of names are the native families.
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
        if let Some(kept) = claimant.prefix.and_then(|_| kept.get(claimant.name)) {
            for tool in &kept.tools {
                holders.tools.entry(tool).or_insert(place);
            }
            for prompt in &kept.prompts {
                holders.prompts.entry(prompt).or_insert(place);
            }
        }
    }
    let bare = claimants.iter().enumerate().filter(|(_, claimant)| claimant.prefix == Some(""));
    for (place, claimant) in bare {
        let (offer, kept) = (claimant.at.map(|at| &offers[at]), kept.get(claimant.name));
        let tools = offer.into_iter().flat_map(|offer| offer.tools.iter().map(|tool| &tool.name));
        let tools = tools.chain(kept.into_iter().flat_map(|kept| &kept.tools));
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

/// Gives those names of a server that are others' a second form, which is nobody's first.
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
        if let Some(name) = second_name(server, name).filter(is_free) {
            second.entry(name).or_insert(place);
        }
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
