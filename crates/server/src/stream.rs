//! One stream of events towards a client, which a client that lost it can take up again.

use crate::clean::Clean;
use bytes::Bytes;
use futures::Stream as FutureStream;
use portcullis_wire::sse;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How many notifications wait for a client that reads slowly, or are kept for one that comes back.
const EVENTS_MAX: usize = 256;
/// How many bytes they may take together.
const EVENTS_BYTES_MAX: usize = 1024 * 1024;
/// How often a silent stream shows that it lives. Load balancers cut at 60 s.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a client waits before it comes back, as it is told.
const RETRY_MS: u64 = 500;

/// Where messages for a client go.
pub(crate) trait Outlet: Send + Sync {
    /// Sends something that may be lost when the client does not keep up.
    fn notify(&self, message: Clean);

    /// Sends something that must arrive if the client is still there.
    fn deliver(&self, message: Clean);

    /// Ends the connection without ending the call; the client comes back for the answer.
    fn let_go(&self) {}

    fn is_closed(&self) -> bool;

    /// Returns how many bytes the client has not read yet, where it can fall behind without being held up.
    fn backlog(&self) -> usize {
        0
    }
}

#[derive(Debug)]
struct Event {
    seq: u64,
    data: Bytes,
    /// Answers and questions stay until they have been read.
    must_arrive: bool,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    bytes: usize,
    next_seq: u64,
    /// Nothing more will come.
    done: bool,
    /// The present reader is to leave.
    let_go: bool,
    /// How many readers have been; only the newest one reads.
    reader: u64,
    /// The newest event that a reader has taken.
    taken: u64,
}

/// A buffered stream of messages.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Whether it can be taken up again.
    resumable: bool,
    /// What such a stream is called in the ids of its events. Most never have one, so it is named when it is read.
    name: OnceLock<String>,
    state: Mutex<State>,
    wake: Notify,
}

impl Stream {
    /// Returns a stream whose reader, once gone, does not come back.
    pub(crate) fn fleeting() -> Arc<Stream> {
        Stream::new(false)
    }

    /// Returns a stream that can be taken up again by its name.
    pub(crate) fn resumable() -> Arc<Stream> {
        Stream::new(true)
    }

    fn new(resumable: bool) -> Arc<Stream> {
        let state = Mutex::new(State { next_seq: 1, ..State::default() });
        Arc::new(Stream { resumable, name: OnceLock::new(), state, wake: Notify::new() })
    }

    pub(crate) fn is_resumable(&self) -> bool {
        self.resumable
    }

    /// Returns its name, which it gets now if it has none.
    pub(crate) fn named(&self, name: impl FnOnce() -> String) -> &str {
        self.name.get_or_init(name)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: Clean, must_arrive: bool) {
        let data = message.into_bytes();
        let mut state = self.state();
        if state.done {
            return;
        }
        state.bytes += data.len();
        let seq = state.next_seq;
        state.next_seq += 1;
        state.events.push_back(Event { seq, data, must_arrive });
        state.make_room(self.resumable);
        drop(state);
        self.wake.notify_waiters();
        // A reader that is between two looks finds this permit.
        self.wake.notify_one();
    }

    /// Says that nothing more will come.
    pub(crate) fn finish(&self) {
        self.state().done = true;
        self.wake.notify_waiters();
        self.wake.notify_one();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state().done
    }

    /// Returns how many bytes are kept, read or not.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Returns the number of the newest event that a reader has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.state().taken
    }

    /// Waits until there is something to send.
    pub(crate) async fn has_event(&self) {
        loop {
            let woken = self.wake.notified();
            {
                let state = self.state();
                if state.let_go || !state.events.is_empty() {
                    return;
                }
            }
            woken.await;
        }
    }

    /// Reads the stream as server-sent events, from after the event `after`. An older reader is sent away.
    pub(crate) fn read(
        self: Arc<Self>,
        after: u64,
        prime: Prime,
        on_end: OnEnd,
    ) -> impl FutureStream<Item = Result<Bytes, std::convert::Infallible>> + Send + use<> {
        let reader = {
            let mut state = self.state();
            // The first reader is the response of the call itself, which may have asked it to leave already.
            if state.reader > 0 {
                state.let_go = false;
            }
            state.reader += 1;
            state.reader
        };
        self.wake.notify_waiters();
        let first = match (self.name.get(), prime) {
            (Some(name), Prime::Yes) => Some(sse::priming(&format!("{name}-{after}"), RETRY_MS)),
            _ => None,
        };
        let position = Position { stream: self, reader, after, first, on_end };
        futures::stream::unfold(position, |mut position| async move {
            let chunk = position.next().await?;
            Some((Ok(chunk), position))
        })
    }
}

impl State {
    fn make_room(&mut self, resumable: bool) {
        let taken = self.taken;
        while self.events.len() > EVENTS_MAX || self.bytes > EVENTS_BYTES_MAX {
            let evictable =
                self.events.iter().position(|event| !event.must_arrive || (resumable && event.seq <= taken));
            // The newest event is what was just pushed; it is never thrown out for its own size.
            match evictable.filter(|at| at + 1 < self.events.len()) {
                Some(at) => {
                    if let Some(event) = self.events.remove(at) {
                        self.bytes -= event.data.len();
                    }
                }
                None => return,
            }
        }
    }
}

/// Whether a stream begins with an event that only carries an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prime {
    Yes,
    No,
}

/// What happens when the client closes the stream before it is done.
pub(crate) type OnEnd = Option<Box<dyn FnOnce() + Send>>;

struct Position {
    stream: Arc<Stream>,
    reader: u64,
    after: u64,
    first: Option<Bytes>,
    on_end: OnEnd,
}

impl Position {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let stream = self.stream.clone();
            let woken = stream.wake.notified();
            if let Some(chunk) = self.take_events() {
                return Some(chunk);
            }
            if self.is_over() {
                // Ended in order; a close from here on is no surprise.
                self.on_end = None;
                return None;
            }
            if tokio::time::timeout(KEEP_ALIVE, woken).await.is_err() {
                return Some(sse::KEEP_ALIVE);
            }
        }
    }

    fn take_events(&mut self) -> Option<Bytes> {
        let mut state = self.stream.state();
        if state.reader != self.reader || state.let_go {
            return None;
        }
        let mut chunk = Vec::new();
        for event in state.events.iter().filter(|event| event.seq > self.after) {
            let id = self.stream.name.get().map(|name| format!("{name}-{}", event.seq));
            chunk.extend_from_slice(&sse::event(id.as_deref(), Some("message"), &event.data));
        }
        if chunk.is_empty() {
            return None;
        }
        self.after = state.next_seq - 1;
        state.taken = self.after;
        if !self.stream.resumable {
            state.events.clear();
            state.bytes = 0;
        }
        Some(chunk.into())
    }

    fn is_over(&self) -> bool {
        let state = self.stream.state();
        state.done || state.let_go || state.reader != self.reader
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }
}

impl Outlet for Stream {
    fn notify(&self, message: Clean) {
        self.push(message, false);
    }

    fn deliver(&self, message: Clean) {
        self.push(message, true);
    }

    fn let_go(&self) {
        if self.resumable {
            self.state().let_go = true;
            self.wake.notify_waiters();
            self.wake.notify_one();
        }
    }

    fn is_closed(&self) -> bool {
        self.is_done()
    }

    fn backlog(&self) -> usize {
        let state = self.state();
        state.events.iter().filter(|event| event.seq > state.taken).map(|event| event.data.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    async fn text(stream: &Arc<Stream>, after: u64) -> String {
        let chunks: Vec<_> = stream.clone().read(after, Prime::No, None).collect().await;
        chunks.into_iter().map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_reader_comes_back_for_what_it_missed() {
        let stream = Stream::resumable();
        stream.named(|| "s1".to_owned());
        for n in 1..=3 {
            stream.deliver(Clean::guarded(format!("{n}").into()));
        }
        stream.finish();
        assert_eq!(
            text(&stream, 1).await,
            "id: s1-2\nevent: message\ndata: 2\n\nid: s1-3\nevent: message\ndata: 3\n\n"
        );
        assert_eq!(text(&stream, 3).await, "");
    }

    #[tokio::test]
    async fn a_slow_reader_loses_notifications_but_no_answers() {
        let stream = Stream::fleeting();
        stream.deliver(Clean::words("answer"));
        for n in 0..10_000 {
            stream.notify(Clean::guarded(format!("{n}").into()));
        }
        stream.finish();
        let read = text(&stream, 0).await;
        assert!(read.starts_with("event: message\ndata: answer\n\n"));
        assert_eq!(read.matches("data: ").count(), EVENTS_MAX);
        assert!(read.ends_with("data: 9999\n\n"));
    }

    #[tokio::test]
    async fn letting_go_ends_the_reader_and_keeps_the_stream() {
        let stream = Stream::resumable();
        stream.named(|| "s1".to_owned());
        stream.let_go();
        let mut reader = Box::pin(stream.clone().read(0, Prime::Yes, None));
        assert!(reader.next().await.unwrap().unwrap().starts_with(b"id: s1-0\nretry: "));
        assert!(reader.next().await.is_none(), "it was asked to leave before it came");
        stream.deliver(Clean::words("late"));
        let mut reader = Box::pin(stream.clone().read(0, Prime::No, None));
        assert!(reader.next().await.is_some(), "a new reader is welcome");
        stream.let_go();
        assert!(reader.next().await.is_none());
        assert!(!stream.is_done());
    }
}
