//! The one road to a provider.

use crate::Outcome;
use crate::call::{Call, Caller, CompletionOf, Target, ToolView};
use crate::effect::{Effect, Reach};
use crate::error::{ErrorKind, ToolError};
use crate::event::Event;
use crate::label::{Label, Labels};
use crate::registry::{Affected, Change, PromptDef, Provider, Registry, ResourceDef, TemplateDef, Watch};
use crate::tool::{ToolDef, Unruled};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// How long one provider may take to list its resources.
const LIST_WITHIN: Duration = Duration::from_secs(10);

/// Shows that a call went through every layer. Only the gate makes one.
///
/// A provider cannot be called without it, so code that forgets the gate does not compile.
#[derive(Debug)]
pub struct Permit(());

/// Why a caller may not watch a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchRefusal {
    /// Nobody owns it, or a layer hides it; the caller cannot tell which.
    Unknown,
    /// A person has to be asked about it. Nobody is asked about a subscription.
    NeedsApproval,
}

/// What a list or a call is about, as the rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    pub kind: &'static str,
    pub name: &'a str,
    /// Another name of it, which counts where something is said against it.
    pub also: Option<&'a str>,
    pub effect: Effect,
    pub reach: Reach,
    pub labels: Labels,
    pub unruled: Unruled,
    /// Whether it is the hub's own way to other things, which nobody has to be allowed: what is reached by it counts.
    /// It can still be denied.
    pub in_every_scope: bool,
}

impl<'a> Listing<'a> {
    pub fn of_tool(tool: &'a ToolDef) -> Listing<'a> {
        Listing {
            kind: "tool",
            name: &tool.name,
            also: tool.instead_of.as_deref(),
            effect: tool.effect,
            reach: tool.reach,
            labels: tool.labels,
            unruled: tool.unruled,
            in_every_scope: tool.view.is_some(),
        }
    }

    /// What is only read. Who answers for it is another server exactly where that server has a say of its own.
    pub(crate) fn of_read(kind: &'static str, name: &'a str, unruled: Unruled) -> Listing<'a> {
        let (reach, labels) = match (unruled, kind) {
            (Unruled::ByEffect, "resource") => (Reach::Local, Labels::NONE.with(Label::Private)),
            (Unruled::ByEffect, _) => (Reach::Local, Labels::NONE),
            _ => (Reach::Outside, Labels::FOREIGN),
        };
        let (also, effect, in_every_scope) = (None, Effect::Read, false);
        Listing { kind, name, also, effect, reach, labels, unruled, in_every_scope }
    }

    /// Returns another name of it, which counts where something is said against it. Of an address that is the one in which
    /// slashes stand as slashes: some clients write them so, and some do not.
    pub fn also(&self) -> Option<Cow<'a, str>> {
        let is_escaped = self.kind == "resource" && (self.name.contains("%2f") || self.name.contains("%2F"));
        match self.also {
            None if is_escaped => Some(Cow::Owned(self.name.replace("%2f", "/").replace("%2F", "/"))),
            also => also.map(Cow::Borrowed),
        }
    }

    /// Returns what the rules see of a call.
    ///
    /// A completion is seen as what it completes, so whoever may not see a prompt gets no proposals for it either.
    pub fn of_call(call: &'a Call) -> Listing<'a> {
        match (&call.target, call.tool()) {
            (Target::Tool(_) | Target::Task(..), Some(tool)) => Listing::of_tool(tool),
            // Nobody knows the name, so nothing good is assumed of it.
            (Target::Tool(_) | Target::Task(..), None) => Listing {
                kind: "tool",
                name: call.target.name(),
                also: None,
                effect: Effect::Destroy,
                reach: Reach::Outside,
                labels: Labels::FOREIGN.with(Label::Private),
                unruled: Unruled::ByEffect,
                in_every_scope: false,
            },
            (Target::Resource(uri) | Target::Completion(CompletionOf::Template(uri)), _) => {
                Listing::of_read("resource", uri, call.unruled)
            }
            (Target::Prompt(name) | Target::Completion(CompletionOf::Prompt(name)), _) => {
                Listing::of_read("prompt", name, call.unruled)
            }
        }
    }
}

/// Answers for one list whether its caller sees a thing.
pub type Shows<'a> = Box<dyn Fn(&Listing<'_>) -> bool + 'a>;

/// One guard on the road. A call is handed from one to the next as a pointer, because it is long.
pub trait Layer: Send + Sync {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome>;

    /// Returns whether the caller may ask for a list at all now.
    fn admits(&self, caller: &Caller) -> Result<(), ToolError> {
        let _ = caller;
        Ok(())
    }

    /// Returns what the caller sees in a list. What a layer refuses as unknown it must not show.
    ///
    /// Asked once per list, so that all of it is decided by the same rules at the same moment.
    fn shows<'a>(&'a self, caller: &'a Caller) -> Shows<'a> {
        let _ = caller;
        Box::new(|_| true)
    }

    /// Returns what of that the caller gets without anybody being asked first.
    fn lets<'a>(&'a self, caller: &'a Caller) -> Shows<'a> {
        self.shows(caller)
    }

    /// Records a request that is no call, with how it ended. If a layer cannot, the request is refused.
    fn record<'a>(
        &'a self,
        event: &'a Event,
        ended: Result<(), ErrorKind>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let _ = (event, ended);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The rest of the road.
pub struct Next<'a> {
    layers: &'a [Box<dyn Layer>],
    registry: &'a Registry,
}

impl<'a> Next<'a> {
    /// Goes on. Taken by value, so a layer cannot run the rest of the stack twice.
    pub fn run(self, call: Box<Call>) -> BoxFuture<'a, Outcome> {
        let Some((layer, layers)) = self.layers.split_first() else {
            return self.registry.dispatch(Permit(()), call);
        };
        layer.call(call, Next { layers, registry: self.registry })
    }
}

/// What one caller may see of the resources, for a provider that has to leave the rest out.
#[derive(Clone)]
pub struct Sight {
    layers: Arc<[Box<dyn Layer>]>,
    caller: Caller,
}

impl Sight {
    /// Returns whether the caller may know of this address.
    pub fn sees_resource(&self, uri: &str) -> bool {
        // Only native families ask: they know which addresses are theirs.
        let listing = Listing::of_read("resource", uri, Unruled::ByEffect);
        self.layers.iter().all(|layer| layer.shows(&self.caller)(&listing))
    }
}

/// The layers in order, and what is behind them.
pub struct Gate {
    registry: Registry,
    layers: Arc<[Box<dyn Layer>]>,
}

impl Gate {
    /// Builds a gate; the first layer is the outermost. Only `guard::stack` and tests do this.
    pub fn new(registry: Registry, layers: Vec<Box<dyn Layer>>) -> Gate {
        Gate { registry, layers: layers.into() }
    }

    /// Takes a call down the road and brings its outcome back.
    pub fn call(&self, call: impl Into<Box<Call>>) -> BoxFuture<'_, Outcome> {
        let mut call = call.into();
        let view = call.caller.client.scope.view;
        match &call.target {
            Target::Tool(name) => {
                call.tool = self.registry.tool(name).filter(|tool| tool.is_for(view));
                call.known = call.tool.is_some();
            }
            Target::Task(_, task) => {
                let is_same =
                    |tool: &ToolDef| tool.is_for(view) && tool.server.as_ref() == Some(&task.server);
                call.tool = self.registry.tool(&task.tool).filter(|tool| is_same(tool));
                call.known = call.tool.is_some();
            }
            Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) => {
                let unruled = self.registry.knows(&call.target, &call.caller.client.name);
                call.known = unruled.is_some();
                call.unruled = unruled.unwrap_or_default();
            }
        }
        if let Target::Completion(_) = &call.target {
            call.sight = Some(Sight { layers: self.layers.clone(), caller: call.caller.clone() });
        }
        Next { layers: &self.layers, registry: &self.registry }.run(call)
    }

    /// Returns a listener for changes of what is behind the gate.
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.registry.subscribe()
    }

    pub fn tools(&self, caller: &Caller) -> Result<Vec<Arc<ToolDef>>, ToolError> {
        self.admits(caller)?;
        let (mut tools, shows) = (self.registry.catalog().tools, self.shows(caller));
        let view = caller.client.scope.view;
        let listed = |tool: &ToolDef| tool.is_for(view) && (view == ToolView::All || tool.server.is_none());
        tools.retain(|tool| listed(tool) && shows(&Listing::of_tool(tool)));
        Ok(tools)
    }

    /// Returns the tools of other servers that the caller may call, for one who does not get them listed.
    pub fn found(&self, caller: &Caller) -> Vec<Arc<ToolDef>> {
        let (mut tools, shows) = (self.registry.catalog().tools, self.shows(caller));
        tools.retain(|tool| tool.server.is_some() && shows(&Listing::of_tool(tool)));
        tools
    }

    /// Returns a tool by name, if the caller may see it. Not charged: a transport asks this about a call that is.
    pub fn find_tool(&self, caller: &Caller, name: &str) -> Option<Arc<ToolDef>> {
        self.find_tool_if(caller, name, |_| true)
    }

    /// Returns a tool that is wanted, if the caller may see it. Whether it may is asked last, because that costs most.
    pub fn find_tool_if(
        &self,
        caller: &Caller,
        name: &str,
        wanted: impl Fn(&ToolDef) -> bool,
    ) -> Option<Arc<ToolDef>> {
        let view = caller.client.scope.view;
        let knows = |tool: &ToolDef| tool.withheld.is_none() && tool.is_for(view) && wanted(tool);
        let tool = self.registry.tool(name).filter(|tool| knows(tool));
        tool.filter(|tool| self.shows(caller)(&Listing::of_tool(tool)))
    }

    /// Returns how long the arguments for this may be.
    pub fn input_bytes_max(&self, target: &Target) -> usize {
        match target {
            Target::Tool(name) => self.registry.tool(name).map(|tool| tool.limits.input_bytes_max),
            Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) | Target::Task(..) => None,
        }
        .unwrap_or(usize::MAX)
    }

    /// Returns the server that a tool is of, where it is no native one.
    pub fn server_of(&self, tool: &str) -> Option<String> {
        self.registry.tool(tool).and_then(|tool| tool.server.clone())
    }

    /// Returns what the providers tell agents about themselves, by their names. A provider of which the caller sees
    /// nothing is not heard of.
    pub fn instructions(&self, caller: &Caller) -> Vec<(String, String)> {
        let shows = self.shows(caller);
        let providers = self.registry.providers();
        let told = providers.iter().filter_map(|provider| {
            let text = provider.instructions()?;
            is_seen(&**provider, &shows).then(|| (provider.name().to_owned(), text))
        });
        told.collect()
    }

    /// Returns whether the caller sees something of a server.
    pub fn sees_server(&self, caller: &Caller, name: &str) -> bool {
        self.registry.server(name).is_some_and(|provider| is_seen(&*provider, &self.shows(caller)))
    }

    pub fn prompts(&self, caller: &Caller) -> Result<Vec<Arc<PromptDef>>, ToolError> {
        self.admits(caller)?;
        let (mut prompts, shows) = (self.registry.catalog().prompts, self.shows(caller));
        prompts.retain(|prompt| {
            let target = Target::Prompt(prompt.name.clone());
            let unruled = self.registry.knows(&target, &caller.client.name).unwrap_or_default();
            shows(&Listing::of_read("prompt", &prompt.name, unruled))
        });
        Ok(prompts)
    }

    pub fn templates(&self, caller: &Caller) -> Result<Vec<Arc<TemplateDef>>, ToolError> {
        self.admits(caller)?;
        let (mut templates, shows) = (self.registry.catalog().templates, self.shows(caller));
        templates.retain(|template| {
            let uri = &template.uri_template;
            let target = Target::Completion(CompletionOf::Template(uri.clone()));
            let unruled = self.registry.knows(&target, &caller.client.name).unwrap_or_default();
            shows(&Listing::of_read("resource", uri, unruled))
        });
        Ok(templates)
    }

    /// Lists resources of all providers. One that fails hides only its own; the error is returned beside the rest.
    pub async fn resources(&self, caller: &Caller) -> Result<(Vec<ResourceDef>, Vec<ToolError>), ToolError> {
        self.admits(caller)?;
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for provider in self.registry.providers() {
            // A provider that hangs or panics must not take the list of the others with it.
            let listed = AssertUnwindSafe(provider.resources(Permit(()), &caller.client.name)).catch_unwind();
            match tokio::time::timeout(LIST_WITHIN, listed).await {
                // An address is listed by the one who would be asked for it.
                Ok(Ok(Ok(resources))) => found.extend(resources.into_iter().filter(|resource| {
                    let owner = self.registry.owner_of(&resource.uri, &caller.client.name);
                    owner.is_some_and(|owner| Arc::ptr_eq(&owner, &provider))
                })),
                Ok(Ok(Err(error))) => failed.push(error),
                Ok(Err(_)) => failed.push(ToolError::internal("a provider panicked")),
                Err(_) => failed.push(ToolError::timeout(LIST_WITHIN)),
            }
        }
        let shows = self.shows(caller);
        found.retain(|resource| {
            let unruled = self.registry.knows(&Target::Resource(resource.uri.clone()), &caller.client.name);
            unruled.is_some_and(|unruled| shows(&Listing::of_read("resource", &resource.uri, unruled)))
        });
        Ok((found, failed))
    }

    /// Returns whether the caller may know of one of these, which are or were on a list.
    pub fn sees_any(&self, caller: &Caller, affected: &[Affected]) -> bool {
        let (shows, view) = (self.shows(caller), caller.client.scope.view);
        affected.iter().any(|one| one.is_for(view) && shows(&one.listing()))
    }

    /// Returns whether the caller may know of this address: somebody owns it, and no layer hides it.
    pub fn sees_resource(&self, caller: &Caller, uri: &str) -> bool {
        let unruled = self.registry.knows(&Target::Resource(uri.to_owned()), &caller.client.name);
        unruled.is_some_and(|unruled| self.shows(caller)(&Listing::of_read("resource", uri, unruled)))
    }

    /// Returns whether the caller may know of an address that is a part of another: somebody owns that one, and no layer
    /// hides either.
    pub fn sees_part(&self, caller: &Caller, uri: &str, whole: &str) -> bool {
        let Some(unruled) = self.registry.knows(&Target::Resource(whole.to_owned()), &caller.client.name)
        else {
            return false;
        };
        let shows = self.shows(caller);
        [whole, uri].into_iter().all(|uri| shows(&Listing::of_read("resource", uri, unruled)))
    }

    /// Lets the owner of a resource know that a client wants to be told of its changes. Only the gate makes a `Watch`, so
    /// holding one proves that every layer let the caller have it. The address reaches the owner without a person being
    /// asked, so a resource that needs an approval can only be read.
    pub fn watch(&self, caller: &Caller, uri: &str) -> Result<Watch, WatchRefusal> {
        let permit = self.may_watch(caller, uri)?;
        Ok(self.registry.watch(permit, uri, &caller.client.name))
    }

    fn may_watch(&self, caller: &Caller, uri: &str) -> Result<Permit, WatchRefusal> {
        let unruled = self.registry.knows(&Target::Resource(uri.to_owned()), &caller.client.name);
        let listing = Listing::of_read("resource", uri, unruled.ok_or(WatchRefusal::Unknown)?);
        if !self.shows(caller)(&listing) {
            return Err(WatchRefusal::Unknown);
        }
        if !self.layers.iter().all(|layer| layer.lets(caller)(&listing)) {
            return Err(WatchRefusal::NeedsApproval);
        }
        Ok(Permit(()))
    }

    /// Says why a caller that watches a resource will not be told of its changes. Where that is not known in time, it will.
    pub async fn watching(&self, caller: &Caller, uri: &str) -> Result<(), ToolError> {
        let client = &caller.client.name;
        let Ok(permit) = self.may_watch(caller, uri) else {
            return Err(ToolError::denied("this resource cannot be watched any more"));
        };
        let Some(owner) = self.registry.owner_of(uri, client) else { return Ok(()) };
        // A provider that hangs or panics must not take the client with it.
        let watching = AssertUnwindSafe(owner.watching(permit, uri, client)).catch_unwind();
        match tokio::time::timeout(LIST_WITHIN, watching).await {
            Ok(Ok(known)) => known,
            Ok(Err(_)) => Err(ToolError::internal("a provider panicked")),
            Err(_) => Ok(()),
        }
    }

    /// Lets every provider know that a client has closed its last session.
    pub fn left(&self, client: &str) {
        for provider in self.registry.providers() {
            provider.left(client);
        }
    }

    /// Tells those behind it that a client is one no more.
    pub fn gone(&self, client: &str) {
        for provider in self.registry.providers() {
            provider.gone(client);
        }
    }

    /// Charges the caller for a request that is neither a call nor a list, or says that it comes too fast.
    pub fn admits(&self, caller: &Caller) -> Result<(), ToolError> {
        self.layers.iter().try_for_each(|layer| layer.admits(caller))
    }

    /// Puts a request that is no call on the record, before it is answered.
    pub async fn record(&self, event: &Event, ended: Result<(), ErrorKind>) -> Result<(), ToolError> {
        for layer in self.layers.iter() {
            layer.record(event, ended).await?;
        }
        Ok(())
    }

    /// Asks every layer once.
    fn shows<'a>(&'a self, caller: &'a Caller) -> impl Fn(&Listing<'_>) -> bool + 'a {
        let layers: Vec<Shows<'a>> = self.layers.iter().map(|layer| layer.shows(caller)).collect();
        move |listing| layers.iter().all(|shows| shows(listing))
    }
}

/// Returns whether any tool or prompt of a provider is shown.
fn is_seen(provider: &dyn Provider, shows: &dyn Fn(&Listing<'_>) -> bool) -> bool {
    let (catalog, unruled) = (provider.catalog(), provider.unruled());
    catalog.tools.iter().any(|tool| tool.withheld.is_none() && shows(&Listing::of_tool(tool)))
        || catalog.prompts.iter().any(|prompt| shows(&Listing::of_read("prompt", &prompt.name, unruled)))
}
