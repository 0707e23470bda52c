//! Standard input of a server, written by the task that has a message.
//!
//! A writer task would have to be woken for every message. Instead the caller writes its message, and those that
//! others queue meanwhile; only what the pipe does not take at once is left to a task that can wait.

use crate::transport::RequestError;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use portcullis_wire::frame::append_line;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// How much may be queued before senders wait (backpressure).
const QUEUED_BYTES_MAX: usize = 1024 * 1024;
/// How much of the buffer of a long message is kept for the next.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The queue in front of the pipe `W`.
pub(crate) struct StdinWriter<W> {
    state: Mutex<State<W>>,
    /// Notified when there is room again, and on close.
    room: Notify,
}

struct State<W> {
    /// Absent while a caller writes. That caller also writes what is queued meanwhile.
    pipe: Option<W>,
    /// The bytes being written, and how many of them are done.
    lines: Vec<u8>,
    written: usize,
    /// How many of them are not, also while a caller has the buffer.
    writing: usize,
    /// Complete lines after them.
    queued: Vec<u8>,
    is_closed: bool,
    /// Whether a sender waits for room. Later ones wait behind it.
    is_awaited: bool,
    /// Wakes the task that waits for the pipe.
    waits: Option<Waker>,
}

impl<W> State<W> {
    /// Returns whether the pipe is full, so that only the waiting task may go on.
    fn is_full(&self) -> bool {
        self.pipe.is_some() && self.writing > 0
    }
}

impl<W: AsyncWrite + Unpin> StdinWriter<W> {
    pub(crate) fn new(pipe: W) -> StdinWriter<W> {
        let state = State {
            pipe: Some(pipe),
            lines: Vec::new(),
            written: 0,
            writing: 0,
            queued: Vec::new(),
            is_closed: false,
            is_awaited: false,
            waits: None,
        };
        StdinWriter { state: Mutex::new(state), room: Notify::new() }
    }

    /// Takes a message, or gives it back where the queue is full.
    pub(crate) fn take(&self, message: Bytes) -> Result<Option<Bytes>, RequestError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(RequestError::Closed);
        }
        let waiting = state.writing + state.queued.len();
        if waiting > 0 && (state.is_awaited || waiting + message.len() > QUEUED_BYTES_MAX) {
            state.is_awaited = true;
            return Ok(Some(message));
        }
        append_line(&mut state.queued, &message);
        if state.is_full() {
            return Ok(None);
        }
        let Some(pipe) = state.pipe.take() else { return Ok(None) };
        // The caller does not wait for the pipe; the waiting task is woken.
        if self.write(state, pipe, &mut Context::from_waker(Waker::noop())) != WriteProgress::Nothing {
            let waits = self.state.lock().waits.take();
            waits.into_iter().for_each(Waker::wake);
        }
        Ok(None)
    }

    /// Queues a message as soon as there is room.
    pub(crate) async fn send(&self, mut message: Bytes) -> Result<(), RequestError> {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            // Registered before the check, so that no change is missed.
            room.as_mut().enable();
            match self.take(message)? {
                None => return Ok(()),
                Some(back) => message = back,
            }
            room.await;
        }
    }

    /// Writes what callers could not. Ends when the pipe is closed.
    pub(crate) fn poll_rest(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        match &mut state.waits {
            Some(waker) => waker.clone_from(context.waker()),
            None => state.waits = Some(context.waker().clone()),
        }
        if state.is_closed {
            return Poll::Ready(());
        }
        // Unless the pipe is full, callers write.
        if !state.is_full() {
            return Poll::Pending;
        }
        let Some(pipe) = state.pipe.take() else { return Poll::Pending };
        match self.write(state, pipe, context) {
            WriteProgress::Nothing | WriteProgress::Rest => Poll::Pending,
            WriteProgress::Closed => Poll::Ready(()),
        }
    }

    /// Takes no more. What is queued is dropped.
    pub(crate) fn close(&self) {
        self.over(self.state.lock());
    }

    fn over(&self, mut state: MutexGuard<'_, State<W>>) {
        (state.is_closed, state.pipe) = (true, None);
        (state.lines, state.queued) = (Vec::new(), Vec::new());
        drop(state);
        self.room.notify_waiters();
    }

    /// Writes until nothing is queued or the pipe takes no more.
    fn write<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<W>>,
        mut pipe: W,
        context: &mut Context<'_>,
    ) -> WriteProgress {
        let (mut lines, mut written) = (std::mem::take(&mut state.lines), state.written);
        loop {
            if written == lines.len() {
                lines.clear();
                written = 0;
                if state.queued.is_empty() {
                    lines.shrink_to(KEPT_BYTES_MAX);
                    state.queued.shrink_to(KEPT_BYTES_MAX);
                    (state.lines, state.written, state.writing) = (lines, 0, 0);
                    state.pipe = Some(pipe);
                    let is_awaited = std::mem::take(&mut state.is_awaited);
                    drop(state);
                    if is_awaited {
                        self.room.notify_waiters();
                    }
                    return WriteProgress::Nothing;
                }
                std::mem::swap(&mut lines, &mut state.queued);
            }
            // Others may queue more meanwhile.
            state.writing = lines.len() - written;
            drop(state);
            let ended = loop {
                match Pin::new(&mut pipe).poll_write(context, &lines[written..]) {
                    Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(count)) => written += count,
                    Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                    Poll::Pending => break Poll::Pending,
                }
                if written == lines.len() {
                    break Poll::Ready(Ok(()));
                }
            };
            state = self.state.lock();
            if state.is_closed {
                return WriteProgress::Closed;
            }
            match ended {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => {
                    state.writing = lines.len() - written;
                    (state.lines, state.written) = (lines, written);
                    state.pipe = Some(pipe);
                    return WriteProgress::Rest;
                }
                Poll::Ready(Err(_)) => {
                    self.over(state);
                    return WriteProgress::Closed;
                }
            }
        }
    }
}

/// The state after a write.
#[derive(Debug, PartialEq, Eq)]
enum WriteProgress {
    Nothing,
    /// The pipe is full.
    Rest,
    /// The pipe is closed.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    /// A writer, and the other end of its pipe of so many bytes.
    fn input(bytes: usize) -> (Arc<StdinWriter<DuplexStream>>, DuplexStream) {
        let (near, far) = duplex(bytes);
        (Arc::new(StdinWriter::new(near)), far)
    }

    fn rest(input: &Arc<StdinWriter<DuplexStream>>) -> tokio::task::JoinHandle<()> {
        let input = input.clone();
        tokio::spawn(async move { poll_fn(|context| input.poll_rest(context)).await })
    }

    async fn read(far: &mut DuplexStream, bytes: usize) -> String {
        let mut text = vec![0; bytes];
        far.read_exact(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn what_fits_is_written_at_once_by_whoever_says_it() {
        let (input, mut far) = input(64);
        assert!(input.take("one".into()).unwrap().is_none());
        assert!(input.take("two".into()).unwrap().is_none());
        assert_eq!(read(&mut far, 8).await, "one\ntwo\n");
    }

    #[tokio::test]
    async fn what_does_not_fit_follows_in_order() {
        let (input, mut far) = input(4);
        let rest = rest(&input);
        let words = ["first", "second", "third"];
        for word in words {
            assert!(input.take(word.into()).unwrap().is_none());
        }
        assert_eq!(read(&mut far, 19).await, "first\nsecond\nthird\n");
        // The next caller writes by itself again.
        assert!(input.take("4".into()).unwrap().is_none());
        assert_eq!(read(&mut far, 2).await, "4\n");
        rest.abort();
    }

    #[tokio::test]
    async fn where_too_much_waits_one_has_to_wait() {
        let (input, mut far) = input(16);
        let rest = rest(&input);
        let long = "x".repeat(QUEUED_BYTES_MAX + 64);
        assert!(input.take(long.clone().into()).unwrap().is_none());
        assert!(input.take("more".into()).unwrap().is_some());
        let sent = tokio::spawn({
            let input = input.clone();
            async move { input.send("more".into()).await }
        });
        tokio::task::yield_now().await;
        assert!(!sent.is_finished());
        assert_eq!(read(&mut far, long.len() + 1).await.trim_end(), long);
        assert_eq!(read(&mut far, 5).await, "more\n");
        sent.await.unwrap().unwrap();
        rest.abort();
    }

    /// A pipe that takes everything, and runs a test's closure meanwhile.
    struct Meanwhile<F: FnMut()>(F);

    impl<F: FnMut() + Unpin> AsyncWrite for Meanwhile<F> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            (self.0)();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn who_was_turned_away_by_one_who_writes_is_told_when_that_one_is_done() {
        type Shared = Arc<std::sync::OnceLock<Arc<StdinWriter<Meanwhile<Box<dyn FnMut() + Send>>>>>>;
        let shared = Shared::default();
        let (seen, mut first) = (shared.clone(), true);
        let meanwhile: Box<dyn FnMut() + Send> = Box::new(move || {
            if std::mem::take(&mut first) {
                let input = seen.get().unwrap().clone();
                let long = Bytes::from("x".repeat(QUEUED_BYTES_MAX));
                assert!(input.take("queued".into()).unwrap().is_none());
                assert!(input.take(long.clone()).unwrap().is_some(), "too much while this is written");
                assert!(input.take("late".into()).unwrap().is_some(), "nobody overtakes");
                tokio::spawn(async move { input.send(long).await });
            }
        });
        let input = shared.get_or_init(|| Arc::new(StdinWriter::new(Meanwhile(meanwhile)))).clone();
        let mut room = std::pin::pin!(input.room.notified());
        room.as_mut().enable();
        assert!(input.take("first".into()).unwrap().is_none());
        room.await;
        input.send("last".into()).await.unwrap();
    }

    #[tokio::test]
    async fn who_waits_for_a_closed_pipe_hears_of_it() {
        for closes in [true, false] {
            let (input, far) = input(16);
            let rest = rest(&input);
            assert!(input.take("x".repeat(QUEUED_BYTES_MAX + 64).into()).unwrap().is_none());
            let sent = tokio::spawn({
                let input = input.clone();
                async move { input.send("more".into()).await }
            });
            tokio::task::yield_now().await;
            if closes {
                input.close();
            }
            drop(far);
            assert!(matches!(sent.await.unwrap(), Err(RequestError::Closed)));
            assert!(matches!(input.take("late".into()), Err(RequestError::Closed)));
            if !closes {
                rest.await.unwrap();
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lines_of_many_stay_whole() {
        let (input, mut far) = input(100);
        let rest = rest(&input);
        let senders: Vec<_> = (0..8)
            .map(|who: usize| {
                let input = input.clone();
                tokio::spawn(async move {
                    for number in 0..200 {
                        let line = format!("{who} {number} {}", "x".repeat(number % 50));
                        input.send(line.into()).await.unwrap();
                    }
                })
            })
            .collect();
        let mut next = [0; 8];
        let mut lines = tokio::io::BufReader::new(&mut far);
        for _ in 0..8 * 200 {
            let mut line = String::new();
            tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut line).await.unwrap();
            let words: Vec<&str> = line.trim_end_matches('\n').split(' ').collect();
            let who: usize = words[0].parse().unwrap();
            assert_eq!(words[1..], [next[who].to_string(), "x".repeat(next[who] % 50)]);
            next[who] += 1;
        }
        for sender in senders {
            sender.await.unwrap();
        }
        rest.abort();
    }
}
