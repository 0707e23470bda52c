//! Scripts and their approvals.
//!
//! A script is a file in the scripts folder. It runs if a person approved exactly its bytes: the decision
//! holds their SHA-256 and the grants, and the hub runs the bytes that it has compared. Any change of the file
//! needs a new approval. An agent's proposal is a copy only, and becomes a script when a person accepts it.
//!
//! Decisions, proposals and copies are rows of the database, which all processes of the home share. Decisions that cannot
//! be read approve nothing (fail closed).

mod copies;
mod header;
mod proposals;
mod records;
mod run_history;

pub use header::{ScriptHeader, ScriptName, ScriptNameError, ScriptPermissions};
pub(super) use records::TABLES;
pub use records::{Proposal, ScriptDecision};
pub use run_history::ScriptRunRecord;

use copies::ScriptCopies;
use jiff::Timestamp;
use portcullis_core::Clock;
use portcullis_store::FileError;
use portcullis_store::database::{Database, DatabaseError, TopicStore};
use proposals::{PROPOSALS_MAX, PROPOSALS_PER_CLIENT_MAX};
use records::{ScriptRecord, ScriptRecords, ScriptRow, ScriptTable};
use run_history::RunHistory;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Scripts of one home.
const SCRIPTS_MAX: usize = 1_000;
/// Decisions about one script that are stored.
const DECISIONS_MAX: usize = 50;
/// A script of this size takes a person a day to read.
pub const SOURCE_BYTES_MAX: usize = 256 * 1024;
const REASON_CHARS_MAX: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Name(#[from] ScriptNameError),
    #[error("script `{0}` not found")]
    Unknown(ScriptName),
    #[error("a script `{0}` already exists; edit it, or choose another name")]
    Exists(ScriptName),
    #[error("script `{name}` has {bytes} bytes, at most {SOURCE_BYTES_MAX} are allowed")]
    TooLarge { name: ScriptName, bytes: u64 },
    #[error("script `{0}` is not UTF-8")]
    NotText(ScriptName),
    #[error("script `{0}` is not a regular file")]
    NotFile(ScriptName),
    #[error("script `{name}` cannot be read: {why}")]
    Unreadable { name: ScriptName, why: String },
    #[error(
        "version {reviewed} of script `{name}` was replaced by {now}; review that version and decide again"
    )]
    NotThatVersion { name: ScriptName, reviewed: String, now: String },
    #[error("`{given}` matches more than one version of script `{name}`; give more characters of the hash")]
    Ambiguous { name: ScriptName, given: String },
    #[error("script `{name}` was {what} by {by} at {at:.0} meanwhile; review it again")]
    Decided { name: ScriptName, what: &'static str, by: String, at: Timestamp },
    #[error("{0}")]
    Capabilities(String),
    #[error("a reason may have at most {REASON_CHARS_MAX} characters")]
    LongReason,
    #[error(
        "script `{name}` has no stored version {hash}; `portcullis scripts history {name}` lists versions"
    )]
    NoVersion { name: ScriptName, hash: String },
    #[error("{PROPOSALS_MAX} proposals are already pending; wait until some are decided")]
    ManyProposals,
    #[error(
        "{PROPOSALS_PER_CLIENT_MAX} of your proposals are already pending; wait until some are decided, or replace one of them"
    )]
    ManyOwnProposals,
    #[error(
        "another client's proposal of script `{0}` is pending; wait until it is decided, or choose another name"
    )]
    ProposedByAnother(ScriptName),
    #[error("there are already {SCRIPTS_MAX} scripts; remove some first")]
    Full,
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Io(#[from] FileError),
    #[error(transparent)]
    Database(DatabaseError),
}

impl From<DatabaseError> for ScriptError {
    fn from(error: DatabaseError) -> ScriptError {
        if error.is_too_large() { ScriptError::Full } else { ScriptError::Database(error) }
    }
}

/// Approval state of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptState {
    /// Undecided, or the decision has expired.
    Pending,
    Approved,
    Rejected,
    /// The decision was about other bytes.
    Changed,
}

impl ScriptState {
    pub fn as_str(self) -> &'static str {
        match self {
            ScriptState::Pending => "pending",
            ScriptState::Approved => "approved",
            ScriptState::Rejected => "rejected",
            ScriptState::Changed => "changed",
        }
    }
}

/// A version approved by the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreapprovedScript {
    pub name: ScriptName,
    pub sha256: String,
    pub granted: ScriptPermissions,
}

/// A script and its state, without its text.
#[derive(Debug, Clone)]
pub struct ScriptSummary {
    pub name: ScriptName,
    /// Of the file, or of the proposal if there is no file yet.
    pub sha256: String,
    pub bytes: usize,
    pub header: ScriptHeader,
    pub state: ScriptState,
    /// The decision in force: the newest about this version, or a later approval of another version.
    pub decision: Option<ScriptDecision>,
    /// The permissions granted, if it may run.
    pub granted: Option<ScriptPermissions>,
    /// The pending proposal of an agent for this name.
    pub proposal: Option<Proposal>,
    /// Whether there is a file. A mere proposal has none.
    pub exists: bool,
    /// Number of decisions so far. A decision hands it back (optimistic locking) to show that no other came
    /// in between.
    pub seen: usize,
    /// Why the file cannot be used at all.
    pub problem: Option<String>,
}

/// A script with everything that a person needs to decide.
#[derive(Debug, Clone)]
pub struct ScriptReview {
    pub listed: ScriptSummary,
    /// The text of the file, or of the proposal if there is no file.
    pub source: String,
    /// The newest approved version, if it differs and its copy still exists.
    pub approved: Option<(ScriptDecision, String)>,
    /// The proposed text.
    pub proposed: Option<String>,
}

impl ScriptReview {
    /// Returns the text with this hash: of the file, or of the proposal.
    pub fn version(&self, given: &str) -> Result<&str, ScriptError> {
        let proposal = self.listed.proposal.as_ref().zip(self.proposed.as_ref());
        match proposal {
            _ if self.listed.exists && fits(&self.listed.sha256, given) => Ok(&self.source),
            Some((proposal, text)) if fits(&proposal.sha256, given) => Ok(text),
            _ => Err(ScriptError::NotThatVersion {
                name: self.listed.name.clone(),
                reviewed: shown_hash(given),
                now: shown_hash(&self.listed.sha256),
            }),
        }
    }
}

/// A script that may run.
#[derive(Debug, Clone)]
pub struct RunnableScript {
    pub name: ScriptName,
    pub sha256: String,
    pub source: String,
    pub granted: ScriptPermissions,
}

/// Why a script may not run.
#[derive(Debug, thiserror::Error)]
pub enum RunRefusal {
    /// Also if it changed, or its approval expired.
    #[error("script `{name}` is {}", state.as_str())]
    Waits { name: ScriptName, state: ScriptState },
    #[error("script `{name}` was rejected by {by}")]
    Rejected { name: ScriptName, by: String, reason: Option<String> },
    #[error(transparent)]
    Error(#[from] ScriptError),
}

/// A decision to be made.
#[derive(Debug, Clone)]
pub struct ScriptApproval {
    /// The reviewed version: its hash, or at least the first eight characters.
    pub sha256: String,
    pub granted: ScriptPermissions,
    pub expires: Option<Duration>,
    pub by: String,
    /// [`ScriptSummary::seen`] at the time of review; `None` if only the version matters.
    pub seen: Option<usize>,
}

#[derive(Debug, Clone)]
pub struct ScriptRejection {
    pub sha256: String,
    pub reason: Option<String>,
    pub by: String,
    pub seen: Option<usize>,
}

/// A version to restore.
#[derive(Debug, Clone)]
pub struct ScriptRestoration {
    /// The formerly approved version: its hash, or at least the first eight characters.
    pub sha256: String,
    pub by: String,
    /// What the person saw in its place; `None` if that does not matter.
    pub instead_of: Option<ScriptSnapshot>,
}

/// The state of a script as a person saw it.
#[derive(Debug, Clone)]
pub struct ScriptSnapshot {
    /// The version of the file; `None` if there was none.
    pub sha256: Option<String>,
    /// [`ScriptSummary::seen`].
    pub seen: usize,
}

/// The scripts of one home. Cheap to open; every process has its own.
pub struct ScriptStore {
    folder: PathBuf,
    topic: TopicStore<ScriptTable>,
    copies: ScriptCopies,
    runs: RunHistory,
    allowed: Vec<PreapprovedScript>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for ScriptStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripts")
    }
}

impl ScriptStore {
    /// `folder` holds the scripts. It does not have to exist.
    pub fn open(
        folder: &Path,
        database: &Database,
        allowed: Vec<PreapprovedScript>,
        clock: Arc<dyn Clock>,
    ) -> ScriptStore {
        ScriptStore {
            folder: folder.to_owned(),
            topic: TopicStore::open(database),
            runs: RunHistory::new(database),
            copies: ScriptCopies::new(database),
            allowed,
            clock,
        }
    }

    /// Returns a receiver that is notified after each decision and proposal.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.topic.subscribe()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns why nothing is approved, if the decisions cannot be read.
    pub fn health(&self) -> Result<(), String> {
        self.topic.health()
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    /// Returns all scripts and proposals, by name.
    pub fn list(&self) -> Result<Vec<ScriptSummary>, ScriptError> {
        let records = self.records()?;
        let mut names = copies::names_in(&self.folder, SCRIPTS_MAX)?;
        names.extend(
            records.iter().filter(|(_, record)| record.proposal.is_some()).map(|(name, _)| name.clone()),
        );
        names.sort();
        names.dedup();
        let listed = |name: &ScriptName| self.listed(name, &records).map(|(listed, _)| listed);
        Ok(names.iter().filter_map(|name| listed(name).ok()).collect())
    }

    /// Returns one script with its text and the diff base.
    pub fn review(&self, name: &ScriptName) -> Result<ScriptReview, ScriptError> {
        let records = self.records()?;
        let (listed, source) = self.listed(name, &records)?;
        if let Some(why) = &listed.problem {
            return Err(ScriptError::Unreadable { name: name.clone(), why: why.clone() });
        }
        let record = records.get(name);
        let approved =
            record.and_then(|record| record.decisions.iter().rev().find(|decision| decision.approved));
        let approved = approved
            .filter(|decision| decision.sha256 != listed.sha256)
            .and_then(|decision| Some((decision.clone(), self.copies.read(&decision.sha256).ok()?)));
        let proposed = listed.proposal.as_ref().and_then(|proposal| self.copies.read(&proposal.sha256).ok());
        Ok(ScriptReview { listed, source, approved, proposed })
    }

    /// Returns the approved copy, if the file is exactly the approved version.
    pub fn runnable(&self, name: &ScriptName) -> Result<RunnableScript, RunRefusal> {
        let records = self.records()?;
        // Read once (TOCTOU): these bytes are hashed and compared, and they are what runs.
        let (listed, source) = self.listed(name, &records)?;
        if let Some(why) = listed.problem {
            return Err(ScriptError::Unreadable { name: name.clone(), why }.into());
        }
        match (listed.state, listed.granted, listed.decision) {
            (ScriptState::Approved, Some(granted), _) => {
                Ok(RunnableScript { name: name.clone(), sha256: listed.sha256, source, granted })
            }
            (ScriptState::Rejected, _, Some(decision)) => {
                Err(RunRefusal::Rejected { name: name.clone(), by: decision.by, reason: decision.reason })
            }
            (state, ..) => Err(RunRefusal::Waits { name: name.clone(), state }),
        }
    }

    /// Approves the reviewed version. An approved proposal becomes the script.
    ///
    /// Returns the decision that was in force until now.
    pub fn approve(
        &self,
        name: &ScriptName,
        approve: ScriptApproval,
    ) -> Result<Option<ScriptDecision>, ScriptError> {
        approve.granted.check().map_err(ScriptError::Capabilities)?;
        let at = self.now();
        let expires = approve.expires.and_then(|after| at.checked_add(after).ok());
        self.decide(name, &approve.sha256, approve.seen, |version, record| {
            if version.is_proposed {
                copies::put(&self.folder, name, &version.source)?;
                record.proposal = None;
            }
            Ok(ScriptDecision {
                sha256: version.sha256,
                approved: true,
                granted: approve.granted,
                by: approve.by,
                at,
                expires,
                reason: None,
            })
        })
    }

    /// Rejects the reviewed version. Returns the decision that was in force until now.
    pub fn reject(
        &self,
        name: &ScriptName,
        reject: ScriptRejection,
    ) -> Result<Option<ScriptDecision>, ScriptError> {
        if reject.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
            return Err(ScriptError::LongReason);
        }
        let at = self.now();
        self.decide(name, &reject.sha256, reject.seen, |version, record| {
            if version.is_proposed {
                record.proposal = None;
            }
            Ok(ScriptDecision {
                sha256: version.sha256,
                approved: false,
                granted: ScriptPermissions::default(),
                by: reject.by,
                at,
                expires: None,
                reason: reject.reason,
            })
        })
    }

    /// Writes the text of a script as a person edited it. `was` is the version that they started from, `None`
    /// for a new script. The result needs approval like any other change. Returns its SHA-256.
    pub fn write(&self, name: &ScriptName, source: &str, was: Option<&str>) -> Result<String, ScriptError> {
        check_text(name, source)?;
        self.change(|records| {
            self.check_there(name, records.get(name), was)?;
            copies::put(&self.folder, name, source).map(|()| copies::sha256(source.as_bytes()))
        })
    }

    /// Refuses to overwrite a version that the person has not seen.
    fn check_there(
        &self,
        name: &ScriptName,
        record: Option<&ScriptRecord>,
        was: Option<&str>,
    ) -> Result<(), ScriptError> {
        let proposed = record.and_then(|record| record.proposal.as_ref());
        let now = match copies::read(&self.folder, name) {
            Ok(source) => Some(copies::sha256(source.as_bytes())),
            Err(ScriptError::Unknown(_)) => None,
            Err(other) => return Err(other),
        };
        let began_with = |was: &str| {
            now.as_deref() == Some(was) || proposed.is_some_and(|proposal| proposal.sha256 == was)
        };
        match was {
            None if now.is_some() || proposed.is_some() => Err(ScriptError::Exists(name.clone())),
            Some(was) if !began_with(was) => Err(ScriptError::NotThatVersion {
                name: name.clone(),
                reviewed: shown_hash(was),
                now: shown_hash(&now.unwrap_or_default()),
            }),
            _ => Ok(()),
        }
    }

    /// Removes a script and its proposal. Its decisions stay.
    pub fn remove(&self, name: &ScriptName) -> Result<(), ScriptError> {
        self.change(|records| {
            let proposal = records.get_mut(name).and_then(|record| record.proposal.take());
            match copies::remove(&self.folder, name) {
                Err(ScriptError::Unknown(_)) if proposal.is_some() => Ok(()),
                other => other,
            }
        })
    }

    /// Restores an approved version with its grants of that time, and approves it again.
    pub fn restore(
        &self,
        name: &ScriptName,
        restore: ScriptRestoration,
    ) -> Result<ScriptDecision, ScriptError> {
        let ScriptRestoration { sha256, by, instead_of } = restore;
        let at = self.now();
        let none = || ScriptError::NoVersion { name: name.clone(), hash: shown_hash(&sha256) };
        let approved = |records: &ScriptRecords| {
            let record = records.get(name).ok_or_else(none)?;
            let mut fitting =
                record.decisions.iter().rev().filter(|old| old.approved && fits(&old.sha256, &sha256));
            let old = fitting.next().ok_or_else(none)?.clone();
            if fitting.any(|other| other.sha256 != old.sha256) {
                return Err(ScriptError::Ambiguous { name: name.clone(), given: shown_hash(&sha256) });
            }
            Ok(old)
        };
        // Read before the change, which holds the database.
        let before = approved(&self.records()?)?;
        let source = self.copies.read(&before.sha256).map_err(ScriptError::Damaged);
        self.change(|records| {
            let old = approved(records)?;
            let record = records.get_mut(name).ok_or_else(none)?;
            if let Some(ScriptSnapshot { sha256, seen }) = &instead_of {
                record.check_seen(name, Some(*seen))?;
                self.check_there(name, Some(record), sha256.as_deref())?;
            }
            if old.sha256 != before.sha256 {
                return Err(none());
            }
            copies::put(&self.folder, name, &source?)?;
            let decision = ScriptDecision { by, at, expires: None, ..old };
            remember(record, decision.clone());
            Ok(decision)
        })
    }

    /// Returns the decisions about a script, newest first.
    pub fn decisions(&self, name: &ScriptName) -> Result<Vec<ScriptDecision>, ScriptError> {
        let records = self.records()?;
        Ok(records
            .get(name)
            .map(|record| record.decisions.iter().rev().cloned().collect())
            .unwrap_or_default())
    }

    /// Returns the text of a stored version.
    pub fn version(&self, name: &ScriptName, hash: &str) -> Result<String, ScriptError> {
        let decisions = self.decisions(name)?;
        let none = || ScriptError::NoVersion { name: name.clone(), hash: shown_hash(hash) };
        let known = decisions.iter().find(|decision| fits(&decision.sha256, hash)).ok_or_else(none)?;
        self.copies.read(&known.sha256).map_err(|_| none())
    }

    /// Records a run. Only the newest are kept; the audit log has all.
    pub async fn record_run(&self, name: &ScriptName, run: ScriptRunRecord) -> Result<(), ScriptError> {
        Ok(self.runs.add(name, run).await?)
    }

    /// Returns the newest runs of a script, newest first. Blocks.
    pub fn runs(&self, name: &ScriptName) -> Result<Vec<ScriptRunRecord>, ScriptError> {
        Ok(self.runs.of(name)?)
    }

    fn records(&self) -> Result<ScriptRecords, ScriptError> {
        match &self.topic.current().known {
            Ok(known) => Ok(known.0.clone()),
            Err(why) => Err(ScriptError::Damaged(why.clone())),
        }
    }

    fn allows(&self, name: &ScriptName, sha256: &str) -> Option<&PreapprovedScript> {
        self.allowed.iter().find(|allowed| allowed.name == *name && allowed.sha256 == sha256)
    }

    /// Returns the summary of a script, and its text.
    fn listed(
        &self,
        name: &ScriptName,
        records: &ScriptRecords,
    ) -> Result<(ScriptSummary, String), ScriptError> {
        let record = records.get(name);
        let proposal = record.and_then(|record| record.proposal.clone());
        let (source, exists, problem) = match (copies::read(&self.folder, name), &proposal) {
            (Ok(source), _) => (source, true, None),
            (Err(ScriptError::Unknown(_)), Some(proposal)) => match self.copies.read(&proposal.sha256) {
                Ok(source) => (source, false, None),
                Err(why) => (String::new(), false, Some(why)),
            },
            (Err(unknown @ ScriptError::Unknown(_)), None) => return Err(unknown),
            (Err(other), _) => (String::new(), true, Some(other.to_string())),
        };
        let sha256 = copies::sha256(source.as_bytes());
        let decision = record.and_then(|record| record.about(&sha256));
        let allowed = self.allows(name, &sha256).filter(|_| exists && problem.is_none());
        let state = match (allowed, decision) {
            (Some(_), _) => ScriptState::Approved,
            (None, None) => ScriptState::Pending,
            (None, Some(_)) if !exists || problem.is_some() => ScriptState::Pending,
            (None, Some(decision)) => self.state_by(decision, &sha256),
        };
        let granted = match state {
            ScriptState::Approved => {
                allowed.map(|allowed| &allowed.granted).or(decision.map(|decision| &decision.granted))
            }
            _ => None,
        };
        let listed = ScriptSummary {
            name: name.clone(),
            bytes: source.len(),
            header: ScriptHeader::of(&source),
            state,
            granted: granted.cloned(),
            decision: decision.cloned(),
            proposal,
            exists,
            seen: record.map_or(0, ScriptRecord::seen),
            problem,
            sha256,
        };
        Ok((listed, source))
    }

    fn state_by(&self, decision: &ScriptDecision, sha256: &str) -> ScriptState {
        match (decision.approved, decision.sha256 == sha256) {
            (true, true) if decision.expires.is_some_and(|at| at <= self.now()) => ScriptState::Pending,
            (true, true) => ScriptState::Approved,
            (false, true) => ScriptState::Rejected,
            (_, false) => ScriptState::Changed,
        }
    }

    fn decide(
        &self,
        name: &ScriptName,
        reviewed: &str,
        seen: Option<usize>,
        decide: impl FnOnce(ReviewedVersion, &mut ScriptRecord) -> Result<ScriptDecision, ScriptError>,
    ) -> Result<Option<ScriptDecision>, ScriptError> {
        let may_decide = |records: &ScriptRecords| {
            if !records.contains_key(name) && records.len() >= SCRIPTS_MAX {
                return Err(ScriptError::Full);
            }
            let record = records.get(name).cloned().unwrap_or_default();
            record.check_seen(name, seen)?;
            Ok(record)
        };
        // Read and kept before the change, which holds the database.
        let version = self.reviewed(name, reviewed, &may_decide(&self.records()?)?)?;
        self.copies.keep(&version.sha256, &version.source)?;
        self.change(|records| {
            let mut record = may_decide(records)?;
            let before = record.decisions.last().cloned();
            self.check_still_there(name, &version, &record)?;
            let decision = decide(version, &mut record)?;
            remember(&mut record, decision);
            records.insert(name.clone(), record);
            Ok(before)
        })
    }

    /// Refuses a version that was replaced since it was found.
    fn check_still_there(
        &self,
        name: &ScriptName,
        version: &ReviewedVersion,
        record: &ScriptRecord,
    ) -> Result<(), ScriptError> {
        let now = match version.is_proposed {
            true => record.proposal.as_ref().map(|proposal| proposal.sha256.clone()),
            false => Some(copies::sha256(copies::read(&self.folder, name)?.as_bytes())),
        };
        match now {
            Some(now) if now == version.sha256 => Ok(()),
            now => Err(ScriptError::NotThatVersion {
                name: name.clone(),
                reviewed: shown_hash(&version.sha256),
                now: shown_hash(&now.unwrap_or_default()),
            }),
        }
    }

    /// Finds the reviewed version: the file as it is now, or the proposal. Reads a copy, so not within a change.
    fn reviewed(
        &self,
        name: &ScriptName,
        reviewed: &str,
        record: &ScriptRecord,
    ) -> Result<ReviewedVersion, ScriptError> {
        let on_disk = match copies::read(&self.folder, name) {
            Ok(source) => Some(source),
            Err(ScriptError::Unknown(_)) if record.proposal.is_some() => None,
            Err(other) => return Err(other),
        };
        let now = on_disk.as_ref().map(|source| copies::sha256(source.as_bytes()));
        if let (Some(source), Some(sha256)) = (on_disk, now.clone())
            && fits(&sha256, reviewed)
        {
            return Ok(ReviewedVersion { sha256, source, is_proposed: false });
        }
        match &record.proposal {
            Some(proposal) if fits(&proposal.sha256, reviewed) => {
                let source = self.copies.read(&proposal.sha256).map_err(ScriptError::Damaged)?;
                Ok(ReviewedVersion { sha256: proposal.sha256.clone(), source, is_proposed: true })
            }
            proposal => {
                let now =
                    now.or(proposal.as_ref().map(|proposal| proposal.sha256.clone())).unwrap_or_default();
                let (reviewed, now) = (shown_hash(reviewed), shown_hash(&now));
                Err(ScriptError::NotThatVersion { name: name.clone(), reviewed, now })
            }
        }
    }

    fn change<T>(
        &self,
        edit: impl FnOnce(&mut ScriptRecords) -> Result<T, ScriptError>,
    ) -> Result<T, ScriptError> {
        let (done, used) = self.topic.change(|rows| {
            let mut records: ScriptRecords = rows.drain(..).map(|row| (row.name, row.record)).collect();
            let before = records.clone();
            let done = edit(&mut records)?;
            let used = (records != before).then(|| {
                let hashes = records.values().flat_map(|record| {
                    let decided = record.decisions.iter().map(|decision| decision.sha256.clone());
                    decided.chain(record.proposal.as_ref().map(|proposal| proposal.sha256.clone()))
                });
                hashes.collect()
            });
            rows.extend(records.into_iter().map(|(name, record)| ScriptRow { name, record }));
            Ok::<_, ScriptError>((done, used))
        })?;
        // Only after the commit: a decision that is not on disk yet may still need them.
        if let Some(used) = used {
            let _ = self.copies.forget_others(used);
        }
        Ok(done)
    }
}

/// The version that a decision is about.
struct ReviewedVersion {
    sha256: String,
    source: String,
    is_proposed: bool,
}

fn remember(record: &mut ScriptRecord, decision: ScriptDecision) {
    record.decisions.push(decision);
    let surplus = record.decisions.len().saturating_sub(DECISIONS_MAX);
    record.decisions.drain(..surplus);
    record.forgotten += surplus;
}

/// Characters of a hash that are enough to name a version.
const HASH_CHARS_MIN: usize = 8;

fn fits(sha256: &str, given: &str) -> bool {
    given.len() >= HASH_CHARS_MIN && sha256.starts_with(&given.to_ascii_lowercase())
}

fn shown_hash(hash: &str) -> String {
    portcullis_core::json::printable(&hash.chars().take(12).collect::<String>())
}

fn check_text(name: &ScriptName, source: &str) -> Result<(), ScriptError> {
    match source.len() {
        bytes if bytes > SOURCE_BYTES_MAX => {
            Err(ScriptError::TooLarge { name: name.clone(), bytes: bytes as u64 })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
