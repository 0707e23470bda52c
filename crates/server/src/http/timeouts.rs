//! Timeouts of a connection: keep-alive, headers, writes.
//!
//! hyper starts a timer whenever it waits for the headers of a request, and drops it when they are complete. Its one
//! timeout covers both the idle wait for a request and a slow request (slowloris). Here they are separate: the stream
//! notes that bytes arrived, and the timer then restarts with the header timeout.

use crate::sources::PeerConnection;
use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;
use portcullis_core::{Limit, TOGETHER_BYTES_MAX, coalesce};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The timeouts of a hub.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionTimeouts {
    pub(super) headers_within: Duration,
    pub(super) keep_alive: Duration,
    pub(super) write_within: Duration,
}

/// One connection, shared by its stream, its timer and its requests.
pub(super) struct ConnectionState {
    pub(super) peer: PeerConnection,
    times: ConnectionTimeouts,
    /// Whether bytes arrived during the current wait for headers.
    bytes_came: AtomicBool,
    /// Whether this is the wait for the first request's headers.
    is_new: AtomicBool,
    /// The timer of the previous wait, still armed. It is reused because arming one takes the lock that all
    /// connections share, and requests are far more frequent than timeouts.
    alarm: Mutex<Option<Alarm>>,
}

type Alarm = Pin<Box<tokio::time::Sleep>>;

impl ConnectionState {
    pub(super) fn new(peer: PeerConnection, times: ConnectionTimeouts) -> Arc<ConnectionState> {
        let (bytes_came, is_new) = (AtomicBool::new(false), AtomicBool::new(true));
        Arc::new(ConnectionState { peer, times, bytes_came, is_new, alarm: Mutex::default() })
    }

    /// Begins the wait for the headers of a request.
    fn wait(self: &Arc<Self>) -> Pin<Box<dyn Sleep>> {
        let is_new = self.is_new.swap(false, Ordering::Relaxed);
        self.bytes_came.store(false, Ordering::Relaxed);
        self.peer.set_idle(true);
        // Only a connection that has authenticated may stay idle.
        let patient = !is_new && self.peer.is_known();
        let time = if patient { self.times.keep_alive } else { self.times.headers_within };
        let deadline = Instant::now() + time;
        let alarm = self.alarm.lock().take().unwrap_or_else(|| Box::pin(tokio::time::sleep_until(deadline)));
        // The first headers of a new connection have one timeout in all: the first byte does not restart it.
        Box::pin(HeadersSleep { connected: self.clone(), alarm: Some(alarm), deadline, has_begun: is_new })
    }
}

/// The timer for hyper, which uses it only for headers.
pub(super) struct HeadersTimer(pub(super) Arc<ConnectionState>);

impl Timer for HeadersTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        self.0.wait()
    }

    fn sleep_until(&self, _: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        self.0.wait()
    }
}

/// Resolves when the headers time out.
struct HeadersSleep {
    connected: Arc<ConnectionState>,
    /// Fires at the deadline or earlier, never later. Present until this is dropped.
    alarm: Option<Alarm>,
    deadline: Instant,
    has_begun: bool,
}

impl Sleep for HeadersSleep {}

impl Future for HeadersSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Polled after every read that did not complete the headers.
        if !self.has_begun && self.connected.bytes_came.load(Ordering::Relaxed) {
            self.has_begun = true;
            self.deadline = Instant::now() + self.connected.times.headers_within;
        }
        let deadline = self.deadline;
        if let Some(alarm) = &mut self.alarm {
            // An earlier alarm is left to fire; then it is armed again for the rest.
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
        *self.connected.alarm.lock() = self.alarm.take();
        self.connected.peer.set_idle(false);
    }
}

/// A stream with a timeout on writes, for clients that do not read.
pub(super) struct WriteTimeoutStream {
    stream: TcpStream,
    connected: Arc<ConnectionState>,
    /// Runs while writes are blocked.
    stalled: Option<Alarm>,
}

impl WriteTimeoutStream {
    pub(super) fn new(stream: TcpStream, connected: Arc<ConnectionState>) -> WriteTimeoutStream {
        WriteTimeoutStream { stream, connected, stalled: None }
    }

    /// Passes on the result of a write; one that is blocked too long becomes an error.
    fn bounded<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let write_within = self.connected.times.write_within;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_within)));
        ready!(stalled.as_mut().poll(context));
        Limit::WriteTime.hit();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for WriteTimeoutStream {
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

impl AsyncWrite for WriteTimeoutStream {
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
        let written = match coalesce(parts, &mut place) {
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

    fn connected() -> Arc<ConnectionState> {
        let sources = Sources::new(&HubLimits::default(), Arc::new(SystemClock));
        let peer = sources.connect([127, 0, 0, 1].into()).unwrap();
        let times =
            ConnectionTimeouts { headers_within: 10 * SECOND, keep_alive: 75 * SECOND, write_within: SECOND };
        ConnectionState::new(peer, times)
    }

    /// A reused alarm must neither end a later wait early nor be lost.
    #[tokio::test(start_paused = true)]
    async fn every_wait_has_its_own_time_whatever_the_alarm_was_set_for() {
        let connected = connected();
        let mut first = connected.wait();
        assert!(timeout(9 * SECOND, &mut first).await.is_err(), "its headers came in time");
        drop(first);
        assert!(connected.alarm.lock().is_some(), "kept, and still set for the end of the first wait");
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
