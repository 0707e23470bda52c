//! One connection, moved by whoever waits for what comes over it. No task stands between.

use crate::connect::Stream;
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

/// All headers of an answer together.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// More than any server sends.
const HEADERS_MAX: usize = 128;
/// What is read at once.
const READ_BYTES_MAX: usize = 256 * 1024;

type Sent = Request<Full<Bytes>>;

pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    connection: Pin<Box<Connection<TokioIo<Stream>, Full<Bytes>>>>,
    ended: bool,
    /// Until when it may be used again.
    pub(super) good_until: Instant,
}

/// Why no answer came; the request where nothing of it was written.
pub(super) struct Failed {
    pub(super) why: String,
    pub(super) unsent: Option<Sent>,
}

impl Line {
    pub(super) async fn begin(stream: Stream) -> Result<Line, String> {
        #[expect(clippy::disallowed_methods, reason = "one of two places, on a connection of our own choice")]
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| told(&error))?;
        let connection = Box::pin(connection);
        let mut line = Line { sender, connection, ended: false, good_until: Instant::now() };
        // A fresh connection says that it is ready when it is first moved.
        if line.is_idle().await { Ok(line) } else { Err("the server closed the connection".to_owned()) }
    }

    /// Lets the connection do what it can do now.
    fn poll(&mut self, cx: &mut Context<'_>) {
        if !self.ended && self.connection.as_mut().poll(cx).is_ready() {
            self.ended = true;
        }
    }

    /// Returns whether it waits for a request and the other end has not closed it.
    pub(super) async fn is_idle(&mut self) -> bool {
        poll_fn(|cx| {
            self.poll(cx);
            let ready = matches!(self.sender.poll_ready(cx), Poll::Ready(Ok(())));
            Poll::Ready(ready && !self.ended)
        })
        .await
    }

    /// Sends a request over a line that is idle, and returns the head of the answer.
    pub(super) async fn send(&mut self, request: Sent) -> Result<Response<Incoming>, Failed> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let (connection, ended) = (&mut self.connection, &mut self.ended);
        let answer = poll_fn(|cx| {
            if !*ended && connection.as_mut().poll(cx).is_ready() {
                *ended = true;
            }
            sending.as_mut().poll(cx)
        });
        answer.await.map_err(|mut error| {
            let why = told(error.error());
            Failed { why, unsent: error.take_message() }
        })
    }

    /// Returns the next piece of a body, or `None` at its end.
    pub(super) async fn piece(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, String> {
        let mut body = Pin::new(body);
        loop {
            let frame = poll_fn(|cx| {
                // Asking for more is what makes the connection read more.
                if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                self.poll(cx);
                body.as_mut().poll_frame(cx)
            });
            match frame.await {
                None => return Ok(None),
                Some(Err(error)) => return Err(told(&error)),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}

/// The reason is often one level down.
fn told(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
