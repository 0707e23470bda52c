//! MCP tasks: calls that continue in the background while the client polls.

use crate::dispatch::{CallJob, error_style, log_failure};
use crate::session::random_id;
use parking_lot::Mutex;
use portcullis_core::{
    BoxFuture, CallCtx, Client, ErrorKind, ForeignTask, InputRefusal, InputRequest, InputRequestKind,
    InputResponses, KeyedInputRequest, LogMessage, Peer, Progress, SessionDigest, ToolError,
};
use portcullis_wire::era::{self, ResultKind};
use portcullis_wire::rpc::{RpcOutcome, SERVER_ERROR};
use portcullis_wire::{RpcError, render};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Tasks of a hub.
const TASKS_MAX: usize = 1_000;
/// Tasks of one client.
const TASKS_PER_CLIENT_MAX: usize = 100;
/// Upstream tasks of all clients; the client with the most loses its oldest first.
const FOREIGN_MAX: usize = 10_000;
/// Upstream tasks of one client; its oldest are dropped first.
const FOREIGN_PER_CLIENT_MAX: usize = 1_000;
/// How long a finished task is kept (`ttlMs`).
const KEPT_FOR: Duration = Duration::from_secs(300);
/// The suggested poll interval.
const POLL_EVERY_MS: u64 = 200;

enum Phase {
    Working,
    Asking(BTreeMap<String, KeyedInputRequest>),
    /// The result object, or the error.
    Ended(&'static str, Result<Value, RpcError>),
}

struct TaskProgress {
    phase: Phase,
    answers: InputResponses,
    updated: jiff::Timestamp,
    ended_at: Option<Instant>,
}

/// The owner of a task: the client with this token, and no later client with the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    name: String,
    token: Option<u64>,
}

impl Owner {
    fn of(client: &Client) -> Owner {
        Owner { name: client.name.clone(), token: client.token }
    }
}

struct Task {
    id: String,
    owner: Owner,
    created: jiff::Timestamp,
    state: Mutex<TaskProgress>,
    answered: Notify,
    cancel: CancellationToken,
    clock: Arc<dyn portcullis_core::Clock>,
}

fn now(clock: &dyn portcullis_core::Clock) -> jiff::Timestamp {
    jiff::Timestamp::try_from(clock.now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

impl Task {
    /// Ends the task, unless it has ended. Pending questions in it fail.
    fn end(&self, status: &'static str, result: Result<Value, RpcError>) {
        {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Ended(..)) {
                return;
            }
            state.ended_at = Some(Instant::now());
            state.phase = Phase::Ended(status, result);
            state.updated = now(&*self.clock);
        }
        self.wake();
    }

    /// Wakes the calls that wait for answers.
    fn wake(&self) {
        self.answered.notify_waiters();
        // A permit for a waiter that is between its check and its wait.
        self.answered.notify_one();
    }

    /// Adds questions to those that are pending. An answer to an earlier question with the same key is dropped.
    fn asks(&self, questions: Vec<KeyedInputRequest>) {
        let mut state = self.state.lock();
        for question in &questions {
            state.answers.remove(&question.key);
        }
        let questions = questions.into_iter().map(|question| (question.key.clone(), question));
        match &mut state.phase {
            Phase::Working => state.phase = Phase::Asking(questions.collect()),
            Phase::Asking(open) => open.extend(questions),
            Phase::Ended(..) => return,
        }
        state.updated = now(&*self.clock);
    }

    fn show(&self) -> Value {
        let state = self.state.lock();
        let mut shown = json!({
            "taskId": self.id,
            "status": match &state.phase {
                Phase::Working => "working",
                Phase::Asking(_) => "input_required",
                Phase::Ended(status, _) => status,
            },
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": state.updated.to_string(),
            "ttlMs": KEPT_FOR.as_millis() as u64,
            "pollIntervalMs": POLL_EVERY_MS,
        });
        match &state.phase {
            Phase::Working => {}
            Phase::Asking(questions) => {
                let requests: serde_json::Map<String, Value> =
                    questions.iter().map(|(key, q)| (key.clone(), render::question(&q.ask))).collect();
                shown["inputRequests"] = requests.into();
            }
            Phase::Ended("completed", Ok(result)) => shown["result"] = result.clone(),
            Phase::Ended("failed", Err(error)) => shown["error"] = json!(error),
            Phase::Ended(..) => {}
        }
        shown
    }
}

/// All tasks of a hub.
#[derive(Default)]
pub(crate) struct Tasks {
    all: Mutex<HashMap<String, Arc<Task>>>,
    /// Upstream tasks by owner, the oldest first. Finished ones too: their results can be requested as long as the
    /// upstream keeps them.
    foreign: Mutex<HashMap<Owner, VecDeque<Arc<ForeignTask>>>>,
}

/// Returns an upstream's result with the task id that the client knows.
pub(crate) fn renamed(task: &ForeignTask, said: Box<RawValue>) -> Box<RawValue> {
    if task.id == task.own { said } else { era::with_task_id(&said, &task.id) }
}

/// Returns the task id, if a result is a task.
fn task_of(result: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Peek {
        result_type: Option<String>,
        task_id: Option<String>,
    }
    // A quick check, because most results are passed on without parsing.
    if !result.get().contains("\"task\"") {
        return None;
    }
    let peek: Peek = serde_json::from_str(result.get()).ok()?;
    peek.task_id.filter(|_| peek.result_type.as_deref() == Some("task"))
}

/// Evicts a task if the owner is at its limit, or one of the owner with the most if the hub is.
fn make_room(foreign: &mut HashMap<Owner, VecDeque<Arc<ForeignTask>>>, owner: &Owner) {
    let total: usize = foreign.values().map(VecDeque::len).sum();
    let own = foreign.get(owner).map_or(0, VecDeque::len);
    let loses = if own >= FOREIGN_PER_CLIENT_MAX {
        owner.clone()
    } else if total >= FOREIGN_MAX
        && let Some((most, _)) = foreign.iter().max_by_key(|(_, tasks)| tasks.len())
    {
        most.clone()
    } else {
        return;
    };
    if let Some(tasks) = foreign.get_mut(&loses) {
        tasks.pop_front();
        if tasks.is_empty() {
            foreign.remove(&loses);
        }
    }
}

impl Tasks {
    /// Remembers the owner of an upstream task, if the result is one. Two upstreams may use the same id; the client
    /// then gets another one. A task that cannot be remembered is an error, because the client could not poll it.
    pub(crate) fn remember(
        &self,
        owner: &Client,
        tool: &str,
        server: impl FnOnce() -> Option<String>,
        result: &RawValue,
    ) -> Result<Option<Arc<ForeignTask>>, ToolError> {
        let Some(own) = task_of(result) else { return Ok(None) };
        let Some(server) = server() else { return Ok(None) };
        if own.len() > ForeignTask::NAME_BYTES_MAX {
            let (bytes, bytes_max) = (own.len(), ForeignTask::NAME_BYTES_MAX);
            let message = format!(
                "server `{server}` started a task with an id of {bytes} bytes, at most {bytes_max} are allowed"
            );
            return Err(ToolError::new(ErrorKind::Upstream, message).hint(
                "it is unknown whether the call is carried out; report this to the author of the server",
            ));
        }
        let holder = Owner::of(owner);
        let mut foreign = self.foreign.lock();
        let is_anothers = |id: &str| {
            let mut of_client = foreign.get(&holder).into_iter().flatten();
            of_client.any(|task| task.id == id && (task.own != own || task.server != server))
                || self.all.lock().contains_key(id)
        };
        let mut id = own.clone();
        if is_anothers(&id) {
            id = format!("{server}/{own}");
        }
        while is_anothers(&id) {
            id.push('\'');
        }
        let task = Arc::new(ForeignTask { id, own, server, tool: tool.to_owned() });
        make_room(&mut foreign, &holder);
        foreign.entry(holder).or_default().push_back(task.clone());
        Ok(Some(task))
    }

    /// Finds an upstream task of this client.
    pub(crate) fn foreign(&self, owner: &Client, id: &str) -> Option<Arc<ForeignTask>> {
        let foreign = self.foreign.lock();
        foreign.get(&Owner::of(owner))?.iter().rev().find(|task| task.id == id).cloned()
    }

    /// Removes all tasks of a revoked client: a later client with its name must not see them.
    pub(crate) fn forget_of(&self, name: &str, token: Option<u64>) {
        let owner = Owner { name: name.to_owned(), token };
        self.foreign.lock().remove(&owner);
        self.all.lock().retain(|_, task| {
            let is_others = task.owner != owner;
            if !is_others {
                task.cancel.cancel();
            }
            is_others
        });
    }

    /// Finds a task of this client. Another client's task is reported like one that does not exist.
    fn find(&self, client: &Client, id: &str) -> Result<Arc<Task>, RpcError> {
        let task = self.all.lock().get(id).filter(|task| task.owner == Owner::of(client)).cloned();
        task.ok_or_else(|| {
            let id = portcullis_core::json::printable(id);
            RpcError::invalid_params(format_args!("no task `{id}`; finished ones are kept for five minutes"))
        })
    }

    pub(crate) fn get(&self, client: &Client, id: &str) -> Result<Value, RpcError> {
        Ok(self.find(client, id)?.show())
    }

    pub(crate) fn cancel(&self, client: &Client, id: &str) -> Result<Value, RpcError> {
        let task = self.find(client, id)?;
        task.cancel.cancel();
        task.end("cancelled", Ok(Value::Null));
        Ok(json!({}))
    }

    pub(crate) fn update(
        &self,
        client: &Client,
        id: &str,
        answers: InputResponses,
    ) -> Result<Value, RpcError> {
        let task = self.find(client, id)?;
        {
            let mut state = task.state.lock();
            let TaskProgress { phase, answers: known, .. } = &mut *state;
            if let Phase::Asking(questions) = phase {
                for (key, answer) in answers {
                    // Only for pending questions, and only with the shape of an answer.
                    if questions.get(&key).is_some_and(|question| question.ask.kind.is_answer(&answer)) {
                        questions.remove(&key);
                        known.insert(key, answer);
                    }
                }
                if questions.is_empty() {
                    *phase = Phase::Working;
                }
            }
        }
        task.wake();
        // Success also without a pending question, as the extension requires.
        Ok(json!({}))
    }

    pub(crate) fn sweep(&self) {
        self.all
            .lock()
            .retain(|_, task| task.state.lock().ended_at.is_none_or(|ended| ended.elapsed() < KEPT_FOR));
    }
}

/// The peer of a call that runs as a task: its questions are pending in the task.
struct TaskPeer {
    task: Arc<Task>,
    /// The original peer: the client's capabilities, and answers from before the task began.
    first: Arc<dyn Peer>,
}

impl TaskPeer {
    async fn ask_in_task(&self, questions: Vec<KeyedInputRequest>) -> Result<InputResponses, InputRefusal> {
        if let Some(question) = questions.iter().find(|question| !self.accepts(&question.ask)) {
            return Err(InputRefusal::NotOffered(question.ask.kind));
        }
        let keys: Vec<String> = questions.iter().map(|question| question.key.clone()).collect();
        self.task.asks(questions);
        // Withdraws the questions when the call no longer waits.
        let _open = TaskQuestionGuard { task: &self.task, keys: &keys };
        loop {
            let answered = self.task.answered.notified();
            {
                let state = self.task.state.lock();
                if keys.iter().all(|key| state.answers.contains_key(key)) {
                    let answers = &state.answers;
                    return Ok(keys.iter().map(|key| (key.clone(), answers[key].clone())).collect());
                }
                // The call may have returned with a question still pending, which the client no longer sees.
                if matches!(state.phase, Phase::Ended(..)) {
                    return Err(InputRefusal::Failed("the task has ended".to_owned()));
                }
            }
            tokio::select! {
                () = answered => {}
                () = self.task.cancel.cancelled() => return Err(InputRefusal::Failed("cancelled".to_owned())),
            }
        }
    }
}

/// Withdraws questions of a task when dropped.
struct TaskQuestionGuard<'a> {
    task: &'a Task,
    keys: &'a [String],
}

impl Drop for TaskQuestionGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.task.state.lock();
        if let Phase::Asking(questions) = &mut state.phase {
            questions.retain(|key, _| !self.keys.contains(key));
            if questions.is_empty() {
                state.phase = Phase::Working;
            }
        }
    }
}

impl Peer for TaskPeer {
    // A task has no stream for notifications.
    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogMessage) {}

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        Box::pin(async move {
            match self.first.ask(questions.clone()).await {
                Err(InputRefusal::NextRound(_)) => self.ask_in_task(questions).await,
                known => known,
            }
        })
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.first.offers(kind)
    }

    fn accepts(&self, ask: &InputRequest) -> bool {
        self.first.accepts(ask)
    }

    fn state(&self) -> Option<&str> {
        self.first.state()
    }

    fn approved(&self) -> Option<&str> {
        self.first.approved()
    }

    fn capabilities(&self) -> Value {
        self.first.capabilities()
    }

    fn session(&self) -> Option<SessionDigest> {
        self.first.session()
    }

    // A task outlives its connection, so the client never counts as disconnected.
}

/// Starts a call as a task and responds with the task.
pub(crate) fn start(job: CallJob) -> RpcOutcome {
    let CallJob { hub, revision, mut call, .. } = job;
    let created = now(&*hub.clock);
    let cancel = CancellationToken::new();
    let state = TaskProgress {
        phase: Phase::Working,
        answers: InputResponses::new(),
        updated: created,
        ended_at: None,
    };
    let task = Arc::new(Task {
        id: random_id()?,
        owner: Owner::of(&call.caller().client),
        created,
        state: Mutex::new(state),
        answered: Notify::new(),
        cancel: cancel.clone(),
        clock: hub.clock.clone(),
    });
    {
        let mut all = hub.tasks.all.lock();
        let own = all.values().filter(|other| other.owner == task.owner).count();
        if all.len() >= TASKS_MAX || own >= TASKS_PER_CLIENT_MAX {
            portcullis_core::Limit::Tasks.hit();
            return Err(RpcError::new(SERVER_ERROR, "too many tasks; try again in five minutes"));
        }
        all.insert(task.id.clone(), task.clone());
    }
    let mut shown = task.show();
    shown["resultType"] = "task".into();
    let first = call.ctx.peer.clone();
    call.ctx = CallCtx::new(cancel.clone(), Arc::new(TaskPeer { task: task.clone(), first }));
    let (client, target, running) = (call.caller().client.clone(), call.target.clone(), hub.running.clone());
    running.spawn(async move {
        let outcome = hub.gate.call(call).await;
        let answer = match outcome {
            Ok(output) => Ok(render::output(revision, &target, &output)),
            Err(error) if error.kind == ErrorKind::Cancelled => {
                return task.end("cancelled", Ok(Value::Null));
            }
            Err(error) => {
                log_failure(&target, &error);
                let style = error_style(&hub, &client, &target);
                render::task_failure(revision, &target, style, &error)
            }
        };
        match answer {
            Ok(result) => task.end("completed", Ok(serde_json::from_slice(&result).unwrap_or_default())),
            Err(error) => task.end("failed", Err(error)),
        }
    });
    Ok(era::wrap_foreign_result(revision, ResultKind::Plain, shown.to_string().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::RoundPeer;
    use crate::request_state::PreviousRounds;
    use crate::stream::ClientStream;
    use futures::FutureExt;
    use portcullis_core::{Scope, SystemClock};
    use portcullis_wire::era::{ClientCapabilities, RequestMeta};

    fn client(name: &str) -> Client {
        Client { name: name.to_owned(), scope: Scope::everything(), token: None }
    }

    fn task(owner: &Client) -> Arc<Task> {
        let clock = Arc::new(SystemClock);
        let created = now(&*clock);
        let state = TaskProgress {
            phase: Phase::Working,
            answers: InputResponses::new(),
            updated: created,
            ended_at: None,
        };
        Arc::new(Task {
            id: "one".to_owned(),
            owner: Owner::of(owner),
            created,
            state: Mutex::new(state),
            answered: Notify::new(),
            cancel: CancellationToken::new(),
            clock,
        })
    }

    /// Turns so many calls of a client into upstream tasks.
    fn made(tasks: &Tasks, client: &Client, count: usize) {
        for n in 0..count {
            let result = format!(r#"{{"resultType":"task","taskId":"{}-{n}"}}"#, client.name);
            let result = RawValue::from_string(result).unwrap();
            tasks.remember(client, "shop_pay", || Some("shop".to_owned()), &result).unwrap();
        }
    }

    #[test]
    fn whoever_has_too_many_tasks_elsewhere_loses_its_own() {
        let (tasks, ada, greedy) = (Tasks::default(), client("ada"), client("greedy"));
        made(&tasks, &ada, 1);
        made(&tasks, &greedy, FOREIGN_PER_CLIENT_MAX + 1);
        assert!(tasks.foreign(&ada, "ada-0").is_some(), "the oldest, and another's");
        assert!(tasks.foreign(&greedy, "greedy-0").is_none());
        assert!(tasks.foreign(&greedy, "greedy-1").is_some());
        for n in 0..FOREIGN_MAX / FOREIGN_PER_CLIENT_MAX {
            made(&tasks, &client(&format!("other{n}")), FOREIGN_PER_CLIENT_MAX);
        }
        assert!(tasks.foreign(&ada, "ada-0").is_some(), "the client with the most loses one");
        let kept = tasks.foreign.lock().values().map(VecDeque::len).sum::<usize>();
        assert_eq!(kept, FOREIGN_MAX);
        tasks.forget_of("ada", None);
        assert!(tasks.foreign(&ada, "ada-0").is_none(), "it may be another's name by now");
    }

    /// The attack: a name is revoked and assigned again, and the new client asks for the tasks of the old one.
    #[test]
    fn an_inherited_name_inherits_no_task() {
        let (tasks, former) = (Tasks::default(), Client { token: Some(1), ..client("ada") });
        let namesake = Client { token: Some(2), ..client("ada") };
        made(&tasks, &former, 1);
        let one = task(&former);
        one.end("completed", Ok(json!({ "content": "private" })));
        tasks.all.lock().insert("one".to_owned(), one);
        assert!(tasks.get(&former, "one").is_ok() && tasks.foreign(&former, "ada-0").is_some());
        assert!(tasks.get(&namesake, "one").is_err() && tasks.cancel(&namesake, "one").is_err());
        assert!(tasks.foreign(&namesake, "ada-0").is_none());
        // Control: by name alone, it would be found.
        let by_name = |tasks: &Tasks| tasks.all.lock().values().any(|task| task.owner.name == namesake.name);
        assert!(by_name(&tasks));
        // Removing the old client's tasks does not affect the new client.
        made(&tasks, &namesake, 1);
        tasks.forget_of("ada", Some(1));
        assert!(tasks.get(&former, "one").is_err() && tasks.foreign(&former, "ada-0").is_none());
        assert!(tasks.foreign(&namesake, "ada-0").is_some());
    }

    #[test]
    fn a_task_with_a_name_that_is_too_long_is_no_task() {
        let (tasks, ada) = (Tasks::default(), client("ada"));
        for (bytes, is_kept) in
            [(ForeignTask::NAME_BYTES_MAX, true), (ForeignTask::NAME_BYTES_MAX + 1, false)]
        {
            let id = "x".repeat(bytes);
            let result =
                RawValue::from_string(format!(r#"{{"resultType":"task","taskId":"{id}"}}"#)).unwrap();
            let kept = tasks.remember(&ada, "shop_pay", || Some("shop".to_owned()), &result);
            assert_eq!(kept.is_ok(), is_kept);
            assert_eq!(tasks.foreign(&ada, &id).is_some(), is_kept);
        }
    }

    #[tokio::test]
    async fn a_question_ends_with_its_task() {
        let ask = InputRequest::elicit("Who?", json!({}));
        let offers = json!({ "elicitation": {} });
        let offers = ClientCapabilities::of(offers.as_object().unwrap());
        let meta = RequestMeta { offers: Some(offers), ..RequestMeta::default() };
        let first = RoundPeer::new(ClientStream::fleeting(), &meta, PreviousRounds::default(), None);
        let (tasks, client) = (Tasks::default(), client("ada"));
        let peer = TaskPeer { task: task(&client), first: Arc::new(first) };
        tasks.all.lock().insert("one".to_owned(), peer.task.clone());
        let mut asked = peer.ask(vec![KeyedInputRequest { key: "who".to_owned(), ask }]);
        assert!((&mut asked).now_or_never().is_none(), "not answered yet");
        peer.task.end("completed", Ok(Value::Null));
        let asked = tokio::time::timeout(Duration::from_secs(30), asked).await.expect("the question ends");
        assert!(matches!(asked, Err(InputRefusal::Failed(_))), "{asked:?}");
        // A late answer is not an error.
        assert_eq!(tasks.update(&client, "one", InputResponses::new()).unwrap(), json!({}));
        assert_eq!(tasks.get(&client, "one").unwrap()["status"], "completed");
    }

    #[test]
    fn what_was_answered_is_asked_anew_under_the_same_key() {
        let (tasks, client) = (Tasks::default(), client("ada"));
        let task = task(&client);
        tasks.all.lock().insert(task.id.clone(), task.clone());
        for name in ["first", "second"] {
            let ask = InputRequest::elicit("Who?", json!({}));
            task.asks(vec![KeyedInputRequest { key: "who".to_owned(), ask }]);
            assert!(task.state.lock().answers.is_empty(), "{name} is not answered yet");
            assert_eq!(task.show()["status"], "input_required");
            let answer = json!({ "action": "accept", "content": { "name": name } });
            tasks.update(&client, "one", InputResponses::from([("who".to_owned(), answer.clone())])).unwrap();
            assert_eq!(task.state.lock().answers["who"], answer);
        }
    }
}
