//! Calls that a server runs as tasks: it responds at once with a task id, and is polled until the task has ended.
//!
//! | server | which calls | who polls |
//! |---|---|---|
//! | 2025-11-25 | those whose tool requires it | the hub |
//! | 2026-07-28 | those that the server chooses, where the client declares the extension | the client; for one that does not declare it, the hub |
//!
//! Where the hub polls, the client waits for a call like any other: it can cancel it, and can be asked.

use super::input_required::questions;
use super::round::ask_each;
use crate::rpc::{
    CallOwner, Connection, PendingRequest, Phase, RequestEvent, RequestResult, RequestSpec, UpstreamTask,
};
use crate::sanitize::words;
use crate::transport::{LinkError, RequestError};
use arc_swap::ArcSwapOption;
use portcullis_core::{
    BoxFuture, ForeignError, InputRefusal, InputRequestKind, InputResponses, KeyedInputRequest, LogMessage,
    Peer, Progress, ToolError,
};
use portcullis_wire::{TaskDelivery, era, rpc};
use serde_json::{Map, Value, json};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Asks for a task, with its lifetime in milliseconds. Longer than any call may take.
pub(crate) const TASK_REQUEST: &str = r#""task":{"ttl":3600000}"#;

/// The default poll interval.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Bounds of the server's poll interval.
const POLL_EVERY_MIN: Duration = Duration::from_millis(50);
const POLL_EVERY_MAX: Duration = Duration::from_secs(60);
/// How often in a row a poll may fail in transport, and the pause after that.
const LOST_MAX: usize = 3;
const LOST_PAUSE: Duration = Duration::from_secs(1);
/// The timeout of `tasks/cancel`. No caller waits for it.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may still begin a task for a cancelled call.
const LATE_WITHIN: Duration = Duration::from_secs(30);

impl UpstreamTask {
    fn message(&self) -> Option<String> {
        let message = self.status_message.as_deref().filter(|message| !message.is_empty())?;
        Some(words(message))
    }

    fn poll_interval(&self) -> Duration {
        let said = self.poll_interval_ms.or(self.poll_interval);
        let said = said.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
        said.unwrap_or(POLL_EVERY).clamp(POLL_EVERY_MIN, POLL_EVERY_MAX)
    }

    fn cancelled(&self) -> RequestError {
        let why = self.message().map(|message| format!(": {message}")).unwrap_or_default();
        said(format!("the server cancelled the task{why}"))
    }
}

fn said(message: String) -> RequestError {
    RequestError::Refused(ForeignError { code: i64::from(rpc::INTERNAL_ERROR), message, data: None })
}

/// The peer of a call that the hub polls as a task.
pub(crate) struct TaskPeer {
    peer: Arc<dyn Peer>,
    /// The same client, after it came back with a new request.
    later: ArcSwapOption<Arc<dyn Peer>>,
    /// Whether the server sends progress itself.
    progresses: AtomicBool,
}

impl TaskPeer {
    pub(crate) fn new(peer: Arc<dyn Peer>) -> TaskPeer {
        TaskPeer { peer, later: ArcSwapOption::empty(), progresses: AtomicBool::new(false) }
    }

    /// Reports to another peer from now on.
    pub(crate) fn rebind(&self, peer: &Arc<dyn Peer>) {
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

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        self.peer.ask(questions)
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.peer.offers(kind)
    }

    fn close_connection(&self) {
        self.now().close_connection();
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
pub(crate) struct TaskCall {
    connection: Arc<Connection>,
    peer: Arc<TaskPeer>,
    caller: CallOwner,
    /// How long the server may be silent.
    silence: Duration,
    /// Whether there is nothing left to cancel.
    ended: AtomicBool,
}

impl TaskCall {
    pub(crate) fn new(
        connection: Arc<Connection>,
        peer: Arc<TaskPeer>,
        caller: CallOwner,
        silence: Duration,
    ) -> TaskCall {
        TaskCall { connection, peer, caller, silence, ended: AtomicBool::new(false) }
    }

    /// Sends the request, and polls where it becomes a task.
    pub(crate) async fn request(&self, ask: RequestSpec<'_>) -> RequestResult {
        let id = self.connection.next_id();
        let mut unfinished = TaskCancelGuard { tasking: self, request: id, answered: false };
        let answer = self.connection.request_by(id, ask).await;
        unfinished.answered = !matches!(answer, Err(RequestError::Timeout(_)));
        let answer = answer?;
        let Some(task) = UpstreamTask::begun(self.connection.dialect(), &answer) else { return Ok(answer) };
        // Messages about the call still name this request.
        self.connection.demux.pending.expect(
            id,
            Arc::new(PendingRequest::default()),
            Some(self.caller.clone()),
        );
        let ended = match self.connection.dialect().task_delivery() {
            TaskDelivery::InStatus => self.run_with_status(task).await,
            TaskDelivery::OnRequest => self.run_with_result_request(task).await,
        };
        ended.map_err(mark_acted)
    }

    /// A task of the older era: `tasks/result` brings its questions and its result.
    async fn run_with_result_request(&self, mut task: UpstreamTask) -> RequestResult {
        let mut reporter = ProgressReporter::default();
        loop {
            reporter.report(self, &task);
            match task.status {
                Phase::Working => {
                    tokio::time::sleep(task.poll_interval()).await;
                    task = self.poll(&task.id).await?;
                }
                // `tasks/result` now: its response comes after all questions.
                Phase::InputRequired => {
                    return tokio::select! {
                        biased;
                        result = self.result(&task.id) => result,
                        error = self.poll_until_result(&task, &mut reporter) => Err(error),
                    };
                }
                Phase::Completed | Phase::Failed => return self.result(&task.id).await,
                Phase::Cancelled => return Err(task.cancelled()),
            }
        }
    }

    /// A task of the newer era: questions and result are part of its status.
    async fn run_with_status(&self, mut task: UpstreamTask) -> RequestResult {
        let (mut reporter, mut answered) = (ProgressReporter::default(), Vec::new());
        loop {
            reporter.report(self, &task);
            match task.status {
                Phase::Working => {}
                Phase::InputRequired => {
                    let mut open = task.input_requests.take().unwrap_or_default();
                    // An answered question may still be listed the next time.
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
            tokio::time::sleep(task.poll_interval()).await;
            task = self.poll(&task.id).await?;
        }
    }

    /// Asks the client the questions of a task.
    async fn answer(&self, id: &str, open: Map<String, Value>) -> Result<(), RequestError> {
        if open.is_empty() {
            return Ok(());
        }
        let questions = questions(&self.connection.demux, open).map_err(|error| said(error.message))?;
        let answers = ask_each(&*self.peer, questions).await.map_err(|refused| match refused {
            InputRefusal::Refused(_) => said(ToolError::from(refused).message),
            _ => said("the client did not answer the task's question".to_owned()),
        })?;
        let answers = Value::Object(answers.into_iter().collect());
        self.about("tasks/update", id, &format!(r#""inputResponses":{answers}"#)).await.map(drop)
    }

    /// Polls a task.
    async fn poll(&self, id: &str) -> Result<UpstreamTask, RequestError> {
        let status = self.about("tasks/get", id, "").await?;
        let task: UpstreamTask = serde_json::from_str(status.get())
            .map_err(|_| said("the server's task status is invalid".to_owned()))?;
        if task.status.is_last() {
            self.ended.store(true, Ordering::Relaxed);
        }
        Ok(task)
    }

    /// Polls a task while its result is waited for: as long as it goes on, the server is alive. Returns only if
    /// polling fails.
    async fn poll_until_result(&self, task: &UpstreamTask, reporter: &mut ProgressReporter) -> RequestError {
        loop {
            tokio::time::sleep(task.poll_interval()).await;
            match self.poll(&task.id).await {
                Ok(task) => {
                    reporter.report(self, &task);
                    self.caller.slot.alive();
                    if task.status.is_last() {
                        break;
                    }
                }
                // Some servers forget a task with its result, which is on its way then.
                Err(RequestError::Refused(_)) => break,
                Err(error) => return error,
            }
        }
        pending().await
    }

    async fn result(&self, id: &str) -> RequestResult {
        let params = format!(r#""taskId":{}"#, Value::from(id));
        let mut lost = PollRetries::default();
        loop {
            // The slot has had the response that began the task, or a lost one.
            self.caller.slot.reopen();
            let ask = RequestSpec {
                method: "tasks/result",
                params: [&params, "", ""],
                meta: "",
                name: None,
                headers: &[],
                caller: Some(CallOwner { task_dialect: None, ..self.caller.clone() }),
                timeout: self.silence,
                silence: self.silence,
            };
            let answer = self.connection.request(ask).await;
            if matches!(answer, Ok(_) | Err(RequestError::Refused(_))) {
                self.ended.store(true, Ordering::Relaxed);
            }
            match answer {
                Err(error) if lost.may_retry(&error) => tokio::time::sleep(LOST_PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// Sends a request about a task, again where it got lost in transport.
    async fn about(&self, method: &str, id: &str, more: &str) -> RequestResult {
        let mut lost = PollRetries::default();
        loop {
            match self.connection.about_task(method, id, more, self.silence).await {
                Err(error) if lost.may_retry(&error) => tokio::time::sleep(LOST_PAUSE).await,
                answer => return answer,
            }
        }
    }
}

/// Retries of one poll.
#[derive(Default)]
struct PollRetries {
    times: usize,
    late: bool,
}

impl PollRetries {
    fn may_retry(&mut self, error: &RequestError) -> bool {
        match error {
            RequestError::Link(
                LinkError::Failed { .. }
                | LinkError::NoCredentials(_)
                | LinkError::Unsuitable { status: 429 | 500.., .. },
            ) => {
                self.times += 1;
                self.times <= LOST_MAX
            }
            // A client may have been asked meanwhile, and that time does not count.
            RequestError::Timeout(_) => !std::mem::replace(&mut self.late, true),
            _ => false,
        }
    }
}

/// What was reported of a task so far.
#[derive(Default)]
struct ProgressReporter {
    last: Option<String>,
    times: u32,
}

impl ProgressReporter {
    /// Reports the status message of a task as progress, where the server sends none.
    fn report(&mut self, tasking: &TaskCall, task: &UpstreamTask) {
        let message = task.message();
        if message.is_none() || message == self.last || tasking.peer.progresses.load(Ordering::Relaxed) {
            return;
        }
        self.times += 1;
        self.last.clone_from(&message);
        tasking.peer.now().progress(Progress::new(f64::from(self.times), None, message));
    }
}

/// Cancels a task whose call has ended.
struct TaskCancelGuard<'a> {
    tasking: &'a TaskCall,
    request: u64,
    /// Whether the server has responded to the call.
    answered: bool,
}

impl Drop for TaskCancelGuard<'_> {
    fn drop(&mut self) {
        let (connection, request) = (self.tasking.connection.clone(), self.request);
        let task = connection.demux.pending.end_task(request);
        connection.demux.pending.forget(request);
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
    // A task that has just ended cannot be cancelled, and need not be.
    let _ = connection.about_task("tasks/cancel", task, "", CANCEL_WITHIN).await;
}

/// A server that was notified in time begins no task for a cancelled call. One that was not may still begin it.
async fn cancel_late(connection: &Connection, request: u64) {
    let slot = Arc::new(PendingRequest::default());
    connection.demux.pending.expect(request, slot.clone(), None);
    let answer = tokio::select! {
        biased;
        news = poll_fn(|context| slot.poll_news(context)) => Some(news),
        // The server ends with its connection, and its tasks with it.
        () = connection.demux.life.retired.cancelled() => None,
        () = tokio::time::sleep(LATE_WITHIN) => None,
    };
    connection.demux.pending.forget(request);
    if let Some(RequestEvent::Answer(Ok(answer))) = answer
        && let Some(task) = UpstreamTask::begun(connection.dialect(), &answer)
    {
        cancel(connection, &task.id).await;
    }
}

/// Once there is a task the server has acted on the call, whatever got lost after that.
fn mark_acted(error: RequestError) -> RequestError {
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
    use crate::rpc::Demux;
    use crate::transport::Inbound;
    use crate::transport::test_link::NullLink;
    use portcullis_wire::Era;
    use serde_json::value::RawValue;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_late_task_is_waited_for_no_longer_than_the_connection_is_kept() {
        for (is_kept, expected) in [(true, LATE_WITHIN), (false, Duration::ZERO)] {
            let demux = Demux::new().0;
            let (connection, began) = (Connection::new(Arc::new(NullLink), demux.clone()), Instant::now());
            let ends = async {
                tokio::task::yield_now().await;
                if !is_kept {
                    demux.life.retire();
                }
            };
            tokio::join!(cancel_late(&connection, 1), ends);
            assert_eq!(began.elapsed(), expected);
            assert!(!demux.awaits(1));
        }
    }

    fn begun(era: Era, result: &str) -> Option<UpstreamTask> {
        UpstreamTask::begun(era.client(), &RawValue::from_string(result.to_owned()).unwrap())
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
        // A member of that name in the other era is part of the result.
        assert!(begun(Era::PerRequest, older).is_none());
        let older = begun(Era::Sessions, older).unwrap();
        assert_eq!((older.poll_interval(), older.status), (Duration::from_millis(700), Phase::Working));
        let newer =
            r#"{"resultType":"task","taskId":"1","status":"input_required","ttlMs":1,"pollIntervalMs":0}"#;
        assert!(begun(Era::Sessions, newer).is_none());
        let newer = begun(Era::PerRequest, newer).unwrap();
        assert_eq!((newer.poll_interval(), newer.status), (POLL_EVERY_MIN, Phase::InputRequired));
        for (strange, expected) in [("-1", POLL_EVERY), ("1e300", POLL_EVERY), ("1e9", POLL_EVERY_MAX)] {
            let task =
                format!(r#"{{"task":{{"taskId":"1","status":"from tomorrow","pollInterval":{strange}}}}}"#);
            let task = begun(Era::Sessions, &task).unwrap();
            assert_eq!((task.poll_interval(), task.status), (expected, Phase::Working), "{strange}");
        }
    }
}
