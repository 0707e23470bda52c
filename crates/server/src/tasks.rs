//! Calls that run on while the client looks in from time to time.

use crate::dispatch::{CallJob, error_style, log_failure};
use crate::session::random_id;
use portcullis_core::{
    Answers, Ask, AskKind, AskRefused, BoxFuture, CallCtx, Client, ErrorKind, ForeignTask, LogMessage, Peer,
    Progress, Question, ToolError,
};
use portcullis_wire::era::{self, ResultKind};
use portcullis_wire::rpc::{Answer, SERVER_ERROR};
use portcullis_wire::{RpcError, render};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many tasks a hub remembers.
const TASKS_MAX: usize = 1_000;
/// How many of them may be one client's.
const TASKS_PER_CLIENT_MAX: usize = 100;
/// How many tasks of other servers are remembered; whoever has most of them loses its oldest first.
const FOREIGN_MAX: usize = 10_000;
/// How many of them may be one client's; its own oldest are forgotten first.
const FOREIGN_PER_CLIENT_MAX: usize = 1_000;
/// How long a finished task can be asked for.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// How often a client should look in.
const POLL_EVERY_MS: u64 = 200;

enum Phase {
    Working,
    Asking(BTreeMap<String, Question>),
    /// The result object, or the error.
    Ended(&'static str, Result<Value, RpcError>),
}

struct Progressing {
    phase: Phase,
    answers: Answers,
    updated: jiff::Timestamp,
    ended_at: Option<Instant>,
}

/// The holder of a name: the client with this token, and nobody who is given the name later.
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
    state: Mutex<Progressing>,
    answered: Notify,
    cancel: CancellationToken,
    clock: Arc<dyn portcullis_core::Clock>,
}

fn now(clock: &dyn portcullis_core::Clock) -> jiff::Timestamp {
    jiff::Timestamp::try_from(clock.now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

impl Task {
    fn state(&self) -> MutexGuard<'_, Progressing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, unless it has ended already. Whoever waits for an answer in it is told.
    fn end(&self, status: &'static str, result: Result<Value, RpcError>) {
        {
            let mut state = self.state();
            if matches!(state.phase, Phase::Ended(..)) {
                return;
            }
            state.ended_at = Some(Instant::now());
            state.phase = Phase::Ended(status, result);
            state.updated = now(&*self.clock);
        }
        self.wake();
    }

    /// Has those who wait for answers look again.
    fn wake(&self) {
        self.answered.notify_waiters();
        // One that is between two looks finds this permit.
        self.answered.notify_one();
    }

    /// Asks this too, besides what is asked already. An answer to an earlier question is none to this one.
    fn asks(&self, questions: Vec<Question>) {
        let mut state = self.state();
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
        let state = self.state();
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
    /// Those that other servers run, by whose call it was; the oldest first. Also when they have ended: their results can
    /// be asked for as long as their servers have them.
    foreign: Mutex<HashMap<Owner, VecDeque<Arc<ForeignTask>>>>,
}

/// Returns what a server says of its task as the client knows it.
pub(crate) fn renamed(task: &ForeignTask, said: Box<RawValue>) -> Box<RawValue> {
    if task.id == task.own { said } else { era::with_task_id(&said, &task.id) }
}

/// Returns the id of the task that a result names instead of being one.
fn task_of(result: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Peek {
        result_type: Option<String>,
        task_id: Option<String>,
    }
    // Most results are only passed on, and need not be taken apart to see that.
    if !result.get().contains("\"task\"") {
        return None;
    }
    let peek: Peek = serde_json::from_str(result.get()).ok()?;
    peek.task_id.filter(|_| peek.result_type.as_deref() == Some("task"))
}

/// Forgets a task if there is no room for one more of this owner's: its own, unless others have more.
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
    /// Remembers whose task it is that another server has made of a call, if that is what the result says. Servers know
    /// nothing of each other, and may call theirs the same: the client is told another id then. A task that cannot be
    /// remembered is an error, because nobody could ask after it.
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
                "server `{server}` has begun a task with a name of {bytes} bytes, at most {bytes_max} are allowed"
            );
            return Err(ToolError::new(ErrorKind::Upstream, message).hint(
                "whether the call is carried out is not known; report this to whoever offers the server",
            ));
        }
        let holder = Owner::of(owner);
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let is_anothers = |id: &str| {
            let mut of_client = foreign.get(&holder).into_iter().flatten();
            of_client.any(|task| task.id == id && (task.own != own || task.server != server))
                || self.all().contains_key(id)
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

    /// Finds a task that another server runs for this client.
    pub(crate) fn foreign(&self, owner: &Client, id: &str) -> Option<Arc<ForeignTask>> {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.get(&Owner::of(owner))?.iter().rev().find(|task| task.id == id).cloned()
    }

    /// Forgets all that was done for a client that is one no more: whoever has its name next is somebody else.
    pub(crate) fn forget_of(&self, name: &str, token: Option<u64>) {
        let owner = Owner { name: name.to_owned(), token };
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner);
        self.all().retain(|_, task| {
            let is_others = task.owner != owner;
            if !is_others {
                task.cancel.cancel();
            }
            is_others
        });
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a client's own task. Someone else's is as unknown as one that never was.
    fn find(&self, client: &Client, id: &str) -> Result<Arc<Task>, RpcError> {
        let task = self.all().get(id).filter(|task| task.owner == Owner::of(client)).cloned();
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

    pub(crate) fn update(&self, client: &Client, id: &str, answers: Answers) -> Result<Value, RpcError> {
        let task = self.find(client, id)?;
        {
            let mut state = task.state();
            let Progressing { phase, answers: known, .. } = &mut *state;
            if let Phase::Asking(questions) = phase {
                for (key, answer) in answers {
                    // Only what was asked, and only in the shape of an answer.
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
        // Also where nothing was asked any more: that is how the extension wants it.
        Ok(json!({}))
    }

    pub(crate) fn sweep(&self) {
        self.all().retain(|_, task| task.state().ended_at.is_none_or(|ended| ended.elapsed() < KEPT_FOR));
    }
}

/// The peer of a call that runs as a task: its questions wait in the task.
struct TaskPeer {
    task: Arc<Task>,
    /// What the call was made with: what the client offers, and answers from before the task began.
    first: Arc<dyn Peer>,
}

impl TaskPeer {
    async fn ask_in_task(&self, questions: Vec<Question>) -> Result<Answers, AskRefused> {
        if let Some(question) = questions.iter().find(|question| !self.accepts(&question.ask)) {
            return Err(AskRefused::NotOffered(question.ask.kind));
        }
        let keys: Vec<String> = questions.iter().map(|question| question.key.clone()).collect();
        self.task.asks(questions);
        // Where nobody waits for the answers any more, nobody is asked any more.
        let _open = OpenInTask { task: &self.task, keys: &keys };
        loop {
            let answered = self.task.answered.notified();
            {
                let state = self.task.state();
                if keys.iter().all(|key| state.answers.contains_key(key)) {
                    let answers = &state.answers;
                    return Ok(keys.iter().map(|key| (key.clone(), answers[key].clone())).collect());
                }
                // A form may be left open by a call that has come back without its answer; nobody sees it any more.
                if matches!(state.phase, Phase::Ended(..)) {
                    return Err(AskRefused::Failed("the task has ended".to_owned()));
                }
            }
            tokio::select! {
                () = answered => {}
                () = self.task.cancel.cancelled() => return Err(AskRefused::Failed("cancelled".to_owned())),
            }
        }
    }
}

/// Questions in a task that are no longer asked when this is dropped.
struct OpenInTask<'a> {
    task: &'a Task,
    keys: &'a [String],
}

impl Drop for OpenInTask<'_> {
    fn drop(&mut self) {
        let mut state = self.task.state();
        if let Phase::Asking(questions) = &mut state.phase {
            questions.retain(|key, _| !self.keys.contains(key));
            if questions.is_empty() {
                state.phase = Phase::Working;
            }
        }
    }
}

impl Peer for TaskPeer {
    // A task has no stream of its own to report on.
    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogMessage) {}

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        Box::pin(async move {
            match self.first.ask(questions.clone()).await {
                Err(AskRefused::NextRound(_)) => self.ask_in_task(questions).await,
                known => known,
            }
        })
    }

    fn offers(&self, kind: AskKind) -> bool {
        self.first.offers(kind)
    }

    fn accepts(&self, ask: &Ask) -> bool {
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

    fn session(&self) -> Option<&str> {
        self.first.session()
    }

    // A task outlives the connection that began it, so nobody is ever gone.
}

/// Starts a call as a task and answers with the task.
pub(crate) fn start(job: CallJob) -> Answer {
    let CallJob { hub, revision, mut call, .. } = job;
    let created = now(&*hub.clock);
    let cancel = CancellationToken::new();
    let state =
        Progressing { phase: Phase::Working, answers: Answers::new(), updated: created, ended_at: None };
    let task = Arc::new(Task {
        id: random_id()?,
        owner: Owner::of(&call.caller.client),
        created,
        state: Mutex::new(state),
        answered: Notify::new(),
        cancel: cancel.clone(),
        clock: hub.clock.clone(),
    });
    {
        let mut all = hub.tasks.all();
        let own = all.values().filter(|other| other.owner == task.owner).count();
        if all.len() >= TASKS_MAX || own >= TASKS_PER_CLIENT_MAX {
            portcullis_core::Limit::Tasks.hit();
            return Err(RpcError::new(
                SERVER_ERROR,
                "too many tasks are remembered; try again in five minutes",
            ));
        }
        all.insert(task.id.clone(), task.clone());
    }
    let mut shown = task.show();
    shown["resultType"] = "task".into();
    let first = call.ctx.peer.clone();
    call.ctx = CallCtx { cancel: cancel.clone(), peer: Arc::new(TaskPeer { task: task.clone(), first }) };
    let (client, target, running) = (call.caller.client.clone(), call.target.clone(), hub.running.clone());
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
                render::failure(revision, &target, style, &error)
            }
        };
        match answer {
            Ok(result) => task.end("completed", Ok(serde_json::from_slice(&result).unwrap_or_default())),
            Err(error) => task.end("failed", Err(error)),
        }
    });
    Ok(era::dress_foreign(revision, ResultKind::Plain, shown.to_string().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::RoundPeer;
    use crate::seal::Earlier;
    use crate::stream::Stream;
    use futures::FutureExt;
    use portcullis_core::{Scope, SystemClock};
    use portcullis_wire::era::{Offers, RequestMeta};

    fn client(name: &str) -> Client {
        Client { name: name.to_owned(), scope: Scope::everything(), token: None }
    }

    fn task(owner: &Client) -> Arc<Task> {
        let clock = Arc::new(SystemClock);
        let created = now(&*clock);
        let state =
            Progressing { phase: Phase::Working, answers: Answers::new(), updated: created, ended_at: None };
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

    /// Has another server make so many tasks of a client's calls.
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
        assert!(tasks.foreign(&ada, "ada-0").is_some(), "whoever has most gives way");
        let kept = tasks.foreign.lock().unwrap().values().map(VecDeque::len).sum::<usize>();
        assert_eq!(kept, FOREIGN_MAX);
        tasks.forget_of("ada", None);
        assert!(tasks.foreign(&ada, "ada-0").is_none(), "it may be another's name by now");
    }

    /// The attack: a name is taken back and given again, and its new holder asks after the tasks of the former.
    #[test]
    fn an_inherited_name_inherits_no_task() {
        let (tasks, former) = (Tasks::default(), Client { token: Some(1), ..client("ada") });
        let namesake = Client { token: Some(2), ..client("ada") };
        made(&tasks, &former, 1);
        let one = task(&former);
        one.end("completed", Ok(json!({ "content": "private" })));
        tasks.all().insert("one".to_owned(), one);
        assert!(tasks.get(&former, "one").is_ok() && tasks.foreign(&former, "ada-0").is_some());
        assert!(tasks.get(&namesake, "one").is_err() && tasks.cancel(&namesake, "one").is_err());
        assert!(tasks.foreign(&namesake, "ada-0").is_none());
        // The weak variant: by the name alone, it would be found.
        let by_name = |tasks: &Tasks| tasks.all().values().any(|task| task.owner.name == namesake.name);
        assert!(by_name(&tasks));
        // The end of the former takes nothing from the one who has the name now.
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
        let ask = Ask::elicit("Who?", json!({}));
        let offers = json!({ "elicitation": {} });
        let offers = Offers::of(offers.as_object().unwrap());
        let meta = RequestMeta { offers: Some(offers), ..RequestMeta::default() };
        let first = RoundPeer::new(Stream::fleeting(), &meta, Earlier::default(), None);
        let (tasks, client) = (Tasks::default(), client("ada"));
        let peer = TaskPeer { task: task(&client), first: Arc::new(first) };
        tasks.all().insert("one".to_owned(), peer.task.clone());
        let mut asked = peer.ask(vec![Question { key: "who".to_owned(), ask }]);
        assert!((&mut asked).now_or_never().is_none(), "nobody has answered");
        peer.task.end("completed", Ok(Value::Null));
        let asked =
            tokio::time::timeout(Duration::from_secs(30), asked).await.expect("nobody waits for ever");
        assert!(matches!(asked, Err(AskRefused::Failed(_))), "{asked:?}");
        // Too late, which is no fault of the client's.
        assert_eq!(tasks.update(&client, "one", Answers::new()).unwrap(), json!({}));
        assert_eq!(tasks.get(&client, "one").unwrap()["status"], "completed");
    }

    #[test]
    fn what_was_answered_is_asked_anew_under_the_same_key() {
        let (tasks, client) = (Tasks::default(), client("ada"));
        let task = task(&client);
        tasks.all().insert(task.id.clone(), task.clone());
        for name in ["first", "second"] {
            let ask = Ask::elicit("Who?", json!({}));
            task.asks(vec![Question { key: "who".to_owned(), ask }]);
            assert!(task.state().answers.is_empty(), "{name} is not answered yet");
            assert_eq!(task.show()["status"], "input_required");
            let answer = json!({ "action": "accept", "content": { "name": name } });
            tasks.update(&client, "one", Answers::from([("who".to_owned(), answer.clone())])).unwrap();
            assert_eq!(task.state().answers["who"], answer);
        }
    }
}
