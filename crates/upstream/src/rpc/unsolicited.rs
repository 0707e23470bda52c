//! Messages of a server that belong to no call: who handles them, and the rate limit on them.

use super::outbound_queue::OutboundQueue;
use parking_lot::Mutex;
use portcullis_core::{BoxFuture, InputResponse, LogMessage};
use portcullis_wire::{RequestId, rpc};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// How many messages a second reach clients that belong to no call. All clients get them.
pub(super) const PER_SECOND_MAX: u32 = 100;
/// How many requests of the server that belong to no call may be open at once.
const REQUESTS_MAX: usize = 4;
/// How long such a request waits for the handler to be set.
const HANDLER_WITHIN: Duration = Duration::from_secs(2);

/// What handles messages outside of calls. The server that the connection belongs to.
pub(crate) trait UnsolicitedHandler: Send + Sync {
    /// Returns the URIs of the resources that clients watch.
    fn watched(&self) -> BTreeSet<String>;

    /// Returns the watched resources that this one is, or is a part of.
    fn watched_of(&self, uri: &str) -> Vec<String>;

    fn log(&self, message: &LogMessage);

    /// Passes an update on with the server's own parameters. Returns whether a client could be told.
    fn updated(&self, uri: &str, watched: Vec<String>, params: Map<String, Value>) -> bool;

    /// Asks the clients for their roots; `None` where none may be asked.
    fn roots(self: Arc<Self>) -> BoxFuture<'static, Option<InputResponse>>;
}

#[derive(Default)]
struct Quota {
    since: Option<Instant>,
    count: u32,
}

pub(crate) struct Unsolicited {
    /// Set once the server's catalog is known.
    handler: watch::Sender<Option<Weak<dyn UnsolicitedHandler>>>,
    quota: Mutex<Quota>,
    requests: Arc<Semaphore>,
}

impl Default for Unsolicited {
    fn default() -> Unsolicited {
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        Unsolicited { handler: watch::Sender::default(), quota: Mutex::default(), requests }
    }
}

impl Unsolicited {
    /// Sets the handler, unless there is one.
    pub(crate) fn set_handler(&self, handler: Weak<dyn UnsolicitedHandler>) {
        self.handler.send_if_modified(|known| {
            let is_new = !is_set(known);
            if is_new {
                *known = Some(handler);
            }
            is_new
        });
    }

    pub(super) fn handler(&self) -> Option<Arc<dyn UnsolicitedHandler>> {
        self.handler.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// Counts a message. Returns whether it is within the rate limit.
    pub(super) fn is_within_rate(&self) -> bool {
        let mut quota = self.quota.lock();
        if quota.since.is_none_or(|since| since.elapsed() >= Duration::from_secs(1)) {
            *quota = Quota { since: Some(Instant::now()), count: 0 };
        }
        quota.count += 1;
        quota.count <= PER_SECOND_MAX
    }

    /// Answers `roots/list` outside of calls. Returns the id where too many requests are open already.
    pub(super) fn answer_roots(&self, id: RequestId, outbound: Arc<OutboundQueue>) -> Result<(), RequestId> {
        let Ok(permit) = self.requests.clone().try_acquire_owned() else { return Err(id) };
        let mut handler = self.handler.subscribe();
        tokio::spawn(async move {
            // Many servers ask right after the handshake, when it is not known yet whether they are trusted.
            let set = handler.wait_for(is_set);
            let set = tokio::time::timeout(HANDLER_WITHIN, set).await;
            let handler = set.ok().and_then(Result::ok).and_then(|set| set.as_ref().and_then(Weak::upgrade));
            let roots = match handler {
                Some(handler) => handler.roots().await,
                None => None,
            };
            let answer = roots.map_or_else(no_roots, |roots| roots.to_string().into_bytes());
            drop(permit);
            // Few enough to be lost where the server takes nothing.
            let _ = outbound.push(None, rpc::response(Some(&id), Ok(answer)));
        });
        Ok(())
    }
}

fn is_set(handler: &Option<Weak<dyn UnsolicitedHandler>>) -> bool {
    handler.as_ref().is_some_and(|handler| handler.strong_count() > 0)
}

/// Returns the answer to `roots/list` where no client may be asked.
pub(super) fn no_roots() -> Vec<u8> {
    br#"{"roots":[]}"#.to_vec()
}
