//! Who answers to which name.

mod affected;
mod index;

pub use affected::{Affected, List};

use crate::Outcome;
use crate::call::{Call, Target};
use crate::error::ToolError;
use crate::gate::Permit;
use crate::tool::{ToolDef, Unruled};
use affected::{Unannounced, listed_by};
use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use index::{Index, Kept};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::broadcast;

/// How many changes a slow listener may fall behind before it is told that it missed some.
const CHANGES_MAX: usize = 256;

/// One argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    pub name: String,
    pub description: Option<String>,
    pub required: bool,
}

/// A stranger's own definition of a thing, with all that we do not know of. It is listed as it is.
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

/// A prompt that a person can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptDef {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub arguments: Vec<PromptArgument>,
    pub definition: Option<Definition>,
}

/// A resource that can be read.
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

/// A family of resources, by the form of their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateDef {
    pub uri_template: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub definition: Option<Definition>,
}

/// What a provider offers under names, in the order in which it is listed.
#[derive(Default, Clone)]
pub struct Catalog {
    pub tools: Vec<Arc<ToolDef>>,
    pub prompts: Vec<Arc<PromptDef>>,
    pub templates: Vec<Arc<TemplateDef>>,
    /// The addresses that a server lists. They are listed by [`Provider::resources`]; who has them is told by this.
    pub resources: Vec<String>,
    /// The tools that a server without a prefix offers instead where a name is another's, by that name. See
    /// [`second_name`].
    pub second: HashMap<String, Arc<ToolDef>>,
    /// Whether a server has not said yet which tools it has, or which prompts. What is here was known of it before.
    pub tools_are_late: bool,
    pub prompts_are_late: bool,
}

/// The longest name that common clients and models take.
pub const NAME_CHARS_MAX: usize = 64;
/// How much of a hash the name of a server's tool ends in that had to be changed; all that fits well where somebody has
/// taken the short one on purpose.
pub const NAME_HASH_CHARS: [usize; 2] = [8, 40];

/// Returns the name under which a tool of a server without a prefix appears where its own is another's, if there is room
/// for it. Rules that speak against the first name count for it too: [`ToolDef::instead_of`].
pub fn second_name(server: &str, name: &str) -> Option<String> {
    let second = format!("{server}_{name}");
    (second.len() <= NAME_CHARS_MAX).then_some(second)
}

/// A native family or an upstream server. Reached only with a [`Permit`].
pub trait Provider: Send + Sync {
    fn name(&self) -> &str;

    /// Returns what is offered now. Must not block.
    fn catalog(&self) -> Catalog;

    /// Returns what stands before its names, for another server. What is native has no such thing, and comes before
    /// every server.
    fn prefix(&self) -> Option<&str> {
        None
    }

    /// Returns whether the catalog is what it offers. Of a server nothing may be known yet.
    fn is_known(&self) -> bool {
        true
    }

    /// Hears which of its names are others'. Must not block, nor announce anything.
    fn outranked(&self, taken: Vec<Taken>) {
        let _ = taken;
    }

    /// Returns whether reads of this address by this client come here.
    fn owns_resource(&self, uri: &str, client: &str) -> Owns {
        let _ = (uri, client);
        Owns::Not
    }

    /// Returns what it tells agents about itself, where a person has let that in.
    fn instructions(&self) -> Option<String> {
        None
    }

    /// Returns what is decided about its prompts and resources where no rule speaks.
    fn unruled(&self) -> Unruled {
        Unruled::ByEffect
    }

    /// Hears that a client begins, or wants no longer, to be told when this resource changes.
    fn watch(&self, uri: &str, client: &str, wanted: bool) {
        let _ = (uri, client, wanted);
    }

    /// Says, after [`watch`](Self::watch), why a client that wants to be told of this resource will not be.
    fn watching<'a>(
        &'a self,
        permit: Permit,
        uri: &'a str,
        client: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let _ = (permit, uri, client);
        Box::pin(async { Ok(()) })
    }

    /// Hears that a client has closed its last session. It may come back, and may go on without one.
    fn left(&self, client: &str) {
        let _ = client;
    }

    /// Hears that a client is one no more. Whoever has its name next is somebody else.
    fn gone(&self, client: &str) {
        self.left(client);
    }

    /// Lists the resources that exist now for a client; they are too many and too short-lived for the catalog.
    fn resources<'a>(
        &'a self,
        permit: Permit,
        client: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        let _ = (permit, client);
        Box::pin(async { Ok(Vec::new()) })
    }

    fn call(&self, permit: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome>;
}

/// Whether an address is a provider's to answer for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owns {
    Not,
    /// The provider named it, and says nothing else of it.
    Linked,
    /// It fits a form that the provider described. Another may list the very address.
    ByForm,
    Listed,
}

/// A name that a provider wanted, and that is another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// `tool`, `prompt`, `template` or `resource`.
    pub kind: &'static str,
    pub name: String,
    /// Under which other name it appears.
    pub instead: Option<String>,
    /// The server that has it; `None` for the hub itself.
    pub server: Option<String>,
    /// Whether that server runs now.
    pub is_there: bool,
}

impl Taken {
    /// Says who has the name.
    pub fn why(&self) -> String {
        let Taken { kind, name, .. } = self;
        let name = crate::json::printable(name);
        let mut why = match &self.server {
            None => format!("`{name}` is a {kind} of the hub"),
            Some(server) if self.is_there => format!("`{name}` is a {kind} of server `{server}`"),
            Some(server) => format!("`{name}` is kept for server `{server}`, which does not run"),
        };
        if let Some(instead) = &self.instead {
            why.push_str(&format!("; this one is `{instead}`"));
        }
        why
    }
}

/// A server that is configured, and which names are known to be its own before it has said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub server: String,
    pub prefix: String,
    /// What its names come from, to tell when they are others.
    pub naming: String,
    pub tools: Vec<String>,
    pub prompts: Vec<String>,
}

/// Something that clients may want to know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Any of a list, for all: the rules are others, or what is native is.
    Tools,
    Prompts,
    Resources,
    /// A list of one provider, by its name. Listeners hear [`Change::Within`] instead.
    ListOf(List, String),
    /// A part of a list. Told to whoever sees one of these.
    Within(List, Arc<[Affected]>),
    ResourceUpdated(String),
    /// Other resources than before, for this client only.
    ResourcesOf(String),
    /// A resource of another server. Told to whoever watches one of `watched`, which it is itself or a part of; where
    /// `client` says so, to that one only.
    ResourceUpdatedOf {
        client: Option<String>,
        uri: String,
        watched: Vec<String>,
    },
}

/// Where a provider says that something changed.
#[derive(Clone)]
pub struct Changes {
    registry: Weak<Inner>,
}

impl Changes {
    /// Lets the registry look again, then tells the clients whom it concerns.
    pub fn announce(&self, change: Change) {
        let Some(inner) = self.registry.upgrade() else { return };
        let change = match change {
            Change::Tools => inner.reindex(List::Tools, change),
            Change::Prompts => inner.reindex(List::Prompts, change),
            Change::Resources => inner.reindex(List::Resources, change),
            Change::ListOf(list, _) => inner.reindex(list, change),
            Change::Within(..)
            | Change::ResourceUpdated(_)
            | Change::ResourcesOf(_)
            | Change::ResourceUpdatedOf { .. } => change,
        };
        // No listener is no fault.
        let _ = inner.changes.send(change);
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("two providers offer {kind} `{name}`: `{first}` and `{second}`")]
    Taken { kind: &'static str, name: String, first: String, second: String },
}

/// Everybody who has names.
#[derive(Default)]
struct Known {
    /// Native families as they were added, then servers in the order of their names.
    providers: Vec<Arc<dyn Provider>>,
    /// What is kept for configured servers, by their names.
    kept: BTreeMap<String, Kept>,
    /// What changed and was not announced yet.
    unannounced: Unannounced,
}

struct Inner {
    known: Mutex<Known>,
    index: ArcSwap<Index>,
    changes: broadcast::Sender<Change>,
    /// How often which client wants to be told of which resource.
    watched: Mutex<HashMap<Watched, usize>>,
}

/// Who wants to be told of what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Watched {
    client: String,
    uri: String,
}

/// A client's subscription to the changes of a resource, which every layer of the gate has let it have.
pub struct Watch {
    registry: Weak<Inner>,
    watched: Watched,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(inner) = self.registry.upgrade() else { return };
        let mut watched = inner.lock_watched();
        if let Some(count) = watched.get_mut(&self.watched) {
            *count -= 1;
            if *count == 0 {
                watched.remove(&self.watched);
                inner.watch(&self.watched, false);
            }
        }
    }
}

/// All providers, in the order of listing.
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
    /// Adds a provider. A name that is taken is an error, never a replacement; a server is told instead.
    pub fn add(&self, provider: impl Provider + 'static) -> Result<(), RegistryError> {
        let provider: Arc<dyn Provider> = Arc::new(provider);
        let mut known = self.inner.lock_known();
        if provider.prefix().is_none() {
            self.inner.index.load().has_room_for(&*provider)?;
        }
        known.providers.push(provider);
        known.providers.sort_by(|a, b| by_listing(&**a).cmp(&by_listing(&**b)));
        self.inner.index_anew(&mut known);
        Ok(())
    }

    /// Takes a server out. Calls that reached it already are its own to end.
    pub fn remove(&self, server: &str) {
        let mut known = self.inner.lock_known();
        // A native family may be called the same.
        known.providers.retain(|one| one.prefix().is_none() || one.name() != server);
        self.inner.index_anew(&mut known);
    }

    /// Says which servers are configured. What one of them had stays its own while it is not there; what belongs to
    /// none of them is anybody's.
    pub fn expects(&self, servers: Vec<Expected>) {
        let mut known = self.inner.lock_known();
        let mut before = std::mem::take(&mut known.kept);
        for expected in servers {
            let same = before.remove(&expected.server).filter(|kept| kept.naming == expected.naming);
            let mut kept = same.unwrap_or_default();
            (kept.prefix, kept.naming) = (expected.prefix, expected.naming);
            kept.tools.extend(expected.tools);
            kept.prompts.extend(expected.prompts);
            known.kept.insert(expected.server, kept);
        }
        self.inner.index_anew(&mut known);
    }

    /// Returns the place where providers announce changes.
    pub fn changes(&self) -> Changes {
        Changes { registry: Arc::downgrade(&self.inner) }
    }

    /// Returns a listener for changes from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.inner.changes.subscribe()
    }

    /// Returns what every tool is, seen by nobody in particular. What a caller sees is the gate's to say.
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

    /// Returns the server of that name. A family of native tools may have the same.
    pub(crate) fn server(&self, name: &str) -> Option<Arc<dyn Provider>> {
        self.inner.index.load().server(name)
    }

    /// Returns what is decided about the target where no rule speaks, or `None` if nobody answers for it.
    pub(crate) fn knows(&self, target: &Target, client: &str) -> Option<Unruled> {
        self.inner.index.load().provider_of(target, client).map(|provider| provider.unruled())
    }

    /// Lets the owner of a resource know that a client wants to be told of its changes, until what is returned is
    /// dropped.
    pub(crate) fn watch(&self, _: Permit, uri: &str, client: &str) -> Watch {
        let wanted = Watched { client: client.to_owned(), uri: uri.to_owned() };
        let mut watched = self.inner.lock_watched();
        let count = watched.entry(wanted.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.inner.watch(&wanted, true);
        }
        drop(watched);
        Watch { registry: Arc::downgrade(&self.inner), watched: wanted }
    }

    /// Returns who answers for an address.
    pub(crate) fn owner_of(&self, uri: &str, client: &str) -> Option<Arc<dyn Provider>> {
        let index = self.inner.index.load();
        index.owner_of(uri, client).map(|at| index.providers[at].clone())
    }

    /// Hands the call to its provider. The permit shows that the call went through the gate.
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
                // What was decided about is not what would run.
                return Err(ToolError::unavailable("the tool changed while the call was on its way")
                    .hint("list the tools, then decide whether to call it as it is now"));
            }
            match provider {
                Some(provider) => provider.call(permit, call).await,
                None => Err(ToolError::unknown(call.target.kind(), call.target.name())),
            }
        })
    }
}

impl Inner {
    fn lock_watched(&self) -> MutexGuard<'_, HashMap<Watched, usize>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, watched: &Watched, wanted: bool) {
        let (index, Watched { client, uri }) = (self.index.load(), watched);
        if !wanted {
            // Whoever it was begun with may not have the address any more.
            return index.providers.iter().for_each(|provider| provider.watch(uri, client, false));
        }
        if let Some(at) = index.owner_of(uri, client) {
            index.providers[at].watch(uri, client, true);
        }
    }

    fn lock_known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works out anew who has which name. Returns what is to be told: of the list of one provider, what it has and what
    /// differs since something was last told of such a list. Names may have moved from one to another.
    fn reindex(&self, list: List, change: Change) -> Change {
        let mut known = self.lock_known();
        self.index_anew(&mut known);
        let mut affected = known.unannounced.take(list);
        let Change::ListOf(_, name) = &change else { return change };
        for provider in known.providers.iter().filter(|provider| provider.name() == name) {
            affected.extend(listed_by(&**provider, list));
        }
        Change::Within(list, affected.into())
    }

    /// Works out who has which name, under the lock under which that can change.
    fn index_anew(&self, known: &mut Known) {
        let (index, taken) = Index::new(&known.providers, &mut known.kept);
        known.unannounced.note(&self.index.load(), &index);
        self.index.store(Arc::new(index));
        for (provider, taken) in known.providers.iter().zip(taken) {
            provider.outranked(taken);
        }
    }
}

/// Where a provider comes in a list.
fn by_listing(provider: &dyn Provider) -> Option<&str> {
    provider.prefix().map(|_| provider.name())
}
