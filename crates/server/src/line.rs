//! Newline-delimited JSON-RPC: the stdio transport, and the local socket for bridges.

use crate::dispatch::{Exchange, RequestJob};
use crate::egress_filter::{RedactedMessage, RpcReply};
use crate::hub::{ClientsUnavailable, Hub};
use crate::session::McpSession;
use crate::stream::MessageSink;
use portcullis_core::Client;
use portcullis_wire::era::{self, RequestMeta};
use portcullis_wire::frame::{LineFrame, LineReader, append_line};
use portcullis_wire::message::{self, MalformedMessage};
use portcullis_wire::oversized_line;
use portcullis_wire::params::{ParamKey, Params};
use portcullis_wire::rpc::SERVER_ERROR;
use portcullis_wire::{IncomingFrame, Message, RequestId, RpcError, RpcNotification, RpcRequest};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Messages that may queue for a client that does not read.
const OUTGOING_MAX: usize = 1_024;
/// Bytes in one write.
const WRITE_BYTES: usize = 64 * 1024;

/// The outgoing queue of a connection.
struct LineSink {
    sender: mpsc::Sender<RedactedMessage>,
    /// Messages that must arrive wait in separate tasks while the queue is full.
    waiting: TaskTracker,
}

impl MessageSink for LineSink {
    fn notify(&self, message: RedactedMessage) {
        // A slow client loses progress notifications, not responses.
        let _ = self.sender.try_send(message);
    }

    fn deliver(&self, message: RedactedMessage) {
        if let Err(mpsc::error::TrySendError::Full(message)) = self.sender.try_send(message) {
            let sender = self.sender.clone();
            self.waiting.spawn(async move {
                let _ = sender.send(message).await;
            });
        }
    }

    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Who calls over a connection of this user on this machine.
#[derive(Debug, Clone)]
pub enum LineCaller {
    /// The client of the configuration's `[stdio]`.
    Local,
    /// A client of the directory, which the user named: its scope, expiry and revocation hold while the connection lasts.
    Client(Arc<Client>),
}

impl LineCaller {
    /// Returns the client of this name, or why it cannot call.
    pub fn named(hub: &Hub, name: &str) -> Result<LineCaller, UnusableClient> {
        match hub.identity.named(name) {
            Ok(Some(client)) => Ok(LineCaller::Client(client)),
            Ok(None) => Err(UnusableClient::Unknown),
            Err(ClientsUnavailable) => Err(UnusableClient::Unreadable),
        }
    }

    /// Returns the client as it is now.
    fn now(&self, hub: &Hub) -> Result<Arc<Client>, RpcError> {
        let LineCaller::Client(first) = self else { return Ok(hub.local_client.load()) };
        let name = &first.name;
        match hub.identity.named(name) {
            // One that has the name since then is another client.
            Ok(Some(now)) if now.token == first.token => Ok(now),
            Ok(_) => {
                let reason = format!("client `{name}` was revoked or has expired; this connection ends");
                Err(RpcError::new(SERVER_ERROR, reason))
            }
            Err(ClientsUnavailable) => {
                let reason = "the list of clients cannot be read at the moment; try again later";
                Err(RpcError::new(SERVER_ERROR, reason))
            }
        }
    }
}

/// Why a named client cannot call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusableClient {
    #[error("there is no such client, or it was revoked or has expired; `portcullis clients list` shows all")]
    Unknown,
    #[error("the list of clients cannot be read; `portcullis doctor` says why")]
    Unreadable,
}

/// Serves one connection until its input ends or the hub closes. In-flight calls finish and get their responses.
pub async fn serve<R, W>(
    hub: Arc<Hub>,
    transport: &'static str,
    caller: LineCaller,
    from: R,
    to: W,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
    let waiting = TaskTracker::new();
    let room = sender.downgrade();
    let sink: Arc<dyn MessageSink> = Arc::new(LineSink { sender, waiting: waiting.clone() });
    let client = caller.now(&hub).map_err(|error| std::io::Error::other(error.message))?;
    let session = McpSession::new(client, transport, sink.clone())
        .and_then(|session| hub.sessions.add(&session).map(|()| session))
        .map_err(|error| std::io::Error::other(error.message))?;
    let over = CancellationToken::new();
    let writer = tokio::spawn(write_lines(to, receiver, over.clone()));
    let connection = LineConnection { hub: hub.clone(), caller, session: session.clone(), sink, room };
    let calls = TaskTracker::new();
    let read = connection.read(from, &calls).await;

    session.input_over.cancel();
    calls.close();
    calls.wait().await;
    hub.sessions.remove(&session.id);
    drop((connection, session));
    waiting.close();
    waiting.wait().await;
    // Everything that must arrive is queued now. Senders that may still have a notification, like a pending URL
    // elicitation or a call that waits for its client, are not waited for.
    over.cancel();
    match writer.await {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => read,
    }
}

async fn write_lines<W: AsyncWrite + Unpin>(
    mut to: W,
    mut receiver: mpsc::Receiver<RedactedMessage>,
    over: CancellationToken,
) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let message = tokio::select! {
            biased;
            message = receiver.recv() => message,
            () = over.cancelled(), if !receiver.is_closed() => {
                receiver.close();
                continue;
            }
        };
        let Some(message) = message else { break };
        buffer.clear();
        append_line(&mut buffer, &message.into_bytes());
        // One write for all queued messages, flushed before the next wait.
        while buffer.len() < WRITE_BYTES
            && let Ok(more) = receiver.try_recv()
        {
            append_line(&mut buffer, &more.into_bytes());
        }
        to.write_all(&buffer).await?;
        to.flush().await?;
        if buffer.capacity() > 4 * WRITE_BYTES {
            buffer = Vec::with_capacity(4096);
        }
    }
    to.shutdown().await
}

struct LineConnection {
    hub: Arc<Hub>,
    caller: LineCaller,
    session: Arc<McpSession>,
    sink: Arc<dyn MessageSink>,
    /// The outgoing queue.
    room: mpsc::WeakSender<RedactedMessage>,
}

impl LineConnection {
    async fn read<R: AsyncRead + Unpin>(&self, from: R, calls: &TaskTracker) -> std::io::Result<()> {
        let line_bytes_max = self.hub.limits.line_bytes_max;
        let mut lines = LineReader::new(from, line_bytes_max);
        loop {
            // Backpressure: no requests are read from a client that does not read its responses.
            let has_room = async {
                if let Some(queue) = self.room.upgrade() {
                    let _ = queue.reserve().await;
                }
            };
            let line = tokio::select! {
                line = async { has_room.await; lines.next().await } => line?,
                () = self.hub.closing.cancelled() => return Ok(()),
                () = self.session.closed.cancelled() => return Ok(()),
            };
            match line {
                LineFrame::End => return Ok(()),
                LineFrame::TooLong { bytes } => {
                    portcullis_core::Limit::LineBytes.hit();
                    tracing::warn!(target: "mcp", bytes, line_bytes_max, "skipped a line that is too long");
                    let reason = format!(
                        "the line has {bytes} bytes, at most {line_bytes_max} are allowed; send less in one message"
                    );
                    // With `null` in place of the id, the client would wait in vain.
                    let id = oversized_line::request_id(lines.edges());
                    self.reply(id.as_ref(), Err(RpcError::invalid_request(&reason)));
                }
                LineFrame::Longer { .. } | LineFrame::Blank => {}
                LineFrame::Text(text) => self.take(&text, calls),
            }
        }
    }

    fn reply(&self, id: Option<&RequestId>, reply: RpcReply) {
        self.sink.deliver(self.hub.outgoing.response(id, reply));
    }

    fn refuse(&self, malformed: MalformedMessage) {
        tracing::debug!(target: "mcp", error = %malformed.error.message, "refused a message");
        self.reply(malformed.id.as_ref(), Err(malformed.error));
    }

    fn take(&self, text: &[u8], calls: &TaskTracker) {
        match message::parse(text) {
            Err(malformed) => self.refuse(malformed),
            Ok(IncomingFrame::One(message)) => {
                if let Some((begun, job)) = self.begin(&message) {
                    self.finish(begun, job, calls);
                }
            }
            Ok(IncomingFrame::Batch(_)) if !self.session.revision().allows_batches() => {
                let reason = "this protocol revision has no batches; send one message per line";
                self.reply(None, Err(RpcError::invalid_request(reason)));
            }
            Ok(IncomingFrame::Batch(batch)) => self.take_batch(batch, calls),
        }
    }

    /// Responds to a batch in one line, as JSON-RPC requires.
    fn take_batch(&self, batch: message::RpcBatch<'_>, calls: &TaskTracker) {
        let mut jobs = Vec::new();
        for item in batch.0 {
            match item {
                Err(malformed) => jobs.push((malformed.id, None, RequestJob::Ready(Err(malformed.error)))),
                Ok(message) => {
                    if let Some((begun, job)) = self.begin(&message) {
                        jobs.push((Some(begun.id.clone()), Some(begun), job));
                    }
                }
            }
        }
        if jobs.is_empty() {
            return;
        }
        let (sink, outgoing) = (self.sink.clone(), self.hub.outgoing.clone());
        self.spawn(calls, async move {
            let mut answers = Vec::with_capacity(jobs.len());
            for (id, begun, job) in jobs {
                if let Some(answer) = job.run().await {
                    answers.push(outgoing.response(id.as_ref(), answer));
                }
                drop(begun);
            }
            // Empty if every request was cancelled.
            if answers.is_empty() {
                return;
            }
            sink.deliver(RedactedMessage::batch(&answers));
        });
    }

    fn spawn(&self, calls: &TaskTracker, work: impl Future<Output = ()> + Send + 'static) {
        let work = self.hub.running.track_future(work);
        calls.spawn(work);
    }

    fn finish(&self, begun: AcceptedRequest, job: RequestJob, calls: &TaskTracker) {
        match job {
            RequestJob::Ready(answer) => {
                let id = begun.id.clone();
                drop(begun);
                self.reply(Some(&id), answer);
            }
            job => {
                let (sink, outgoing) = (self.sink.clone(), self.hub.outgoing.clone());
                self.spawn(calls, async move {
                    let answer = job.run().await;
                    let id = begun.id.clone();
                    // The id is released before the client can see the response.
                    drop(begun);
                    if let Some(answer) = answer {
                        sink.deliver(outgoing.response(Some(&id), answer));
                    }
                });
            }
        }
    }

    /// Handles one message; returns a job for a request.
    fn begin(&self, message: &Message<'_>) -> Option<(AcceptedRequest, RequestJob)> {
        match message {
            Message::Request(request) => {
                let cancel = CancellationToken::new();
                let id = request.id.clone();
                let in_flight = self.session.begin(&id, &cancel, self.hub.limits.in_flight_max);
                let (in_flight, job) = match in_flight {
                    Ok(in_flight) => {
                        let job = self
                            .prepare(request, cancel)
                            .unwrap_or_else(|error| RequestJob::Ready(Err(error)));
                        (Some(in_flight), job)
                    }
                    Err(error) => (None, RequestJob::Ready(Err(error))),
                };
                Some((AcceptedRequest { id, _in_flight: in_flight }, job))
            }
            Message::Notification(notification) => {
                notified(&self.hub, &self.session, notification);
                None
            }
            Message::Response(response) => {
                self.session.answer(response);
                None
            }
        }
    }

    fn prepare(&self, request: &RpcRequest<'_>, cancel: CancellationToken) -> Result<RequestJob, RpcError> {
        let params = Params::parse(request.params)?;
        log_request(request, &params);
        let meta = RequestMeta::of(&params)?;
        let revision = era::revision_of_line(&meta)?.unwrap_or_else(|| self.session.revision());
        let exchange = Exchange {
            id: request.id.clone(),
            hub: self.hub.clone(),
            client: self.caller.now(&self.hub)?,
            revision,
            session: Some(self.session.clone()),
            sink: self.sink.clone(),
            stream: None,
            meta,
            cancel,
        };
        Ok(exchange.prepare(request, &params))
    }
}

/// An accepted request; its id is in use until this is dropped.
struct AcceptedRequest {
    id: RequestId,
    _in_flight: Option<crate::session::InFlightRequestGuard>,
}

/// Handles a notification. Unknown ones are ignored, as JSON-RPC requires.
pub(crate) fn notified(hub: &Hub, session: &McpSession, notification: &RpcNotification<'_>) {
    let method = portcullis_core::json::printable(&notification.method);
    tracing::debug!(target: "mcp", %method, "received notification");
    match notification.method.as_ref() {
        "notifications/cancelled" => {
            if let Ok(params) = Params::parse(notification.params)
                && let Some(raw) = params.raw(ParamKey::RequestId)
                && let Some(id) = RequestId::parse(raw.get())
            {
                // A request that has finished is no longer there; a late cancellation is normal.
                session.cancel(&id);
            }
        }
        "notifications/roots/list_changed" => hub.sessions.roots_changed(session),
        // From now on the client can be asked for its roots; over HTTP only while it reads its stream.
        "notifications/initialized" if session.is_reached() => hub.sessions.roots_changed(session),
        _ => {}
    }
}

pub(crate) fn log_request(request: &RpcRequest<'_>, params: &Params<'_>) {
    if tracing::enabled!(target: "mcp", tracing::Level::DEBUG) {
        let (method, id) = (portcullis_core::json::printable(&request.method), &request.id);
        match params.optional_text(ParamKey::Name) {
            Ok(Some(tool)) if request.method == "tools/call" => {
                let tool = portcullis_core::json::printable(&tool);
                tracing::debug!(target: "mcp", %method, %id, %tool, "received request");
            }
            _ => tracing::debug!(target: "mcp", %method, %id, "received request"),
        }
    }
}
