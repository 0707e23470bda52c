//! The registry of providers: resolves names and URIs, and publishes catalog changes.

mod affected;
mod index;

pub use affected::{Affected, List};

use crate::Outcome;
use crate::call::{Call, Caller, Target};
use crate::error::ToolError;
use crate::gate::Permit;
use crate::tool::{DefaultDecision, ToolDef};
use affected::{Unannounced, listed_by};
use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use index::{NameIndex, ReservedNames};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use tokio::sync::broadcast;

/// Broadcast capacity. A slower listener learns that it lagged, and must assume that everything changed.
const CHANGES_MAX: usize = 256;

/// One argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    pub name: String,
    pub description: Option<String>,
    pub required: bool,
}

/// An upstream server's definition of a tool, prompt or resource, including unknown members. Listed unchanged.
#[derive(Debug, Clone)]
pub struct Definition(Arc<RawValue>);

impl Definition {
    pub fn new(raw: Box<RawValue>) -> Definition {
        Definition(raw.into())
    }

    pub fn raw(&self) -> &RawValue {
        &self.0
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Definition {}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptDef {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub arguments: Vec<PromptArgument>,
    pub definition: Option<Definition>,
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceDef {
    pub uri: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub size: Option<u64>,
    pub definition: Option<Definition>,
}

/// A resource template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateDef {
    pub uri_template: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub definition: Option<Definition>,
}

/// What a provider offers, in listing order.
#[derive(Default, Clone)]
pub struct Catalog {
    pub tools: Vec<Arc<ToolDef>>,
    pub prompts: Vec<Arc<PromptDef>>,
    pub templates: Vec<Arc<TemplateDef>>,
    /// The URIs that an upstream server lists. Only for ownership; [`Provider::resources`] lists the resources.
    pub resources: Vec<String>,
    /// For a server without a prefix: the tool to use if its name is taken, by that name. See [`fallback_name`].
    pub second: HashMap<String, Arc<ToolDef>>,
    /// The server has not listed its tools or prompts yet; the catalog holds what was cached before.
    pub tools_are_late: bool,
    pub prompts_are_late: bool,
}

/// The longest name that common clients and models accept.
pub const NAME_CHARS_MAX: usize = 64;
/// Length of the hash suffix of a tool name that had to be changed. The longer one applies if the short name is taken, which
/// only happens on purpose.
pub const NAME_HASH_CHARS: [usize; 2] = [8, 40];

/// Returns the name for a tool of a server without a prefix whose own name is taken, if it fits. Deny rules for the original
/// name apply to it too: [`ToolDef::instead_of`].
pub fn fallback_name(server: &str, name: &str) -> Option<String> {
    let second = format!("{server}_{name}");
    (second.len() <= NAME_CHARS_MAX).then_some(second)
}

/// A native family or an upstream server. Reached only with a [`Permit`].
pub trait Provider: Send + Sync {
    fn name(&self) -> &str;

    /// Returns the current offer. Must not block.
    fn catalog(&self) -> Catalog;

    /// Returns the name prefix of an upstream server; `None` for a native family. Native names take precedence over every
    /// server.
    fn prefix(&self) -> Option<&str> {
        None
    }

    /// Returns whether the catalog is known. A server that has not connected yet may have none.
    fn is_known(&self) -> bool {
        true
    }

    /// Reports which of its names belong to other providers. Must not block or announce changes.
    fn on_name_conflicts(&self, taken: Vec<NameConflict>) {
        let _ = taken;
    }

    /// Returns whether this provider owns a URI, for this client.
    fn owns_resource(&self, uri: &str, client: &str) -> ResourceClaim {
        let _ = (uri, client);
        ResourceClaim::Not
    }

    /// Returns its instructions for agents, if an administrator trusted them.
    fn instructions(&self) -> Option<String> {
        None
    }

    /// Returns the decision about its prompts and resources if no rule matches.
    fn default_decision(&self) -> DefaultDecision {
        DefaultDecision::ByEffect
    }

    /// Starts or ends a client's subscription to a resource.
    fn watch(&self, uri: &str, client: &str, state: WatchState) {
        let _ = (uri, client, state);
    }

    /// Returns an error if a subscription made with [`watch`](Self::watch) will get no updates.
    fn check_subscription<'a>(
        &'a self,
        permit: Permit,
        uri: &'a str,
        client: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let _ = (permit, uri, client);
        Box::pin(async { Ok(()) })
    }

    /// Reports that a client closed its last session. It may reconnect, or go on without a session.
    fn client_disconnected(&self, client: &str) {
        let _ = client;
    }

    /// Reports that a client was removed. A later client of the same name is a different principal.
    fn client_removed(&self, client: &str) {
        self.client_disconnected(client);
    }

    /// Lists the current resources for a caller. They are too many and too short-lived for the catalog.
    fn resources<'a>(
        &'a self,
        permit: Permit,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        let _ = (permit, caller);
        Box::pin(async { Ok(Vec::new()) })
    }

    fn call(&self, permit: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome>;
}

/// How strongly a provider claims a URI, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceClaim {
    Not,
    /// The provider mentioned it in a result, but neither lists nor describes it.
    Linked,
    /// It matches one of the provider's templates. Another provider may list the exact URI.
    ByForm,
    Listed,
}

/// A name that a provider offers but that belongs to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameConflict {
    /// `tool`, `prompt`, `template` or `resource`.
    pub kind: &'static str,
    pub name: String,
    /// The fallback name it got.
    pub instead: Option<String>,
    /// The server that owns it; `None` for the hub itself.
    pub server: Option<String>,
    /// Whether that server is running.
    pub is_there: bool,
}

impl NameConflict {
    /// Describes the conflict.
    pub fn why(&self) -> String {
        let NameConflict { kind, name, .. } = self;
        let name = crate::json::printable(name);
        let mut why = match &self.server {
            None => format!("`{name}` is a {kind} of the hub"),
            Some(server) if self.is_there => format!("`{name}` is a {kind} of server `{server}`"),
            Some(server) => format!("`{name}` is reserved for server `{server}`, which is not running"),
        };
        if let Some(instead) = &self.instead {
            why.push_str(&format!("; this one is `{instead}`"));
        }
        why
    }
}

/// The names of a configured server, known before it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameReservation {
    pub server: String,
    pub prefix: String,
    /// Identifies the naming configuration. If it changes, the earlier names are released.
    pub naming: String,
    pub tools: Vec<String>,
    pub prompts: Vec<String>,
}

/// A change that clients may be notified of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogChange {
    /// A whole list, for all clients: the policy or the native tools changed.
    Tools,
    Prompts,
    Resources,
    /// The list of one provider, by its name. Listeners receive [`CatalogChange::Within`] instead.
    ListOf(List, String),
    /// Some entries of a list. Only for clients that see one of them.
    Within(List, Arc<[Affected]>),
    ResourceUpdated(String),
    /// The resource list of this client only.
    ResourcesOf(String),
    /// A resource of an upstream server. For clients with a subscription on one of `watched` (the resource or a parent of
    /// it), or only for `client` if set.
    ResourceUpdatedOf {
        client: Option<String>,
        uri: String,
        watched: Vec<String>,
    },
}

/// Announces changes of a provider.
#[derive(Clone)]
pub struct ChangeNotifier {
    registry: Weak<Inner>,
}

impl ChangeNotifier {
    /// Rebuilds the index if a list changed, then broadcasts the change.
    pub fn announce(&self, change: CatalogChange) {
        let Some(inner) = self.registry.upgrade() else { return };
        let change = match change {
            CatalogChange::Tools => inner.reindex(List::Tools, change),
            CatalogChange::Prompts => inner.reindex(List::Prompts, change),
            CatalogChange::Resources => inner.reindex(List::Resources, change),
            CatalogChange::ListOf(list, _) => inner.reindex(list, change),
            CatalogChange::Within(..)
            | CatalogChange::ResourceUpdated(_)
            | CatalogChange::ResourcesOf(_)
            | CatalogChange::ResourceUpdatedOf { .. } => change,
        };
        // It is fine if nothing is subscribed.
        let _ = inner.changes.send(change);
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("two providers offer {kind} `{name}`: `{first}` and `{second}`")]
    Taken { kind: &'static str, name: String, first: String, second: String },
}

/// The providers and the reserved names.
#[derive(Default)]
struct RegistryState {
    /// Native families in order of registration, then upstream servers by name.
    providers: Vec<Arc<dyn Provider>>,
    /// Names reserved for configured servers, by server.
    reserved_names: BTreeMap<String, ReservedNames>,
    /// Changes that were not announced yet.
    unannounced: Unannounced,
}

struct Inner {
    known: Mutex<RegistryState>,
    index: ArcSwap<NameIndex>,
    changes: broadcast::Sender<CatalogChange>,
    /// Reference counts of subscriptions.
    watched: Mutex<HashMap<SubscriptionKey, usize>>,
}

/// Identifies a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SubscriptionKey {
    client: String,
    uri: String,
}

/// Whether a client watches a resource from now on, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchState {
    Wanted,
    Ended,
}

/// A client's subscription to a resource, allowed by every layer of the gate. Ends when dropped.
pub struct ResourceSubscription {
    registry: Weak<Inner>,
    watched: SubscriptionKey,
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        let Some(inner) = self.registry.upgrade() else { return };
        let mut watched = inner.watched.lock();
        if let Some(count) = watched.get_mut(&self.watched) {
            *count -= 1;
            if *count == 0 {
                watched.remove(&self.watched);
                inner.watch(&self.watched, WatchState::Ended);
            }
        }
    }
}

/// All providers, in listing order. Clones share state.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

impl Default for Registry {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        Registry {
            inner: Arc::new(Inner {
                known: Mutex::default(),
                index: ArcSwap::default(),
                changes,
                watched: Mutex::default(),
            }),
        }
    }
}

impl Registry {
    /// Adds a provider. A native family with a taken name is an error, never a replacement; an upstream server gets
    /// [`Provider::on_name_conflicts`] instead.
    pub fn add(&self, provider: impl Provider + 'static) -> Result<(), RegistryError> {
        let provider: Arc<dyn Provider> = Arc::new(provider);
        let mut known = self.inner.known.lock();
        if provider.prefix().is_none() {
            self.inner.index.load().check_unique_names(&*provider)?;
        }
        known.providers.push(provider);
        known.providers.sort_by(|a, b| by_listing(&**a).cmp(&by_listing(&**b)));
        self.inner.index_anew(&mut known);
        Ok(())
    }

    /// Removes an upstream server. Calls already dispatched to it run to their end.
    pub fn remove(&self, server: &str) {
        let mut known = self.inner.known.lock();
        // A native family may have the same name.
        known.providers.retain(|one| one.prefix().is_none() || one.name() != server);
        self.inner.index_anew(&mut known);
    }

    /// Sets which servers are configured. Names of a configured server stay reserved while it is down; all other
    /// reservations are released.
    pub fn reserve_names(&self, servers: Vec<NameReservation>) {
        let mut known = self.inner.known.lock();
        let mut before = std::mem::take(&mut known.reserved_names);
        for expected in servers {
            let same = before
                .remove(&expected.server)
                .filter(|reserved_names| reserved_names.naming == expected.naming);
            let mut reserved_names = same.unwrap_or_default();
            (reserved_names.prefix, reserved_names.naming) = (expected.prefix, expected.naming);
            reserved_names.tools.extend(expected.tools);
            reserved_names.prompts.extend(expected.prompts);
            known.reserved_names.insert(expected.server, reserved_names);
        }
        self.inner.index_anew(&mut known);
    }

    /// Returns the notifier for providers.
    pub fn changes(&self) -> ChangeNotifier {
        ChangeNotifier { registry: Arc::downgrade(&self.inner) }
    }

    /// Subscribes to changes from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<CatalogChange> {
        self.inner.changes.subscribe()
    }

    /// Returns all tools, unfiltered. The gate decides what a caller sees.
    pub fn tools(&self) -> Vec<Arc<ToolDef>> {
        self.inner.index.load().catalog.tools.clone()
    }

    pub(crate) fn catalog(&self) -> Catalog {
        self.inner.index.load().catalog.clone()
    }

    pub(crate) fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.inner.index.load().providers.clone()
    }

    pub(crate) fn tool(&self, name: &str) -> Option<Arc<ToolDef>> {
        self.inner.index.load().tools.get(name).map(|(tool, _)| tool.clone())
    }

    /// Returns an upstream server by name. A native family may have the same name.
    pub(crate) fn server(&self, name: &str) -> Option<Arc<dyn Provider>> {
        self.inner.index.load().server(name)
    }

    /// Returns the decision about a target if no rule matches, or `None` if no provider owns the target.
    pub(crate) fn default_decision_for(&self, target: &Target, client: &str) -> Option<DefaultDecision> {
        self.inner.index.load().provider_of(target, client).map(|provider| provider.default_decision())
    }

    /// Subscribes a client to a resource until the returned guard is dropped. The owner is notified of the first.
    pub(crate) fn watch(&self, _: Permit, uri: &str, client: &str) -> ResourceSubscription {
        let wanted = SubscriptionKey { client: client.to_owned(), uri: uri.to_owned() };
        let mut watched = self.inner.watched.lock();
        let count = watched.entry(wanted.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.inner.watch(&wanted, WatchState::Wanted);
        }
        drop(watched);
        ResourceSubscription { registry: Arc::downgrade(&self.inner), watched: wanted }
    }

    /// Returns the owner of a URI.
    pub(crate) fn owner_of(&self, uri: &str, client: &str) -> Option<Arc<dyn Provider>> {
        let index = self.inner.index.load();
        index.owner_of(uri, client).map(|at| index.providers[at].clone())
    }

    /// Passes the call to its provider.
    pub(crate) fn dispatch<'a>(&self, permit: Permit, call: Box<Call>) -> BoxFuture<'a, Outcome> {
        let index = self.inner.index.load();
        let provider = index.provider_of(&call.target, &call.caller.client.name);
        let changed = match (&call.target, call.tool()) {
            (Target::Tool(name), Some(asked)) => index
                .tools
                .get(name)
                .is_some_and(|(now, _)| !Arc::ptr_eq(now, asked) && now.digest() != asked.digest()),
            _ => false,
        };
        drop(index);
        Box::pin(async move {
            if changed {
                // TOCTOU: the policy decided about a different definition than the one that would run.
                return Err(ToolError::unavailable("the tool changed while the call was in progress")
                    .hint("list the tools again, then decide whether to call the changed tool"));
            }
            match provider {
                Some(provider) => provider.call(permit, call).await,
                None => Err(ToolError::unknown(call.target.kind(), call.target.name())),
            }
        })
    }
}

impl Inner {
    fn watch(&self, watched: &SubscriptionKey, state: WatchState) {
        let (index, SubscriptionKey { client, uri }) = (self.index.load(), watched);
        match state {
            WatchState::Wanted => {
                if let Some(at) = index.owner_of(uri, client) {
                    index.providers[at].watch(uri, client, state);
                }
            }
            // The URI may have a different owner by now, so all providers are notified.
            WatchState::Ended => {
                index.providers.iter().for_each(|provider| provider.watch(uri, client, state));
            }
        }
    }

    /// Rebuilds the index. Returns the change to announce: for the list of one provider, its entries plus all differences
    /// since the last announcement of such a list, because names may have moved between providers.
    fn reindex(&self, list: List, change: CatalogChange) -> CatalogChange {
        let mut known = self.known.lock();
        self.index_anew(&mut known);
        let mut affected = known.unannounced.take(list);
        let CatalogChange::ListOf(_, name) = &change else { return change };
        for provider in known.providers.iter().filter(|provider| provider.name() == name) {
            affected.extend(listed_by(&**provider, list));
        }
        CatalogChange::Within(list, affected.into())
    }

    /// Rebuilds the index, under the lock that guards the providers.
    fn index_anew(&self, known: &mut RegistryState) {
        let (index, taken) = NameIndex::new(&known.providers, &mut known.reserved_names);
        known.unannounced.note(&self.index.load(), &index);
        self.index.store(Arc::new(index));
        for (provider, taken) in known.providers.iter().zip(taken) {
            provider.on_name_conflicts(taken);
        }
    }
}

/// Sort key of a provider in lists.
fn by_listing(provider: &dyn Provider) -> Option<&str> {
    provider.prefix().map(|_| provider.name())
}
