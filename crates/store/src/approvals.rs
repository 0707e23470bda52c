//! Approvals: calls that wait for a person, and the decisions.
//!
//! An approval is bound to a digest of the whole call (client, its token, tool, arguments, definition). So an
//! edited call needs a new approval, and so does a new client with the name of a former one. The call that
//! uses a one-time approval consumes it on disk before it acts: a crash in between costs an approval, it
//! never grants one. Hub and command line share the rows.

mod rows;

pub(crate) use rows::{ApprovalTable, read_legacy};

use crate::database::{Database, DatabaseError, TopicStore};
use jiff::{SignedDuration, Timestamp};
use portcullis_core::{Clock, Effect};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinError;

/// Pending approvals of all clients. A person does not read more.
pub const PENDING_MAX: usize = 200;
/// Pending approvals of one client, so that it cannot crowd out others.
pub const PENDING_PER_CLIENT_MAX: usize = 50;
/// Closed approvals that stay for lookup.
const OVER_MAX: usize = 500;
/// Rejections that stay. A client that rejects automatically does not grow the table.
const REJECTED_MAX: usize = 200;
/// Bytes of the arguments that stay after the decision.
const ARGUMENTS_KEPT_BYTES_MAX: usize = 512;
/// Clock skew: a decision from later than now by more than this is not valid.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(5);
/// Bytes of the arguments that are stored for a person to read.
pub const ARGUMENTS_BYTES_MAX: usize = 8 * 1024;
/// After a rejection the same call is refused without a question for this long. Then the person may decide
/// otherwise.
const REJECTED_FOR: Duration = Duration::from_secs(10 * 60);
const ID_CHARS: usize = 8;
/// Digits and letters that are not mistaken for one another (Crockford base 32).
const ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// An error for the person or client that made the request.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error("no approval has the id `{}`; `portcullis approvals list --all` shows which exist", portcullis_core::json::printable(.0))]
    Unknown(String),
    #[error("`{}` matches several ids; give more characters", portcullis_core::json::printable(.0))]
    Ambiguous(String),
    #[error("`{0}` has expired; make the call again to request a new approval")]
    Expired(String),
    #[error("`{id}` is {state} already")]
    Decided { id: String, state: ApprovalStage },
    #[error("there is no room for more approvals; nothing was changed")]
    TooLarge,
    #[error("`{0}` is destructive, so it can only be approved one call at a time")]
    SingleUse(String),
    #[error(
        "{PENDING_MAX} calls are already pending, or {PENDING_PER_CLIENT_MAX} of this client; decide some of them first"
    )]
    Full,
    /// The file cannot be read; nothing is approved until it can.
    #[error("{0}")]
    Damaged(String),
    #[error("cannot get random bytes from the system: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Database(DatabaseError),
}

impl From<JoinError> for ApprovalError {
    fn from(panic: JoinError) -> ApprovalError {
        ApprovalError::Damaged(panic.to_string())
    }
}

impl From<DatabaseError> for ApprovalError {
    fn from(error: DatabaseError) -> ApprovalError {
        if error.is_too_large() { ApprovalError::TooLarge } else { ApprovalError::Database(error) }
    }
}

/// The scope of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalScope {
    /// The exact call, one time.
    Once,
    /// Every call of this tool by this client until its session ends.
    Session,
}

impl ApprovalScope {
    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalScope::Once => "once",
            ApprovalScope::Session => "session",
        }
    }
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalVerdict {
    Approve(ApprovalScope),
    Reject { reason: Option<String> },
}

/// The state of an approval when a person saw it and decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalSnapshot {
    /// Time of the earlier decision, if any.
    pub decided: Option<Timestamp>,
    /// The session that waited, as in [`ApprovalRequest`].
    pub session: Option<String>,
}

/// The stored state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Pending,
    Approved,
    Rejected,
    /// Approved once, and consumed.
    Used,
}

/// The state of an approval at a given time: the stored one, or expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalStage {
    Pending,
    Approved,
    Rejected,
    Used,
    Expired,
}

impl ApprovalStage {
    /// Returns the state as one word, for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalStage::Pending => "pending",
            ApprovalStage::Approved => "approved",
            ApprovalStage::Rejected => "rejected",
            ApprovalStage::Used => "used",
            ApprovalStage::Expired => "expired",
        }
    }
}

impl std::fmt::Display for ApprovalStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The call that needs approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// SHA-256 of client, its token, kind, target, arguments and definition, as 64 hex digits.
    pub digest: String,
    pub client: String,
    /// A digest of part of the client's token, where it has one. Tells the client from a later one of the
    /// same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    pub origin: String,
    /// The origins of the calls that it is nested in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<String>,
    /// `tool`, `resource`, `prompt`.
    pub kind: String,
    pub target: String,
    pub effect: String,
    pub reach: String,
    /// The rule that requires approval.
    pub rule: String,
    /// SHA-256 of the target's definition at the time of the request, as 64 hex digits.
    pub definition: String,
    /// The session that asked, where there are sessions. A digest, because the id itself opens the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For a person to read: redacted, with hidden characters shown, at most [`ARGUMENTS_BYTES_MAX`].
    pub arguments: String,
    /// Characters of the arguments that are not shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A decision, with its author and time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    pub at: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<ApprovalScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One approval, from the request to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub id: String,
    pub state: ApprovalState,
    pub asked: Timestamp,
    /// When the request, or the decision, expires.
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<ApprovalDecision>,
    /// Whether a call has used it. An approval for a session stays valid for that session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    pub call: ApprovalRequest,
}

impl Approval {
    pub fn stage(&self, now: Timestamp) -> ApprovalStage {
        match self.state {
            ApprovalState::Used => ApprovalStage::Used,
            _ if self.expires <= now => ApprovalStage::Expired,
            ApprovalState::Pending => ApprovalStage::Pending,
            ApprovalState::Approved => ApprovalStage::Approved,
            ApprovalState::Rejected => ApprovalStage::Rejected,
        }
    }

    /// Returns whether this verdict is possible for a person who saw the decision of time `seen`. A rejection
    /// may become an approval, and an unused approval may be revoked.
    pub fn takes(&self, verdict: &ApprovalVerdict, seen: Option<Timestamp>, now: Timestamp) -> bool {
        let is_as_seen = self.decided.as_ref().map(|decided| decided.at) == seen;
        let may = match (self.stage(now), verdict) {
            (ApprovalStage::Pending, _) => true,
            (ApprovalStage::Rejected, ApprovalVerdict::Approve(_))
            | (ApprovalStage::Approved, ApprovalVerdict::Reject { .. }) => true,
            (
                ApprovalStage::Approved
                | ApprovalStage::Rejected
                | ApprovalStage::Used
                | ApprovalStage::Expired,
                _,
            ) => false,
        };
        may && is_as_seen
    }

    fn counts(&self, now: Timestamp) -> bool {
        let since = self.decided.as_ref().map_or(self.asked, |decided| decided.at);
        self.state != ApprovalState::Used && now < self.expires && since.duration_since(now) < CLOCK_SLACK
    }

    /// Narrows a verdict that was given for `session`. The call may wait in another session by now, or in
    /// none; an approval for that session is not what the person was asked for.
    fn narrowed(&self, verdict: ApprovalVerdict, session: Option<&str>) -> ApprovalVerdict {
        match verdict {
            ApprovalVerdict::Approve(ApprovalScope::Session) if self.call.session.as_deref() != session => {
                ApprovalVerdict::Approve(ApprovalScope::Once)
            }
            ApprovalVerdict::Approve(_) | ApprovalVerdict::Reject { .. } => verdict,
        }
    }

    /// Returns whether an approval stays valid after this call. Without a session, an approval for a session
    /// has no end, so it is for the shown call only.
    fn outlasts(&self, call: &ApprovalRequest) -> bool {
        self.is_for_session() && (self.call.session.is_none() || call.session.is_some())
    }

    fn destroys(&self) -> bool {
        self.call.effect == Effect::Destroy.as_str()
    }

    fn is_for_session(&self) -> bool {
        self.state == ApprovalState::Approved
            && self.decided.as_ref().is_some_and(|decided| decided.span == Some(ApprovalScope::Session))
    }

    /// Returns whether this approval is about a call.
    fn covers(&self, call: &ApprovalRequest) -> bool {
        if self.is_for_session() {
            // The session that asked may be gone: the shown call still runs, once, in the next one.
            if !self.taken && self.call.digest == call.digest {
                return true;
            }
            // An approval for a session covers any arguments; client, tool and definition must be unchanged.
            let part = |call: &ApprovalRequest| {
                let ApprovalRequest {
                    client,
                    holder,
                    origin,
                    ancestors,
                    kind,
                    target,
                    effect,
                    definition,
                    session,
                    ..
                } = call.clone();
                (client, holder, origin, ancestors, kind, target, effect, definition, session)
            };
            return part(&self.call) == part(call);
        }
        self.call.digest == call.digest
    }
}

/// The outcome of looking up a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalOutcome {
    /// It may run now. A one-time approval is consumed.
    Approved(Approval),
    Rejected(Approval),
    Pending(Approval),
}

/// Lifetimes of requests and decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalLifetimes {
    /// An undecided request.
    pub pending: Duration,
    /// An unused approval; and one for a session, where there are no sessions.
    pub approved: Duration,
}

/// The approvals of one hub.
pub struct ApprovalStore {
    topic: TopicStore<ApprovalTable>,
    clock: Arc<dyn Clock>,
}

impl ApprovalStore {
    /// Damaged rows are not an error here: nothing is approved, and [`ApprovalStore::health`] says why.
    pub fn open(database: &Database, clock: Arc<dyn Clock>) -> ApprovalStore {
        ApprovalStore { topic: TopicStore::open(database), clock }
    }

    /// Returns a receiver that is notified whenever a request is opened, decided or consumed.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.topic.subscribe()
    }

    /// Returns the outcome for a call, and opens a request if there is none.
    ///
    /// Blocks on the file lock of other processes and on the disk; not for an async worker.
    pub fn ask(
        &self,
        call: &ApprovalRequest,
        lifetimes: ApprovalLifetimes,
    ) -> Result<ApprovalOutcome, ApprovalError> {
        // Most retries of a call need no write.
        if let Some(standing) = self.peek(call)?
            && !changes_by_use(&standing, call)
        {
            return Ok(standing);
        }
        let now = self.now();
        rows::change(&self.topic, now, |approvals| {
            if let Some(at) = choose(approvals, call, now) {
                let known = &mut approvals[at];
                match known.state {
                    ApprovalState::Approved if known.outlasts(call) => known.taken = true,
                    ApprovalState::Approved => (known.state, known.taken) = (ApprovalState::Used, true),
                    ApprovalState::Pending | ApprovalState::Rejected | ApprovalState::Used => {}
                }
                // The session that asks now waits for the decision.
                if known.state != ApprovalState::Rejected {
                    known.call.session.clone_from(&call.session);
                }
                return Ok(stand(known.clone()));
            }
            let waits = |known: &&Approval| known.state == ApprovalState::Pending && known.counts(now);
            let own = |known: &&Approval| waits(known) && known.call.client == call.client;
            if approvals.iter().filter(waits).count() >= PENDING_MAX
                || approvals.iter().filter(own).count() >= PENDING_PER_CLIENT_MAX
            {
                return Err(ApprovalError::Full);
            }
            let new = Approval {
                id: new_id(approvals)?,
                state: ApprovalState::Pending,
                asked: now,
                expires: after(now, lifetimes.pending),
                decided: None,
                taken: false,
                call: call.clone(),
            };
            approvals.push(new.clone());
            Ok(ApprovalOutcome::Pending(new))
        })
    }

    /// Applies a decision about a request as the person saw it. It is refused if another decision came in
    /// between; an approval for a session that no longer waits is narrowed to one call.
    pub fn answer(
        &self,
        id: &str,
        verdict: ApprovalVerdict,
        by: &str,
        seen: &ApprovalSnapshot,
        lifetimes: ApprovalLifetimes,
    ) -> Result<Approval, ApprovalError> {
        self.settle(id, by, lifetimes, |approval, now| {
            let is_open = approval.takes(&verdict, seen.decided, now);
            is_open.then(|| approval.narrowed(verdict, seen.session.as_deref()))
        })
    }

    /// Decides a request by its id or an id prefix. A rejection may become an approval, and an unused
    /// approval may be revoked.
    pub fn decide(
        &self,
        id: &str,
        verdict: ApprovalVerdict,
        by: &str,
        lifetimes: ApprovalLifetimes,
    ) -> Result<Approval, ApprovalError> {
        self.settle(id, by, lifetimes, |approval, now| {
            let seen = approval.decided.as_ref().map(|decided| decided.at);
            approval.takes(&verdict, seen, now).then_some(verdict)
        })
    }

    /// Stores the verdict that `judge` returns for the current state of a request; nothing, if the request
    /// does not admit one.
    fn settle(
        &self,
        id: &str,
        by: &str,
        lifetimes: ApprovalLifetimes,
        judge: impl FnOnce(&Approval, Timestamp) -> Option<ApprovalVerdict>,
    ) -> Result<Approval, ApprovalError> {
        let now = self.now();
        rows::change(&self.topic, now, |approvals| {
            let at = find(approvals, id)?;
            let approval = &mut approvals[at];
            let id = || approval.id.clone();
            let verdict = match (judge(approval, now), approval.stage(now)) {
                (Some(verdict), _) => verdict,
                (None, ApprovalStage::Expired) => return Err(ApprovalError::Expired(id())),
                (None, state) => return Err(ApprovalError::Decided { id: id(), state }),
            };
            let (state, span, reason, lasts) = match verdict {
                ApprovalVerdict::Approve(ApprovalScope::Session) if approval.destroys() => {
                    return Err(ApprovalError::SingleUse(id()));
                }
                ApprovalVerdict::Approve(span) => {
                    (ApprovalState::Approved, Some(span), None, lifetimes.approved)
                }
                ApprovalVerdict::Reject { reason } => (ApprovalState::Rejected, None, reason, REJECTED_FOR),
            };
            approval.state = state;
            approval.decided = Some(ApprovalDecision { at: now, by: by.to_owned(), span, reason });
            approval.expires = after(now, lasts);
            if span == Some(ApprovalScope::Session) && approval.call.session.is_some() {
                // The approval ends with its session. The expiry is for sessions that never end.
                approval.expires = after(now, lifetimes.approved.max(lifetimes.pending));
            }
            Ok(approval.clone())
        })
    }

    /// Returns an approval by its id or an id prefix.
    pub fn get(&self, id: &str) -> Result<Approval, ApprovalError> {
        self.known(|approvals| Ok(approvals[find(approvals, id)?].clone()))
    }

    /// Returns all approvals, closed ones too, oldest first.
    pub fn list(&self) -> Result<Vec<Approval>, ApprovalError> {
        self.known(|approvals| Ok(approvals.to_vec()))
    }

    /// Returns the pending approvals, oldest first.
    pub fn pending(&self) -> Result<Vec<Approval>, ApprovalError> {
        let now = self.now();
        let waits = |approval: &&Approval| approval.stage(now) == ApprovalStage::Pending;
        self.known(|approvals| Ok(approvals.iter().filter(waits).cloned().collect()))
    }

    /// Returns why nothing can be approved, if so.
    pub fn health(&self) -> Result<(), ApprovalError> {
        self.known(|_| Ok(()))
    }

    /// Returns the time that lifetimes are measured by.
    pub fn now(&self) -> Timestamp {
        // An unknown time must not revive an approval.
        Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::MAX)
    }

    /// Returns the outcome for a call, without opening or consuming anything.
    pub fn peek(&self, call: &ApprovalRequest) -> Result<Option<ApprovalOutcome>, ApprovalError> {
        let now = self.now();
        self.known(|approvals| Ok(choose(approvals, call, now).map(|at| stand(approvals[at].clone()))))
    }

    fn known<T>(
        &self,
        look: impl FnOnce(&[Approval]) -> Result<T, ApprovalError>,
    ) -> Result<T, ApprovalError> {
        match &self.topic.current().known {
            Ok(approvals) => look(&approvals.0),
            Err(why) => Err(ApprovalError::Damaged(why.clone())),
        }
    }
}

fn stand(approval: Approval) -> ApprovalOutcome {
    match approval.state {
        ApprovalState::Approved | ApprovalState::Used => ApprovalOutcome::Approved(approval),
        ApprovalState::Rejected => ApprovalOutcome::Rejected(approval),
        ApprovalState::Pending => ApprovalOutcome::Pending(approval),
    }
}

/// Returns the record in force for a call: a rejection of exactly this one, else an approval, else the
/// request.
fn choose(approvals: &[Approval], call: &ApprovalRequest, now: Timestamp) -> Option<usize> {
    let rank = |at: &usize| match approvals[*at].state {
        ApprovalState::Rejected => 0,
        ApprovalState::Approved | ApprovalState::Used => 1,
        ApprovalState::Pending => 2,
    };
    let speaks = |at: &usize| approvals[*at].counts(now) && approvals[*at].covers(call);
    (0..approvals.len()).filter(speaks).min_by_key(rank)
}

/// Returns whether the call changes the file: unless the approval is plainly for its session it is consumed,
/// and a request moves to the session that asked last.
fn changes_by_use(standing: &ApprovalOutcome, call: &ApprovalRequest) -> bool {
    match standing {
        ApprovalOutcome::Rejected(_) => false,
        ApprovalOutcome::Pending(approval) => approval.call.session != call.session,
        ApprovalOutcome::Approved(approval) => !(approval.is_for_session() && approval.taken),
    }
}

fn find(approvals: &[Approval], id: &str) -> Result<usize, ApprovalError> {
    let id = id.trim();
    if let Some(at) = approvals.iter().position(|approval| approval.id == id) {
        return Ok(at);
    }
    let mut begin = (0..approvals.len()).filter(|at| !id.is_empty() && approvals[*at].id.starts_with(id));
    match (begin.next(), begin.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err(ApprovalError::Ambiguous(id.to_owned())),
        (None, _) => Err(ApprovalError::Unknown(id.to_owned())),
    }
}

fn new_id(known: &[Approval]) -> Result<String, ApprovalError> {
    loop {
        let mut random = [0; ID_CHARS];
        getrandom::fill(&mut random).map_err(ApprovalError::Random)?;
        let id: String = random.map(|byte| char::from(ID_ALPHABET[usize::from(byte % 32)])).iter().collect();
        if known.iter().all(|approval| approval.id != id) {
            return Ok(id);
        }
    }
}

fn after(now: Timestamp, life: Duration) -> Timestamp {
    let life = SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX);
    now.checked_add(life).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
