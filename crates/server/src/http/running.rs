//! A request under way, and what becomes of it when its client goes away.

use super::reply::event_stream;
use super::woken::Woken;
use crate::clean::Reply;
use crate::hub::Hub;
use crate::session::Session;
use crate::stream::{OnEnd, Outlet, Prime, Stream};
use axum::body::Body;
use axum::response::Response;
use futures::future::BoxFuture;
use portcullis_wire::{Era, Id, Revision};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A request under way whose client is still connected.
pub(super) struct Running {
    /// Looked at when it can go on. Whatever else happens on its connection does not concern it.
    work: Option<Woken<BoxFuture<'static, Option<Reply>>>>,
    revision: Revision,
    stream: Arc<Stream>,
    id: Id,
    pub(super) hub: Arc<Hub>,
    cancel: CancellationToken,
    /// Shutdown waits until the answer is in the stream, not only until there is one.
    under_way: TaskTrackerToken,
}

impl Running {
    pub(super) fn new(
        work: BoxFuture<'static, Option<Reply>>,
        revision: Revision,
        stream: Arc<Stream>,
        id: Id,
        hub: Arc<Hub>,
        cancel: CancellationToken,
        under_way: TaskTrackerToken,
    ) -> Running {
        Running { work: Some(Woken::new(work)), revision, stream, id, hub, cancel, under_way }
    }

    /// Lets the work go on by itself; what comes of it goes to the stream.
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

    /// Answers with the stream, whose next event may be the last.
    pub(super) fn into_stream(mut self, prime: Prime, session: Option<Arc<Session>>) -> Response {
        if let Some(session) = &session {
            session.keep_stream(&self.stream);
        }
        self.detach();
        // In the newer era a closed stream is a cancelled call; in the older one the client comes back.
        let on_end: OnEnd = match self.revision.era() {
            Era::PerRequest => {
                let cancel = self.cancel.clone();
                Some(Box::new(move || cancel.cancel()))
            }
            Era::Sessions => session.map(|session| session.reading(&self.stream)),
        };
        event_stream(Body::from_stream(self.stream.clone().read(0, prime, on_end)))
    }
}

impl Future for Running {
    type Output = Option<Reply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let polled = Pin::new(work).poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self.revision.era() {
            // A lost connection is not a cancelled call: the work goes on, its answer waits in the stream.
            Era::Sessions => self.detach(),
            Era::PerRequest if self.work.is_some() => self.cancel.cancel(),
            Era::PerRequest => {}
        }
    }
}
