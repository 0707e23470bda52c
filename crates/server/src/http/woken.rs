//! Work that is looked at when something has happened to it, and only then.
//!
//! The HTTP library passes the body of a request on by a channel of its own, both ends of which are in one task: that task
//! wakes itself, for every request. The runtime takes that as work for another processor and wakes it too, which finds
//! nothing to do; to wake it takes as long as half a call. So what happens while the work is looked at lets it be looked
//! at once more, there and then, and what happens to one part of a task does not lead to a look at the others.

use futures::task::AtomicWaker;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// How often in a row the work is looked at before others get their turn.
const ROUNDS_MAX: usize = 8;

const WAITS: u8 = 0;
const LOOKED_AT: u8 = 1;
const WOKEN: u8 = 2;

/// Passes on what the work came to.
pub(super) struct Woken<F> {
    work: F,
    shared: Arc<Shared>,
    waker: Waker,
}

struct Shared {
    state: AtomicU8,
    outer: AtomicWaker,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Whoever looks at it sees by itself that something happened meanwhile.
        if self.state.swap(WOKEN, Ordering::AcqRel) == WAITS {
            self.outer.wake();
        }
    }
}

impl<F> Woken<F> {
    pub(super) fn new(work: F) -> Woken<F> {
        let shared = Arc::new(Shared { state: AtomicU8::new(WOKEN), outer: AtomicWaker::new() });
        Woken { work, waker: shared.clone().into(), shared }
    }
}

impl<F: Future + Unpin> Future for Woken<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let Shared { state, outer } = &*this.shared;
        // Before anything is looked at: what happens from now on reaches whoever waits now.
        outer.register(context.waker());
        let mut inner = Context::from_waker(&this.waker);
        for _ in 0..ROUNDS_MAX {
            // What is looked at already was looked at when it panicked, and may do so again.
            if state.compare_exchange(WOKEN, LOOKED_AT, Ordering::AcqRel, Ordering::Acquire) == Err(WAITS) {
                return Poll::Pending;
            }
            if let Poll::Ready(output) = Pin::new(&mut this.work).poll(&mut inner) {
                return Poll::Ready(output);
            }
            // Fails where it was woken, which the next round finds.
            let _ = state.compare_exchange(LOOKED_AT, WAITS, Ordering::AcqRel, Ordering::Acquire);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::task::Poll::{Pending, Ready};

    #[derive(Default)]
    struct Outer(AtomicUsize);

    impl Wake for Outer {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the work does when it is looked at.
    #[derive(Clone, Copy)]
    enum Does {
        Waits,
        WakesItself,
        Ends,
    }

    /// Work that follows a script, and who looked at it how often.
    fn work(
        script: &[Does],
    ) -> (Woken<impl Future<Output = ()> + Unpin>, Arc<AtomicUsize>, Arc<Mutex<Waker>>) {
        let (looks, kept) = (Arc::<AtomicUsize>::default(), Arc::new(Mutex::new(Waker::noop().clone())));
        let (count, keep) = (looks.clone(), kept.clone());
        let mut script: VecDeque<Does> = script.iter().copied().collect();
        let work = poll_fn(move |context| {
            count.fetch_add(1, Ordering::Relaxed);
            *keep.lock().unwrap() = context.waker().clone();
            match script.pop_front().unwrap_or(Does::Waits) {
                Does::Waits => Pending,
                Does::WakesItself => {
                    context.waker().wake_by_ref();
                    Pending
                }
                Does::Ends => Ready(()),
            }
        });
        (Woken::new(work), looks, kept)
    }

    fn look(work: &mut (impl Future<Output = ()> + Unpin), outer: &Arc<Outer>) -> Poll<()> {
        Pin::new(work).poll(&mut Context::from_waker(&outer.clone().into()))
    }

    #[test]
    fn what_wakes_itself_is_looked_at_again_without_waking_anybody() {
        let outer = Arc::new(Outer::default());
        let (mut work, looks, _) = work(&[Does::WakesItself, Does::WakesItself, Does::Ends]);
        assert_eq!(look(&mut work, &outer), Ready(()));
        assert_eq!((looks.load(Ordering::Relaxed), outer.0.load(Ordering::Relaxed)), (3, 0));
    }

    #[test]
    fn what_was_not_woken_is_not_looked_at() {
        let outer = Arc::new(Outer::default());
        let (mut work, looks, waker) = work(&[Does::Waits, Does::Ends]);
        assert_eq!(look(&mut work, &outer), Pending);
        assert_eq!(look(&mut work, &outer), Pending);
        assert_eq!((looks.load(Ordering::Relaxed), outer.0.load(Ordering::Relaxed)), (1, 0));
        let woken = waker.lock().unwrap().clone();
        woken.wake_by_ref();
        woken.wake_by_ref();
        assert_eq!(outer.0.load(Ordering::Relaxed), 1);
        assert_eq!(look(&mut work, &outer), Ready(()));
    }

    #[test]
    fn who_waits_last_is_woken() {
        let (first, second) = (Arc::new(Outer::default()), Arc::new(Outer::default()));
        let (mut work, _, waker) = work(&[Does::Waits]);
        assert_eq!(look(&mut work, &first), Pending);
        // Not looked at, and yet whoever asks now is told.
        assert_eq!(look(&mut work, &second), Pending);
        waker.lock().unwrap().wake_by_ref();
        assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (0, 1));
    }

    #[test]
    fn what_never_stops_waking_itself_lets_others_have_their_turn() {
        let outer = Arc::new(Outer::default());
        let (mut work, looks, _) = work(&[Does::WakesItself; 3 * ROUNDS_MAX]);
        assert_eq!(look(&mut work, &outer), Pending);
        assert_eq!((looks.load(Ordering::Relaxed), outer.0.load(Ordering::Relaxed)), (ROUNDS_MAX, 1));
        assert_eq!(look(&mut work, &outer), Pending);
        assert_eq!(looks.load(Ordering::Relaxed), 2 * ROUNDS_MAX);
    }

    #[test]
    fn what_panicked_is_not_waited_for() {
        let outer = Arc::new(Outer::default());
        let mut work = Woken::new(poll_fn(|_| -> Poll<()> { panic!("always") }));
        for _ in 0..2 {
            let looked = std::panic::AssertUnwindSafe(|| look(&mut work, &outer));
            assert!(std::panic::catch_unwind(looked).is_err());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_that_happens_elsewhere_is_missed() {
        for _ in 0..200 {
            let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
            let sent = tokio::spawn(async move {
                for number in 0..50 {
                    sender.send(number).await.unwrap();
                }
            });
            let received = Woken::new(Box::pin(async move {
                let mut count = 0;
                while receiver.recv().await.is_some() {
                    count += 1;
                }
                count
            }));
            assert_eq!(tokio::spawn(received).await.unwrap(), 50);
            sent.await.unwrap();
        }
    }
}
