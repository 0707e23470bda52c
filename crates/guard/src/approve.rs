//! Approval by a person, for calls whose policy decision is `ask`.
//!
//! `authorize` decides *whether* to ask. The request is stored first, so that it survives a restart and can be decided
//! anywhere: by elicitation at the client, on the command line, or by any other holder of the [`ApprovalDesk`]. The call
//! waits a while for the decision, then fails with `needs_approval`; the same call, retried, runs once it is approved.
//! Invariant: one approval runs a call once. A call that needs input from its client, and goes on in a later round, is
//! still the approved call.

mod approval_request;
mod desk;
mod resumable_approvals;

pub use desk::{ApprovalDesk, ApprovalTimes};

use crate::authorize::ActivePolicy;
use crate::redact::Redactor;
use approval_request::approval_request;
use futures::FutureExt;
use portcullis_core::{
    BoxFuture, Call, Decision, Effect, ErrorKind, InputRefusal, InputRequest, InputRequestKind,
    InputResponses, KeyedInputRequest, Layer, Next, Outcome, Owners, PolicySubject, Reach, ToolError, json,
};
use portcullis_store::approvals::{
    Approval, ApprovalOutcome, ApprovalRequest, ApprovalScope, ApprovalSnapshot, ApprovalState,
    ApprovalVerdict,
};
use resumable_approvals::ResumableApprovals;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Key prefix of the elicitation, followed by the approval's id, so that a yes to an earlier request does not count.
const QUESTION_KEY: &str = "portcullis_approval_";
/// Interval of progress notifications while a call waits. Clients time out calls without progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Poll interval for decisions by another process, in case its notification is lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a form at a client. An answer after the end of the call still counts.
const FORM_OPEN_MAX: Duration = Duration::from_secs(15 * 60);
/// How much of the arguments a form shows: about a screen. More would push the question out of sight.
const FORM_CHARS_MAX: usize = 1_000;

/// The layer.
pub(crate) struct ApprovalLayer {
    desk: ApprovalDesk,
    policy: ActivePolicy,
    owners: Arc<dyn Owners>,
    redactor: Redactor,
    resumable: ResumableApprovals,
}

impl ApprovalLayer {
    pub(crate) fn new(
        desk: ApprovalDesk,
        policy: ActivePolicy,
        owners: Arc<dyn Owners>,
        redactor: Redactor,
    ) -> ApprovalLayer {
        ApprovalLayer { desk, policy, owners, redactor, resumable: ResumableApprovals::default() }
    }
}

impl Layer for ApprovalLayer {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match call.trail.decision.get() {
            Some(Decision::Allow { .. }) => next.run(call),
            Some(Decision::Ask { rule }) => {
                let request = approval_request(&call, rule, &self.redactor.for_call(&call));
                Box::pin(async move {
                    let request = Arc::new(request?);
                    if !self.resume_round(&call, &request).await? {
                        self.await_decision(&call, request.clone()).await?;
                    }
                    let trail = call.trail.clone();
                    let mut outcome = next.run(call).await;
                    if let (Err(error), Some(approval)) = (&mut outcome, trail.approval.get())
                        && let Some(input) = &mut error.input
                    {
                        input.approved = self.resumable.remember(&request, approval);
                    }
                    outcome
                })
            }
            // No decision, or a denied call. Neither can happen in this stack, and neither may run.
            Some(Decision::Deny { .. }) | None => {
                Box::pin(async { Err(ToolError::internal("a call came to approval without being allowed")) })
            }
        }
    }
}

impl ApprovalLayer {
    /// Returns whether this is a later round of an approved call. A rejection in the meantime takes effect.
    async fn resume_round(&self, call: &Call, request: &Arc<ApprovalRequest>) -> Result<bool, ToolError> {
        let Some(token) = call.ctx.peer.approved() else { return Ok(false) };
        if let Some(ApprovalOutcome::Rejected(_)) = self.desk.peek(request.clone()).await? {
            return Ok(false);
        }
        let Some(approval) = self.resumable.take(request, token) else { return Ok(false) };
        // Only this layer sets it, and not if this returns false.
        let _ = call.trail.approval.set(approval);
        Ok(true)
    }

    /// Returns once the call may run; an error says why it may not, or not yet.
    async fn await_decision(&self, call: &Call, request: Arc<ApprovalRequest>) -> Result<(), ToolError> {
        let mut changed = self.desk.changed();
        let Some(mut pending) = self.request_status(call, &request).await? else { return Ok(()) };
        let _waiting = call.trail.waits.begin();
        let began = Instant::now();
        let until = began + self.desk.times().wait;
        let mut next_progress = began;
        let mut form = ApprovalForm::default();
        loop {
            if Instant::now() >= next_progress {
                // Whole seconds: strictly increasing, as MCP requires of progress.
                let waited = began.elapsed().as_secs_f64().floor();
                call.ctx.progress(waited, None, Some(&waiting_text(&pending)));
                next_progress = Instant::now() + PROGRESS_INTERVAL;
            }
            if let Some(FormOutcome::Closed) = form.open(&self.desk, call, &pending).await? {
                return Err(come_back(call, &pending));
            }
            // Before the deadline check: this very call may carry the answer.
            if !matches!(self.desk.peek(request.clone()).await?, Some(ApprovalOutcome::Pending(known)) if known.id == pending.id)
            {
                match self.request_status(call, &request).await? {
                    None => return self.decide_again(call),
                    // Another call used the approval, or the request expired: this one is new.
                    Some(new) => pending = new,
                }
                continue;
            }
            tokio::select! {
                reply = form.answered() => if let FormOutcome::Closed = reply? {
                    return Err(come_back(call, &pending));
                },
                _ = changed.changed() => {}
                () = sleep(POLL_INTERVAL) => {}
                () = sleep_until(until) => {
                    form.leave_open();
                    return Err(come_back(call, &pending));
                }
                // The client disconnected, or the hub shuts down. The request stays pending.
                () = call.ctx.peer.disconnected() => return Err(come_back(call, &pending)),
                () = self.desk.closed() => return Err(come_back(call, &pending)),
            }
        }
    }

    /// Decides again: while the person decided, the rules may have changed, and the client may have been narrowed, revoked
    /// or issued again.
    fn decide_again(&self, call: &Call) -> Result<(), ToolError> {
        let decision = call
            .current_caller(&*self.owners)
            .map(|caller| self.policy.decide(&caller, &PolicySubject::of_call(call)));
        match decision {
            None | Some(Decision::Deny { .. }) => {
                Err(ToolError::unknown(call.target.kind(), call.target.name()))
            }
            Some(Decision::Allow { .. } | Decision::Ask { .. }) => Ok(()),
        }
    }

    /// Returns `None` if the call may run, and the pending approval otherwise.
    async fn request_status(
        &self,
        call: &Call,
        request: &Arc<ApprovalRequest>,
    ) -> Result<Option<Approval>, ToolError> {
        // Only this layer sets it, and a decided call is not asked about again.
        let note = |approval: &Approval, how: &str| {
            let by = approval.decided.as_ref().map_or("", |decided| decided.by.as_str());
            let _ = call.trail.approval.set(format!("{} {how} by {by}", approval.id));
        };
        match self.desk.ask(request.clone()).await? {
            ApprovalOutcome::Pending(approval) => Ok(Some(approval)),
            ApprovalOutcome::Rejected(approval) => {
                note(&approval, "rejected");
                Err(rejected(call, &approval))
            }
            ApprovalOutcome::Approved(approval) => {
                // A used approval was for one call, whatever scope it had.
                let span = if approval.state == ApprovalState::Used {
                    ApprovalScope::Once
                } else {
                    ApprovalScope::Session
                };
                note(&approval, span.as_str());
                Ok(None)
            }
        }
    }
}

/// The elicitation form at the client, if it supports one. A call opens at most one, and only if none is open for the same
/// approval.
#[derive(Default)]
struct ApprovalForm {
    opened: bool,
    task: Option<JoinHandle<Result<FormOutcome, ToolError>>>,
}

/// The outcome of a form.
enum FormOutcome {
    /// Passed to the desk, unless another decision came first.
    Taken,
    /// The person dismissed it.
    Closed,
    /// The client could not show it, or it timed out. The person may decide elsewhere.
    None,
}

impl ApprovalForm {
    /// Opens the form once. Returns its outcome if this call already carries the answer.
    async fn open(
        &mut self,
        desk: &ApprovalDesk,
        call: &Call,
        pending: &Approval,
    ) -> Result<Option<FormOutcome>, ToolError> {
        if self.opened || !call.ctx.peer.offers(InputRequestKind::Elicit) {
            return Ok(None);
        }
        let Some(open) = desk.open_form(&pending.id) else { return Ok(None) };
        self.opened = true;
        let (peer, key) = (call.ctx.peer.clone(), format!("{QUESTION_KEY}{}", pending.id));
        let ask = InputRequest::elicit(&question(pending), form(pending));
        let questions = vec![KeyedInputRequest { key: key.clone(), ask }];
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
                    Err(_) => Ok(FormOutcome::None),
                },
                () = desk.decided(&pending.id) => Ok(FormOutcome::Taken),
            }
        }));
        Ok(None)
    }

    /// Resolves when the form is done; never if there is none.
    async fn answered(&mut self) -> Result<FormOutcome, ToolError> {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let answered = task.await;
        self.task = None;
        answered.unwrap_or_else(|panic| Err(ToolError::internal(panic)))
    }

    /// Keeps the form open after the call ends.
    fn leave_open(&mut self) {
        self.task = None;
    }
}

impl Drop for ApprovalForm {
    fn drop(&mut self) {
        // The caller disconnected, or the request was decided elsewhere.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Passes the answer of a form to the desk.
async fn take(
    desk: &ApprovalDesk,
    pending: &Approval,
    key: &str,
    answered: Result<InputResponses, InputRefusal>,
) -> Result<FormOutcome, ToolError> {
    let verdict = match answered {
        // The client gets the form as the result of this round; the error carries it.
        Err(next_round @ InputRefusal::NextRound(_)) => return Err(next_round.into()),
        // The person may decide elsewhere.
        Err(InputRefusal::NotOffered(_) | InputRefusal::Refused(_) | InputRefusal::Failed(_)) => {
            return Ok(FormOutcome::None);
        }
        Ok(answers) => match answers.get(key).and_then(verdict) {
            // The form did not offer this scope.
            Some(ApprovalVerdict::Approve(ApprovalScope::Session)) if pending.call.session.is_none() => {
                ApprovalVerdict::Approve(ApprovalScope::Once)
            }
            Some(verdict) => verdict,
            None => return Ok(FormOutcome::Closed),
        },
    };
    let by = format!("client `{}`", pending.call.client);
    let seen = ApprovalSnapshot { decided: None, session: pending.call.session.clone() };
    if let Err(error) = desk.answer(&pending.id, verdict, &by, seen).await {
        // Another decision came first and counts, or the write failed and there is none.
        tracing::warn!(id = %pending.id, %error, "approval answer not stored");
    }
    Ok(FormOutcome::Taken)
}

fn form(pending: &Approval) -> Value {
    let mut properties = json!({
        "approve": { "type": "boolean", "title": "Approve", "description": "Whether the call may run" }
    });
    // The scope `session` needs a session.
    if pending.call.effect != Effect::Destroy.as_str() && pending.call.session.is_some() {
        properties["remember"] = json!({
            "type": "string",
            "title": "For",
            "description": "This call only, or every call of this tool until the session ends",
            "enum": [ApprovalScope::Once.as_str(), ApprovalScope::Session.as_str()],
            "default": ApprovalScope::Once.as_str(),
        });
    }
    json!({ "type": "object", "properties": properties, "required": ["approve"] })
}

/// Returns the verdict of an answer. Only an explicit yes approves; a dismissed or empty form is no verdict.
fn verdict(answer: &Value) -> Option<ApprovalVerdict> {
    let no = ApprovalVerdict::Reject { reason: None };
    match answer.get("action").and_then(Value::as_str) {
        Some("decline") => return Some(no),
        Some("accept") => {}
        _ => return None,
    }
    if !answer.pointer("/content/approve")?.as_bool()? {
        return Some(no);
    }
    let for_session =
        answer.pointer("/content/remember").and_then(Value::as_str) == Some(ApprovalScope::Session.as_str());
    Some(ApprovalVerdict::Approve(if for_session { ApprovalScope::Session } else { ApprovalScope::Once }))
}

fn question(pending: &Approval) -> String {
    let ApprovalRequest { client, kind, target, effect, reach, arguments, more, .. } = &pending.call;
    let reach = if reach == Reach::Outside.as_str() { ", reaches outside" } else { "" };
    let (shown, cut) = match arguments.char_indices().nth(FORM_CHARS_MAX) {
        None => (arguments.as_str(), 0),
        Some((end, _)) => (&arguments[..end], arguments[end..].chars().count()),
    };
    let more = match cut + more {
        0 => String::new(),
        more => format!("… and {more} characters more; `portcullis approvals show {}`", pending.id),
    };
    // Upstream servers cannot start an elicitation with this text (`upstream/src/rpc/elicitation.rs`).
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
