//! One HTTP/1 connection of the pool, polled by the task that waits for the response. There is no background task.

use crate::connect::EgressStream;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::time::Instant;

/// All headers of a response together.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// More than servers send.
const HEADERS_MAX: usize = 128;
/// Read buffer of the connection.
const READ_BYTES_MAX: usize = 256 * 1024;

type HyperRequest = Request<Full<Bytes>>;

pub(super) struct PooledConnection {
    sender: SendRequest<Full<Bytes>>,
    connection: Pin<Box<Connection<TokioIo<EgressStream>, Full<Bytes>>>>,
    ended: bool,
    /// When the idle timeout ends.
    pub(super) good_until: Instant,
}

/// Why there is no response, and the request if nothing of it was written.
pub(super) struct SendFailure {
    pub(super) why: String,
    pub(super) unsent: Option<HyperRequest>,
}

impl PooledConnection {
    pub(super) async fn begin(stream: EgressStream) -> Result<PooledConnection, String> {
        #[expect(clippy::disallowed_methods, reason = "one of two places, on a connection of our own choice")]
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| with_source(&error))?;
        let connection = Box::pin(connection);
        let mut pooled = PooledConnection { sender, connection, ended: false, good_until: Instant::now() };
        // A new connection reports that it is ready only after the first poll.
        if pooled.is_idle().await { Ok(pooled) } else { Err("the server closed the connection".to_owned()) }
    }

    /// Polls the connection once.
    fn poll(&mut self, cx: &mut Context<'_>) {
        if !self.ended && self.connection.as_mut().poll(cx).is_ready() {
            self.ended = true;
        }
    }

    /// Returns whether the connection is ready for a request and the server has not closed it.
    pub(super) async fn is_idle(&mut self) -> bool {
        poll_fn(|cx| {
            self.poll(cx);
            let ready = matches!(self.sender.poll_ready(cx), Poll::Ready(Ok(())));
            Poll::Ready(ready && !self.ended)
        })
        .await
    }

    /// Sends a request over an idle connection and returns the head of the response.
    pub(super) async fn send(&mut self, request: HyperRequest) -> Result<Response<Incoming>, SendFailure> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let (connection, ended) = (&mut self.connection, &mut self.ended);
        let answer = poll_fn(|cx| {
            if !*ended && connection.as_mut().poll(cx).is_ready() {
                *ended = true;
            }
            sending.as_mut().poll(cx)
        });
        answer.await.map_err(|mut error| {
            let why = with_source(error.error());
            SendFailure { why, unsent: error.take_message() }
        })
    }

    /// Returns the next chunk of a body, or `None` at its end.
    pub(super) async fn piece(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, String> {
        let mut body = Pin::new(body);
        loop {
            let frame = poll_fn(|cx| {
                // Polling the body first makes the connection read more.
                if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                self.poll(cx);
                body.as_mut().poll_frame(cx)
            });
            match frame.await {
                None => return Ok(None),
                Some(Err(error)) => return Err(with_source(&error)),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}

/// Adds the source of the error, which often has the actual reason.
fn with_source(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
