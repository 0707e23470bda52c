//! How long a connection may take for what.
//!
//! The HTTP library asks for a timer whenever it begins to wait for the headers of a request and lets go of it when
//! they are there. By itself it knows one time for both the wait for a request and the request's own slowness. Here
//! they are apart: the stream notes that bytes came, and the timer, once it sees that, counts from there.

use crate::sources::Peer;
use hyper::rt::{Sleep, Timer};
use portcullis_core::{Limit, TOGETHER_BYTES_MAX, together};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// The alarm of the wait before, still set. Requests come far more often than an alarm goes off, and to set one
    /// takes the lock that all connections share.
    alarm: Mutex<Option<Alarm>>,
}

type Alarm = Pin<Box<tokio::time::Sleep>>;

impl Connected {
    pub(super) fn new(peer: Peer, times: Times) -> Arc<Connected> {
        let (bytes_came, is_new) = (AtomicBool::new(false), AtomicBool::new(true));
        Arc::new(Connected { peer, times, bytes_came, is_new, alarm: Mutex::default() })
    }

    /// Begins to wait for the headers of a request.
    fn wait(self: &Arc<Self>) -> Pin<Box<dyn Sleep>> {
        let is_new = self.is_new.swap(false, Ordering::Relaxed);
        self.bytes_came.store(false, Ordering::Relaxed);
        self.peer.set_idle(true);
        // Only who has shown a good token may keep a connection that does nothing.
        let patient = !is_new && self.peer.is_known();
        let time = if patient { self.times.keep_alive } else { self.times.headers_within };
        let deadline = Instant::now() + time;
        let alarm = self.alarm().take().unwrap_or_else(|| Box::pin(tokio::time::sleep_until(deadline)));
        // A new connection has one time for all of its first headers: its first byte does not buy it another.
        Box::pin(HeadersSleep { connected: self.clone(), alarm: Some(alarm), deadline, has_begun: is_new })
    }

    fn alarm(&self) -> MutexGuard<'_, Option<Alarm>> {
        self.alarm.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Goes off at the deadline or before it, never after. There until this is dropped.
    alarm: Option<Alarm>,
    deadline: Instant,
    has_begun: bool,
}

impl Sleep for HeadersSleep {}

impl Future for HeadersSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Looked at after every read that brought no complete headers.
        if !self.has_begun && self.connected.bytes_came.load(Ordering::Relaxed) {
            self.has_begun = true;
            self.deadline = Instant::now() + self.connected.times.headers_within;
        }
        let deadline = self.deadline;
        if let Some(alarm) = &mut self.alarm {
            // One that is set for an earlier time is let go off; then it is known how much is left.
            if alarm.deadline() > deadline {
                alarm.as_mut().reset(deadline);
            }
            loop {
                ready!(alarm.as_mut().poll(context));
                if alarm.deadline() >= deadline {
                    break;
                }
                alarm.as_mut().reset(deadline);
            }
        }
        if self.has_begun {
            Limit::HeadersTime.hit()
        } else {
            Limit::KeepAliveTime.hit()
        }
        Poll::Ready(())
    }
}

impl Drop for HeadersSleep {
    fn drop(&mut self) {
        *self.connected.alarm() = self.alarm.take();
        self.connected.peer.set_idle(false);
    }
}

/// The stream, with a bound on how long the other side may leave an answer unread.
pub(super) struct Paced {
    stream: TcpStream,
    connected: Arc<Connected>,
    /// Runs while nothing can be written.
    stalled: Option<Alarm>,
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
        let mut place = [0; TOGETHER_BYTES_MAX];
        let stream = Pin::new(&mut self.stream);
        let written = match together(parts, &mut place) {
            Some(whole) => stream.poll_write(context, whole),
            None => stream.poll_write_vectored(context, parts),
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::HubLimits;
    use crate::sources::Sources;
    use portcullis_core::SystemClock;
    use tokio::time::timeout;

    const SECOND: Duration = Duration::from_secs(1);

    fn connected() -> Arc<Connected> {
        let sources = Sources::new(&HubLimits::default(), Arc::new(SystemClock));
        let peer = sources.connect([127, 0, 0, 1].into()).unwrap();
        let times = Times { headers_within: 10 * SECOND, keep_alive: 75 * SECOND, write_within: SECOND };
        Connected::new(peer, times)
    }

    /// An alarm that is left set must neither end a later wait early nor be forgotten.
    #[tokio::test(start_paused = true)]
    async fn every_wait_has_its_own_time_whatever_the_alarm_was_set_for() {
        let connected = connected();
        let mut first = connected.wait();
        assert!(timeout(9 * SECOND, &mut first).await.is_err(), "its headers came in time");
        drop(first);
        assert!(connected.alarm().is_some(), "kept, and still set for the end of the first wait");
        let started = Instant::now();
        connected.wait().await;
        assert_eq!(started.elapsed().as_secs(), 10, "set for one second from now, and let go off");

        let started = Instant::now();
        let mut third = connected.wait();
        assert!(timeout(4 * SECOND, &mut third).await.is_err());
        connected.bytes_came.store(true, Ordering::Relaxed);
        third.await;
        assert_eq!(started.elapsed().as_secs(), 14, "headers that began have a time of their own");
    }
}
