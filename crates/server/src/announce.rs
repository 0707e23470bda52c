//! Telling clients what changed.

use crate::dispatch::{bounded, caller};
use crate::hub::{Hub, Known};
use crate::stream::{Outlet, Stream};
use portcullis_core::{Caller, Change, Limit, List, Watch};
use portcullis_wire::params::{Key, Params};
use portcullis_wire::{Id, RpcError, rpc};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// How many listeners a hub serves at once.
const LISTENERS_MAX: usize = 10_000;
/// How many of them may be one client's.
const LISTENERS_PER_CLIENT_MAX: usize = 1_000;
/// How many resources one listener may watch.
const WATCHED_MAX: usize = 1_000;

/// What a listener wants to hear of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interest {
    tools: bool,
    prompts: bool,
    resources: bool,
    watched: BTreeSet<String>,
}

impl Interest {
    /// Reads what was asked for.
    pub(crate) fn of(params: &Params<'_>) -> Result<Interest, RpcError> {
        let Some(wanted) = params.optional_object(Key::Notifications)? else {
            return Err(RpcError::invalid_params("`notifications` is missing"));
        };
        let flag = |key: &str| wanted.get(key).and_then(Value::as_bool).unwrap_or(false);
        let watched = wanted.get("resourceSubscriptions").and_then(Value::as_array);
        let watched: BTreeSet<String> =
            watched.into_iter().flatten().filter_map(|uri| uri.as_str().map(str::to_owned)).collect();
        if watched.len() > WATCHED_MAX {
            Limit::Subscriptions.hit();
            return Err(RpcError::invalid_params(format_args!(
                "at most {WATCHED_MAX} resources can be watched"
            )));
        }
        watched.iter().try_for_each(|uri| bounded(uri))?;
        Ok(Interest {
            tools: flag("toolsListChanged"),
            prompts: flag("promptsListChanged"),
            resources: flag("resourcesListChanged"),
            watched,
        })
    }

    /// What the listener will hear of.
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

    fn covers(&self, change: &Change) -> bool {
        match change {
            Change::Tools | Change::ListOf(List::Tools, _) | Change::Within(List::Tools, _) => self.tools,
            Change::Prompts | Change::ListOf(List::Prompts, _) | Change::Within(List::Prompts, _) => {
                self.prompts
            }
            Change::Resources | Change::ListOf(List::Resources, _) | Change::Within(List::Resources, _) => {
                self.resources
            }
            Change::ResourceUpdated(uri) => self.watched.contains(uri),
            Change::ResourcesOf(_) => self.resources,
            Change::ResourceUpdatedOf { watched, .. } => watched.iter().any(|uri| self.watched.contains(uri)),
        }
    }
}

struct Listener {
    interest: Interest,
    caller: Caller,
    outlet: Arc<dyn Outlet>,
    /// The id of the request that listens; every message carries it.
    tag: Value,
    /// Its own, over HTTP. A line has none, and ends with its client.
    stream: Option<Arc<Stream>>,
    /// Ends the request that listens.
    cancel: CancellationToken,
    _watches: Vec<Watch>,
}

/// Those who listen by a request of their own.
#[derive(Default)]
pub(crate) struct Listeners {
    next: AtomicU64,
    all: Mutex<HashMap<u64, Listener>>,
}

/// Listens as long as it is held.
pub(crate) struct Listening {
    hub: Arc<Hub>,
    key: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.listeners.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl Listeners {
    /// Begins to listen. The acknowledgement is the first message that the outlet gets.
    pub(crate) fn add(
        hub: &Arc<Hub>,
        caller: Caller,
        mut interest: Interest,
        id: &Id,
        outlet: Arc<dyn Outlet>,
        stream: Option<Arc<Stream>>,
        cancel: CancellationToken,
    ) -> Result<Listening, RpcError> {
        let tag = id.to_value();
        let mut all = hub.listeners.all.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.values().filter(|listener| listener.caller.client.name == caller.client.name).count();
        if all.len() >= LISTENERS_MAX || own >= LISTENERS_PER_CLIENT_MAX {
            Limit::Listeners.hit();
            return Err(RpcError::new(rpc::SERVER_ERROR, "too many listeners; try again later"));
        }
        let mut watches = Vec::new();
        // What the caller may not watch is left out, and the acknowledgement says so.
        interest.watched.retain(|uri| match hub.gate.watch(&caller, uri) {
            Ok(watch) => {
                watches.push(watch);
                true
            }
            Err(_) => false,
        });
        let method = "notifications/subscriptions/acknowledged";
        let params = json!({ "notifications": interest.granted() });
        outlet.deliver(hub.outgoing.notification(method, params, Some(&tag)));
        let key = hub.listeners.next.fetch_add(1, Ordering::Relaxed);
        all.insert(key, Listener { interest, caller, outlet, tag, stream, cancel, _watches: watches });
        Ok(Listening { hub: hub.clone(), key })
    }

    /// Ends the streams of clients that are known no more; the others hear what they may hear now. The local client has no
    /// token to lose.
    pub(crate) fn follow(&self, known: &Known) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, listener| {
            let now = match &listener.stream {
                Some(_) => known.now(&listener.caller.client),
                None => Some(known.local.clone()),
            };
            let is_known = now.is_some();
            if let Some(now) = now {
                listener.caller.client = now;
            } else if let Some(stream) = &listener.stream {
                stream.finish();
                // A stream that ends in order cancels nothing, and the request would wait for the hub's end.
                listener.cancel.cancel();
            }
            is_known
        });
    }

    /// Ends every stream that only listens.
    pub(crate) fn close_all(&self) {
        for (_, listener) in self.all.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            if let Some(stream) = listener.stream {
                stream.finish();
            }
        }
    }
}

/// Passes every change on, as long as the hub lives.
pub(crate) fn start(hub: &Arc<Hub>) {
    let mut changes = hub.gate.subscribe();
    let (weak, closing) = (Arc::downgrade(hub), hub.closing.clone());
    tokio::spawn(async move {
        loop {
            let change = tokio::select! {
                () = closing.cancelled() => return,
                change = changes.recv() => change,
            };
            let Some(hub) = weak.upgrade() else { return };
            match change {
                Ok(change) => hub.tell(&change),
                // So much happened that some of it is lost: whoever cares looks again.
                Err(RecvError::Lagged(_)) => hub.tell_all(),
                Err(RecvError::Closed) => return,
            }
        }
    });
}

fn list_changed(list: List) -> (&'static str, Value) {
    let method = match list {
        List::Tools => "notifications/tools/list_changed",
        List::Prompts => "notifications/prompts/list_changed",
        List::Resources => "notifications/resources/list_changed",
    };
    (method, json!({}))
}

fn method_and_params(change: &Change) -> (&'static str, Value) {
    match change {
        Change::Tools => list_changed(List::Tools),
        Change::Prompts => list_changed(List::Prompts),
        Change::Resources | Change::ResourcesOf(_) => list_changed(List::Resources),
        Change::ListOf(list, _) | Change::Within(list, _) => list_changed(*list),
        Change::ResourceUpdated(uri) | Change::ResourceUpdatedOf { uri, .. } => {
            ("notifications/resources/updated", json!({ "uri": uri }))
        }
    }
}

impl Hub {
    fn tell(&self, change: &Change) {
        let (method, params) = method_and_params(change);
        self.tell_so(change, method, params);
    }

    /// Tells everybody of everything that they want to hear of: any of it may have changed.
    fn tell_all(&self) {
        for change in [Change::Tools, Change::Prompts, Change::Resources] {
            self.tell(&change);
        }
        let mut watched: BTreeSet<String> =
            self.sessions.all().iter().flat_map(|session| session.watched()).collect();
        {
            let all = self.listeners.all.lock().unwrap_or_else(PoisonError::into_inner);
            watched.extend(all.values().flat_map(|listener| listener.interest.watched.iter().cloned()));
        }
        for uri in watched {
            self.tell(&Change::ResourceUpdated(uri));
        }
    }

    /// Tells that a resource changed, in the words of whoever says so.
    pub(crate) fn tell_updated(
        &self,
        to: Option<&str>,
        uri: &str,
        watched: Vec<String>,
        said: Map<String, Value>,
    ) {
        let (client, uri) = (to.map(str::to_owned), uri.to_owned());
        let change = Change::ResourceUpdatedOf { client, uri, watched };
        let (method, _) = method_and_params(&change);
        self.tell_so(&change, method, said.into());
    }

    /// Returns whether a resource that changed is one that somebody watches, and still may see: a rule may have changed
    /// since then. `None` for any other change.
    fn is_watched(&self, change: &Change, caller: &Caller, watches: impl Fn(&str) -> bool) -> Option<bool> {
        match change {
            Change::ResourceUpdated(uri) => Some(watches(uri) && self.gate.sees_resource(caller, uri)),
            Change::ResourceUpdatedOf { uri, watched, .. } => {
                let concerned = |whole: &String| watches(whole) && self.gate.sees_part(caller, uri, whole);
                Some(watched.iter().any(concerned))
            }
            Change::Tools
            | Change::Prompts
            | Change::Resources
            | Change::ListOf(..)
            | Change::Within(..)
            | Change::ResourcesOf(_) => None,
        }
    }

    /// Returns whether a client is told of a change at all: some are of what only one of them has, or of what not all see.
    fn concerns(&self, change: &Change, caller: &Caller) -> bool {
        match change {
            Change::Tools | Change::Prompts | Change::Resources | Change::ResourceUpdated(_) => true,
            // The registry says of what.
            Change::ListOf(..) => false,
            Change::Within(_, affected) => self.gate.sees_any(caller, affected),
            Change::ResourceUpdatedOf { client: None, .. } => true,
            Change::ResourcesOf(only) | Change::ResourceUpdatedOf { client: Some(only), .. } => {
                caller.client.name == *only
            }
        }
    }

    fn tell_so(&self, change: &Change, method: &str, params: Value) {
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
        let mut all = self.listeners.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, listener| !listener.outlet.is_closed());
        let concerned = |listener: &&Listener| {
            listener.interest.covers(change) && self.concerns(change, &listener.caller)
        };
        for listener in all.values().filter(concerned) {
            let watched = &listener.interest.watched;
            if self.is_watched(change, &listener.caller, |uri| watched.contains(uri)) == Some(false) {
                continue;
            }
            let tag = Some(&listener.tag);
            listener.outlet.notify(self.outgoing.notification(method, params.clone(), tag));
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

    fn known(http: Option<Arc<Client>>, local: Arc<Client>) -> Known {
        Known {
            admitted: Some(http.into_iter().map(|client| (client.name.clone(), client)).collect()),
            local,
        }
    }

    fn listens(
        all: &Listeners,
        key: u64,
        client: &Arc<Client>,
        stream: Option<Arc<Stream>>,
    ) -> CancellationToken {
        let cancel = CancellationToken::new();
        let listener = Listener {
            interest: Interest::default(),
            caller: caller(client),
            outlet: Stream::fleeting(),
            tag: key.into(),
            stream,
            cancel: cancel.clone(),
            _watches: Vec::new(),
        };
        all.all.lock().unwrap().insert(key, listener);
        cancel
    }

    /// Returns what each listener may hear of, by its key.
    fn hear(all: &Listeners) -> Vec<(u64, String)> {
        let all = all.all.lock().unwrap();
        let globs = |listener: &Listener| listener.caller.client.scope.allow.globs()[0].to_string();
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
            let (all, stream) = (Listeners::default(), Stream::fleeting());
            let line = listens(&all, 1, &local, None);
            let http = listens(&all, 2, &client("ada", "*", Some(1)), Some(stream.clone()));
            all.follow(&known(ada, local.clone()));
            assert_eq!(stream.is_done(), !stays, "{case}");
            assert_eq!(http.is_cancelled(), !stays, "{case}: nobody else would end the request");
            assert!(!line.is_cancelled(), "{case}");
            assert_eq!(hear(&all).len(), if stays { 2 } else { 1 }, "{case}");
            // A list that cannot be read for a moment sends nobody away.
            all.follow(&Known { admitted: None, local: local.clone() });
            assert_eq!(hear(&all).len(), if stays { 2 } else { 1 }, "{case}");
        }
    }

    #[test]
    fn whoever_listens_hears_what_it_may_hear_now() {
        let all = Listeners::default();
        listens(&all, 1, &client("local", "*", None), None);
        listens(&all, 2, &client("ada", "*", Some(1)), Some(Stream::fleeting()));
        all.follow(&known(Some(client("ada", "a_*", Some(1))), client("local", "l_*", None)));
        assert_eq!(hear(&all), [(1, "l_*".to_owned()), (2, "a_*".to_owned())]);
    }
}
