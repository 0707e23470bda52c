//! The gate: the middleware stack between callers and providers.
//!
//! Invariant: every call passes all layers; lists and subscriptions pass the filters of the same layers. [`Permit`] has no public constructor, so no other code
//! can reach a provider.

use crate::Outcome;
use crate::call::{Call, Caller, CompletionRef, Origin, Target, ToolView};
use crate::effect::{Effect, Reach};
use crate::error::{ErrorKind, ToolError};
use crate::event::Event;
use crate::label::{Label, Labels};
use crate::owner::{NoOwners, Owners};
use crate::principal::{HubCall, Principal};
use crate::registry::{
    Affected, CatalogChange, PromptDef, Provider, Registry, ResourceDef, ResourceSubscription, TemplateDef,
};
use crate::tool::{DefaultDecision, ToolDef};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// Timeout for one provider to list its resources.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Proof that a call passed every layer. Only the gate constructs it.
///
/// A provider cannot be called without it, so code that bypasses the gate does not compile.
#[derive(Debug)]
pub struct Permit(());

/// Why a caller may not subscribe to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchRefusal {
    /// No provider owns it, or a layer hides it; the caller cannot tell which.
    Unknown,
    /// Reading it needs an approval, and subscriptions cannot be approved.
    NeedsApproval,
}

/// The subject of a policy decision, for lists and calls alike.
#[derive(Debug, Clone, Copy)]
pub struct PolicySubject<'a> {
    pub kind: &'static str,
    pub name: &'a str,
    /// A second name, which only deny rules match.
    pub also: Option<&'a str>,
    pub effect: Effect,
    pub reach: Reach,
    pub labels: Labels,
    pub default_decision: DefaultDecision,
    /// Whether it is a hub tool that dispatches to other tools. It needs no allow, because the target's own policy applies;
    /// it can still be denied.
    pub in_every_scope: bool,
}

impl<'a> PolicySubject<'a> {
    pub fn of_tool(tool: &'a ToolDef) -> PolicySubject<'a> {
        PolicySubject {
            kind: "tool",
            name: &tool.name,
            also: tool.instead_of.as_deref(),
            effect: tool.effect,
            reach: tool.reach,
            labels: tool.labels,
            default_decision: tool.default_decision,
            in_every_scope: tool.view.is_some(),
        }
    }

    /// A resource or prompt. An explicit default decision means that an upstream server owns it.
    pub(crate) fn of_read(
        kind: &'static str,
        name: &'a str,
        default_decision: DefaultDecision,
    ) -> PolicySubject<'a> {
        let (reach, labels) = match (default_decision, kind) {
            (DefaultDecision::ByEffect, "resource") => (Reach::Local, Labels::NONE.with(Label::Private)),
            (DefaultDecision::ByEffect, _) => (Reach::Local, Labels::NONE),
            _ => (Reach::Outside, Labels::FOREIGN),
        };
        let (also, effect, in_every_scope) = (None, Effect::Read, false);
        PolicySubject { kind, name, also, effect, reach, labels, default_decision, in_every_scope }
    }

    /// Returns a second name, which only deny rules match. For a URI that is the form with `%2F` decoded, because clients
    /// differ in whether they encode slashes.
    pub fn also(&self) -> Option<Cow<'a, str>> {
        let is_escaped = self.kind == "resource" && (self.name.contains("%2f") || self.name.contains("%2F"));
        match self.also {
            None if is_escaped => Some(Cow::Owned(self.name.replace("%2f", "/").replace("%2F", "/"))),
            also => also.map(Cow::Borrowed),
        }
    }

    /// Returns the subject of a call.
    ///
    /// A completion has the subject that it completes, so a hidden prompt gets no proposals.
    pub fn of_call(call: &'a Call) -> PolicySubject<'a> {
        match (&call.target, call.tool()) {
            (Target::Tool(_) | Target::Task(..), Some(tool)) => PolicySubject::of_tool(tool),
            // An unknown name: assume the worst.
            (Target::Tool(_) | Target::Task(..), None) => PolicySubject {
                kind: "tool",
                name: call.target.name(),
                also: None,
                effect: Effect::Destroy,
                reach: Reach::Outside,
                labels: Labels::FOREIGN.with(Label::Private),
                default_decision: DefaultDecision::ByEffect,
                in_every_scope: false,
            },
            (Target::Resource(uri) | Target::Completion(CompletionRef::Template(uri)), _) => {
                PolicySubject::of_read("resource", uri, call.default_decision)
            }
            (Target::Prompt(name) | Target::Completion(CompletionRef::Prompt(name)), _) => {
                PolicySubject::of_read("prompt", name, call.default_decision)
            }
        }
    }
}

/// The visibility of subjects for one caller, fixed for one list.
pub type VisibilityFilter<'a> = Box<dyn Fn(&PolicySubject<'_>) -> bool + 'a>;

/// One layer of the gate (audit, redaction, policy, …). Calls are boxed because `Call` is large.
pub trait Layer: Send + Sync {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome>;

    /// Returns whether the caller may request a list now (rate limit).
    fn admits(&self, caller: &Caller) -> Result<(), ToolError> {
        let _ = caller;
        Ok(())
    }

    /// Returns what the caller sees in a list. A layer must hide whatever it refuses as unknown.
    ///
    /// Built once per list, so that one policy snapshot decides all entries.
    fn visibility_filter<'a>(&'a self, caller: &'a Caller) -> VisibilityFilter<'a> {
        let _ = caller;
        Box::new(|_| true)
    }

    /// Returns what the caller may access without an approval.
    fn unattended_filter<'a>(&'a self, caller: &'a Caller) -> VisibilityFilter<'a> {
        self.visibility_filter(caller)
    }

    /// Records an event that is not a call, with its outcome. If a layer fails to record it, the request is refused.
    fn record<'a>(
        &'a self,
        event: &'a Event,
        ended: Result<(), ErrorKind>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let _ = (event, ended);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The remaining layers of a call.
pub struct Next<'a> {
    layers: &'a [Box<dyn Layer>],
    registry: &'a Registry,
}

impl<'a> Next<'a> {
    /// Runs the next layer. Takes `self` by value, so a layer cannot run the rest of the stack twice.
    pub fn run(self, call: Box<Call>) -> BoxFuture<'a, Outcome> {
        let Some((layer, layers)) = self.layers.split_first() else {
            return self.registry.dispatch(Permit(()), call);
        };
        layer.call(call, Next { layers, registry: self.registry })
    }
}

/// What one caller may see, for a provider that filters its completions.
#[derive(Clone)]
pub struct ResourceVisibility {
    layers: Arc<[Box<dyn Layer>]>,
    caller: Caller,
}

impl ResourceVisibility {
    /// Returns whether the caller may see this URI.
    pub fn sees_resource(&self, uri: &str) -> bool {
        // Only native families use this, hence `ByEffect`.
        let listing = PolicySubject::of_read("resource", uri, DefaultDecision::ByEffect);
        self.layers.iter().all(|layer| layer.visibility_filter(&self.caller)(&listing))
    }
}

/// The layers in order, in front of the registry.
pub struct Gate {
    registry: Registry,
    layers: Arc<[Box<dyn Layer>]>,
    owners: Arc<dyn Owners>,
}

impl Gate {
    /// Builds a gate; the first layer is the outermost. Only `guard::stack` and tests call this.
    pub fn new(registry: Registry, layers: Vec<Box<dyn Layer>>) -> Gate {
        Gate { registry, layers: layers.into(), owners: Arc::new(NoOwners) }
    }

    /// Sets the clients on whose behalf [`Gate::call_as`] makes calls. Without them it makes none.
    #[must_use]
    pub fn with_owners(self, owners: Arc<dyn Owners>) -> Gate {
        Gate { owners, ..self }
    }

    /// Runs a call through all layers and returns its outcome.
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
                let default_decision =
                    self.registry.default_decision_for(&call.target, &call.caller.client.name);
                call.known = default_decision.is_some();
                call.default_decision = default_decision.unwrap_or_default();
            }
        }
        if let Target::Completion(_) = &call.target {
            call.visibility =
                Some(ResourceVisibility { layers: self.layers.clone(), caller: call.caller.clone() });
        }
        Next { layers: &self.layers, registry: &self.registry }.run(call)
    }

    /// Runs a call that the hub makes itself: of a schedule, a conversation, a script, or the admin page. The owner is looked
    /// up for this call; the scope that it has now applies as a client's does, and rules see the origin.
    pub fn call_as(&self, principal: &Principal, origin: Origin, call: HubCall) -> BoxFuture<'_, Outcome> {
        if !principal.may_make(&call, origin) {
            let reason = format!("this principal cannot make calls with the origin `{}`", origin.as_str());
            return Box::pin(std::future::ready(Err(ToolError::internal(reason))));
        }
        if call.is_too_deep() {
            let error = ToolError::denied("calls are nested too deep: each was made by the one before it")
                .hint("call the last one by itself");
            return Box::pin(std::future::ready(Err(error)));
        }
        let Some(client) = principal.resolve(&*self.owners) else {
            return self.refuse_for_a_missing_owner(principal, origin, &call);
        };
        self.call(Call::by(principal, client, origin, call))
    }

    /// Refuses a call whose owner is gone. There is no client to run the layers with, so only the refusal is recorded.
    fn refuse_for_a_missing_owner(
        &self,
        principal: &Principal,
        origin: Origin,
        call: &HubCall,
    ) -> BoxFuture<'_, Outcome> {
        let event = Event::orphaned_call(principal, origin, &call.target);
        Box::pin(async move {
            self.record(&event, Err(ErrorKind::Denied)).await?;
            Err(ToolError::denied("the client on whose behalf this call is made was revoked or has expired")
                .hint("an administrator can add it again, and whatever acts for it has to be set up again"))
        })
    }

    /// Subscribes to catalog changes.
    pub fn subscribe(&self) -> broadcast::Receiver<CatalogChange> {
        self.registry.subscribe()
    }

    pub fn tools(&self, caller: &Caller) -> Result<Vec<Arc<ToolDef>>, ToolError> {
        self.admits(caller)?;
        let (mut tools, shows) = (self.registry.catalog().tools, self.shows(caller));
        let view = caller.client.scope.view;
        let listed = |tool: &ToolDef| tool.is_for(view) && (view == ToolView::All || tool.server.is_none());
        tools.retain(|tool| listed(tool) && shows(&PolicySubject::of_tool(tool)));
        Ok(tools)
    }

    /// Returns the upstream tools that the caller may call, for a client in search view.
    pub fn searchable_tools(&self, caller: &Caller) -> Vec<Arc<ToolDef>> {
        let (mut tools, shows) = (self.registry.catalog().tools, self.shows(caller));
        tools.retain(|tool| tool.server.is_some() && shows(&PolicySubject::of_tool(tool)));
        tools
    }

    /// Returns a tool by name, if the caller may see it. Not rate-limited: transports use it for a call that is.
    pub fn find_tool(&self, caller: &Caller, name: &str) -> Option<Arc<ToolDef>> {
        self.find_tool_if(caller, name, |_| true)
    }

    /// Returns a tool that satisfies `wanted`, if the caller may see it. The layers are asked last, because that costs most.
    pub fn find_tool_if(
        &self,
        caller: &Caller,
        name: &str,
        wanted: impl Fn(&ToolDef) -> bool,
    ) -> Option<Arc<ToolDef>> {
        let view = caller.client.scope.view;
        let knows = |tool: &ToolDef| tool.withheld.is_none() && tool.is_for(view) && wanted(tool);
        let tool = self.registry.tool(name).filter(|tool| knows(tool));
        tool.filter(|tool| self.shows(caller)(&PolicySubject::of_tool(tool)))
    }

    /// Returns the size limit for the target's arguments.
    pub fn input_bytes_max(&self, target: &Target) -> usize {
        match target {
            Target::Tool(name) => self.registry.tool(name).map(|tool| tool.limits.input_bytes_max),
            Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) | Target::Task(..) => None,
        }
        .unwrap_or(usize::MAX)
    }

    /// Returns the upstream server of a tool; `None` for a native tool.
    pub fn server_of(&self, tool: &str) -> Option<String> {
        self.registry.tool(tool).and_then(|tool| tool.server.clone())
    }

    /// Returns the providers' instructions by name. A provider of which the caller sees nothing is left out.
    pub fn instructions(&self, caller: &Caller) -> Vec<(String, String)> {
        let shows = self.shows(caller);
        let providers = self.registry.providers();
        let instructions = providers.iter().filter_map(|provider| {
            let text = provider.instructions()?;
            is_seen(&**provider, &shows).then(|| (provider.name().to_owned(), text))
        });
        instructions.collect()
    }

    /// Returns whether the caller sees something of an upstream server.
    pub fn sees_server(&self, caller: &Caller, name: &str) -> bool {
        self.registry.server(name).is_some_and(|provider| is_seen(&*provider, &self.shows(caller)))
    }

    pub fn prompts(&self, caller: &Caller) -> Result<Vec<Arc<PromptDef>>, ToolError> {
        self.admits(caller)?;
        let (mut prompts, shows) = (self.registry.catalog().prompts, self.shows(caller));
        prompts.retain(|prompt| {
            let target = Target::Prompt(prompt.name.clone());
            let default_decision =
                self.registry.default_decision_for(&target, &caller.client.name).unwrap_or_default();
            shows(&PolicySubject::of_read("prompt", &prompt.name, default_decision))
        });
        Ok(prompts)
    }

    pub fn templates(&self, caller: &Caller) -> Result<Vec<Arc<TemplateDef>>, ToolError> {
        self.admits(caller)?;
        let (mut templates, shows) = (self.registry.catalog().templates, self.shows(caller));
        templates.retain(|template| {
            let uri = &template.uri_template;
            let target = Target::Completion(CompletionRef::Template(uri.clone()));
            let default_decision =
                self.registry.default_decision_for(&target, &caller.client.name).unwrap_or_default();
            shows(&PolicySubject::of_read("resource", uri, default_decision))
        });
        Ok(templates)
    }

    /// Lists the resources of all providers. A failing provider does not hide the others; its error is returned separately.
    pub async fn resources(&self, caller: &Caller) -> Result<(Vec<ResourceDef>, Vec<ToolError>), ToolError> {
        self.admits(caller)?;
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for provider in self.registry.providers() {
            // A provider that hangs or panics must not fail the whole list.
            let listed = AssertUnwindSafe(provider.resources(Permit(()), caller)).catch_unwind();
            match tokio::time::timeout(LIST_TIMEOUT, listed).await {
                // Only the owner of a URI lists it, so that a read goes to the provider that was shown.
                Ok(Ok(Ok(resources))) => found.extend(resources.into_iter().filter(|resource| {
                    let owner = self.registry.owner_of(&resource.uri, &caller.client.name);
                    owner.is_some_and(|owner| Arc::ptr_eq(&owner, &provider))
                })),
                Ok(Ok(Err(error))) => failed.push(error),
                Ok(Err(_)) => failed.push(ToolError::internal("a provider panicked")),
                Err(_) => failed.push(ToolError::timeout(LIST_TIMEOUT)),
            }
        }
        let shows = self.shows(caller);
        found.retain(|resource| {
            let default_decision = self
                .registry
                .default_decision_for(&Target::Resource(resource.uri.clone()), &caller.client.name);
            default_decision.is_some_and(|default_decision| {
                shows(&PolicySubject::of_read("resource", &resource.uri, default_decision))
            })
        });
        Ok((found, failed))
    }

    /// Returns whether the caller may see any of these changed list entries.
    pub fn sees_any(&self, caller: &Caller, affected: &[Affected]) -> bool {
        let (shows, view) = (self.shows(caller), caller.client.scope.view);
        affected.iter().any(|one| one.is_for(view) && shows(&one.listing()))
    }

    /// Returns whether the caller may see this URI: a provider owns it, and no layer hides it.
    pub fn sees_resource(&self, caller: &Caller, uri: &str) -> bool {
        let default_decision =
            self.registry.default_decision_for(&Target::Resource(uri.to_owned()), &caller.client.name);
        default_decision.is_some_and(|default_decision| {
            self.shows(caller)(&PolicySubject::of_read("resource", uri, default_decision))
        })
    }

    /// Returns whether the caller may see a URI below `parent`: a provider owns the parent, and no layer hides either.
    pub fn sees_part(&self, caller: &Caller, uri: &str, parent: &str) -> bool {
        let Some(default_decision) =
            self.registry.default_decision_for(&Target::Resource(parent.to_owned()), &caller.client.name)
        else {
            return false;
        };
        let shows = self.shows(caller);
        [parent, uri].into_iter().all(|uri| shows(&PolicySubject::of_read("resource", uri, default_decision)))
    }

    /// Subscribes a client to a resource. Only the gate makes a `ResourceSubscription`, so holding one proves that every
    /// layer allowed it. A subscription sends the URI to the owner without an approval, so a resource that needs one can
    /// only be read.
    pub fn watch(&self, caller: &Caller, uri: &str) -> Result<ResourceSubscription, WatchRefusal> {
        let permit = self.may_subscribe(caller, uri)?;
        Ok(self.registry.watch(permit, uri, &caller.client.name))
    }

    fn may_subscribe(&self, caller: &Caller, uri: &str) -> Result<Permit, WatchRefusal> {
        let default_decision =
            self.registry.default_decision_for(&Target::Resource(uri.to_owned()), &caller.client.name);
        let listing = PolicySubject::of_read("resource", uri, default_decision.ok_or(WatchRefusal::Unknown)?);
        if !self.shows(caller)(&listing) {
            return Err(WatchRefusal::Unknown);
        }
        if !self.layers.iter().all(|layer| layer.unattended_filter(caller)(&listing)) {
            return Err(WatchRefusal::NeedsApproval);
        }
        Ok(Permit(()))
    }

    /// Returns an error if a subscription will get no updates. If the owner does not say in time, assumes that it will.
    pub async fn check_subscription(&self, caller: &Caller, uri: &str) -> Result<(), ToolError> {
        let client = &caller.client.name;
        let Ok(permit) = self.may_subscribe(caller, uri) else {
            return Err(ToolError::denied("this resource can no longer be subscribed to"));
        };
        let Some(owner) = self.registry.owner_of(uri, client) else { return Ok(()) };
        // A provider that hangs or panics must not affect the client.
        let watching = AssertUnwindSafe(owner.check_subscription(permit, uri, client)).catch_unwind();
        match tokio::time::timeout(LIST_TIMEOUT, watching).await {
            Ok(Ok(known)) => known,
            Ok(Err(_)) => Err(ToolError::internal("a provider panicked")),
            Err(_) => Ok(()),
        }
    }

    /// Notifies every provider that a client has closed its last session.
    pub fn client_disconnected(&self, client: &str) {
        for provider in self.registry.providers() {
            provider.client_disconnected(client);
        }
    }

    /// Notifies every provider that a client was removed.
    pub fn client_removed(&self, client: &str) {
        for provider in self.registry.providers() {
            provider.client_removed(client);
        }
    }

    /// Charges the rate limit for a request that is neither a call nor a list.
    pub fn admits(&self, caller: &Caller) -> Result<(), ToolError> {
        self.layers.iter().try_for_each(|layer| layer.admits(caller))
    }

    /// Records an event that is not a call, before the response is sent.
    pub async fn record(&self, event: &Event, ended: Result<(), ErrorKind>) -> Result<(), ToolError> {
        for layer in self.layers.iter() {
            layer.record(event, ended).await?;
        }
        Ok(())
    }

    /// Returns the combined visibility filter of all layers.
    fn shows<'a>(&'a self, caller: &'a Caller) -> impl Fn(&PolicySubject<'_>) -> bool + 'a {
        let layers: Vec<VisibilityFilter<'a>> =
            self.layers.iter().map(|layer| layer.visibility_filter(caller)).collect();
        move |listing| layers.iter().all(|shows| shows(listing))
    }
}

/// Returns whether any tool or prompt of a provider is visible.
fn is_seen(provider: &dyn Provider, shows: &dyn Fn(&PolicySubject<'_>) -> bool) -> bool {
    let (catalog, default_decision) = (provider.catalog(), provider.default_decision());
    catalog.tools.iter().any(|tool| tool.withheld.is_none() && shows(&PolicySubject::of_tool(tool)))
        || catalog
            .prompts
            .iter()
            .any(|prompt| shows(&PolicySubject::of_read("prompt", &prompt.name, default_decision)))
}

#[cfg(test)]
#[path = "nested_calls_tests.rs"]
mod nested_calls_tests;
