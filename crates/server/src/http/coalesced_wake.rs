//! A future that coalesces wake-ups, and polls its inner future only after one.
//!
//! hyper passes the body of a request through a channel whose ends are both in one task, so that task wakes itself for
//! every request. The runtime takes this as work for another thread and wakes one, which finds nothing; that wake-up
//! costs as much as half a call. So a wake-up during a poll leads to another poll at once, and a wake-up of one part
//! of a task does not poll the others.

use futures::task::AtomicWaker;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls in a row before the future yields.
const ROUNDS_MAX: usize = 8;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const WOKEN: u8 = 2;

/// Resolves like the inner future.
pub(super) struct CoalescedWake<F> {
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
        // The poll loop sees the wake-up itself.
        if self.state.swap(WOKEN, Ordering::AcqRel) == IDLE {
            self.outer.wake();
        }
    }
}

impl<F> CoalescedWake<F> {
    pub(super) fn new(work: F) -> CoalescedWake<F> {
        let shared = Arc::new(Shared { state: AtomicU8::new(WOKEN), outer: AtomicWaker::new() });
        CoalescedWake { work, waker: shared.clone().into(), shared }
    }
}

impl<F: Future + Unpin> Future for CoalescedWake<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let Shared { state, outer } = &*this.shared;
        // Registered before the poll, so that a wake-up from now on reaches the current waker.
        outer.register(context.waker());
        let mut inner = Context::from_waker(&this.waker);
        for _ in 0..ROUNDS_MAX {
            // The state is POLLING here only if the last poll panicked; then it is polled again.
            if state.compare_exchange(WOKEN, POLLING, Ordering::AcqRel, Ordering::Acquire) == Err(IDLE) {
                return Poll::Pending;
            }
            if let Poll::Ready(output) = Pin::new(&mut this.work).poll(&mut inner) {
                return Poll::Ready(output);
            }
            // Fails if it was woken, which the next round finds.
            let _ = state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::collections::VecDeque;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::task::Poll::{Pending, Ready};

    #[derive(Default)]
    struct Outer(AtomicUsize);

    impl Wake for Outer {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the inner future does when it is polled.
    #[derive(Clone, Copy)]
    enum Does {
        Waits,
        WakesItself,
        Ends,
    }

    /// A scripted future, its number of polls, and its waker.
    fn work(
        script: &[Does],
    ) -> (CoalescedWake<impl Future<Output = ()> + Unpin>, Arc<AtomicUsize>, Arc<Mutex<Waker>>) {
        let (looks, kept) = (Arc::<AtomicUsize>::default(), Arc::new(Mutex::new(Waker::noop().clone())));
        let (count, keep) = (looks.clone(), kept.clone());
        let mut script: VecDeque<Does> = script.iter().copied().collect();
        let work = poll_fn(move |context| {
            count.fetch_add(1, Ordering::Relaxed);
            *keep.lock() = context.waker().clone();
            match script.pop_front().unwrap_or(Does::Waits) {
                Does::Waits => Pending,
                Does::WakesItself => {
                    context.waker().wake_by_ref();
                    Pending
                }
                Does::Ends => Ready(()),
            }
        });
        (CoalescedWake::new(work), looks, kept)
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
        let woken = waker.lock().clone();
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
        // Not polled, but the new waker is registered.
        assert_eq!(look(&mut work, &second), Pending);
        waker.lock().wake_by_ref();
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
        let mut work = CoalescedWake::new(poll_fn(|_| -> Poll<()> { panic!("always") }));
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
            let received = CoalescedWake::new(Box::pin(async move {
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
