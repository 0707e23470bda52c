//! One connection to an upstream server: requests with a timeout, cancellation, liveness probe.

use super::demux::Demux;
use super::pending_request::{PendingRequest, RequestEvent, RequestResult};
use super::pending_requests::CallOwner;
use crate::transport::{OutboundMessage, RequestError, TransportHint, TransportLink};
use bytes::Bytes;
use futures::future::OptionFuture;
use portcullis_core::{BoxFuture, InputRefusal, InputRequestKind, InputResponses, KeyedInputRequest, Peer};
use portcullis_wire::{ClientDialect, Era, Revision, rpc};
use serde_json::{Value, json};
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Dropping the last reference closes the transport.
pub(crate) struct Connection {
    link: Arc<dyn TransportLink>,
    pub(crate) demux: Arc<Demux>,
    next_id: AtomicU64,
    agreed: OnceLock<NegotiatedProtocol>,
    /// Whether a liveness probe is under way.
    is_doubted: AtomicBool,
}

/// The result of the handshake that calls depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NegotiatedProtocol {
    pub(crate) revision: Revision,
    /// Whether a tool call may ask to run as a task. Servers of the newer era decide that themselves.
    pub(crate) runs_tasks: bool,
}

/// One request.
pub(crate) struct RequestSpec<'a> {
    pub(crate) method: &'a str,
    /// The members of `params` without `_meta`, in parts.
    pub(crate) params: [&'a str; 3],
    /// The members of `_meta` that came with the call, without the hub's.
    pub(crate) meta: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) caller: Option<CallOwner>,
    /// The timeout until the first sign of life.
    pub(crate) timeout: Duration,
    /// The timeout from one sign of life to the next.
    pub(crate) silence: Duration,
}

impl Connection {
    pub(crate) fn new(link: Arc<dyn TransportLink>, demux: Arc<Demux>) -> Connection {
        demux.outbound.attach_link(&link);
        let (next_id, agreed, is_doubted) = (AtomicU64::new(1), OnceLock::new(), AtomicBool::new(false));
        Connection { link, demux, next_id, agreed, is_doubted }
    }

    pub(crate) fn agree(&self, agreed: NegotiatedProtocol) {
        let _ = self.agreed.set(agreed);
        self.link.set_revision(agreed.revision);
    }

    pub(crate) fn revision(&self) -> Option<Revision> {
        self.agreed.get().map(|agreed| agreed.revision)
    }

    /// Returns whether a tool call may ask to run as a task.
    pub(crate) fn runs_tasks(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.runs_tasks)
    }

    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.demux.life.closed
    }

    /// Returns what the next connection need not find out again.
    pub(crate) fn transport_hint(&self) -> Option<TransportHint> {
        self.link.hint()
    }

    /// Returns the dialect of the server. Before the handshake, that of the older era.
    pub(crate) fn dialect(&self) -> &'static dyn ClientDialect {
        self.era().client()
    }

    pub(crate) fn era(&self) -> Era {
        self.revision().map_or(Era::BEFORE_HANDSHAKE, Revision::era)
    }

    /// Sends a request of the hub itself.
    pub(crate) async fn hub_request(&self, method: &str, params: String, timeout: Duration) -> RequestResult {
        let (params, meta, headers) = ([&*params, "", ""], "", &[]);
        let ask = RequestSpec {
            method,
            params,
            meta,
            name: None,
            headers,
            caller: None,
            timeout,
            silence: timeout,
        };
        self.request(ask).await
    }

    /// Sends a request about a task. `more` are further members of `params`.
    pub(crate) async fn about_task(
        &self,
        method: &str,
        id: &str,
        more: &str,
        timeout: Duration,
    ) -> RequestResult {
        let named = format!(r#""taskId":{}"#, Value::from(id));
        let (params, name, headers) = ([&*named, more, ""], Some(id), &[]);
        let ask =
            RequestSpec { method, params, meta: "", name, headers, caller: None, timeout, silence: timeout };
        match self.dialect().declares_capabilities() {
            // Only a client that declares the extension ever has a task.
            true => self.request_as(self.next_id(), ask, Some(&TaskPollPeer)).await,
            false => self.request(ask).await,
        }
    }

    /// Sends a request and waits for the response. Each sign of life restarts the timeout.
    pub(crate) fn request<'a>(&'a self, ask: RequestSpec<'a>) -> impl Future<Output = RequestResult> + 'a {
        self.request_by(self.next_id(), ask)
    }

    /// The same, with an id that the caller has to know.
    pub(crate) fn request_by<'a>(
        &'a self,
        id: u64,
        ask: RequestSpec<'a>,
    ) -> impl Future<Output = RequestResult> + 'a {
        self.request_as(id, ask, None)
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request for `peer`, or else for the owner of the call.
    ///
    /// It is sent when this returns; only the wait is a future, which would otherwise carry all of the request.
    fn request_as<'a>(
        &'a self,
        id: u64,
        ask: RequestSpec<'a>,
        peer: Option<&dyn Peer>,
    ) -> impl Future<Output = RequestResult> + 'a {
        let (timeout, silence) = (ask.timeout, ask.silence);
        let sent = self.send(id, ask, peer);
        async move {
            let InFlightRequest { slot, mut sending, _open } = sent?;
            let deadline = tokio::time::sleep(timeout);
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    biased;
                    news = poll_fn(|context| slot.poll_news(context)) => match news {
                        RequestEvent::Answer(answer) => break answer,
                        RequestEvent::Alive => deadline.as_mut().reset(tokio::time::Instant::now() + silence),
                    },
                    Some(done) = OptionFuture::from(sending.as_mut()) => {
                        done?;
                        sending = None;
                    }
                    // The time that a client takes to answer does not count.
                    () = &mut deadline => match slot.is_asking() {
                        true => deadline.as_mut().reset(tokio::time::Instant::now() + silence),
                        false => break Err(RequestError::Timeout(silence)),
                    },
                }
            }
        }
    }

    fn send<'a>(
        &'a self,
        id: u64,
        ask: RequestSpec<'a>,
        peer: Option<&dyn Peer>,
    ) -> Result<InFlightRequest<'a>, RequestError> {
        let peer = peer.or_else(|| ask.caller.as_ref().map(|caller| &*caller.peer));
        let bytes = self.written(id, &ask, peer);
        let slot = ask.caller.as_ref().map_or_else(Arc::default, |caller| caller.slot.clone());
        self.demux.pending.expect(id, slot.clone(), ask.caller);
        // However this ends, the request is removed; a server that still works on it is notified.
        let open = RequestGuard { connection: self, id };
        let outgoing = OutboundMessage {
            bytes,
            id: Some(id),
            method: Some(ask.method),
            name: ask.name,
            headers: ask.headers,
        };
        // Nearly always on stdio; then there is nothing to wait for.
        let sending = self.link.take(outgoing)?.map(|outgoing| self.link.send(outgoing));
        Ok(InFlightRequest { slot, sending, _open: open })
    }

    fn written(&self, id: u64, ask: &RequestSpec<'_>, peer: Option<&dyn Peer>) -> Bytes {
        let length: usize = ask.params.iter().map(|part| part.len()).sum();
        let mut out = String::with_capacity(length + ask.meta.len() + 384);
        // Writing into memory does not fail.
        let _ = write!(out, r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":{{"#, ask.method);
        for part in ask.params {
            add(&mut out, part);
        }
        let sender = self.dialect().sender_meta(peer);
        if !ask.meta.is_empty() || peer.is_some() || sender.is_some() {
            add(&mut out, r#""_meta":{"#);
            add(&mut out, ask.meta);
            if peer.is_some() {
                add(&mut out, r#""progressToken":"#);
                let _ = write!(out, "{id}");
            }
            if let Some(sender) = sender {
                add(&mut out, &sender);
            }
            out.push('}');
        }
        out.push_str("}}");
        out.into()
    }

    /// Sends a notification, and waits until the server has it.
    pub(crate) async fn notify_now(&self, method: &'static str, params: &Value) -> Result<(), RequestError> {
        self.link.send(OutboundMessage::one_way(Some(method), rpc::notification(method, params))).await
    }

    /// Queues a notification.
    pub(crate) fn notify(&self, method: &'static str, params: &Value) {
        // A server with a full queue would not read this either.
        let _ = self.demux.outbound.push(Some(method), rpc::notification(method, params));
    }

    /// Probes whether the server still responds, unless a probe is under way, and retires the connection where it
    /// does not. Any response meanwhile counts.
    pub(crate) async fn probe_liveness(&self, within: Duration) {
        if self.is_doubted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.demux.life.doubt();
        let method = self.dialect().liveness_method();
        let asked = self.hub_request(method, String::new(), within).await;
        let is_silent = matches!(asked, Err(RequestError::Timeout(_)));
        if self.demux.life.is_silent() && is_silent {
            self.demux.life.retire_for("it does not respond");
        }
        self.is_doubted.store(false, Ordering::Release);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.demux.outbound.leave();
    }
}

/// Adds members to an object that is being written.
pub(crate) fn add(out: &mut String, members: &str) {
    if !members.is_empty() {
        if !out.is_empty() && !out.ends_with('{') {
            out.push(',');
        }
        out.push_str(members);
    }
}

/// The sender of requests about tasks: it declares the extension.
struct TaskPollPeer;

impl Peer for TaskPollPeer {
    fn progress(&self, _: portcullis_core::Progress) {}

    fn log(&self, _: portcullis_core::LogMessage) {}

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        portcullis_core::NoPeer.ask(questions)
    }

    fn offers(&self, _: InputRequestKind) -> bool {
        false
    }

    fn capabilities(&self) -> Value {
        json!({ "extensions": { portcullis_wire::era::TASKS: {} } })
    }
}

/// A request that was sent.
struct InFlightRequest<'a> {
    slot: Arc<PendingRequest>,
    /// Set where the transport could not take it at once.
    sending: Option<BoxFuture<'a, Result<(), RequestError>>>,
    _open: RequestGuard<'a>,
}

struct RequestGuard<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let given_up = self.connection.demux.pending.forget(self.id);
        if given_up
            && !self.connection.demux.life.closed.is_cancelled()
            && !self.connection.link.cancels_on_drop()
        {
            // Not the client's own reason: what a client says to a server passes the gate, and is audited.
            let params = json!({ "requestId": self.id, "reason": "no longer needed" });
            self.connection.notify("notifications/cancelled", &params);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Inbound;
    use crate::transport::test_link::NullLink;
    use tokio::time::Instant;

    /// How long a request with a short timeout waits, after so many signs of life within it.
    async fn waits(signs: usize) -> Duration {
        let demux = Demux::new().0;
        let (connection, began) = (Connection::new(Arc::new(NullLink), demux.clone()), Instant::now());
        let (left, silence) = (Duration::from_secs(2), Duration::from_secs(20));
        let ask = RequestSpec {
            method: "tools/call",
            params: ["", "", ""],
            meta: "",
            name: None,
            headers: &[],
            caller: None,
            timeout: left,
            silence,
        };
        let lives = async {
            for _ in 0..signs {
                tokio::time::sleep(left / 2).await;
                let sign = json!({ "progressToken": 1, "progress": 1 });
                demux.receive(&rpc::notification("notifications/progress", &sign), None);
            }
        };
        let (answer, ()) = tokio::join!(connection.request_by(1, ask), lives);
        assert!(matches!(answer, Err(RequestError::Timeout(_))));
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_a_sign_of_life_has_all_of_the_time_again() {
        assert_eq!(waits(0).await, Duration::from_secs(2));
        assert_eq!(waits(1).await, Duration::from_secs(21));
        assert_eq!(waits(3).await, Duration::from_secs(23));
    }
}
