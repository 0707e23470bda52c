//! How long a connection may take for what.
//!
//! The HTTP library asks for a timer whenever it begins to wait for the headers of a request and lets go of it when
//! they are there. By itself it knows one time for both the wait for a request and the request's own slowness. Here
//! they are apart: the stream notes that bytes came, and the timer, once it sees that, counts from there.

use crate::sources::Peer;
use hyper::rt::{Sleep, Timer};
use portcullis_core::Limit;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The times of one hub.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) headers_within: Duration,
    pub(super) keep_alive: Duration,
    pub(super) write_within: Duration,
}

/// One connection, as its stream, its timer and its requests see it.
pub(super) struct Connected {
    pub(super) peer: Peer,
    times: Times,
    /// Whether bytes came since the present wait for headers began.
    bytes_came: AtomicBool,
    /// Whether the headers that are waited for are those of the first request.
    is_new: AtomicBool,
}

impl Connected {
    pub(super) fn new(peer: Peer, times: Times) -> Arc<Connected> {
        let (bytes_came, is_new) = (AtomicBool::new(false), AtomicBool::new(true));
        Arc::new(Connected { peer, times, bytes_came, is_new })
    }

    /// Begins to wait for the headers of a request.
    fn wait(self: &Arc<Self>) -> Pin<Box<dyn Sleep>> {
        let is_new = self.is_new.swap(false, Ordering::Relaxed);
        self.bytes_came.store(false, Ordering::Relaxed);
        // Only who has shown a good token may keep a connection that does nothing.
        let patient = !is_new && self.peer.is_known();
        let time = if patient { self.times.keep_alive } else { self.times.headers_within };
        let sleep = Box::pin(tokio::time::sleep(time));
        // A new connection has one time for all of its first headers: its first byte does not buy it another.
        Box::pin(HeadersSleep { connected: self.clone(), sleep, has_begun: is_new })
    }
}

/// The timer that the HTTP library gets. It uses it for headers only.
pub(super) struct HeadersTimer(pub(super) Arc<Connected>);

impl Timer for HeadersTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        self.0.wait()
    }

    fn sleep_until(&self, _: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        self.0.wait()
    }
}

/// Ends when the headers have taken too long.
struct HeadersSleep {
    connected: Arc<Connected>,
    sleep: Pin<Box<tokio::time::Sleep>>,
    has_begun: bool,
}

impl Sleep for HeadersSleep {}

impl Future for HeadersSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Looked at after every read that brought no complete headers.
        if !self.has_begun && self.connected.bytes_came.load(Ordering::Relaxed) {
            self.has_begun = true;
            let deadline = Instant::now() + self.connected.times.headers_within;
            self.sleep.as_mut().reset(deadline);
        }
        ready!(self.sleep.as_mut().poll(context));
        if self.has_begun {
            Limit::HeadersTime.hit()
        } else {
            Limit::KeepAliveTime.hit()
        }
        Poll::Ready(())
    }
}

/// The stream, with a bound on how long the other side may leave an answer unread.
pub(super) struct Paced {
    stream: TcpStream,
    connected: Arc<Connected>,
    /// Runs while nothing can be written.
    stalled: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Paced {
    pub(super) fn new(stream: TcpStream, connected: Arc<Connected>) -> Paced {
        Paced { stream, connected, stalled: None }
    }

    /// Passes on what a write came to; one that waits too long ends as an error.
    fn bounded<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let write_within = self.connected.times.write_within;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_within)));
        ready!(stalled.as_mut().poll(context));
        Limit::WriteTime.hit();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side does not read")))
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.connected.bytes_came.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.bounded(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
