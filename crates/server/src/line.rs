//! Newline-delimited JSON-RPC: stdio, and the local socket that bridges use.

use crate::clean::{Clean, Reply};
use crate::dispatch::{Exchange, Job};
use crate::hub::Hub;
use crate::session::Session;
use crate::stream::Outlet;
use portcullis_wire::era::{self, RequestMeta};
use portcullis_wire::frame::{Line, LineReader, append_line};
use portcullis_wire::message::{self, Malformed};
use portcullis_wire::params::{Key, Params};
use portcullis_wire::{Id, Incoming, Message, Notification, Request, RpcError};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How many messages may wait for a client that does not read.
const OUTGOING_MAX: usize = 1_024;
/// How many bytes are written at once.
const WRITE_BYTES: usize = 64 * 1024;

/// Where a line connection's messages go.
struct LineOutlet {
    sender: mpsc::Sender<Clean>,
    /// Messages that must arrive wait in a task of their own when the queue is full.
    waiting: TaskTracker,
}

impl Outlet for LineOutlet {
    fn notify(&self, message: Clean) {
        // A client that does not keep up loses progress reports, not answers.
        let _ = self.sender.try_send(message);
    }

    fn deliver(&self, message: Clean) {
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

/// Serves one connection until its input ends or the hub closes. Calls under way are finished and answered.
///
/// Whoever has such a connection is on this machine and is this user; the caller is the local client.
pub async fn serve<R, W>(hub: Arc<Hub>, transport: &'static str, from: R, to: W) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
    let waiting = TaskTracker::new();
    let room = sender.downgrade();
    let outlet: Arc<dyn Outlet> = Arc::new(LineOutlet { sender, waiting: waiting.clone() });
    let session = Session::new(hub.local_client.load_full(), transport, outlet.clone())
        .and_then(|session| hub.sessions.add(&session).map(|()| session))
        .map_err(|error| std::io::Error::other(error.message))?;
    let over = CancellationToken::new();
    let writer = tokio::spawn(write_lines(to, receiver, over.clone()));
    let connection = Connection { hub: hub.clone(), session: session.clone(), outlet, room };
    let calls = TaskTracker::new();
    let read = connection.read(from, &calls).await;

    session.input_over.cancel();
    calls.close();
    calls.wait().await;
    hub.sessions.remove(&session.id);
    drop((connection, session));
    waiting.close();
    waiting.wait().await;
    // What must arrive is queued now. Whoever may still have something to tell, as of an address that a person was shown
    // or of a call that waits for its client, is not waited for.
    over.cancel();
    match writer.await {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => read,
    }
}

async fn write_lines<W: AsyncWrite + Unpin>(
    mut to: W,
    mut receiver: mpsc::Receiver<Clean>,
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
        // One write for everything that is queued; flushed before the next wait.
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

struct Connection {
    hub: Arc<Hub>,
    session: Arc<Session>,
    outlet: Arc<dyn Outlet>,
    /// The queue of answers.
    room: mpsc::WeakSender<Clean>,
}

impl Connection {
    async fn read<R: AsyncRead + Unpin>(&self, from: R, calls: &TaskTracker) -> std::io::Result<()> {
        let line_bytes_max = self.hub.limits.line_bytes_max;
        let mut lines = LineReader::new(from, line_bytes_max);
        loop {
            // Who does not read its answers is not listened to.
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
                Line::End => return Ok(()),
                Line::TooLong { bytes } => {
                    portcullis_core::Limit::LineBytes.hit();
                    tracing::warn!(target: "mcp", bytes, line_bytes_max, "A line was too long and was skipped.");
                    let reason = format!("a line of {bytes} bytes, at most {line_bytes_max} are allowed");
                    self.reply(None, Err(RpcError::invalid_request(&reason)));
                }
                Line::Longer { .. } | Line::Blank => {}
                Line::Text(text) => self.take(&text, calls),
            }
        }
    }

    fn reply(&self, id: Option<&Id>, reply: Reply) {
        self.outlet.deliver(self.hub.outgoing.response(id, reply));
    }

    fn refuse(&self, malformed: Malformed) {
        tracing::debug!(target: "mcp", error = %malformed.error.message, "refused a message");
        self.reply(malformed.id.as_ref(), Err(malformed.error));
    }

    fn take(&self, text: &[u8], calls: &TaskTracker) {
        match message::parse(text) {
            Err(malformed) => self.refuse(malformed),
            Ok(Incoming::One(message)) => {
                if let Some((begun, job)) = self.begin(&message) {
                    self.finish(begun, job, calls);
                }
            }
            Ok(Incoming::Batch(_)) if !self.session.revision().allows_batches() => {
                let reason = "this protocol revision has no batches; send one message per line";
                self.reply(None, Err(RpcError::invalid_request(reason)));
            }
            Ok(Incoming::Batch(batch)) => self.take_batch(batch, calls),
        }
    }

    /// Answers a batch in one line, as JSON-RPC has it.
    fn take_batch(&self, batch: message::Batch<'_>, calls: &TaskTracker) {
        let mut jobs = Vec::new();
        for item in batch.0 {
            match item {
                Err(malformed) => jobs.push((malformed.id, None, Job::Ready(Err(malformed.error)))),
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
        let (outlet, outgoing) = (self.outlet.clone(), self.hub.outgoing.clone());
        self.spawn(calls, async move {
            let mut answers = Vec::with_capacity(jobs.len());
            for (id, begun, job) in jobs {
                if let Some(answer) = job.run().await {
                    answers.push(outgoing.response(id.as_ref(), answer));
                }
                drop(begun);
            }
            // Nothing, where everything was cancelled.
            if answers.is_empty() {
                return;
            }
            outlet.deliver(Clean::batch(&answers));
        });
    }

    fn spawn(&self, calls: &TaskTracker, work: impl Future<Output = ()> + Send + 'static) {
        let work = self.hub.running.track_future(work);
        calls.spawn(work);
    }

    fn finish(&self, begun: Begun, job: Job, calls: &TaskTracker) {
        match job {
            Job::Ready(answer) => {
                let id = begun.id.clone();
                drop(begun);
                self.reply(Some(&id), answer);
            }
            job => {
                let (outlet, outgoing) = (self.outlet.clone(), self.hub.outgoing.clone());
                self.spawn(calls, async move {
                    let answer = job.run().await;
                    let id = begun.id.clone();
                    // The id is free again before its answer can be seen.
                    drop(begun);
                    if let Some(answer) = answer {
                        outlet.deliver(outgoing.response(Some(&id), answer));
                    }
                });
            }
        }
    }

    /// Takes one message; a request comes back as a job.
    fn begin(&self, message: &Message<'_>) -> Option<(Begun, Job)> {
        match message {
            Message::Request(request) => {
                let cancel = CancellationToken::new();
                let id = request.id.clone();
                let in_flight = self.session.begin(&id, &cancel, self.hub.limits.in_flight_max);
                let (in_flight, job) = match in_flight {
                    Ok(in_flight) => {
                        let job =
                            self.prepare(request, cancel).unwrap_or_else(|error| Job::Ready(Err(error)));
                        (Some(in_flight), job)
                    }
                    Err(error) => (None, Job::Ready(Err(error))),
                };
                Some((Begun { id, _in_flight: in_flight }, job))
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

    fn prepare(&self, request: &Request<'_>, cancel: CancellationToken) -> Result<Job, RpcError> {
        let params = Params::parse(request.params)?;
        log_request(request, &params);
        let meta = RequestMeta::of(&params)?;
        let revision = era::of_line(&meta)?.unwrap_or_else(|| self.session.revision());
        let exchange = Exchange {
            id: request.id.clone(),
            hub: self.hub.clone(),
            client: self.hub.local_client.load_full(),
            revision,
            session: Some(self.session.clone()),
            outlet: self.outlet.clone(),
            stream: None,
            meta,
            cancel,
        };
        Ok(exchange.prepare(request, &params))
    }
}

/// A request that has been taken; its id is in use until this is dropped.
struct Begun {
    id: Id,
    _in_flight: Option<crate::session::InFlight>,
}

/// Takes a notification. One that means nothing here is ignored, as JSON-RPC wants it.
pub(crate) fn notified(hub: &Hub, session: &Session, notification: &Notification<'_>) {
    let method = portcullis_core::json::printable(&notification.method);
    tracing::debug!(target: "mcp", %method, "received notification");
    match notification.method.as_ref() {
        "notifications/cancelled" => {
            if let Ok(params) = Params::parse(notification.params)
                && let Some(raw) = params.raw(Key::RequestId)
                && let Some(id) = Id::parse(raw.get())
            {
                // A request that has finished is not there any more; being late is no fault.
                session.cancel(&id);
            }
        }
        "notifications/roots/list_changed" => hub.sessions.roots_changed(session),
        // From now on it can be asked; over HTTP only when it reads.
        "notifications/initialized" if session.is_reached() => hub.sessions.roots_changed(session),
        _ => {}
    }
}

pub(crate) fn log_request(request: &Request<'_>, params: &Params<'_>) {
    if tracing::enabled!(target: "mcp", tracing::Level::DEBUG) {
        let (method, id) = (portcullis_core::json::printable(&request.method), &request.id);
        match params.optional_text(Key::Name) {
            Ok(Some(tool)) if request.method == "tools/call" => {
                let tool = portcullis_core::json::printable(&tool);
                tracing::debug!(target: "mcp", %method, %id, %tool, "received request");
            }
            _ => tracing::debug!(target: "mcp", %method, %id, "received request"),
        }
    }
}
