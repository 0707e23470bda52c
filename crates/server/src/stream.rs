//! A buffered event stream to a client (SSE), which the client can resume.

use crate::egress_filter::RedactedMessage;
use bytes::Bytes;
use futures::Stream as FutureStream;
use parking_lot::Mutex;
use portcullis_wire::sse;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// Notifications buffered for a slow client, or for one that resumes.
const EVENTS_MAX: usize = 256;
/// Bytes of all of them.
const EVENTS_BYTES_MAX: usize = 1024 * 1024;
/// Interval of keep-alive comments. Load balancers close silent streams after 60 s.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The `retry` field: how long a client waits before it reconnects.
const RETRY_MS: u64 = 500;

/// Sends messages to a client.
pub(crate) trait MessageSink: Send + Sync {
    /// Sends a message that may be dropped if the client is slow.
    fn notify(&self, message: RedactedMessage);

    /// Sends a message that must arrive as long as the client is connected.
    fn deliver(&self, message: RedactedMessage);

    /// Ends the connection without ending the call; the client resumes the stream for the response.
    fn let_go(&self) {}

    fn is_closed(&self) -> bool;

    /// Returns the unread bytes, for a sink without backpressure.
    fn backlog(&self) -> usize {
        0
    }
}

/// Whether a slow client may miss an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventDelivery {
    MayDrop,
    /// Responses and requests stay until they have been read.
    MustArrive,
}

/// Whether a client can come back to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resumption {
    No,
    Yes,
}

#[derive(Debug)]
struct BufferedEvent {
    seq: u64,
    data: Bytes,
    delivery: EventDelivery,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<BufferedEvent>,
    bytes: usize,
    next_seq: u64,
    /// No more messages will come.
    done: bool,
    /// The current reader must end.
    let_go: bool,
    /// Number of readers so far; only the newest one reads.
    reader: u64,
    /// The newest event that was read.
    taken: u64,
}

/// A buffered stream of messages.
#[derive(Debug)]
pub(crate) struct ClientStream {
    resumption: Resumption,
    /// The stream's name in event ids. Assigned when first read, because most streams never need one.
    name: OnceLock<String>,
    state: Mutex<State>,
    wake: Notify,
}

impl ClientStream {
    /// Returns a stream that cannot be resumed.
    pub(crate) fn fleeting() -> Arc<ClientStream> {
        ClientStream::new(Resumption::No)
    }

    /// Returns a stream that can be resumed.
    pub(crate) fn resumable() -> Arc<ClientStream> {
        ClientStream::new(Resumption::Yes)
    }

    fn new(resumption: Resumption) -> Arc<ClientStream> {
        let state = Mutex::new(State { next_seq: 1, ..State::default() });
        Arc::new(ClientStream { resumption, name: OnceLock::new(), state, wake: Notify::new() })
    }

    pub(crate) fn is_resumable(&self) -> bool {
        self.resumption == Resumption::Yes
    }

    /// Returns the name, after assigning it if there is none.
    pub(crate) fn named(&self, name: impl FnOnce() -> String) -> &str {
        self.name.get_or_init(name)
    }

    fn push(&self, message: RedactedMessage, delivery: EventDelivery) {
        let data = message.into_bytes();
        let mut state = self.state.lock();
        if state.done {
            return;
        }
        state.bytes += data.len();
        let seq = state.next_seq;
        state.next_seq += 1;
        state.events.push_back(BufferedEvent { seq, data, delivery });
        state.make_room(self.resumption);
        drop(state);
        self.wake.notify_waiters();
        // A permit for a reader that is between its check and its wait.
        self.wake.notify_one();
    }

    /// Marks the end of the stream.
    pub(crate) fn finish(&self) {
        self.state.lock().done = true;
        self.wake.notify_waiters();
        self.wake.notify_one();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state.lock().done
    }

    /// Returns the buffered bytes, read or not.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Returns the number of the newest event that was read.
    pub(crate) fn taken(&self) -> u64 {
        self.state.lock().taken
    }

    /// Waits for an event.
    pub(crate) async fn has_event(&self) {
        loop {
            let woken = self.wake.notified();
            {
                let state = self.state.lock();
                if state.let_go || !state.events.is_empty() {
                    return;
                }
            }
            woken.await;
        }
    }

    /// Reads the stream as server-sent events, after the event `after`. An older reader ends.
    pub(crate) fn read(
        self: Arc<Self>,
        after: u64,
        prime: PrimingEvent,
        on_end: OnEnd,
    ) -> impl FutureStream<Item = Result<Bytes, std::convert::Infallible>> + Send + use<> {
        let reader = {
            let mut state = self.state.lock();
            // The first reader is the call's own response, and `let_go` may have been called before it.
            if state.reader > 0 {
                state.let_go = false;
            }
            state.reader += 1;
            state.reader
        };
        self.wake.notify_waiters();
        let first = match (self.name.get(), prime) {
            (Some(name), PrimingEvent::Yes) => Some(sse::priming(&format!("{name}-{after}"), RETRY_MS)),
            _ => None,
        };
        let position = StreamReader { stream: self, reader, after, first, on_end };
        futures::stream::unfold(position, |mut position| async move {
            let chunk = position.next().await?;
            Some((Ok(chunk), position))
        })
    }
}

impl State {
    fn make_room(&mut self, resumption: Resumption) {
        let taken = self.taken;
        while self.events.len() > EVENTS_MAX || self.bytes > EVENTS_BYTES_MAX {
            let evictable = self.events.iter().position(|event| {
                let is_read = resumption == Resumption::Yes && event.seq <= taken;
                event.delivery == EventDelivery::MayDrop || is_read
            });
            // The newest event was just pushed; it is never evicted for its own size.
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

/// Whether a stream begins with an event that has only an id, so that the client can resume it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrimingEvent {
    Yes,
    No,
}

/// Called when the client closes the stream early.
pub(crate) type OnEnd = Option<Box<dyn FnOnce() + Send>>;

struct StreamReader {
    stream: Arc<ClientStream>,
    reader: u64,
    after: u64,
    first: Option<Bytes>,
    on_end: OnEnd,
}

impl StreamReader {
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
                // A regular end; a close from here on is expected.
                self.on_end = None;
                return None;
            }
            if tokio::time::timeout(KEEP_ALIVE, woken).await.is_err() {
                return Some(sse::KEEP_ALIVE);
            }
        }
    }

    fn take_events(&mut self) -> Option<Bytes> {
        let mut state = self.stream.state.lock();
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
        if !self.stream.is_resumable() {
            state.events.clear();
            state.bytes = 0;
        }
        Some(chunk.into())
    }

    fn is_over(&self) -> bool {
        let state = self.stream.state.lock();
        state.done || state.let_go || state.reader != self.reader
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }
}

impl MessageSink for ClientStream {
    fn notify(&self, message: RedactedMessage) {
        self.push(message, EventDelivery::MayDrop);
    }

    fn deliver(&self, message: RedactedMessage) {
        self.push(message, EventDelivery::MustArrive);
    }

    fn let_go(&self) {
        if self.is_resumable() {
            self.state.lock().let_go = true;
            self.wake.notify_waiters();
            self.wake.notify_one();
        }
    }

    fn is_closed(&self) -> bool {
        self.is_done()
    }

    fn backlog(&self) -> usize {
        let state = self.state.lock();
        state.events.iter().filter(|event| event.seq > state.taken).map(|event| event.data.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    async fn text(stream: &Arc<ClientStream>, after: u64) -> String {
        let chunks: Vec<_> = stream.clone().read(after, PrimingEvent::No, None).collect().await;
        chunks.into_iter().map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_reader_comes_back_for_what_it_missed() {
        let stream = ClientStream::resumable();
        stream.named(|| "s1".to_owned());
        for n in 1..=3 {
            stream.deliver(RedactedMessage::already_redacted(format!("{n}").into()));
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
        let stream = ClientStream::fleeting();
        stream.deliver(RedactedMessage::words("answer"));
        for n in 0..10_000 {
            stream.notify(RedactedMessage::already_redacted(format!("{n}").into()));
        }
        stream.finish();
        let read = text(&stream, 0).await;
        assert!(read.starts_with("event: message\ndata: answer\n\n"));
        assert_eq!(read.matches("data: ").count(), EVENTS_MAX);
        assert!(read.ends_with("data: 9999\n\n"));
    }

    #[tokio::test]
    async fn letting_go_ends_the_reader_and_keeps_the_stream() {
        let stream = ClientStream::resumable();
        stream.named(|| "s1".to_owned());
        stream.let_go();
        let mut reader = Box::pin(stream.clone().read(0, PrimingEvent::Yes, None));
        assert!(reader.next().await.unwrap().unwrap().starts_with(b"id: s1-0\nretry: "));
        assert!(reader.next().await.is_none(), "it was asked to leave before it came");
        stream.deliver(RedactedMessage::words("late"));
        let mut reader = Box::pin(stream.clone().read(0, PrimingEvent::No, None));
        assert!(reader.next().await.is_some(), "a new reader is welcome");
        stream.let_go();
        assert!(reader.next().await.is_none());
        assert!(!stream.is_done());
    }
}
