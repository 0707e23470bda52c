//! Calls that a server runs as tasks: it answers at once with the name of one, and is asked after it until that has ended.
//!
//! | server | what is run so | who asks after it |
//! |---|---|---|
//! | 2025-11-25 | what the tool's definition wants to be run so | the hub, whoever called |
//! | 2026-07-28 | what the server likes, where the client understands tasks | the client; for one that does not know such tasks, the hub |
//!
//! Where the hub asks, whoever called waits for a call like any other: it can be given up, and can be asked something.

use crate::connection::{Ask, Connection, LinkError, RequestError};
use crate::drive;
use crate::inbox::{Answer, Listener};
use crate::slot::Slot;
use portcullis_core::json::printable;
use portcullis_core::{
    Answers, AskKind, AskRefused, BoxFuture, ForeignError, LogMessage, Peer, Progress, Question,
};
use portcullis_wire::{era, rpc};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a call says that is to run as a task: how long the server keeps it, in milliseconds. Longer than any call may take.
pub(crate) const WANTED: &str = r#""task":{"ttl":3600000}"#;

/// How often a server is asked, where it does not say.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Whatever it says.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(5);
/// How often in a row the question may get lost.
const LOST_MAX: usize = 3;
/// How long a server may take to hear that a task is no longer needed. Nobody waits for it.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// How much of what a server says of a task is told.
const MESSAGE_CHARS_MAX: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    InputRequired,
    Completed,
    Failed,
    Cancelled,
    #[serde(other)]
    Working,
}

/// How a task stands, in the words of both eras.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    task_id: String,
    status: Phase,
    status_message: Option<String>,
    #[serde(alias = "pollInterval")]
    poll_interval_ms: Option<f64>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
    #[serde(default)]
    input_requests: Map<String, Value>,
}

impl Task {
    /// Returns the task that a server answers with instead of a result.
    pub(crate) fn begun(result: &RawValue) -> Option<Task> {
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
        if let Ok(older) = serde_json::from_str::<Older>(result.get()) {
            return Some(older.task);
        }
        let newer: Newer = serde_json::from_str(result.get()).ok()?;
        if newer.result_type == "task" { serde_json::from_str(result.get()).ok() } else { None }
    }

    fn message(&self) -> Option<String> {
        let message = self.status_message.as_deref().filter(|message| !message.is_empty())?;
        Some(printable(message).chars().take(MESSAGE_CHARS_MAX).collect())
    }

    fn look_after(&self) -> Duration {
        let said = self.poll_interval_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
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
    /// Whether the server itself says how far it is.
    progresses: AtomicBool,
}

impl TaskPeer {
    pub(crate) fn new(peer: Arc<dyn Peer>) -> TaskPeer {
        TaskPeer { peer, progresses: AtomicBool::new(false) }
    }
}

impl Peer for TaskPeer {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.peer)
    }

    fn progress(&self, progress: Progress) {
        self.progresses.store(true, Ordering::Relaxed);
        self.peer.progress(progress);
    }

    fn log(&self, message: LogMessage) {
        self.peer.log(message);
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        self.peer.ask(questions)
    }

    fn offers(&self, kind: AskKind) -> bool {
        self.peer.offers(kind)
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
    pub(crate) connection: Arc<Connection>,
    pub(crate) peer: Arc<TaskPeer>,
    pub(crate) caller: Listener,
    /// How long the server may be silent.
    pub(crate) within: Duration,
}

impl Tasking {
    /// Makes the call, and sees it through where it becomes a task.
    pub(crate) async fn request(&self, ask: Ask<'_>) -> Answer {
        let id = self.connection.next_id();
        let answer = self.connection.request_by(id, ask).await?;
        let Some(task) = Task::begun(&answer) else { return Ok(answer) };
        // What the server says of the call it still says of this request.
        self.connection.inbox.expect(id, Arc::new(Slot::default()), Some(self.caller.clone()));
        let mut unfinished = Unfinished { tasking: self, request: id, task: Some(task.task_id.clone()) };
        let ended = match self.connection.is_modern() {
            true => self.newer(task).await,
            false => self.older(task).await,
        };
        if !matches!(ended, Err(RequestError::Timeout(_))) {
            unfinished.task = None;
        }
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
                    task = self.look(&task.task_id).await?;
                }
                // Asked for now, the result comes with all questions before it.
                Phase::InputRequired => {
                    return tokio::select! {
                        result = self.result(&task.task_id) => result,
                        error = self.look_on(&task, &mut told) => Err(error),
                    };
                }
                Phase::Completed | Phase::Failed => return self.result(&task.task_id).await,
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
                    let mut open = std::mem::take(&mut task.input_requests);
                    // What was answered may still stand there the next time.
                    open.retain(|key, _| !answered.contains(key));
                    answered.extend(open.keys().cloned());
                    self.answer(&task.task_id, open).await?;
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
            task = self.look(&task.task_id).await?;
        }
    }

    /// Puts the questions of a task to the client.
    async fn answer(&self, id: &str, open: Map<String, Value>) -> Result<(), RequestError> {
        if open.is_empty() {
            return Ok(());
        }
        let questions = drive::questions(open).map_err(|error| said(error.message))?;
        let Ok(answers) = self.peer.ask(questions).await else {
            self.about("tasks/cancel", id, "").await?;
            return Err(said("the client did not answer what the task asked".to_owned()));
        };
        let answers = Value::Object(answers.into_iter().collect());
        self.about("tasks/update", id, &format!(r#","inputResponses":{answers}"#)).await.map(drop)
    }

    /// Asks how a task stands, again where the question got lost on the way.
    async fn look(&self, id: &str) -> Result<Task, RequestError> {
        let mut lost = 0;
        loop {
            match self.about("tasks/get", id, "").await {
                Ok(stands) => {
                    return serde_json::from_str(stands.get())
                        .map_err(|_| said("the server does not say how the task stands".to_owned()));
                }
                Err(RequestError::Link(LinkError::Failed { .. })) if lost < LOST_MAX => {
                    lost += 1;
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks at a task while its result is waited for: as long as there is one, the server is alive. Returns why there is
    /// none any more.
    async fn look_on(&self, task: &Task, told: &mut Told) -> RequestError {
        loop {
            tokio::time::sleep(task.look_after()).await;
            match self.look(&task.task_id).await {
                Ok(task) => told.tell(self, &task),
                Err(error) => return error,
            }
            self.caller.slot.alive();
        }
    }

    async fn result(&self, id: &str) -> Answer {
        // The answer that said that there is a task was another one.
        self.caller.slot.reopen();
        let params = format!(r#""taskId":{}"#, Value::from(id));
        let ask = Ask {
            method: "tasks/result",
            params: [&params, "", ""],
            meta: "",
            name: None,
            headers: &[],
            caller: Some(self.caller.clone()),
            timeout: self.within,
        };
        self.connection.request(ask).await
    }

    async fn about(&self, method: &str, id: &str, more: &str) -> Answer {
        let params = format!(r#""taskId":{}{more}"#, Value::from(id));
        about(&self.connection, method, params, self.within).await
    }
}

async fn about(connection: &Connection, method: &str, params: String, within: Duration) -> Answer {
    match connection.is_modern() {
        true => connection.about_task(method, params, within).await,
        false => connection.own(method, params, within).await,
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
        tasking.peer.peer.progress(Progress { progress: f64::from(self.times), total: None, message });
    }
}

/// Ends a task that nobody waits for any more.
struct Unfinished<'a> {
    tasking: &'a Tasking,
    request: u64,
    task: Option<String>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let connection = self.tasking.connection.clone();
        connection.inbox.forget(self.request);
        let (Some(id), Ok(runtime)) = (self.task.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        if !connection.inbox.closed.is_cancelled() {
            runtime.spawn(async move {
                let params = format!(r#""taskId":{}"#, Value::from(id));
                // One that has just ended cannot be cancelled, and need not be.
                let _ = about(&connection, "tasks/cancel", params, CANCEL_WITHIN).await;
            });
        }
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

    fn begun(result: &str) -> Option<Task> {
        Task::begun(&RawValue::from_string(result.to_owned()).unwrap())
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
            assert!(begun(result).is_none(), "{result}");
        }
        let older =
            begun(r#"{"task":{"taskId":"1","status":"working","ttl":null,"pollInterval":700}}"#).unwrap();
        assert_eq!((older.look_after(), older.status), (Duration::from_millis(700), Phase::Working));
        let newer =
            r#"{"resultType":"task","taskId":"1","status":"input_required","ttlMs":1,"pollIntervalMs":0}"#;
        let newer = begun(newer).unwrap();
        assert_eq!((newer.look_after(), newer.status), (LOOK_EVERY_MIN, Phase::InputRequired));
        for (strange, expected) in [("-1", LOOK_EVERY), ("1e300", LOOK_EVERY), ("1e9", LOOK_EVERY_MAX)] {
            let task = begun(&format!(
                r#"{{"task":{{"taskId":"1","status":"from tomorrow","pollInterval":{strange}}}}}"#
            ));
            let task = task.unwrap();
            assert_eq!((task.look_after(), task.status), (expected, Phase::Working), "{strange}");
        }
    }
}
