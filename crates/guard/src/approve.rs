//! Has a person decide, where the decision is to ask.
//!
//! Deciding *whether* to ask is `authorize`'s job, not ours. The question is written down first, so that it survives
//! the hub and can be answered from anywhere: at the client if it can show a form, on the command line, or by whoever
//! else holds the [`ApprovalDesk`]. The call waits a while for the first answer. Then it is told to come back; the
//! same call, made again, runs as soon as there is a yes, and never twice on one. A call that has to ask its client
//! something, and goes on in a later round, is still the one that was approved.

mod asked;
mod begun;
mod desk;

pub use desk::{ApprovalDesk, ApprovalTimes};

use crate::authorize::Authorize;
use crate::redact::Redactor;
use asked::asked;
use begun::Begun;
use futures::FutureExt;
use portcullis_core::{
    Answers, Ask, AskKind, AskRefused, BoxFuture, Call, Decision, Effect, ErrorKind, Layer, Listing, Next,
    Outcome, Question, Reach, ToolError, json,
};
use portcullis_store::approvals::{Approval, Asked, Seen, Span, Standing, State, Verdict};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Answers are found under this and the id of the approval. A yes to an earlier question is therefore none to this one.
const QUESTION_KEY: &str = "portcullis_approval_";
/// How often a waiting client hears that its call still waits. Clients give up on calls they hear nothing of.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked whether another process decided, should nobody have told.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a form at a client may stay open. An answer that comes after the call has ended still counts.
const FORM_OPEN_MAX: Duration = Duration::from_secs(15 * 60);
/// How much of the arguments a form shows. About a screen; more would push the question itself out of sight.
const FORM_CHARS_MAX: usize = 1_000;

/// The layer.
pub(crate) struct Approve {
    desk: ApprovalDesk,
    policy: Authorize,
    redactor: Redactor,
    begun: Begun,
}

impl Approve {
    pub(crate) fn new(desk: ApprovalDesk, policy: Authorize, redactor: Redactor) -> Approve {
        Approve { desk, policy, redactor, begun: Begun::default() }
    }
}

impl Layer for Approve {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match call.trail.decision.get() {
            Some(Decision::Allow { .. }) => next.run(call),
            Some(Decision::Ask { rule }) => {
                let asked = asked(&call, rule, &self.redactor.for_call(&call));
                Box::pin(async move {
                    let asked = Arc::new(asked?);
                    if !self.goes_on(&call, &asked).await? {
                        self.settle(&call, asked.clone()).await?;
                    }
                    let trail = call.trail.clone();
                    let mut outcome = next.run(call).await;
                    if let (Err(error), Some(approval)) = (&mut outcome, trail.approval.get())
                        && let Some(input) = &mut error.input
                    {
                        input.approved = self.begun.remember(&asked, approval);
                    }
                    outcome
                })
            }
            // Nobody decided, or nobody obeyed. Neither can happen in the stack as it is, and neither may act.
            Some(Decision::Deny { .. }) | None => {
                Box::pin(async { Err(ToolError::internal("a call came to approval without being allowed")) })
            }
        }
    }
}

impl Approve {
    /// Returns whether this is a later round of a call that a person let run. Who has said no meanwhile is heard.
    async fn goes_on(&self, call: &Call, asked: &Arc<Asked>) -> Result<bool, ToolError> {
        let Some(mark) = call.ctx.peer.approved() else { return Ok(false) };
        if let Some(Standing::Rejected(_)) = self.desk.peek(asked.clone()).await? {
            return Ok(false);
        }
        let Some(approval) = self.begun.take(asked, mark) else { return Ok(false) };
        // Only this layer writes it, and nothing is written where this returns false.
        let _ = call.trail.approval.set(approval);
        Ok(true)
    }

    /// Returns once the call may run; an error says why it may not, or not yet.
    async fn settle(&self, call: &Call, asked: Arc<Asked>) -> Result<(), ToolError> {
        let mut changed = self.desk.changed();
        let Some(mut pending) = self.standing(call, &asked).await? else { return Ok(()) };
        let _waiting = call.trail.waits.begin();
        let began = Instant::now();
        let until = began + self.desk.times().wait;
        let mut next_progress = began;
        let mut form = Form::default();
        loop {
            if Instant::now() >= next_progress {
                // Whole seconds: at least five more each time, as a client expects of progress.
                let waited = began.elapsed().as_secs_f64().floor();
                call.ctx.progress(waited, None, Some(&waiting_text(&pending)));
                next_progress = Instant::now() + PROGRESS_EVERY;
            }
            if let Some(Reply::Closed) = form.open(&self.desk, call, &pending).await? {
                return Err(come_back(call, &pending));
            }
            // Before the clock is looked at: whoever was asked just now may have answered with this call.
            if !matches!(self.desk.peek(asked.clone()).await?, Some(Standing::Pending(known)) if known.id == pending.id)
            {
                match self.standing(call, &asked).await? {
                    None => return self.decide_again(call),
                    // Another call took the yes, or the question expired: this is a new one.
                    Some(new) => pending = new,
                }
                continue;
            }
            tokio::select! {
                reply = form.answered() => if let Reply::Closed = reply? {
                    return Err(come_back(call, &pending));
                },
                _ = changed.changed() => {}
                () = sleep(LOOK_EVERY) => {}
                () = sleep_until(until) => {
                    form.leave_open();
                    return Err(come_back(call, &pending));
                }
                // Nobody waits for the answer any more, or the hub ends. The question stays.
                () = call.ctx.peer.gone() => return Err(come_back(call, &pending)),
                () = self.desk.closed() => return Err(come_back(call, &pending)),
            }
        }
    }

    /// A person takes their time; the rules may have changed in it.
    fn decide_again(&self, call: &Call) -> Result<(), ToolError> {
        match self.policy.decide(&call.caller, &Listing::of_call(call)) {
            Decision::Deny { .. } => Err(ToolError::unknown(call.target.kind(), call.target.name())),
            Decision::Allow { .. } | Decision::Ask { .. } => Ok(()),
        }
    }

    /// Returns `None` if the call may run, and the open question if nobody has answered it.
    async fn standing(&self, call: &Call, asked: &Arc<Asked>) -> Result<Option<Approval>, ToolError> {
        // Only one layer writes this, and a call that was answered is not asked about again.
        let note = |approval: &Approval, how: &str| {
            let by = approval.decided.as_ref().map_or("", |decided| decided.by.as_str());
            let _ = call.trail.approval.set(format!("{} {how} by {by}", approval.id));
        };
        match self.desk.ask(asked.clone()).await? {
            Standing::Pending(approval) => Ok(Some(approval)),
            Standing::Rejected(approval) => {
                note(&approval, "rejected");
                Err(rejected(call, &approval))
            }
            Standing::Approved(approval) => {
                // What is used up counted once, for whatever it was given.
                let span = if approval.state == State::Used { Span::Once } else { Span::Session };
                note(&approval, span.as_str());
                Ok(None)
            }
        }
    }
}

/// The form at the client, where it can show one. A call opens one at most, and only where none is open for the same
/// question already.
#[derive(Default)]
struct Form {
    opened: bool,
    task: Option<JoinHandle<Result<Reply, ToolError>>>,
}

/// What came of a form.
enum Reply {
    /// It is at the desk, unless somebody else was faster.
    Taken,
    /// The person closed it without an answer.
    Closed,
    /// The client could not show it, or took too long. The person may be elsewhere.
    None,
}

impl Form {
    /// Opens the form, if that has not been done. Returns what came of it where the client answers with the call itself.
    async fn open(
        &mut self,
        desk: &ApprovalDesk,
        call: &Call,
        pending: &Approval,
    ) -> Result<Option<Reply>, ToolError> {
        if self.opened || !call.ctx.peer.offers(AskKind::Elicit) {
            return Ok(None);
        }
        let Some(open) = desk.open_form(&pending.id) else { return Ok(None) };
        self.opened = true;
        let (peer, key) = (call.ctx.peer.clone(), format!("{QUESTION_KEY}{}", pending.id));
        let ask = Ask::elicit(&question(pending), form(pending));
        let questions = vec![Question { key: key.clone(), ask }];
        let mut answers = Box::pin(async move { peer.ask(questions).await });
        let (desk, pending) = (desk.clone(), pending.clone());
        if let Some(answered) = (&mut answers).now_or_never() {
            return take(&desk, &pending, &key, answered).await.map(Some);
        }
        self.task = Some(tokio::spawn(async move {
            let _open = open;
            tokio::select! {
                answered = timeout(FORM_OPEN_MAX, answers) => match answered {
                    Ok(answered) => take(&desk, &pending, &key, answered).await,
                    Err(_) => Ok(Reply::None),
                },
                () = desk.decided(&pending.id) => Ok(Reply::Taken),
            }
        }));
        Ok(None)
    }

    /// Returns when the form is done with; never if there is none.
    async fn answered(&mut self) -> Result<Reply, ToolError> {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let answered = task.await;
        self.task = None;
        answered.unwrap_or_else(|panic| Err(ToolError::internal(panic)))
    }

    /// Keeps the form open beyond the call.
    fn leave_open(&mut self) {
        self.task = None;
    }
}

impl Drop for Form {
    fn drop(&mut self) {
        // The caller went away, or the question was answered elsewhere.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Takes an answer to the desk.
async fn take(
    desk: &ApprovalDesk,
    pending: &Approval,
    key: &str,
    answered: Result<Answers, AskRefused>,
) -> Result<Reply, ToolError> {
    let verdict = match answered {
        // A client that is asked by the result of this round gets its question as an error, and that passes as it is.
        Err(next_round @ AskRefused::NextRound(_)) => return Err(next_round.into()),
        // Whoever cannot be asked there can be asked elsewhere.
        Err(AskRefused::NotOffered(_) | AskRefused::Refused(_) | AskRefused::Failed(_)) => {
            return Ok(Reply::None);
        }
        Ok(answers) => match answers.get(key).and_then(verdict) {
            // Not offered, so not meant.
            Some(Verdict::Approve(Span::Session)) if pending.call.session.is_none() => {
                Verdict::Approve(Span::Once)
            }
            Some(verdict) => verdict,
            None => return Ok(Reply::Closed),
        },
    };
    let by = format!("client `{}`", pending.call.client);
    let seen = Seen { decided: None, session: pending.call.session.clone() };
    if let Err(error) = desk.answer(&pending.id, verdict, &by, seen).await {
        // Somebody else was faster, and what they said counts; or the disk failed, and nothing was said.
        tracing::warn!(id = %pending.id, %error, "An answer could not be taken.");
    }
    Ok(Reply::Taken)
}

fn form(pending: &Approval) -> Value {
    let mut properties = json!({
        "approve": { "type": "boolean", "title": "Approve", "description": "Whether the call may run" }
    });
    // Where there is no session there is nothing that a yes could end with.
    if pending.call.effect != Effect::Destroy.as_str() && pending.call.session.is_some() {
        properties["remember"] = json!({
            "type": "string",
            "title": "For",
            "description": "This call only, or every call of this tool until the session ends",
            "enum": [Span::Once.as_str(), Span::Session.as_str()],
            "default": Span::Once.as_str(),
        });
    }
    json!({ "type": "object", "properties": properties, "required": ["approve"] })
}

/// Returns what an answer means. Only a clear yes is one; a form that was closed, or sent off empty, says nothing.
fn verdict(answer: &Value) -> Option<Verdict> {
    let no = Verdict::Reject { reason: None };
    match answer.get("action").and_then(Value::as_str) {
        Some("decline") => return Some(no),
        Some("accept") => {}
        _ => return None,
    }
    if !answer.pointer("/content/approve")?.as_bool()? {
        return Some(no);
    }
    let for_session =
        answer.pointer("/content/remember").and_then(Value::as_str) == Some(Span::Session.as_str());
    Some(Verdict::Approve(if for_session { Span::Session } else { Span::Once }))
}

fn question(pending: &Approval) -> String {
    let Asked { client, kind, target, effect, reach, arguments, more, .. } = &pending.call;
    let reach = if reach == Reach::Outside.as_str() { ", reaches outside" } else { "" };
    let (shown, cut) = match arguments.char_indices().nth(FORM_CHARS_MAX) {
        None => (arguments.as_str(), 0),
        Some((end, _)) => (&arguments[..end], arguments[end..].chars().count()),
    };
    let more = match cut + more {
        0 => String::new(),
        more => format!("… and {more} characters more; `portcullis approvals show {}`", pending.id),
    };
    // No server can begin a question of its own so (`upstream/src/elicitation.rs`).
    format!(
        "Portcullis asks: client `{client}` wants to run {kind} `{target}` (effect: {effect}{reach}) with:\n{shown}{more}"
    )
}

fn waiting_text(pending: &Approval) -> String {
    format!("waiting for a person; `portcullis approvals approve {}` lets the call run", pending.id)
}

fn come_back(call: &Call, pending: &Approval) -> ToolError {
    let (kind, name) = (call.target.kind(), json::printable(call.target.name()));
    let id = &pending.id;
    ToolError::new(
        ErrorKind::NeedsApproval,
        format!("{kind} `{name}` is pending approval by a person; its id is {id}"),
    )
    .hint(format!("a person decides with `portcullis approvals approve {id}`, or `reject`"))
    .hint("once it is approved, make the same call again with the same arguments; anything else asks again")
}

fn rejected(call: &Call, approval: &Approval) -> ToolError {
    let (kind, name) = (call.target.kind(), json::printable(call.target.name()));
    let reason = approval.decided.as_ref().and_then(|decided| decided.reason.as_deref());
    let reason = reason.map_or_else(String::new, |reason| format!(": {}", json::visible(reason)));
    ToolError::denied(format!("{kind} `{name}` was not approved{reason}")).hint(
        "do not try the same call again unless the person asks for it; say what you wanted to do and why",
    )
}

#[cfg(test)]
#[path = "approve_tests.rs"]
mod tests;
