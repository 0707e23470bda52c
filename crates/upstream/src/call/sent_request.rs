//! A request of a call that was sent: dropping it cancels the call at the server and settles its open questions.

use super::task::TaskPeer;
use crate::rpc::{Connection, PendingRequest, RequestResult};
use crate::transport::RequestError;
use parking_lot::Mutex;
use portcullis_core::{Client, InputRequestKind};
use portcullis_wire::rpc::{self, RpcError};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::task::JoinHandle;

pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = RequestResult> + Send>>;

/// A request that was sent. It owns everything that it needs, so that it can be suspended.
pub(super) struct SentRequest {
    pub(super) running: ResponseFuture,
    pub(super) slot: Arc<PendingRequest>,
    /// The peer that the task reports to, where the call may become one.
    pub(super) task: Option<Arc<TaskPeer>>,
    pub(super) connection: Arc<Connection>,
    pub(super) client: Arc<Client>,
}

/// Open questions when a call ends may belong to another call: on stdio, most servers do not name the call that
/// asks. They are asked again on another call of the client, and refused with the last one.
impl Drop for SentRequest {
    fn drop(&mut self) {
        // First the server is notified that the call is cancelled, where it is.
        self.running = Box::pin(std::future::pending());
        let demux = &self.connection.demux;
        for asked in self.slot.left_open() {
            let Err(asked) = demux.pending.reassign_question(asked, &self.client) else { continue };
            match asked.ask.kind {
                InputRequestKind::Roots => demux.answer_roots(asked.id),
                InputRequestKind::Elicit | InputRequestKind::Sample => {
                    let refused =
                        RpcError::new(rpc::INVALID_REQUEST, "the call is over; no client can be asked");
                    demux.answer(&asked.id, Err(refused));
                }
            }
        }
    }
}

/// A future that is polled by its own task, and dropped with its holder: at once, and not when the runtime gets to
/// it, so that the server is notified before anything else.
pub(super) struct DetachedFuture {
    running: Arc<Mutex<Option<ResponseFuture>>>,
    task: JoinHandle<RequestResult>,
}

impl DetachedFuture {
    pub(super) fn new(running: ResponseFuture) -> DetachedFuture {
        let running = Arc::new(Mutex::new(Some(running)));
        let held = running.clone();
        let task = tokio::spawn(poll_fn(move |context| match &mut *held.lock() {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Ready(Err(RequestError::Closed)),
        }));
        DetachedFuture { running, task }
    }

    pub(super) async fn answer(mut self) -> RequestResult {
        (&mut self.task).await.unwrap_or(Err(RequestError::Closed))
    }
}

impl Drop for DetachedFuture {
    fn drop(&mut self) {
        self.task.abort();
        let running = self.running.lock().take();
        drop(running);
    }
}
