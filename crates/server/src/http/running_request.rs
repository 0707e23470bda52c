//! An HTTP request in flight, and what happens when its client disconnects.

use super::coalesced_wake::CoalescedWake;
use super::response::event_stream;
use crate::egress_filter::RpcReply;
use crate::hub::Hub;
use crate::session::McpSession;
use crate::stream::{ClientStream, MessageSink, OnEnd, PrimingEvent};
use axum::body::Body;
use axum::response::Response;
use futures::future::BoxFuture;
use portcullis_wire::{RequestId, Revision};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A request in flight whose client is connected.
pub(super) struct RunningRequest {
    /// Polled only when it was woken itself, not for other events of its connection.
    work: Option<CoalescedWake<BoxFuture<'static, Option<RpcReply>>>>,
    revision: Revision,
    stream: Arc<ClientStream>,
    id: RequestId,
    pub(super) hub: Arc<Hub>,
    cancel: CancellationToken,
    /// Shutdown waits until the response is in the stream, not only until it exists.
    under_way: TaskTrackerToken,
}

impl RunningRequest {
    pub(super) fn new(
        work: BoxFuture<'static, Option<RpcReply>>,
        revision: Revision,
        stream: Arc<ClientStream>,
        id: RequestId,
        hub: Arc<Hub>,
        cancel: CancellationToken,
        under_way: TaskTrackerToken,
    ) -> RunningRequest {
        RunningRequest { work: Some(CoalescedWake::new(work)), revision, stream, id, hub, cancel, under_way }
    }

    /// Moves the work to its own task; its response goes to the stream.
    fn detach(&mut self) {
        let Some(work) = self.work.take() else { return };
        let (stream, id, hub) = (self.stream.clone(), self.id.clone(), self.hub.clone());
        let under_way = self.under_way.clone();
        tokio::spawn(async move {
            if let Some(answer) = work.await {
                stream.deliver(hub.outgoing.response(Some(&id), answer));
            }
            stream.finish();
            drop(under_way);
        });
    }

    /// Responds with the event stream, whose next event may be the last.
    pub(super) fn into_stream(mut self, prime: PrimingEvent, session: Option<Arc<McpSession>>) -> Response {
        if let Some(session) = &session {
            session.keep_stream(&self.stream);
        }
        self.detach();
        // In the newer era closing the stream cancels the call; in the older one the client may resume the stream.
        let on_end: OnEnd = match self.revision.server().cancels_on_disconnect() {
            true => {
                let cancel = self.cancel.clone();
                Some(Box::new(move || cancel.cancel()))
            }
            false => session.map(|session| session.reading(&self.stream)),
        };
        event_stream(Body::from_stream(self.stream.clone().read(0, prime, on_end)))
    }
}

impl Future for RunningRequest {
    type Output = Option<RpcReply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let polled = Pin::new(work).poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        if !self.revision.server().cancels_on_disconnect() {
            // The work continues, and its response waits in the stream.
            self.detach();
        } else if self.work.is_some() {
            self.cancel.cancel();
        }
    }
}
