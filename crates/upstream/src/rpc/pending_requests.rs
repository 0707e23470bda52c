//! Requests in flight on one connection, by correlation id, and the client that each belongs to.
//!
//! A server that does not say which call a message is about may mean any call in flight. The message then goes to the
//! only client with calls here, and to none where several have some: what is meant for one client never reaches another.

use super::cancelled_calls::CancelledCalls;
use super::pending_request::{PendingRequest, RELATED_TASK, ServerQuestion};
use super::task_status::UpstreamTask;
use parking_lot::Mutex;
use portcullis_core::{Client, Peer};
use portcullis_wire::{ClientDialect, RequestId};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The client that made the call which a request is part of.
#[derive(Clone)]
pub(crate) struct CallOwner {
    pub(crate) client: Arc<Client>,
    pub(crate) peer: Arc<dyn Peer>,
    pub(crate) slot: Arc<PendingRequest>,
    /// The dialect in which the server may answer with a task, where the hub polls that task for the client.
    pub(crate) task_dialect: Option<&'static dyn ClientDialect>,
}

/// One request that waits for its response. Removed before that, it has lost its server.
pub(super) struct PendingEntry {
    pub(super) slot: Arc<PendingRequest>,
    pub(super) owner: Option<CallOwner>,
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        self.slot.end();
    }
}

/// A task that the hub polls: the request that began it, and the client that it belongs to.
struct TaskEntry {
    request: u64,
    owner: CallOwner,
}

pub(crate) struct PendingRequests {
    /// Cancelled when the server is gone.
    closed: CancellationToken,
    waiting: Mutex<HashMap<u64, PendingEntry>>,
    /// By the ids that the server gave them.
    tasks: Mutex<HashMap<String, TaskEntry>>,
    /// Calls that were cancelled and that the server may still run.
    cancelled: CancelledCalls,
}

impl PendingRequests {
    pub(super) fn new(closed: CancellationToken) -> PendingRequests {
        let cancelled = CancelledCalls::default();
        PendingRequests { closed, waiting: Mutex::default(), tasks: Mutex::default(), cancelled }
    }

    /// Registers a request that is about to be sent.
    pub(crate) fn expect(&self, id: u64, slot: Arc<PendingRequest>, owner: Option<CallOwner>) {
        self.waiting.lock().insert(id, PendingEntry { slot, owner });
        // Closing cancels the token before it clears the map, so one of the two sides notices.
        if self.closed.is_cancelled() {
            self.forget(id);
        }
    }

    /// Removes a request that is no longer waited for. Returns whether it was.
    pub(crate) fn forget(&self, id: u64) -> bool {
        let Some(entry) = self.waiting.lock().remove(&id) else { return false };
        if let Some(owner) = &entry.owner {
            self.cancelled.note(id, owner.client.clone());
        }
        true
    }

    /// Removes a request whose response has arrived.
    pub(super) fn take(&self, id: u64) -> Option<PendingEntry> {
        self.waiting.lock().remove(&id)
    }

    /// Takes note of a response to a request that is no longer waited for.
    pub(super) fn late_response(&self, id: u64) {
        self.cancelled.ended(id);
    }

    /// Returns whether a message without a call may be about a cancelled call of another client than this one.
    pub(super) fn may_concern_another(&self, client: Option<&Client>) -> bool {
        self.cancelled.may_concern_another(client)
    }

    pub(super) fn awaits(&self, id: u64) -> bool {
        self.waiting.lock().contains_key(&id)
    }

    /// Returns whether a client's request is in flight.
    pub(crate) fn serves_call(&self) -> bool {
        self.waiting.lock().values().any(|entry| entry.owner.is_some())
    }

    /// Takes note of a sign of life for a request. Returns its owner, if it has one; `None` if it is not in flight.
    pub(super) fn alive(&self, id: u64) -> Option<Option<CallOwner>> {
        let waiting = self.waiting.lock();
        let entry = waiting.get(&id)?;
        entry.slot.alive();
        Some(entry.owner.clone())
    }

    pub(super) fn owner_of(&self, id: u64) -> Option<CallOwner> {
        self.waiting.lock().get(&id)?.owner.clone()
    }

    /// Returns the newest call of the only client with calls in flight.
    pub(super) fn only_owner(&self) -> Option<CallOwner> {
        only(&self.waiting.lock(), |_| true)
    }

    /// The same, without clients that are away to collect input: the server waits for what they bring back.
    pub(super) fn only_present_owner(&self) -> Option<CallOwner> {
        only(&self.waiting.lock(), |owner| !owner.slot.is_away())
    }

    pub(super) fn owner_of_task(&self, task: &str) -> Option<CallOwner> {
        self.tasks.lock().get(task).map(|task| task.owner.clone())
    }

    /// Returns the task and the call that a message is about. Clients do not know that task, so its id is removed.
    pub(super) fn concerned(
        &self,
        params: &mut Map<String, Value>,
        about: Option<u64>,
    ) -> (Option<String>, Option<CallOwner>) {
        let related = without_meta(params, RELATED_TASK);
        let task = related.as_ref().and_then(|related| related["taskId"].as_str()).map(str::to_owned);
        let owner = match (&task, about) {
            (Some(task), _) => self.owner_of_task(task),
            (None, Some(about)) => self.owner_of(about),
            (None, None) => self.only_owner(),
        };
        (task, owner)
    }

    /// Withdraws a question from whichever call it was asked on.
    pub(super) fn withdraw_question(&self, question: &RequestId) {
        let calls = self.waiting.lock().values().filter_map(|entry| entry.owner.clone()).collect::<Vec<_>>();
        let tasks = self.tasks.lock().values().map(|task| task.owner.clone()).collect::<Vec<_>>();
        for owner in calls.iter().chain(&tasks) {
            owner.slot.withdraw(question);
        }
    }

    /// Hands a question whose call is over to another call of the client, or gives it back where there is none: the call
    /// that asks may be one that still waits.
    pub(crate) fn reassign_question(
        &self,
        question: ServerQuestion,
        client: &Client,
    ) -> Result<(), ServerQuestion> {
        if question.names_call {
            return Err(question);
        }
        // Held until it is asked: a call that ends now takes its open questions after it was removed here.
        let waiting = self.waiting.lock();
        match only(&waiting, |owner| owner.client.is(client)) {
            Some(owner) => owner.slot.ask(question),
            None => Err(question),
        }
    }

    /// Sends what concerns a call to another peer from now on: its client came back with a new request.
    pub(crate) fn rebind(&self, slot: &Arc<PendingRequest>, peer: &Arc<dyn Peer>) {
        let mut waiting = self.waiting.lock();
        for owner in waiting.values_mut().filter_map(|entry| entry.owner.as_mut()) {
            if Arc::ptr_eq(&owner.slot, slot) {
                owner.peer = peer.clone();
            }
        }
    }

    /// Registers the task that a call became: before anything else, because the next message may be about it.
    pub(super) fn begin_task(&self, request: u64, entry: &PendingEntry, result: &RawValue) {
        let Some(owner) = &entry.owner else { return };
        if let Some(task) = owner.task_dialect.and_then(|dialect| UpstreamTask::begun(dialect, result)) {
            self.tasks.lock().insert(task.id, TaskEntry { request, owner: owner.clone() });
        }
    }

    /// Forgets the task that a request became, and returns its id.
    pub(crate) fn end_task(&self, request: u64) -> Option<String> {
        let mut tasks = self.tasks.lock();
        let id = tasks.iter().find(|(_, task)| task.request == request).map(|(id, _)| id.clone())?;
        tasks.remove(&id);
        Some(id)
    }

    pub(super) fn clear(&self) {
        self.waiting.lock().clear();
    }
}

/// Removes a member of `_meta` that is not for clients.
pub(super) fn without_meta(params: &mut Map<String, Value>, key: &str) -> Option<Value> {
    let meta = params.get_mut("_meta")?.as_object_mut()?;
    let taken = meta.shift_remove(key)?;
    if meta.is_empty() {
        params.shift_remove("_meta");
    }
    Some(taken)
}

/// Returns the newest call of the one client whose calls fit; `None` where several clients have some.
fn only(waiting: &HashMap<u64, PendingEntry>, fits: impl Fn(&CallOwner) -> bool) -> Option<CallOwner> {
    let mut only = None::<(u64, &CallOwner)>;
    for (id, entry) in waiting {
        let Some(owner) = entry.owner.as_ref().filter(|owner| fits(owner)) else { continue };
        match only {
            Some((_, other)) if !other.client.is(&owner.client) => return None,
            Some((other, _)) if other > *id => {}
            _ => only = Some((*id, owner)),
        }
    }
    only.map(|(_, owner)| owner.clone())
}
