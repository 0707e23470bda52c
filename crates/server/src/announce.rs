//! Change notifications to clients: `list_changed`, `resources/updated` and `subscriptions/listen`.

use crate::dispatch::{bounded, caller};
use crate::hub::{AdmittedClients, Hub};
use crate::stream::{ClientStream, MessageSink};
use parking_lot::Mutex;
use portcullis_core::{
    BoxFuture, Caller, CatalogChange, Limit, List, ResourceSubscription, Service, ServiceCtx, ServiceError,
};
use portcullis_wire::params::{ParamKey, Params};
use portcullis_wire::{RequestId, RpcError, rpc};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

/// Listeners of a hub.
const LISTENERS_MAX: usize = 10_000;
/// Listeners of one client.
const LISTENERS_PER_CLIENT_MAX: usize = 1_000;
/// Resources that one listener may subscribe to.
const WATCHED_MAX: usize = 1_000;

/// The changes that a listener subscribed to.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeFilter {
    tools: bool,
    prompts: bool,
    resources: bool,
    watched: BTreeSet<String>,
}

impl ChangeFilter {
    /// Parses the filter of a `subscriptions/listen` request.
    pub(crate) fn of(params: &Params<'_>) -> Result<ChangeFilter, RpcError> {
        let Some(wanted) = params.optional_object(ParamKey::Notifications)? else {
            return Err(RpcError::invalid_params("`notifications` is missing"));
        };
        let flag = |key: &str| wanted.get(key).and_then(Value::as_bool).unwrap_or(false);
        let watched = wanted.get("resourceSubscriptions").and_then(Value::as_array);
        let watched: BTreeSet<String> =
            watched.into_iter().flatten().filter_map(|uri| uri.as_str().map(str::to_owned)).collect();
        if watched.len() > WATCHED_MAX {
            Limit::Subscriptions.hit();
            return Err(RpcError::invalid_params(format_args!(
                "at most {WATCHED_MAX} resource subscriptions are allowed"
            )));
        }
        watched.iter().try_for_each(|uri| bounded(uri))?;
        Ok(ChangeFilter {
            tools: flag("toolsListChanged"),
            prompts: flag("promptsListChanged"),
            resources: flag("resourcesListChanged"),
            watched,
        })
    }

    /// Returns the accepted filter, for the acknowledgement.
    pub(crate) fn granted(&self) -> Value {
        let mut granted = Map::new();
        for (key, wanted) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if wanted {
                granted.insert(key.to_owned(), true.into());
            }
        }
        if !self.watched.is_empty() {
            granted.insert("resourceSubscriptions".to_owned(), json!(self.watched));
        }
        granted.into()
    }

    fn covers(&self, change: &CatalogChange) -> bool {
        match change {
            CatalogChange::Tools
            | CatalogChange::ListOf(List::Tools, _)
            | CatalogChange::Within(List::Tools, _) => self.tools,
            CatalogChange::Prompts
            | CatalogChange::ListOf(List::Prompts, _)
            | CatalogChange::Within(List::Prompts, _) => self.prompts,
            CatalogChange::Resources
            | CatalogChange::ListOf(List::Resources, _)
            | CatalogChange::Within(List::Resources, _) => self.resources,
            CatalogChange::ResourceUpdated(uri) => self.watched.contains(uri),
            CatalogChange::ResourcesOf(_) => self.resources,
            CatalogChange::ResourceUpdatedOf { watched, .. } => {
                watched.iter().any(|uri| self.watched.contains(uri))
            }
        }
    }
}

struct ChangeListener {
    interest: ChangeFilter,
    caller: Caller,
    sink: Arc<dyn MessageSink>,
    /// The id of the listening request; every notification carries it.
    tag: Value,
    /// The SSE stream over HTTP. A stdio or socket connection has none, and ends with its client.
    stream: Option<Arc<ClientStream>>,
    /// Ends the listening request.
    cancel: CancellationToken,
    _watches: Vec<ResourceSubscription>,
}

/// Clients that listen with a `subscriptions/listen` request.
#[derive(Default)]
pub(crate) struct ChangeListeners {
    next: AtomicU64,
    all: Mutex<HashMap<u64, ChangeListener>>,
}

/// Listens until it is dropped.
pub(crate) struct ListenerGuard {
    hub: Arc<Hub>,
    key: u64,
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.hub.listeners.all.lock().remove(&self.key);
    }
}

impl ChangeListeners {
    /// Adds a listener. The acknowledgement is its first message.
    pub(crate) fn add(
        hub: &Arc<Hub>,
        caller: Caller,
        mut interest: ChangeFilter,
        id: &RequestId,
        sink: Arc<dyn MessageSink>,
        stream: Option<Arc<ClientStream>>,
        cancel: CancellationToken,
    ) -> Result<ListenerGuard, RpcError> {
        let tag = id.to_value();
        let mut all = hub.listeners.all.lock();
        let own = all.values().filter(|listener| listener.caller.client.name == caller.client.name).count();
        if all.len() >= LISTENERS_MAX || own >= LISTENERS_PER_CLIENT_MAX {
            Limit::Listeners.hit();
            return Err(RpcError::new(rpc::SERVER_ERROR, "too many listeners; try again later"));
        }
        let mut watches = Vec::new();
        // Resources that the caller may not watch are left out of the acknowledgement.
        interest.watched.retain(|uri| match hub.gate.watch(&caller, uri) {
            Ok(watch) => {
                watches.push(watch);
                true
            }
            Err(_) => false,
        });
        let method = "notifications/subscriptions/acknowledged";
        let params = json!({ "notifications": interest.granted() });
        sink.deliver(hub.outgoing.notification(method, params, Some(&tag)));
        let key = hub.listeners.next.fetch_add(1, Ordering::Relaxed);
        all.insert(key, ChangeListener { interest, caller, sink, tag, stream, cancel, _watches: watches });
        Ok(ListenerGuard { hub: hub.clone(), key })
    }

    /// Ends the streams of clients that are no longer admitted, and updates the scope of the others. The local
    /// client has no token that could be revoked.
    pub(crate) fn follow(&self, known: &AdmittedClients) {
        self.all.lock().retain(|_, listener| {
            let now = match &listener.stream {
                Some(_) => known.now(&listener.caller.client),
                None => Some(known.local.clone()),
            };
            let is_known = now.is_some();
            if let Some(now) = now {
                listener.caller.client = now;
            } else if let Some(stream) = &listener.stream {
                stream.finish();
                // A stream that ends normally cancels nothing, so the request would wait until the hub exits.
                listener.cancel.cancel();
            }
            is_known
        });
    }

    /// Ends every listening stream.
    pub(crate) fn close_all(&self) {
        for (_, listener) in self.all.lock().drain() {
            if let Some(stream) = listener.stream {
                stream.finish();
            }
        }
    }
}

/// The service that forwards changes of the catalog to clients.
pub(crate) struct ChangeAnnouncer {
    /// Weak: the hub owns its services.
    hub: Weak<Hub>,
    closing: CancellationToken,
    /// Subscribed when the hub is made, so that no change before the first run is lost. A later run subscribes anew.
    first: Mutex<Option<broadcast::Receiver<CatalogChange>>>,
}

impl ChangeAnnouncer {
    pub(crate) fn of(hub: &Arc<Hub>) -> ChangeAnnouncer {
        let first = Mutex::new(Some(hub.gate.subscribe()));
        ChangeAnnouncer { hub: Arc::downgrade(hub), closing: hub.closing.clone(), first }
    }

    async fn announce(&self) -> Result<(), ServiceError> {
        const GONE: &str = "the hub is gone";
        let first = self.first.lock().take();
        let mut changes = match first {
            Some(changes) => changes,
            // What changed since the last run failed is unknown.
            None => {
                let hub = self.hub.upgrade().ok_or(GONE)?;
                let changes = hub.gate.subscribe();
                hub.tell_all();
                changes
            }
        };
        loop {
            let change = tokio::select! {
                () = self.closing.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let hub = self.hub.upgrade().ok_or(GONE)?;
            match change {
                Ok(change) => hub.tell(&change),
                // The channel overflowed and changes are lost: notify of everything, and clients list again.
                Err(RecvError::Lagged(_)) => hub.tell_all(),
                Err(RecvError::Closed) => return Err("the registry is gone".into()),
            }
        }
    }
}

impl Service for ChangeAnnouncer {
    fn name(&self) -> &'static str {
        "changes"
    }

    fn run(self: Arc<Self>, _: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move { self.announce().await })
    }
}

fn list_changed(list: List) -> (&'static str, Value) {
    let method = match list {
        List::Tools => "notifications/tools/list_changed",
        List::Prompts => "notifications/prompts/list_changed",
        List::Resources => "notifications/resources/list_changed",
    };
    (method, json!({}))
}

fn method_and_params(change: &CatalogChange) -> (&'static str, Value) {
    match change {
        CatalogChange::Tools => list_changed(List::Tools),
        CatalogChange::Prompts => list_changed(List::Prompts),
        CatalogChange::Resources | CatalogChange::ResourcesOf(_) => list_changed(List::Resources),
        CatalogChange::ListOf(list, _) | CatalogChange::Within(list, _) => list_changed(*list),
        CatalogChange::ResourceUpdated(uri) | CatalogChange::ResourceUpdatedOf { uri, .. } => {
            ("notifications/resources/updated", json!({ "uri": uri }))
        }
    }
}

impl Hub {
    fn tell(&self, change: &CatalogChange) {
        let (method, params) = method_and_params(change);
        self.tell_so(change, method, params);
    }

    /// Notifies all clients of everything they subscribed to: any of it may have changed.
    fn tell_all(&self) {
        for change in [CatalogChange::Tools, CatalogChange::Prompts, CatalogChange::Resources] {
            self.tell(&change);
        }
        let mut watched: BTreeSet<String> =
            self.sessions.all().iter().flat_map(|session| session.watched()).collect();
        {
            let all = self.listeners.all.lock();
            watched.extend(all.values().flat_map(|listener| listener.interest.watched.iter().cloned()));
        }
        for uri in watched {
            self.tell(&CatalogChange::ResourceUpdated(uri));
        }
    }

    /// Notifies that a resource changed, with the `params` of the upstream server.
    pub(crate) fn tell_updated(
        &self,
        to: Option<&str>,
        uri: &str,
        watched: Vec<String>,
        said: Map<String, Value>,
    ) {
        let (client, uri) = (to.map(str::to_owned), uri.to_owned());
        let change = CatalogChange::ResourceUpdatedOf { client, uri, watched };
        let (method, _) = method_and_params(&change);
        self.tell_so(&change, method, said.into());
    }

    /// Returns whether a changed resource is watched and still visible: the policy may have changed since the
    /// subscription. `None` for any other change.
    fn is_watched(
        &self,
        change: &CatalogChange,
        caller: &Caller,
        watches: impl Fn(&str) -> bool,
    ) -> Option<bool> {
        match change {
            CatalogChange::ResourceUpdated(uri) => Some(watches(uri) && self.gate.sees_resource(caller, uri)),
            CatalogChange::ResourceUpdatedOf { uri, watched, .. } => {
                let concerned = |whole: &String| watches(whole) && self.gate.sees_part(caller, uri, whole);
                Some(watched.iter().any(concerned))
            }
            CatalogChange::Tools
            | CatalogChange::Prompts
            | CatalogChange::Resources
            | CatalogChange::ListOf(..)
            | CatalogChange::Within(..)
            | CatalogChange::ResourcesOf(_) => None,
        }
    }

    /// Returns whether a change concerns a client: some changes are of one client's resources, or of hidden items.
    fn concerns(&self, change: &CatalogChange, caller: &Caller) -> bool {
        match change {
            CatalogChange::Tools
            | CatalogChange::Prompts
            | CatalogChange::Resources
            | CatalogChange::ResourceUpdated(_) => true,
            // The registry sends the affected items separately.
            CatalogChange::ListOf(..) => false,
            CatalogChange::Within(_, affected) => self.gate.sees_any(caller, affected),
            CatalogChange::ResourceUpdatedOf { client: None, .. } => true,
            CatalogChange::ResourcesOf(only)
            | CatalogChange::ResourceUpdatedOf { client: Some(only), .. } => caller.client.name == *only,
        }
    }

    fn tell_so(&self, change: &CatalogChange, method: &str, params: Value) {
        let message = self.outgoing.notification(method, params.clone(), None);
        for session in self.sessions.all() {
            let caller = caller(&session.client());
            if !self.concerns(change, &caller) {
                continue;
            }
            let is_watched = self.is_watched(change, &caller, |uri| session.watches(uri));
            if is_watched.unwrap_or_else(|| session.is_initialized()) {
                session.home.notify(message.clone());
            }
        }
        let mut all = self.listeners.all.lock();
        all.retain(|_, listener| !listener.sink.is_closed());
        let concerned = |listener: &&ChangeListener| {
            listener.interest.covers(change) && self.concerns(change, &listener.caller)
        };
        for listener in all.values().filter(concerned) {
            let watched = &listener.interest.watched;
            if self.is_watched(change, &listener.caller, |uri| watched.contains(uri)) == Some(false) {
                continue;
            }
            let tag = Some(&listener.tag);
            listener.sink.notify(self.outgoing.notification(method, params.clone(), tag));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{Client, Pattern, Scope};

    fn client(name: &str, allow: &str, token: Option<u64>) -> Arc<Client> {
        let scope = Scope { allow: Pattern::new(&[allow]).unwrap(), ..Scope::everything() };
        Arc::new(Client { name: name.to_owned(), scope, token })
    }

    fn known(http: Option<Arc<Client>>, local: Arc<Client>) -> AdmittedClients {
        AdmittedClients {
            admitted: Some(http.into_iter().map(|client| (client.name.clone(), client)).collect()),
            local,
        }
    }

    fn listens(
        all: &ChangeListeners,
        key: u64,
        client: &Arc<Client>,
        stream: Option<Arc<ClientStream>>,
    ) -> CancellationToken {
        let cancel = CancellationToken::new();
        let listener = ChangeListener {
            interest: ChangeFilter::default(),
            caller: caller(client),
            sink: ClientStream::fleeting(),
            tag: key.into(),
            stream,
            cancel: cancel.clone(),
            _watches: Vec::new(),
        };
        all.all.lock().insert(key, listener);
        cancel
    }

    /// Returns the scope of each listener, by its key.
    fn hear(all: &ChangeListeners) -> Vec<(u64, String)> {
        let all = all.all.lock();
        let globs = |listener: &ChangeListener| listener.caller.client.scope.allow.globs()[0].to_string();
        let mut hear: Vec<_> = all.iter().map(|(key, listener)| (*key, globs(listener))).collect();
        hear.sort();
        hear
    }

    #[test]
    fn whoever_is_known_no_more_hears_no_more_and_a_line_goes_on() {
        let local = client("local", "*", None);
        let now = [
            ("the same", Some(client("ada", "*", Some(1))), true),
            ("revoked", None, false),
            ("another of that name", Some(client("ada", "*", Some(2))), false),
        ];
        for (case, ada, stays) in now {
            let (all, stream) = (ChangeListeners::default(), ClientStream::fleeting());
            let line = listens(&all, 1, &local, None);
            let http = listens(&all, 2, &client("ada", "*", Some(1)), Some(stream.clone()));
            all.follow(&known(ada, local.clone()));
            assert_eq!(stream.is_done(), !stays, "{case}");
            assert_eq!(http.is_cancelled(), !stays, "{case}: nothing else would end the request");
            assert!(!line.is_cancelled(), "{case}");
            assert_eq!(hear(&all).len(), if stays { 2 } else { 1 }, "{case}");
            // A client list that cannot be read for a moment ends no stream.
            all.follow(&AdmittedClients { admitted: None, local: local.clone() });
            assert_eq!(hear(&all).len(), if stays { 2 } else { 1 }, "{case}");
        }
    }

    #[test]
    fn whoever_listens_hears_what_it_may_hear_now() {
        let all = ChangeListeners::default();
        listens(&all, 1, &client("local", "*", None), None);
        listens(&all, 2, &client("ada", "*", Some(1)), Some(ClientStream::fleeting()));
        all.follow(&known(Some(client("ada", "a_*", Some(1))), client("local", "l_*", None)));
        assert_eq!(hear(&all), [(1, "l_*".to_owned()), (2, "a_*".to_owned())]);
    }
}
