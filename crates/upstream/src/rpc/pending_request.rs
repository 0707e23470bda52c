//! One pending request: its response, signs of life, and the questions that the server asks meanwhile.
//!
//! Every call makes one of these, so it is one mutex with two wakers, and not a channel for each.

use crate::transport::RequestError;
use parking_lot::Mutex;
use portcullis_core::InputRequest;
use portcullis_wire::RequestId;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many questions one call may have open at once.
pub(crate) const QUESTIONS_MAX: usize = 16;

/// How long a client has to be away, collecting input, until a question that names no call goes to another client. A
/// call asks its questions in a row, and those of one client must not reach another.
const AWAY_AFTER: Duration = Duration::from_secs(2);

/// The member of `_meta` in which a message of 2025-11-25 names its task.
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// A question that a server asks during a call.
#[derive(Debug, Clone)]
pub(crate) struct ServerQuestion {
    pub(crate) id: RequestId,
    pub(crate) ask: InputRequest,
    /// The task that it belongs to, which the answer has to name.
    pub(crate) task: Option<String>,
    /// Whether the server named the call. Otherwise it may be any call of the client that was asked.
    pub(crate) names_call: bool,
    /// Cancelled when the server withdraws it.
    pub(crate) withdrawn: CancellationToken,
}

impl ServerQuestion {
    /// Returns an answer as the server expects it.
    pub(crate) fn worded(&self, answer: &Value) -> Vec<u8> {
        let mut answer = answer.clone();
        if let (Some(task), Some(members)) = (&self.task, answer.as_object_mut()) {
            let meta = members.entry("_meta").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut() {
                meta.insert(RELATED_TASK.to_owned(), json!({ "taskId": task }));
            }
        }
        answer.to_string().into_bytes()
    }
}

pub(crate) type RequestResult = Result<Box<RawValue>, RequestError>;

#[derive(Default)]
pub(crate) struct PendingRequest(Mutex<PendingState>);

#[derive(Default)]
struct PendingState {
    answer: Option<RequestResult>,
    /// Whether nothing more will arrive.
    over: bool,
    /// Whether there was a sign of life since the last poll.
    alive: bool,
    questions: Vec<ServerQuestion>,
    /// Those without an answer, whether they were taken or not.
    open: Vec<ServerQuestion>,
    /// Since when the client is away, collecting input.
    away: Option<Instant>,
    /// The wakers for the response, and for questions.
    waits: Option<Waker>,
    listens: Option<Waker>,
}

/// An event of a pending request.
pub(crate) enum RequestEvent {
    Answer(RequestResult),
    /// The server still works on it.
    Alive,
}

impl PendingRequest {
    /// Sets the response. Only the first one counts.
    pub(crate) fn answer(&self, answer: RequestResult) {
        self.update(|state| {
            if !state.over {
                (state.answer, state.over) = (Some(answer), true);
            }
        });
    }

    /// Takes note that nothing more will arrive.
    pub(crate) fn end(&self) {
        self.update(|state| state.over = true);
    }

    /// Waits for one more response.
    pub(crate) fn reopen(&self) {
        let mut state = self.0.lock();
        (state.answer, state.over) = (None, false);
    }

    pub(crate) fn alive(&self) {
        self.update(|state| state.alive = true);
    }

    fn update(&self, change: impl FnOnce(&mut PendingState)) {
        let mut state = self.0.lock();
        change(&mut state);
        let waits = state.waits.take();
        drop(state);
        if let Some(waits) = waits {
            waits.wake();
        }
    }

    /// Polls for the response or a sign of life. A request that ended without a response has lost its server.
    pub(crate) fn poll_news(&self, context: &mut Context<'_>) -> Poll<RequestEvent> {
        let mut state = self.0.lock();
        if let Some(answer) = state.answer.take() {
            return Poll::Ready(RequestEvent::Answer(answer));
        }
        if state.over {
            return Poll::Ready(RequestEvent::Answer(Err(RequestError::Closed)));
        }
        if std::mem::take(&mut state.alive) {
            return Poll::Ready(RequestEvent::Alive);
        }
        wait(&mut state.waits, context);
        Poll::Pending
    }

    /// Adds a question, or gives it back where there are too many.
    pub(crate) fn ask(&self, asked: ServerQuestion) -> Result<(), ServerQuestion> {
        let mut state = self.0.lock();
        if state.open.len() >= QUESTIONS_MAX {
            return Err(asked);
        }
        state.open.push(asked.clone());
        state.questions.push(asked);
        let listens = state.listens.take();
        drop(state);
        if let Some(listens) = listens {
            listens.wake();
        }
        Ok(())
    }

    /// Takes note that a question has its answer, or needs none.
    pub(crate) fn answered(&self, question: &RequestId) {
        self.0.lock().open.retain(|asked| asked.id != *question);
    }

    /// Withdraws a question.
    pub(crate) fn withdraw(&self, question: &RequestId) {
        let mut state = self.0.lock();
        let Some(at) = state.open.iter().position(|asked| asked.id == *question) else { return };
        let asked = state.open.remove(at);
        drop(state);
        asked.withdrawn.cancel();
    }

    /// Takes the questions without an answer.
    pub(crate) fn left_open(&self) -> Vec<ServerQuestion> {
        std::mem::take(&mut self.0.lock().open)
    }

    /// Takes note that the client went to collect input, or is back.
    pub(crate) fn set_client_away(&self, away: bool) {
        self.0.lock().away = away.then(Instant::now);
    }

    /// Returns whether the server waits for a client that is away.
    pub(crate) fn is_away(&self) -> bool {
        let state = self.0.lock();
        state.away.is_some_and(|since| since.elapsed() >= AWAY_AFTER) && !state.open.is_empty()
    }

    /// Returns whether the server waits for an answer.
    pub(crate) fn is_asking(&self) -> bool {
        !self.0.lock().open.is_empty()
    }

    /// Waits for questions, and takes all of them.
    pub(crate) async fn questions(self: &Arc<Self>) -> Vec<ServerQuestion> {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.questions.is_empty() {
                wait(&mut state.listens, context);
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut state.questions))
        })
        .await
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
    use portcullis_core::InputRequestKind;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn question(id: u64) -> ServerQuestion {
        let ask = InputRequest { kind: InputRequestKind::Elicit, params: Value::Null };
        ServerQuestion {
            id: RequestId::Number(id),
            ask,
            task: None,
            names_call: false,
            withdrawn: CancellationToken::new(),
        }
    }

    #[test]
    fn who_waits_is_woken_by_what_concerns_it_and_by_nothing_else() {
        let (slot, waits, listens) = (Arc::new(PendingRequest::default()), Arc::default(), Arc::default());
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
        assert!(matches!(slot.poll_news(&mut Context::from_waker(&one)), Poll::Ready(RequestEvent::Alive)));
        assert!(slot.poll_news(&mut Context::from_waker(&one)).is_pending());
        slot.answer(Ok(RawValue::from_string("{}".to_owned()).unwrap()));
        assert_eq!((count(&waits), count(&listens)), (2, 1));
        assert!(matches!(
            slot.poll_news(&mut Context::from_waker(&one)),
            Poll::Ready(RequestEvent::Answer(Ok(_)))
        ));
    }

    #[test]
    fn what_ends_without_an_answer_has_lost_its_server() {
        let slot = PendingRequest::default();
        slot.end();
        slot.answer(Ok(RawValue::from_string("{}".to_owned()).unwrap()));
        let news = slot.poll_news(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(news, Poll::Ready(RequestEvent::Answer(Err(RequestError::Closed)))));
    }

    #[test]
    fn so_many_questions_wait_and_no_more() {
        let slot = PendingRequest::default();
        assert!((0..QUESTIONS_MAX as u64).all(|id| slot.ask(question(id)).is_ok()));
        assert!(slot.ask(question(99)).is_err());
        // A question that was answered or withdrawn makes room.
        slot.answered(&RequestId::Number(7));
        let last = question(99);
        let void = last.withdrawn.clone();
        assert!(slot.ask(last).is_ok() && slot.ask(question(100)).is_err());
        slot.withdraw(&RequestId::Number(99));
        assert!(void.is_cancelled() && slot.is_asking() && slot.ask(question(100)).is_ok());
        assert_eq!(slot.left_open().len(), QUESTIONS_MAX);
        assert!(!slot.is_asking());
    }
}
