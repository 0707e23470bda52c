//! Outbound queue: responses and notifications to a server, bounded.
//!
//! No caller waits for these messages, so none would notice how many there are. A server can send requests as fast
//! as it writes and read no response; so the queue is bounded, and dropped with the connection.

use crate::transport::{OutboundMessage, TransportLink};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The bound. More than any server asks that reads its responses.
const WAITING_MAX: usize = 1024;
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How many are sent at once. More than one: a server may read a response only after another.
const AT_ONCE_MAX: usize = 16;
/// The timeout of sending one.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// The same after the connection is dropped: the last messages may still arrive.
const LEFT_WITHIN: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct OutboundQueue {
    link: OnceLock<Weak<dyn TransportLink>>,
    state: Mutex<State>,
    /// Cancelled when the connection is dropped.
    left: CancellationToken,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<QueuedMessage>,
    bytes: usize,
    /// How many tasks send.
    sending: usize,
}

struct QueuedMessage {
    method: Option<&'static str>,
    bytes: Bytes,
}

/// The queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl OutboundQueue {
    /// Sets the link. The queue does not keep it open.
    pub(crate) fn attach_link(&self, link: &Arc<dyn TransportLink>) {
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Queues a message. One to a server that is gone is dropped.
    pub(crate) fn push(
        self: &Arc<Self>,
        method: Option<&'static str>,
        bytes: Bytes,
    ) -> Result<(), QueueFull> {
        let Some(link) = self.link.get().and_then(Weak::upgrade) else { return Ok(()) };
        let mut state = self.state.lock();
        let bytes = if state.sending == 0 {
            // Nearly always on stdio; then nothing is queued.
            match link.take(OutboundMessage::one_way(method, bytes)) {
                Ok(Some(back)) => back.bytes,
                Ok(None) | Err(_) => return Ok(()),
            }
        } else {
            bytes
        };
        let is_full =
            state.waiting.len() >= WAITING_MAX || state.bytes.saturating_add(bytes.len()) > WAITING_BYTES_MAX;
        if is_full && !state.waiting.is_empty() {
            return Err(QueueFull);
        }
        state.bytes += bytes.len();
        state.waiting.push_back(QueuedMessage { method, bytes });
        if state.sending < AT_ONCE_MAX {
            state.sending += 1;
            tokio::spawn(self.clone().send());
        }
        Ok(())
    }

    /// Takes note that the connection is dropped.
    pub(crate) fn leave(&self) {
        self.left.cancel();
    }

    /// Sends until the queue is empty. The link is held only as long as the connection, and a moment longer.
    async fn send(self: Arc<Self>) {
        while let Some(aside) = self.next() {
            let Some(link) = self.link.get().and_then(Weak::upgrade) else { continue };
            let left = async {
                self.left.cancelled().await;
                tokio::time::sleep(LEFT_WITHIN).await;
            };
            tokio::select! {
                // A server that is gone needs no response.
                _ = link.send(OutboundMessage::one_way(aside.method, aside.bytes)) => {}
                () = tokio::time::sleep(TAKEN_WITHIN) => {}
                () = left => self.forget(),
            }
        }
    }

    fn forget(&self) {
        let mut state = self.state.lock();
        (state.waiting, state.bytes) = (VecDeque::new(), 0);
    }

    fn next(&self) -> Option<QueuedMessage> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        match &next {
            Some(aside) => state.bytes -= aside.bytes.len(),
            None => state.sending -= 1,
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::RequestError;
    use futures::future::BoxFuture;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A link that takes nothing, and counts what is being sent.
    #[derive(Default)]
    struct Deaf(Arc<AtomicUsize>);

    impl TransportLink for Deaf {
        fn send<'a>(&'a self, _: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    fn asides(link: Deaf) -> (Arc<OutboundQueue>, Arc<dyn TransportLink>) {
        let (asides, link): (Arc<OutboundQueue>, Arc<dyn TransportLink>) = (Arc::default(), Arc::new(link));
        asides.attach_link(&link);
        (asides, link)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_is_bounded() {
        let counted = Arc::new(AtomicUsize::new(0));
        let (asides, _link) = asides(Deaf(counted.clone()));
        let mut said = 0;
        while asides.push(None, "{}".into()).is_ok() {
            said += 1;
            tokio::task::yield_now().await;
        }
        assert_eq!((said, counted.load(Ordering::Relaxed)), (WAITING_MAX + AT_ONCE_MAX, AT_ONCE_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn how_large_it_is_counts_too() {
        let (asides, _link) = asides(Deaf::default());
        let large = Bytes::from(vec![b' '; WAITING_BYTES_MAX / 2 + 1]);
        let said = (0..=AT_ONCE_MAX + 1).map(|_| asides.push(None, large.clone()));
        assert_eq!(
            said.filter(Result::is_err).count(),
            AT_ONCE_MAX + 1,
            "nothing was sent yet but the first"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_over_is_not_held_by_what_nobody_takes() {
        let (asides, link) = asides(Deaf::default());
        for _ in 0..100 {
            asides.push(None, "{}".into()).unwrap();
        }
        tokio::task::yield_now().await;
        let held = Arc::downgrade(&link);
        drop(link);
        assert!(held.strong_count() > 0, "what was said last may still arrive");
        asides.leave();
        tokio::time::sleep(LEFT_WITHIN * 2).await;
        assert_eq!(held.strong_count(), 0);
    }
}
