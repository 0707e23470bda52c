//! Where one request hears what concerns it: signs of life, questions, and its answer.
//!
//! Every call makes one of these, so it is one small thing that is waited for in two places, and not a channel for each.

use crate::connection::RequestError;
use crate::inbox::{Answer, Asked};
use portcullis_wire::Id;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// How many questions one call may have open at once.
pub(crate) const QUESTIONS_MAX: usize = 16;

/// How long a client that was asked has to be away until whatever else the server asks is asked for another one. A call
/// that has several questions asks them at once, and those of one client must not reach another.
const AWAY_AFTER: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Slot(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    answer: Option<Answer>,
    /// Whether nothing will come any more.
    over: bool,
    /// Whether the server gave a sign of life since that was last asked.
    alive: bool,
    questions: Vec<Asked>,
    /// Those that are not answered yet, whether they were taken or not.
    open: Vec<Asked>,
    /// Since when the client is away that has to come back with answers.
    away: Option<Instant>,
    /// Who waits for the answer, and who for questions.
    waits: Option<Waker>,
    listens: Option<Waker>,
}

/// What there is to know of a request under way.
pub(crate) enum News {
    Answer(Answer),
    /// The server still works on it.
    Alive,
}

impl Slot {
    /// Gives the answer. Only the first one counts.
    pub(crate) fn answer(&self, answer: Answer) {
        self.tell(|heard| {
            if !heard.over {
                (heard.answer, heard.over) = (Some(answer), true);
            }
        });
    }

    /// Says that nothing will come any more.
    pub(crate) fn end(&self) {
        self.tell(|heard| heard.over = true);
    }

    /// Waits for one more answer, after the one that there was.
    pub(crate) fn reopen(&self) {
        let mut heard = self.lock();
        (heard.answer, heard.over) = (None, false);
    }

    pub(crate) fn alive(&self) {
        self.tell(|heard| heard.alive = true);
    }

    fn tell(&self, change: impl FnOnce(&mut Heard)) {
        let mut heard = self.lock();
        change(&mut heard);
        let waits = heard.waits.take();
        drop(heard);
        if let Some(waits) = waits {
            waits.wake();
        }
    }

    /// Waits for the answer or a sign of life. One that is over without an answer has lost its server.
    pub(crate) fn poll_news(&self, context: &mut Context<'_>) -> Poll<News> {
        let mut heard = self.lock();
        if let Some(answer) = heard.answer.take() {
            return Poll::Ready(News::Answer(answer));
        }
        if heard.over {
            return Poll::Ready(News::Answer(Err(RequestError::Closed)));
        }
        if std::mem::take(&mut heard.alive) {
            return Poll::Ready(News::Alive);
        }
        wait(&mut heard.waits, context);
        Poll::Pending
    }

    /// Takes a question, or gives it back where there are too many already.
    pub(crate) fn ask(&self, asked: Asked) -> Result<(), Asked> {
        let mut heard = self.lock();
        if heard.open.len() >= QUESTIONS_MAX {
            return Err(asked);
        }
        heard.open.push(asked.clone());
        heard.questions.push(asked);
        let listens = heard.listens.take();
        drop(heard);
        if let Some(listens) = listens {
            listens.wake();
        }
        Ok(())
    }

    /// Takes note that a question has its answer, or needs none.
    pub(crate) fn answered(&self, question: &Id) {
        self.lock().open.retain(|asked| asked.id != *question);
    }

    /// The server does not want to know any more.
    pub(crate) fn withdraw(&self, question: &Id) {
        let mut heard = self.lock();
        let Some(at) = heard.open.iter().position(|asked| asked.id == *question) else { return };
        let asked = heard.open.remove(at);
        drop(heard);
        asked.void.cancel();
    }

    /// Returns the questions that have no answer, of which nobody takes care any more.
    pub(crate) fn left_open(&self) -> Vec<Asked> {
        std::mem::take(&mut self.lock().open)
    }

    /// Takes note that the client has gone to find answers, or is back.
    pub(crate) fn goes_away(&self, away: bool) {
        self.lock().away = away.then(Instant::now);
    }

    /// Returns whether the server waits for what the client brings back.
    pub(crate) fn is_away(&self) -> bool {
        let heard = self.lock();
        heard.away.is_some_and(|since| since.elapsed() >= AWAY_AFTER) && !heard.open.is_empty()
    }

    /// Returns whether the server waits for an answer of ours.
    pub(crate) fn is_asking(&self) -> bool {
        !self.lock().open.is_empty()
    }

    /// Waits for questions, and returns all that there are.
    pub(crate) async fn questions(self: &Arc<Self>) -> Vec<Asked> {
        poll_fn(|context| {
            let mut heard = self.lock();
            if heard.questions.is_empty() {
                wait(&mut heard.listens, context);
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut heard.questions))
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{Ask, AskKind};
    use serde_json::Value;
    use serde_json::value::RawValue;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use tokio_util::sync::CancellationToken;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn question(id: u64) -> Asked {
        let ask = Ask { kind: AskKind::Elicit, params: Value::Null };
        Asked { id: Id::Number(id), ask, task: None, names_call: false, void: CancellationToken::new() }
    }

    #[test]
    fn who_waits_is_woken_by_what_concerns_it_and_by_nothing_else() {
        let (slot, waits, listens) = (Arc::new(Slot::default()), Arc::default(), Arc::default());
        let (one, two) =
            (Waker::from(Arc::<Woken>::clone(&waits)), Waker::from(Arc::<Woken>::clone(&listens)));
        let count = |woken: &Arc<Woken>| woken.0.load(Ordering::Relaxed);
        assert!(slot.poll_news(&mut Context::from_waker(&one)).is_pending());
        let mut questions = pin!(slot.questions());
        assert!(questions.as_mut().poll(&mut Context::from_waker(&two)).is_pending());
        slot.ask(question(1)).unwrap();
        assert_eq!((count(&waits), count(&listens)), (0, 1));
        assert!(questions.as_mut().poll(&mut Context::from_waker(&two)).is_ready());
        slot.alive();
        assert!(matches!(slot.poll_news(&mut Context::from_waker(&one)), Poll::Ready(News::Alive)));
        assert!(slot.poll_news(&mut Context::from_waker(&one)).is_pending());
        slot.answer(Ok(RawValue::from_string("{}".to_owned()).unwrap()));
        assert_eq!((count(&waits), count(&listens)), (2, 1));
        assert!(matches!(slot.poll_news(&mut Context::from_waker(&one)), Poll::Ready(News::Answer(Ok(_)))));
    }

    #[test]
    fn what_ends_without_an_answer_has_lost_its_server() {
        let slot = Slot::default();
        slot.end();
        slot.answer(Ok(RawValue::from_string("{}".to_owned()).unwrap()));
        let news = slot.poll_news(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(news, Poll::Ready(News::Answer(Err(RequestError::Closed)))));
    }

    #[test]
    fn so_many_questions_wait_and_no_more() {
        let slot = Slot::default();
        assert!((0..QUESTIONS_MAX as u64).all(|id| slot.ask(question(id)).is_ok()));
        assert!(slot.ask(question(99)).is_err());
        // One that was answered, or taken back, is none any more.
        slot.answered(&Id::Number(7));
        let last = question(99);
        let void = last.void.clone();
        assert!(slot.ask(last).is_ok() && slot.ask(question(100)).is_err());
        slot.withdraw(&Id::Number(99));
        assert!(void.is_cancelled() && slot.is_asking() && slot.ask(question(100)).is_ok());
        assert_eq!(slot.left_open().len(), QUESTIONS_MAX);
        assert!(!slot.is_asking());
    }
}
