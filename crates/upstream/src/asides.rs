//! What a server is told beside requests: answers to what it asks, and words that need no answer.
//!
//! Nobody waits for it to arrive, so nobody would notice how much of it there is. A server can ask as fast as it writes and
//! need not take one answer; so only so much waits, and it waits no longer than the connection lasts.

use crate::link::{Link, Outgoing};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How much may wait. More than any server asks that takes what it is answered.
const WAITING_MAX: usize = 1024;
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How many are on their way at once. More than one: a server may take an answer only after it has got another.
const AT_ONCE_MAX: usize = 16;
/// How long a server may take to take one.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// And when the connection is over: what was said last may still arrive.
const LEFT_WITHIN: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Asides {
    link: OnceLock<Weak<dyn Link>>,
    state: Mutex<State>,
    /// Cancelled when nobody holds the connection any more.
    left: CancellationToken,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Aside>,
    bytes: usize,
    /// How many tasks send.
    sending: usize,
}

struct Aside {
    method: Option<&'static str>,
    bytes: Bytes,
}

/// So much waits already that this cannot wait too.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Asides {
    /// Says by which link the server is told. It is not kept open for that.
    pub(crate) fn go_by(&self, link: &Arc<dyn Link>) {
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Says something some time soon. A server that is gone needs to hear nothing.
    pub(crate) fn say(self: &Arc<Self>, method: Option<&'static str>, bytes: Bytes) -> Result<(), Full> {
        let Some(link) = self.link.get().and_then(Weak::upgrade) else { return Ok(()) };
        let mut state = self.lock();
        let bytes = if state.sending == 0 {
            // As nearly always on a line, and then nobody has to wait.
            match link.take(Outgoing::aside(method, bytes)) {
                Ok(Some(back)) => back.bytes,
                Ok(None) | Err(_) => return Ok(()),
            }
        } else {
            bytes
        };
        let is_full =
            state.waiting.len() >= WAITING_MAX || state.bytes.saturating_add(bytes.len()) > WAITING_BYTES_MAX;
        if is_full && !state.waiting.is_empty() {
            return Err(Full);
        }
        state.bytes += bytes.len();
        state.waiting.push_back(Aside { method, bytes });
        if state.sending < AT_ONCE_MAX {
            state.sending += 1;
            tokio::spawn(self.clone().send());
        }
        Ok(())
    }

    /// Hears that nobody holds the connection any more.
    pub(crate) fn leave(&self) {
        self.left.cancel();
    }

    /// Sends until nothing waits. The link is held only as long as the connection is, and a moment longer.
    async fn send(self: Arc<Self>) {
        while let Some(aside) = self.next() {
            let Some(link) = self.link.get().and_then(Weak::upgrade) else { continue };
            let left = async {
                self.left.cancelled().await;
                tokio::time::sleep(LEFT_WITHIN).await;
            };
            tokio::select! {
                // One that is gone needs no answer.
                _ = link.send(Outgoing::aside(aside.method, aside.bytes)) => {}
                () = tokio::time::sleep(TAKEN_WITHIN) => {}
                () = left => self.forget(),
            }
        }
    }

    fn forget(&self) {
        let mut state = self.lock();
        (state.waiting, state.bytes) = (VecDeque::new(), 0);
    }

    fn next(&self) -> Option<Aside> {
        let mut state = self.lock();
        let next = state.waiting.pop_front();
        match &next {
            Some(aside) => state.bytes -= aside.bytes.len(),
            None => state.sending -= 1,
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::RequestError;
    use futures::future::BoxFuture;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A server that takes nothing, and counts what is on its way to it.
    #[derive(Default)]
    struct Deaf(Arc<AtomicUsize>);

    impl Link for Deaf {
        fn send<'a>(&'a self, _: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    fn asides(link: Deaf) -> (Arc<Asides>, Arc<dyn Link>) {
        let (asides, link): (Arc<Asides>, Arc<dyn Link>) = (Arc::default(), Arc::new(link));
        asides.go_by(&link);
        (asides, link)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_is_bounded() {
        let counted = Arc::new(AtomicUsize::new(0));
        let (asides, _link) = asides(Deaf(counted.clone()));
        let mut said = 0;
        while asides.say(None, "{}".into()).is_ok() {
            said += 1;
            tokio::task::yield_now().await;
        }
        assert_eq!((said, counted.load(Ordering::Relaxed)), (WAITING_MAX + AT_ONCE_MAX, AT_ONCE_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn how_large_it_is_counts_too() {
        let (asides, _link) = asides(Deaf::default());
        let large = Bytes::from(vec![b' '; WAITING_BYTES_MAX / 2 + 1]);
        let said = (0..=AT_ONCE_MAX + 1).map(|_| asides.say(None, large.clone()));
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
            asides.say(None, "{}".into()).unwrap();
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
