//! What waits for a person's decision, and what was decided.
//!
//! An approval is bound to a digest of the whole call (client, its token, tool, arguments, definition), so an edited call asks
//! again, and so does whoever has the name of a former client. One that was given once is taken by the call that uses it,
//! on disk before that call acts: a crash in between costs an approval, it never gives one. One file, `approvals.json`,
//! shared by the hub and the command line.

mod file;

use crate::kept::{FileError, Live};
use file::Contents;
use jiff::{SignedDuration, Timestamp};
use portcullis_core::{Clock, Effect};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How many decisions a person may be asked for at once. Nobody reads more.
pub const PENDING_MAX: usize = 200;
/// How many of them one client may have, so that it does not take the place of others.
pub const PENDING_PER_CLIENT_MAX: usize = 50;
/// How many that are over are kept, to be looked up.
const OVER_MAX: usize = 500;
/// How many refusals are remembered. A client that refuses all by itself does not make the file any longer.
const REJECTED_MAX: usize = 200;
/// How much of the arguments stays once a call is decided about.
const ARGUMENTS_KEPT_BYTES_MAX: usize = 512;
/// How far a clock may be set back before what was decided later than now stops to count.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(5);
/// How much of the arguments is kept for a person to read.
pub const ARGUMENTS_BYTES_MAX: usize = 8 * 1024;
/// After a no, the same call is refused without asking for this long. Then the person may have another mind.
const REJECTED_FOR: Duration = Duration::from_secs(10 * 60);
const ID_CHARS: usize = 8;
/// Digits and letters that nobody mistakes for one another.
const ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// What can be wrong with a request to the store, in words for whoever made it.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error("no approval has the id `{}`; `portcullis approvals list --all` shows which exist", portcullis_core::json::printable(.0))]
    Unknown(String),
    #[error("`{}` is the beginning of several ids; give more of it", portcullis_core::json::printable(.0))]
    Ambiguous(String),
    #[error("`{0}` has expired; the call has to be made again, and will ask again")]
    Expired(String),
    #[error("`{id}` is {state} already")]
    Decided { id: String, state: Stage },
    #[error("the approvals do not fit in their file any more; nothing was changed")]
    TooLarge,
    #[error("`{0}` destroys something, so it can only be approved one call at a time")]
    SingleUse(String),
    #[error(
        "{PENDING_MAX} calls wait for a decision already, or {PENDING_PER_CLIENT_MAX} of this client; decide about some first"
    )]
    Full,
    /// The file cannot be read; nothing is approved until it can.
    #[error("{0}")]
    Damaged(String),
    #[error("the system gave no random numbers: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Io(#[from] FileError),
}

/// For how much a yes counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Span {
    /// The exact call, one time.
    Once,
    /// Every call of this tool by this client until its session ends.
    Session,
}

impl Span {
    pub fn as_str(self) -> &'static str {
        match self {
            Span::Once => "once",
            Span::Session => "session",
        }
    }
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Approve(Span),
    Reject { reason: Option<String> },
}

/// How a question stood when somebody looked at it and answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// When it had been decided, and nothing if nobody had.
    pub decided: Option<Timestamp>,
    /// Which session waited for the answer, as [`Asked`] names it.
    pub session: Option<String>,
}

/// How far an approval has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Pending,
    Approved,
    Rejected,
    /// Approved once, and that once is over.
    Used,
}

/// How an approval stands at some time: what was last done with it, or that its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Pending,
    Approved,
    Rejected,
    Used,
    Expired,
}

impl Stage {
    /// Returns the one word for it, for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Pending => "pending",
            Stage::Approved => "approved",
            Stage::Rejected => "rejected",
            Stage::Used => "used",
            Stage::Expired => "expired",
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The call that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Of client, its token, kind, target, arguments and definition, as 64 hex digits.
    pub digest: String,
    pub client: String,
    /// Who has the name of the client, where it shows a token: a digest of part of that. A name that was taken back and given
    /// again is somebody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    pub origin: String,
    /// `tool`, `resource`, `prompt`.
    pub kind: String,
    pub target: String,
    pub effect: String,
    pub reach: String,
    /// The rule by which a person is asked.
    pub rule: String,
    /// Of what the target was when it was asked about, as 64 hex digits.
    pub definition: String,
    /// Which session asked, where there are sessions. A digest: its id opens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For a person to read: without secrets, with nothing hidden, and no more than [`ARGUMENTS_BYTES_MAX`].
    pub arguments: String,
    /// How many characters of them are not shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What was decided, by whom and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    pub at: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One question to a person, from the moment it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    pub id: String,
    pub state: State,
    pub asked: Timestamp,
    /// When the question, or what was answered, stops to count.
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// Whether a call has run on it. A yes for a session stays good for that session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    pub call: Asked,
}

impl Approval {
    pub fn stage(&self, now: Timestamp) -> Stage {
        match self.state {
            State::Used => Stage::Used,
            _ if self.expires <= now => Stage::Expired,
            State::Pending => Stage::Pending,
            State::Approved => Stage::Approved,
            State::Rejected => Stage::Rejected,
        }
    }

    /// Returns whether it may be decided so by somebody who looked when it had been decided at `seen`. A no may still
    /// become a yes, and a yes that is not used up may be taken back.
    pub fn takes(&self, verdict: &Verdict, seen: Option<Timestamp>, now: Timestamp) -> bool {
        let is_as_seen = self.decided.as_ref().map(|decided| decided.at) == seen;
        let may = match (self.stage(now), verdict) {
            (Stage::Pending, _) => true,
            (Stage::Rejected, Verdict::Approve(_)) | (Stage::Approved, Verdict::Reject { .. }) => true,
            (Stage::Approved | Stage::Rejected | Stage::Used | Stage::Expired, _) => false,
        };
        may && is_as_seen
    }

    fn counts(&self, now: Timestamp) -> bool {
        let since = self.decided.as_ref().map_or(self.asked, |decided| decided.at);
        self.state != State::Used && now < self.expires && since.duration_since(now) < CLOCK_SLACK
    }

    /// Returns what an answer means that was given for `session`. The call may wait in another by now, or in none, and a yes
    /// until that ends is not what somebody was asked for.
    fn narrowed(&self, verdict: Verdict, session: Option<&str>) -> Verdict {
        match verdict {
            Verdict::Approve(Span::Session) if self.call.session.as_deref() != session => {
                Verdict::Approve(Span::Once)
            }
            Verdict::Approve(_) | Verdict::Reject { .. } => verdict,
        }
    }

    /// Returns whether a yes stays good beyond this call. One until a session ends has nothing to end with where there is
    /// none: there it is for the call that was shown.
    fn outlasts(&self, call: &Asked) -> bool {
        self.is_for_session() && (self.call.session.is_none() || call.session.is_some())
    }

    fn destroys(&self) -> bool {
        self.call.effect == Effect::Destroy.as_str()
    }

    fn is_for_session(&self) -> bool {
        self.state == State::Approved
            && self.decided.as_ref().is_some_and(|decided| decided.span == Some(Span::Session))
    }

    /// Returns whether this speaks about a call.
    fn covers(&self, call: &Asked) -> bool {
        if self.is_for_session() {
            // The session that asked may be gone: the call that was shown runs all the same, once, for the next one.
            if !self.taken && self.call.digest == call.digest {
                return true;
            }
            // Of the arguments it says nothing; what the tool is and does, and for whom, must be as it was.
            let part = |call: &Asked| {
                let Asked { client, holder, origin, kind, target, effect, definition, session, .. } =
                    call.clone();
                (client, holder, origin, kind, target, effect, definition, session)
            };
            return part(&self.call) == part(call);
        }
        self.call.digest == call.digest
    }
}

/// How a call stands with the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It may run now. If it was approved once, that is used up.
    Approved(Approval),
    Rejected(Approval),
    Pending(Approval),
}

/// How long questions and answers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// A question that nobody answers.
    pub pending: Duration,
    /// A yes that nobody uses; and one for a session, where there are no sessions.
    pub approved: Duration,
}

/// The approvals of one hub.
pub struct Approvals {
    live: Live<Contents>,
    clock: Arc<dyn Clock>,
}

impl Approvals {
    /// Opens the approvals kept in the folder `dir`. Neither has to exist.
    ///
    /// A damaged file is not an error here: nothing is approved, and [`Approvals::health`] says why.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>) -> Approvals {
        Approvals { live: Live::new(file::in_folder(dir), file::parse), clock }
    }

    /// Returns how a call stands, and asks about it if nobody did.
    ///
    /// Waits for other processes that change the file at this moment, and for the disk; not for a runtime thread.
    pub fn ask(&self, call: &Asked, lifetimes: Lifetimes) -> Result<Standing, ApprovalError> {
        // Most calls that come here a second time need no change.
        if let Some(standing) = self.peek(call)?
            && !changes_by_use(&standing, call)
        {
            return Ok(standing);
        }
        let now = self.now();
        file::change(&self.live.file, now, |approvals| {
            if let Some(at) = choose(approvals, call, now) {
                let known = &mut approvals[at];
                match known.state {
                    State::Approved if known.outlasts(call) => known.taken = true,
                    State::Approved => (known.state, known.taken) = (State::Used, true),
                    State::Pending | State::Rejected | State::Used => {}
                }
                // Whoever asks now is who waits for the answer.
                if known.state != State::Rejected {
                    known.call.session.clone_from(&call.session);
                }
                return Ok(stand(known.clone()));
            }
            let waits = |known: &&Approval| known.state == State::Pending && known.counts(now);
            let own = |known: &&Approval| waits(known) && known.call.client == call.client;
            if approvals.iter().filter(waits).count() >= PENDING_MAX
                || approvals.iter().filter(own).count() >= PENDING_PER_CLIENT_MAX
            {
                return Err(ApprovalError::Full);
            }
            let new = Approval {
                id: new_id(approvals)?,
                state: State::Pending,
                asked: now,
                expires: after(now, lifetimes.pending),
                decided: None,
                taken: false,
                call: call.clone(),
            };
            approvals.push(new.clone());
            Ok(Standing::Pending(new))
        })
    }

    /// Takes an answer to a question as it was looked at. Whoever decides about what somebody else decided meanwhile is
    /// refused, and a yes for a session that waits no more is for one call.
    pub fn answer(
        &self,
        id: &str,
        verdict: Verdict,
        by: &str,
        seen: &Seen,
        lifetimes: Lifetimes,
    ) -> Result<Approval, ApprovalError> {
        self.settle(id, by, lifetimes, |approval, now| {
            let is_open = approval.takes(&verdict, seen.decided, now);
            is_open.then(|| approval.narrowed(verdict, seen.session.as_deref()))
        })
    }

    /// Decides about a question by its id, or by the beginning of it. A no may still become a yes, and a yes that is
    /// not used up may be taken back.
    pub fn decide(
        &self,
        id: &str,
        verdict: Verdict,
        by: &str,
        lifetimes: Lifetimes,
    ) -> Result<Approval, ApprovalError> {
        self.settle(id, by, lifetimes, |approval, now| {
            let seen = approval.decided.as_ref().map(|decided| decided.at);
            approval.takes(&verdict, seen, now).then_some(verdict)
        })
    }

    /// Writes down what `judge` makes of a question as it is now; nothing, where it is not open to that.
    fn settle(
        &self,
        id: &str,
        by: &str,
        lifetimes: Lifetimes,
        judge: impl FnOnce(&Approval, Timestamp) -> Option<Verdict>,
    ) -> Result<Approval, ApprovalError> {
        let now = self.now();
        file::change(&self.live.file, now, |approvals| {
            let at = find(approvals, id)?;
            let approval = &mut approvals[at];
            let id = || approval.id.clone();
            let verdict = match (judge(approval, now), approval.stage(now)) {
                (Some(verdict), _) => verdict,
                (None, Stage::Expired) => return Err(ApprovalError::Expired(id())),
                (None, state) => return Err(ApprovalError::Decided { id: id(), state }),
            };
            let (state, span, reason, lasts) = match verdict {
                Verdict::Approve(Span::Session) if approval.destroys() => {
                    return Err(ApprovalError::SingleUse(id()));
                }
                Verdict::Approve(span) => (State::Approved, Some(span), None, lifetimes.approved),
                Verdict::Reject { reason } => (State::Rejected, None, reason, REJECTED_FOR),
            };
            approval.state = state;
            approval.decided = Some(Decided { at: now, by: by.to_owned(), span, reason });
            approval.expires = after(now, lasts);
            if span == Some(Span::Session) && approval.call.session.is_some() {
                // It ends with the session, which nobody can have again; this is for those that never end.
                approval.expires = after(now, lifetimes.approved.max(lifetimes.pending));
            }
            Ok(approval.clone())
        })
    }

    /// Returns an approval by its id, or by the beginning of it.
    pub fn get(&self, id: &str) -> Result<Approval, ApprovalError> {
        self.known(|approvals| Ok(approvals[find(approvals, id)?].clone()))
    }

    /// Returns all approvals, oldest first; those that are over, too.
    pub fn list(&self) -> Result<Vec<Approval>, ApprovalError> {
        self.known(|approvals| Ok(approvals.to_vec()))
    }

    /// Returns what waits for a decision, oldest first.
    pub fn pending(&self) -> Result<Vec<Approval>, ApprovalError> {
        let now = self.now();
        let waits = |approval: &&Approval| approval.stage(now) == Stage::Pending;
        self.known(|approvals| Ok(approvals.iter().filter(waits).cloned().collect()))
    }

    /// Returns why nothing can be approved, if so.
    pub fn health(&self) -> Result<(), ApprovalError> {
        self.known(|_| Ok(()))
    }

    /// Returns the time by which questions and answers are measured.
    pub fn now(&self) -> Timestamp {
        // A time that cannot be told revives nothing.
        Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::MAX)
    }

    /// Returns how a call stands, without asking or using anything.
    pub fn peek(&self, call: &Asked) -> Result<Option<Standing>, ApprovalError> {
        let now = self.now();
        self.known(|approvals| Ok(choose(approvals, call, now).map(|at| stand(approvals[at].clone()))))
    }

    fn known<T>(
        &self,
        look: impl FnOnce(&[Approval]) -> Result<T, ApprovalError>,
    ) -> Result<T, ApprovalError> {
        match &self.live.current().known {
            Ok(contents) => look(&contents.approvals),
            Err(why) => Err(ApprovalError::Damaged(why.clone())),
        }
    }
}

fn stand(approval: Approval) -> Standing {
    match approval.state {
        State::Approved | State::Used => Standing::Approved(approval),
        State::Rejected => Standing::Rejected(approval),
        State::Pending => Standing::Pending(approval),
    }
}

/// Returns what counts for a call: a no to exactly this one, else a yes, else the question.
fn choose(approvals: &[Approval], call: &Asked, now: Timestamp) -> Option<usize> {
    let rank = |at: &usize| match approvals[*at].state {
        State::Rejected => 0,
        State::Approved | State::Used => 1,
        State::Pending => 2,
    };
    let speaks = |at: &usize| approvals[*at].counts(now) && approvals[*at].covers(call);
    (0..approvals.len()).filter(speaks).min_by_key(rank)
}

/// Returns whether something has to be written when the call comes: whatever is not plainly for its session is for one
/// call, and a question is that of whoever asked last.
fn changes_by_use(standing: &Standing, call: &Asked) -> bool {
    match standing {
        Standing::Rejected(_) => false,
        Standing::Pending(approval) => approval.call.session != call.session,
        Standing::Approved(approval) => !(approval.is_for_session() && approval.taken),
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
