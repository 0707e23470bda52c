//! Calls that a server runs as tasks: it answers at once with the name of one, and is asked after it until that has ended.
//!
//! | server | what is run so | who asks after it |
//! |---|---|---|
//! | 2025-11-25 | what the tool's definition wants to be run so | the hub, whoever called |
//! | 2026-07-28 | what the server likes, where the client understands tasks | the client; for one that does not know such tasks, the hub |
//!
//! Where the hub asks, whoever called waits for a call like any other: it can be given up, and can be asked something.

use crate::clean::words;
use crate::connection::{Ask, Connection, LinkError, RequestError};
use crate::drive;
use crate::inbox::{Answer, Listener};
use crate::slot::{News, Slot};
use arc_swap::ArcSwapOption;
use portcullis_core::{
    Answers, AskKind, AskRefused, BoxFuture, ForeignError, LogMessage, Peer, Progress, Question, ToolError,
};
use portcullis_wire::{Era, era, rpc};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a call says that is to run as a task: how long the server keeps it, in milliseconds. Longer than any call may take.
pub(crate) const WANTED: &str = r#""task":{"ttl":3600000}"#;

/// How often a server is asked, where it does not say.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Whatever it says.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);
/// How often in a row a question may get lost, and how long it is waited then.
const LOST_MAX: usize = 3;
const LOST_PAUSE: Duration = Duration::from_secs(1);
/// How long a server may take to hear that a task is no longer needed. Nobody waits for it.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may still begin a task that is no longer needed.
const LATE_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    InputRequired,
    Completed,
    Failed,
    Cancelled,
    #[default]
    #[serde(other)]
    Working,
}

impl Phase {
    fn is_last(self) -> bool {
        matches!(self, Phase::Completed | Phase::Failed | Phase::Cancelled)
    }
}

/// How a task stands, in the words of both eras.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    #[serde(rename = "taskId")]
    pub(crate) id: String,
    #[serde(default)]
    status: Phase,
    status_message: Option<String>,
    poll_interval: Option<f64>,
    poll_interval_ms: Option<f64>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
    input_requests: Option<Map<String, Value>>,
}

impl Task {
    /// Returns the task that a server answers with instead of a result. In the other era's words it is a result.
    pub(crate) fn begun(era: Era, result: &RawValue) -> Option<Task> {
        #[derive(Deserialize)]
        struct Older {
            task: Task,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Newer {
            result_type: String,
        }
        // Most results are only passed on, and need not be taken apart to see that.
        if !result.get().contains("\"taskId\"") {
            return None;
        }
        match era {
            Era::Sessions => serde_json::from_str::<Older>(result.get()).ok().map(|older| older.task),
            Era::PerRequest => {
                let newer: Newer = serde_json::from_str(result.get()).ok()?;
                if newer.result_type == "task" { serde_json::from_str(result.get()).ok() } else { None }
            }
        }
    }

    fn message(&self) -> Option<String> {
        let message = self.status_message.as_deref().filter(|message| !message.is_empty())?;
        Some(words(message))
    }

    fn look_after(&self) -> Duration {
        let said = self.poll_interval_ms.or(self.poll_interval);
        let said = said.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
        said.unwrap_or(LOOK_EVERY).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)
    }

    fn cancelled(&self) -> RequestError {
        let why = self.message().map(|message| format!(": {message}")).unwrap_or_default();
        said(format!("the server cancelled the task{why}"))
    }
}

fn said(message: String) -> RequestError {
    RequestError::Refused(ForeignError { code: i64::from(rpc::INTERNAL_ERROR), message, data: None })
}

/// The client of a call that the hub waits for where it runs as a task.
pub(crate) struct TaskPeer {
    peer: Arc<dyn Peer>,
    /// The same client, where it has come back with a new request.
    later: ArcSwapOption<Arc<dyn Peer>>,
    /// Whether the server itself says how far it is.
    progresses: AtomicBool,
}

impl TaskPeer {
    pub(crate) fn new(peer: Arc<dyn Peer>) -> TaskPeer {
        TaskPeer { peer, later: ArcSwapOption::empty(), progresses: AtomicBool::new(false) }
    }

    /// Speaks to another peer from now on.
    pub(crate) fn goes_on(&self, peer: &Arc<dyn Peer>) {
        self.later.store(Some(Arc::new(peer.clone())));
    }

    fn now(&self) -> Arc<dyn Peer> {
        self.later.load().as_ref().map_or_else(|| self.peer.clone(), |later| (**later).clone())
    }
}

impl Peer for TaskPeer {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.peer)
    }

    fn progress(&self, progress: Progress) {
        self.progresses.store(true, Ordering::Relaxed);
        self.now().progress(progress);
    }

    fn log(&self, message: LogMessage) {
        self.now().log(message);
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        self.peer.ask(questions)
    }

    fn offers(&self, kind: AskKind) -> bool {
        self.peer.offers(kind)
    }

    fn let_go(&self) {
        self.now().let_go();
    }

    fn capabilities(&self) -> Value {
        let mut offered = self.peer.capabilities();
        if !offered.is_object() {
            offered = json!({});
        }
        if !offered["extensions"].is_object() {
            offered["extensions"] = json!({});
        }
        offered["extensions"][era::TASKS] = json!({});
        offered
    }
}

/// A call that may become a task.
pub(crate) struct Tasking {
    connection: Arc<Connection>,
    peer: Arc<TaskPeer>,
    caller: Listener,
    /// How long the server may be silent.
    silence: Duration,
    /// Whether there is nothing left that could be cancelled.
    ended: AtomicBool,
}

impl Tasking {
    pub(crate) fn new(
        connection: Arc<Connection>,
        peer: Arc<TaskPeer>,
        caller: Listener,
        silence: Duration,
    ) -> Tasking {
        Tasking { connection, peer, caller, silence, ended: AtomicBool::new(false) }
    }

    /// Makes the call, and sees it through where it becomes a task.
    pub(crate) async fn request(&self, ask: Ask<'_>) -> Answer {
        let id = self.connection.next_id();
        let mut unfinished = Unfinished { tasking: self, request: id, answered: false };
        let answer = self.connection.request_by(id, ask).await;
        unfinished.answered = !matches!(answer, Err(RequestError::Timeout(_)));
        let answer = answer?;
        let Some(task) = Task::begun(self.connection.era(), &answer) else { return Ok(answer) };
        // What the server says of the call it still says of this request.
        self.connection.inbox.expect(id, Arc::new(Slot::default()), Some(self.caller.clone()));
        let ended = match self.connection.is_modern() {
            true => self.newer(task).await,
            false => self.older(task).await,
        };
        ended.map_err(acted)
    }

    /// A task of the older era: its result is asked for, and so are its questions.
    async fn older(&self, mut task: Task) -> Answer {
        let mut told = Told::default();
        loop {
            told.tell(self, &task);
            match task.status {
                Phase::Working => {
                    tokio::time::sleep(task.look_after()).await;
                    task = self.look(&task.id).await?;
                }
                // Asked for now, the result comes with all questions before it.
                Phase::InputRequired => {
                    return tokio::select! {
                        biased;
                        result = self.result(&task.id) => result,
                        error = self.look_on(&task, &mut told) => Err(error),
                    };
                }
                Phase::Completed | Phase::Failed => return self.result(&task.id).await,
                Phase::Cancelled => return Err(task.cancelled()),
            }
        }
    }

    /// A task of the newer era: all of it is in how it stands.
    async fn newer(&self, mut task: Task) -> Answer {
        let (mut told, mut answered) = (Told::default(), Vec::new());
        loop {
            told.tell(self, &task);
            match task.status {
                Phase::Working => {}
                Phase::InputRequired => {
                    let mut open = task.input_requests.take().unwrap_or_default();
                    // What was answered may still stand there the next time.
                    open.retain(|key, _| !answered.contains(key));
                    answered.extend(open.keys().cloned());
                    self.answer(&task.id, open).await?;
                }
                Phase::Completed => {
                    return task.result.ok_or_else(|| said("the task has ended without a result".to_owned()));
                }
                Phase::Failed => {
                    return Err(match task.error {
                        Some(error) => RequestError::refused(&error),
                        None => said("the task has failed without a reason".to_owned()),
                    });
                }
                Phase::Cancelled => return Err(task.cancelled()),
            }
            tokio::time::sleep(task.look_after()).await;
            task = self.look(&task.id).await?;
        }
    }

    /// Puts the questions of a task to the client.
    async fn answer(&self, id: &str, open: Map<String, Value>) -> Result<(), RequestError> {
        if open.is_empty() {
            return Ok(());
        }
        let questions =
            drive::questions(&self.connection.inbox, open).map_err(|error| said(error.message))?;
        let answers = drive::ask_each(&*self.peer, questions).await.map_err(|refused| match refused {
            AskRefused::Refused(_) => said(ToolError::from(refused).message),
            _ => said("the client did not answer what the task asked".to_owned()),
        })?;
        let answers = Value::Object(answers.into_iter().collect());
        self.about("tasks/update", id, &format!(r#""inputResponses":{answers}"#)).await.map(drop)
    }

    /// Asks how a task stands.
    async fn look(&self, id: &str) -> Result<Task, RequestError> {
        let stands = self.about("tasks/get", id, "").await?;
        let task: Task = serde_json::from_str(stands.get())
            .map_err(|_| said("the server does not say how the task stands".to_owned()))?;
        if task.status.is_last() {
            self.ended.store(true, Ordering::Relaxed);
        }
        Ok(task)
    }

    /// Looks at a task while its result is waited for: as long as it goes on, the server is alive. Returns where nothing
    /// can be learnt of it any more.
    async fn look_on(&self, task: &Task, told: &mut Told) -> RequestError {
        loop {
            tokio::time::sleep(task.look_after()).await;
            match self.look(&task.id).await {
                Ok(task) => {
                    told.tell(self, &task);
                    self.caller.slot.alive();
                    if task.status.is_last() {
                        break;
                    }
                }
                // Some forget a task with its result, which is on its way then.
                Err(RequestError::Refused(_)) => break,
                Err(error) => return error,
            }
        }
        pending().await
    }

    async fn result(&self, id: &str) -> Answer {
        let params = format!(r#""taskId":{}"#, Value::from(id));
        let mut lost = Lost::default();
        loop {
            // The answer that said that there is a task was another one, and so was one that got lost.
            self.caller.slot.reopen();
            let ask = Ask {
                method: "tasks/result",
                params: [&params, "", ""],
                meta: "",
                name: None,
                headers: &[],
                caller: Some(Listener { sees_through: None, ..self.caller.clone() }),
                timeout: self.silence,
                silence: self.silence,
            };
            let answer = self.connection.request(ask).await;
            if matches!(answer, Ok(_) | Err(RequestError::Refused(_))) {
                self.ended.store(true, Ordering::Relaxed);
            }
            match answer {
                Err(error) if lost.may_be_asked_again(&error) => tokio::time::sleep(LOST_PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// Asks about a task, again where the question got lost on the way.
    async fn about(&self, method: &str, id: &str, more: &str) -> Answer {
        let mut lost = Lost::default();
        loop {
            match self.connection.about_task(method, id, more, self.silence).await {
                Err(error) if lost.may_be_asked_again(&error) => tokio::time::sleep(LOST_PAUSE).await,
                answer => return answer,
            }
        }
    }
}

/// How often a question got lost.
#[derive(Default)]
struct Lost {
    times: usize,
    late: bool,
}

impl Lost {
    fn may_be_asked_again(&mut self, error: &RequestError) -> bool {
        match error {
            RequestError::Link(
                LinkError::Failed { .. }
                | LinkError::NoCredentials(_)
                | LinkError::Unsuitable { status: 429 | 500.., .. },
            ) => {
                self.times += 1;
                self.times <= LOST_MAX
            }
            // The client may have been asked something meanwhile, and that time is not the server's.
            RequestError::Timeout(_) => !std::mem::replace(&mut self.late, true),
            _ => false,
        }
    }
}

/// What was told of a task so far.
#[derive(Default)]
struct Told {
    last: Option<String>,
    times: u32,
}

impl Told {
    /// Tells the client what a server says of a task, where it does not say how far it is.
    fn tell(&mut self, tasking: &Tasking, task: &Task) {
        let message = task.message();
        if message.is_none() || message == self.last || tasking.peer.progresses.load(Ordering::Relaxed) {
            return;
        }
        self.times += 1;
        self.last.clone_from(&message);
        tasking.peer.now().progress(Progress::new(f64::from(self.times), None, message));
    }
}

/// Ends a task that nobody waits for any more.
struct Unfinished<'a> {
    tasking: &'a Tasking,
    request: u64,
    /// Whether the server has said what it makes of the call.
    answered: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let (connection, request) = (self.tasking.connection.clone(), self.request);
        let task = connection.inbox.end_task(request);
        connection.inbox.forget(request);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if connection.closed().is_cancelled() {
            return;
        }
        match task {
            Some(task) if !self.tasking.ended.load(Ordering::Relaxed) => {
                runtime.spawn(async move { cancel(&connection, &task).await });
            }
            None if !self.answered => {
                runtime.spawn(async move { cancel_late(&connection, request).await });
            }
            _ => {}
        }
    }
}

async fn cancel(connection: &Connection, task: &str) {
    // One that has just ended cannot be cancelled, and need not be.
    let _ = connection.about_task("tasks/cancel", task, "", CANCEL_WITHIN).await;
}

/// A server that was told in time that the call is no longer needed says nothing more. One that was not may still begin.
async fn cancel_late(connection: &Connection, request: u64) {
    let slot = Arc::new(Slot::default());
    connection.inbox.expect(request, slot.clone(), None);
    let answer = tokio::select! {
        biased;
        news = poll_fn(|context| slot.poll_news(context)) => Some(news),
        // The server ends with whoever holds the connection, and its tasks with it.
        () = connection.inbox.retired.cancelled() => None,
        () = tokio::time::sleep(LATE_WITHIN) => None,
    };
    connection.inbox.forget(request);
    if let Some(News::Answer(Ok(answer))) = answer
        && let Some(task) = Task::begun(connection.era(), &answer)
    {
        cancel(connection, &task.id).await;
    }
}

/// Since there is a task the server has acted on the call, whatever got lost after that.
fn acted(error: RequestError) -> RequestError {
    match error {
        RequestError::Link(error @ (LinkError::SessionLost | LinkError::Failed { sent: false, .. })) => {
            RequestError::Link(LinkError::Failed { why: error.to_string(), sent: true })
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;
    use crate::link::{Link, Outgoing};
    use tokio::time::Instant;

    struct Nowhere;

    impl Link for Nowhere {
        fn send<'a>(&'a self, _: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_task_is_waited_for_no_longer_than_the_connection_is_kept() {
        for (is_kept, expected) in [(true, LATE_WITHIN), (false, Duration::ZERO)] {
            let inbox = Inbox::new().0;
            let (connection, began) = (Connection::new(Arc::new(Nowhere), inbox.clone()), Instant::now());
            let ends = async {
                tokio::task::yield_now().await;
                if !is_kept {
                    inbox.retire();
                }
            };
            tokio::join!(cancel_late(&connection, 1), ends);
            assert_eq!(began.elapsed(), expected);
            assert!(!inbox.awaits(1));
        }
    }

    fn begun(era: Era, result: &str) -> Option<Task> {
        Task::begun(era, &RawValue::from_string(result.to_owned()).unwrap())
    }

    #[test]
    fn a_task_is_told_from_a_result() {
        for result in [
            r#"{"content":[]}"#,
            r#"{"content":[{"type":"text","text":"\"taskId\""}]}"#,
            r#"{"structuredContent":{"taskId":"1","status":"working"}}"#,
            r#"{"resultType":"complete","taskId":"1","status":"working"}"#,
            r#"{"task":{"taskId":7,"status":"working"}}"#,
        ] {
            for era in [Era::Sessions, Era::PerRequest] {
                assert!(begun(era, result).is_none(), "{result}");
            }
        }
        let older = r#"{"task":{"taskId":"1","status":"working","ttl":null,"pollInterval":700}}"#;
        // What a server of the other era calls so is its own affair, and part of the result.
        assert!(begun(Era::PerRequest, older).is_none());
        let older = begun(Era::Sessions, older).unwrap();
        assert_eq!((older.look_after(), older.status), (Duration::from_millis(700), Phase::Working));
        let newer =
            r#"{"resultType":"task","taskId":"1","status":"input_required","ttlMs":1,"pollIntervalMs":0}"#;
        assert!(begun(Era::Sessions, newer).is_none());
        let newer = begun(Era::PerRequest, newer).unwrap();
        assert_eq!((newer.look_after(), newer.status), (LOOK_EVERY_MIN, Phase::InputRequired));
        for (strange, expected) in [("-1", LOOK_EVERY), ("1e300", LOOK_EVERY), ("1e9", LOOK_EVERY_MAX)] {
            let task =
                format!(r#"{{"task":{{"taskId":"1","status":"from tomorrow","pollInterval":{strange}}}}}"#);
            let task = begun(Era::Sessions, &task).unwrap();
            assert_eq!((task.look_after(), task.status), (expected, Phase::Working), "{strange}");
        }
    }
}
