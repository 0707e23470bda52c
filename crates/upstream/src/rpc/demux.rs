//! Demultiplexer of one connection: responses go to the requests that wait, by correlation id; notifications and requests
//! of the server go to the call that they are about, or to the handler of unsolicited messages.

use super::elicitations::{Elicitations, QuestionAdmission};
use super::list_changes::ListChanges;
use super::list_kind::ListKind;
use super::outbound_queue::{OutboundQueue, QueueFull};
use super::pending_notifications::PendingNotifications;
use super::pending_request::RELATED_TASK;
use super::pending_requests::{PendingRequests, without_meta};
use super::unsolicited::{Unsolicited, no_roots};
use crate::transport::{ConnectionLifecycle, Inbound, OversizedResponse, Receipt, RequestError};
use portcullis_core::{LogLevel, LogMessage, Progress};
use portcullis_wire::message::{self, IncomingFrame, Message};
use portcullis_wire::params::RawMembers;
use portcullis_wire::{RequestId, era, rpc};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::watch;

/// How long the `logger` of a log message may be.
const LOGGER_CHARS_MAX: usize = 100;

pub(crate) struct Demux {
    pub(crate) pending: PendingRequests,
    pub(crate) lists: ListChanges,
    pub(crate) elicitations: Elicitations,
    pub(crate) unsolicited: Unsolicited,
    /// Messages to the server that are no requests.
    pub(crate) outbound: Arc<OutboundQueue>,
    /// The newest `subscriptions/listen` request that the server has acknowledged.
    pub(crate) acknowledged: watch::Sender<u64>,
    pub(crate) life: ConnectionLifecycle,
}

impl Demux {
    /// Returns it with the queue of notifications that it fills.
    pub(crate) fn new() -> (Arc<Demux>, Arc<PendingNotifications>) {
        let notifications = Arc::<PendingNotifications>::default();
        let life = ConnectionLifecycle::default();
        let demux = Demux {
            pending: PendingRequests::new(life.closed.clone()),
            lists: ListChanges::new(notifications.clone()),
            elicitations: Elicitations::default(),
            unsolicited: Unsolicited::default(),
            outbound: Arc::default(),
            acknowledged: watch::Sender::default(),
            life,
        };
        (Arc::new(demux), notifications)
    }

    /// Answers a request of the server.
    pub(crate) fn answer(&self, id: &RequestId, answer: rpc::RpcOutcome) {
        if self.life.closed.is_cancelled() {
            return;
        }
        if let Err(QueueFull) = self.outbound.push(None, rpc::response(Some(id), answer)) {
            self.life.set_reason("it sends requests and does not read the responses");
            self.close();
        }
    }

    /// Answers `roots/list` outside of calls.
    pub(crate) fn answer_roots(&self, id: RequestId) {
        if let Err(id) = self.unsolicited.answer_roots(id, self.outbound.clone()) {
            self.answer(&id, Ok(no_roots()));
        }
    }

    /// Routes one message. Returns whether it had a recipient.
    fn route(&self, message: Message<'_>, about: Option<u64>) -> bool {
        match message {
            Message::Response(response) => {
                let RequestId::Number(id) = &response.id else { return false };
                let Some(entry) = self.pending.take(*id) else {
                    self.pending.late_response(*id);
                    return false;
                };
                self.life.alive();
                let answer = match response.outcome {
                    Ok(result) => {
                        self.pending.begin_task(*id, &entry, result);
                        Ok(result.to_owned())
                    }
                    Err(error) => {
                        if let Some(owner) = &entry.owner {
                            self.elicitations.shown_by_error(error, &owner.peer);
                        }
                        Err(RequestError::refused(error))
                    }
                };
                entry.slot.answer(answer);
                true
            }
            Message::Notification(notification) => {
                self.notified(&notification.method, notification.params, about)
            }
            Message::Request(request) => {
                // A ping is answered, but does not earn the server a faster read.
                let is_needed = request.method != "ping";
                self.requested(request.id, &request.method, request.params, about);
                is_needed
            }
        }
    }

    fn notified(&self, method: &str, params: Option<&RawValue>, about: Option<u64>) -> bool {
        match method {
            "notifications/progress" => self.progress(params),
            "notifications/cancelled" => {
                self.question_withdrawn(params);
                false
            }
            "notifications/message" => self.log(params, about),
            "notifications/tools/list_changed" => self.lists.announced(ListKind::Tools),
            "notifications/prompts/list_changed" => self.lists.announced(ListKind::Prompts),
            "notifications/resources/list_changed" => self.lists.announced(ListKind::Resources),
            "notifications/subscriptions/acknowledged" => self.acknowledged(params, about),
            "notifications/resources/updated" => self.resource_updated(params),
            "notifications/elicitation/complete" => {
                if let Some(Value::Object(params)) = value(params) {
                    self.elicitations.completed(params);
                }
                false
            }
            _ => false,
        }
    }

    /// Takes note that the server acknowledged a subscription. Returns whether it names one.
    fn acknowledged(&self, params: Option<&RawValue>, about: Option<u64>) -> bool {
        let named = || value(params)?["_meta"][era::META_SUBSCRIPTION].as_u64();
        let Some(id) = about.or_else(named) else { return false };
        self.acknowledged.send_if_modified(|last| {
            let is_news = *last < id;
            *last = id.max(*last);
            is_news
        })
    }

    fn progress(&self, params: Option<&RawValue>) -> bool {
        let token = fields(params).and_then(|fields| fields.get("progressToken")?.get().parse().ok());
        let Some(id) = token else { return false };
        self.life.alive();
        let Some(owner) = self.pending.alive(id) else { return false };
        // It is a sign of life even where it cannot be read.
        let (Some(owner), Some(Value::Object(mut said))) = (owner, value(params)) else { return true };
        if said.get("progress").is_some_and(Value::is_number) {
            said.shift_remove("progressToken");
            without_meta(&mut said, RELATED_TASK);
            owner.peer.progress(Progress { said });
        }
        true
    }

    fn log(&self, params: Option<&RawValue>, about: Option<u64>) -> bool {
        let Some(Value::Object(mut said)) = value(params) else { return false };
        let level = said.get("level").and_then(Value::as_str).and_then(LogLevel::parse);
        let Some(level) = level else { return false };
        let (task, owner) = self.pending.concerned(&mut said, about);
        if let Some(Value::String(logger)) = said.get_mut("logger")
            && let Some((at, _)) = logger.char_indices().nth(LOGGER_CHARS_MAX)
        {
            logger.truncate(at);
        }
        let message = LogMessage { level, said };
        // It may be about a cancelled call that the server still runs.
        let names_call = about.is_some() || task.is_some();
        if !names_call && self.pending.may_concern_another(owner.as_ref().map(|owner| &*owner.client)) {
            return false;
        }
        match owner {
            Some(owner) => owner.peer.log(message),
            None if !names_call && !self.pending.serves_call() && self.unsolicited.is_within_rate() => {
                self.unsolicited.handler().into_iter().for_each(|handler| handler.log(&message));
            }
            None => return false,
        }
        true
    }

    fn resource_updated(&self, params: Option<&RawValue>) -> bool {
        let Some(Value::Object(mut said)) = value(params) else { return false };
        let Some(uri) = said.get("uri").and_then(Value::as_str).map(str::to_owned) else { return false };
        // Between the server and the hub.
        without_meta(&mut said, era::META_SUBSCRIPTION);
        let Some(handler) = self.unsolicited.handler() else { return false };
        let watched = handler.watched_of(&uri);
        if watched.is_empty() {
            // No client watches it, or it is another server's resource, of which this one may not speak.
            return false;
        }
        // An update that is no more than a URI is announced as any change is.
        let was_passed_on = said.len() > 1 && handler.updated(&uri, watched, said);
        was_passed_on || self.lists.notifications.updated(uri)
    }

    /// Takes a request of the server: `ping`, or a question for the client of a call.
    fn requested(&self, id: RequestId, method: &str, params: Option<&RawValue>, about: Option<u64>) {
        if method == "ping" {
            return self.answer(&id, Ok(b"{}".to_vec()));
        }
        match self.elicitations.admit(&self.pending, &id, method, params, about) {
            Ok(QuestionAdmission::Asked) => {}
            // Many servers ask for roots right after the handshake, for no client in particular.
            Ok(QuestionAdmission::RootsOfNoClient) => self.answer_roots(id),
            Err(refused) => self.answer(&id, Err(refused)),
        }
    }

    /// The server cancels a question. The call that it was asked on knows it by its id.
    fn question_withdrawn(&self, params: Option<&RawValue>) {
        let id = fields(params).and_then(|fields| RequestId::parse(fields.get("requestId")?.get()));
        if let Some(id) = id {
            self.pending.withdraw_question(&id);
        }
    }
}

impl Inbound for Demux {
    fn receive(&self, bytes: &[u8], request: Option<u64>) -> Receipt {
        match message::parse(bytes) {
            Ok(IncomingFrame::One(message)) => receipt(self.route(message, request)),
            Ok(IncomingFrame::Batch(batch)) => {
                if batch.0.iter().all(Result::is_err) {
                    return Receipt::Noise;
                }
                let routed = batch.0.into_iter().flatten().map(|message| self.route(message, request));
                receipt(routed.fold(false, |any, is_needed| any | is_needed))
            }
            Err(malformed) => {
                tracing::debug!(target: "upstream", error = %malformed.error.message, "ignored input that is no JSON-RPC message");
                Receipt::Noise
            }
        }
    }

    fn response_too_long(&self, id: u64, size: OversizedResponse) {
        let Some(entry) = self.pending.take(id) else { return };
        self.life.alive();
        entry.slot.answer(Err(RequestError::TooLong(size)));
    }

    fn awaits(&self, id: u64) -> bool {
        self.pending.awaits(id)
    }

    fn stream_closed(&self, id: u64) {
        if let Some(owner) = self.pending.owner_of(id) {
            owner.peer.close_connection();
        }
    }

    fn listening_resumed(&self) {
        let handler = self.unsolicited.handler();
        self.lists.missed(handler.map(|handler| handler.watched()).unwrap_or_default());
    }

    fn close(&self) {
        self.life.close();
        self.pending.clear();
    }

    fn lifecycle(&self) -> &ConnectionLifecycle {
        &self.life
    }
}

fn receipt(is_needed: bool) -> Receipt {
    if is_needed { Receipt::Message } else { Receipt::Idle }
}

/// Returns the members without parsing them, so that one unreadable text does not hide the others.
fn fields(params: Option<&RawValue>) -> Option<RawMembers<'_>> {
    params.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

fn value(params: Option<&RawValue>) -> Option<Value> {
    params.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

#[cfg(test)]
#[path = "demux_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "late_logs_tests.rs"]
mod late_logs_tests;
