//! Scripts, and what people decided about them.
//!
//! A script is a file in the folder of scripts. It runs if a person approved exactly those bytes: the decision holds their
//! SHA-256 and what they may use, and a copy of them is kept beside the decisions; it is that copy that runs. One byte
//! more or less, and the script waits for somebody to look again. What an agent proposes is kept as a copy only, and is no
//! file of a script until a person accepts it.
//!
//! Decisions are in `scripts.json`, copies in `scripts/<sha256>.star`, both in the hub's own folder and shared by all its
//! processes: whoever asks, reads what was decided last. A file that cannot be read approves nothing.

mod copies;
mod header;
mod proposals;
mod runs;

pub use header::{Capabilities, Header, NameError, ScriptName};
pub use runs::Run;

use crate::kept::{Closed, FileError, KeptFile, Live, versioned};
use copies::Copies;
use jiff::Timestamp;
use portcullis_core::Clock;
use proposals::{PROPOSALS_MAX, PROPOSALS_PER_CLIENT_MAX};
use runs::Runs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const FILE_NAME: &str = "scripts.json";
const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How many scripts there may be.
const SCRIPTS_MAX: usize = 1_000;
/// How many decisions about one script are remembered.
const DECISIONS_MAX: usize = 50;
/// A script of this size takes a person a day to read.
pub const SOURCE_BYTES_MAX: usize = 256 * 1024;
const REASON_CHARS_MAX: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("script `{0}` not found")]
    Unknown(ScriptName),
    #[error("there is a script `{0}` already; change that one, or take another name")]
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
        "version {reviewed} of script `{name}` is not there any more, it is {now} now; look at it and decide about that one"
    )]
    NotThatVersion { name: ScriptName, reviewed: String, now: String },
    #[error("`{given}` fits more than one version of script `{name}`; give more of the hash")]
    Ambiguous { name: ScriptName, given: String },
    #[error("script `{name}` was {what} by {by} at {at:.0} meanwhile; look at it again")]
    Decided { name: ScriptName, what: &'static str, by: String, at: Timestamp },
    #[error("{0}")]
    Capabilities(String),
    #[error("a reason may have at most {REASON_CHARS_MAX} characters")]
    LongReason,
    #[error(
        "there is no version {hash} of script `{name}` to go back to; `portcullis scripts history {name}` lists them"
    )]
    NoVersion { name: ScriptName, hash: String },
    #[error("{PROPOSALS_MAX} proposals wait for a person already; wait until some are decided")]
    ManyProposals,
    #[error(
        "{PROPOSALS_PER_CLIENT_MAX} of your proposals wait for a person already; wait until some are decided, or change one of them"
    )]
    ManyOwnProposals,
    #[error(
        "another client's proposal of script `{0}` waits for a person; wait until it is decided, or take another name"
    )]
    ProposedByAnother(ScriptName),
    #[error("there are {SCRIPTS_MAX} scripts already; remove some first")]
    Full,
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Io(#[from] FileError),
}

/// How a script stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nobody has decided, or what was decided has expired.
    Pending,
    Approved,
    Rejected,
    /// Somebody decided about other bytes than there are now.
    Changed,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Approved => "approved",
            State::Rejected => "rejected",
            State::Changed => "changed",
        }
    }
}

/// What a person decided about one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub sha256: String,
    pub approved: bool,
    #[serde(default)]
    pub granted: Capabilities,
    pub by: String,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Decision {
    fn what(&self) -> &'static str {
        if self.approved { "approved" } else { "rejected" }
    }
}

/// What an agent wants to be a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    pub sha256: String,
    pub client: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// The newest last.
    decisions: Vec<Decision>,
    /// How many older ones are not remembered. They count all the same: who saw the last of fifty did not see the next.
    #[serde(default, skip_serializing_if = "is_none")]
    forgotten: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proposal: Option<Proposal>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Record {
    /// Returns how many decisions there have been.
    fn seen(&self) -> usize {
        self.decisions.len() + self.forgotten
    }

    /// Refuses whoever looked before the last decision was made.
    fn check_seen(&self, name: &ScriptName, seen: Option<usize>) -> Result<(), ScriptError> {
        match (seen, self.decisions.last()) {
            (Some(seen), Some(last)) if seen != self.seen() => Err(ScriptError::Decided {
                name: name.clone(),
                what: last.what(),
                by: last.by.clone(),
                at: last.at,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the decision that counts for a version: the newest about it, unless another was approved after that.
    fn about(&self, sha256: &str) -> Option<&Decision> {
        self.decisions.iter().rev().find(|decision| decision.approved || decision.sha256 == sha256)
    }
}

type Records = BTreeMap<ScriptName, Record>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    scripts: Records,
}

/// A version that the configuration approves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    pub name: ScriptName,
    pub sha256: String,
    pub granted: Capabilities,
}

/// A script as it stands, without its text.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: ScriptName,
    /// Of the file; of the proposal, where there is no file yet.
    pub sha256: String,
    pub bytes: usize,
    pub header: Header,
    pub state: State,
    /// The decision that counts: the newest about this version, or the approval of another that came after it.
    pub decision: Option<Decision>,
    /// What it may use, if it may run.
    pub granted: Option<Capabilities>,
    /// What an agent wants in its place.
    pub proposal: Option<Proposal>,
    /// Whether there is a file. What is only proposed has none.
    pub exists: bool,
    /// How many decisions there have been. Handed back with a decision, it shows that nobody else decided meanwhile.
    pub seen: usize,
    /// Why the file cannot be used at all.
    pub problem: Option<String>,
}

/// A script with all that a person needs to decide.
#[derive(Debug, Clone)]
pub struct Looked {
    pub listed: Listed,
    /// The text of the file; of the proposal, where there is no file.
    pub source: String,
    /// The newest version that was approved, if it is another one and its copy is still there.
    pub approved: Option<(Decision, String)>,
    /// The text that is proposed.
    pub proposed: Option<String>,
}

impl Looked {
    /// Returns the text that a hash names: of the file, or of what is proposed.
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
pub struct Runnable {
    pub name: ScriptName,
    pub sha256: String,
    pub source: String,
    pub granted: Capabilities,
}

/// Why a script may not run.
#[derive(Debug, thiserror::Error)]
pub enum NotRunnable {
    /// Also if it changed, and if an approval expired.
    #[error("script `{name}` is {}", state.as_str())]
    Waits { name: ScriptName, state: State },
    #[error("script `{name}` was rejected by {by}")]
    Rejected { name: ScriptName, by: String, reason: Option<String> },
    #[error(transparent)]
    Error(#[from] ScriptError),
}

/// A decision to be made.
#[derive(Debug, Clone)]
pub struct Approve {
    /// The version that was looked at: its hash, or at least eight characters of its beginning.
    pub sha256: String,
    pub granted: Capabilities,
    pub expires: Option<Duration>,
    pub by: String,
    /// [`Listed::seen`] when the person looked; `None` if only the version matters.
    pub seen: Option<usize>,
}

#[derive(Debug, Clone)]
pub struct Reject {
    pub sha256: String,
    pub reason: Option<String>,
    pub by: String,
    pub seen: Option<usize>,
}

/// What a person wants back.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The version that was approved once: its hash, or at least eight characters of its beginning.
    pub sha256: String,
    pub by: String,
    /// What the person saw in its place; `None` if that does not matter.
    pub instead_of: Option<Seen>,
}

/// A script as somebody saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The version that was there; `None` if there was none.
    pub sha256: Option<String>,
    /// [`Listed::seen`].
    pub seen: usize,
}

/// Everything about the scripts of one home. Cheap to make; every process has its own.
pub struct Scripts {
    folder: PathBuf,
    live: Live<Records>,
    copies: Copies,
    runs: Runs,
    allowed: Vec<Allowed>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Scripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripts")
    }
}

impl Scripts {
    /// `folder` holds the scripts, `secure` is the hub's own. Neither has to exist.
    pub fn open(folder: &Path, secure: &Path, allowed: Vec<Allowed>, clock: Arc<dyn Clock>) -> Scripts {
        let file = KeptFile::new(secure, FILE_NAME, FILE_BYTES_MAX, Closed::ToWriting);
        let own = secure.join("scripts");
        Scripts {
            folder: folder.to_owned(),
            live: Live::new(file, parse),
            runs: Runs::new(own.join("runs")),
            copies: Copies::new(own),
            allowed,
            clock,
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns why nothing is approved, if the decisions cannot be read.
    pub fn health(&self) -> Result<(), String> {
        self.live.current().known.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    /// Returns all scripts and proposals, by name.
    pub fn list(&self) -> Result<Vec<Listed>, ScriptError> {
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

    /// Returns one script with its text and what it differs from.
    pub fn look(&self, name: &ScriptName) -> Result<Looked, ScriptError> {
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
        Ok(Looked { listed, source, approved, proposed })
    }

    /// Returns the approved copy, if the file is exactly what was approved.
    pub fn runnable(&self, name: &ScriptName) -> Result<Runnable, NotRunnable> {
        let records = self.records()?;
        // Read once: what is hashed here is what is compared, and what runs is the copy with that hash.
        let (listed, source) = self.listed(name, &records)?;
        if let Some(why) = listed.problem {
            return Err(ScriptError::Unreadable { name: name.clone(), why }.into());
        }
        match (listed.state, listed.granted, listed.decision) {
            (State::Approved, Some(granted), _) => {
                let sha256 = listed.sha256;
                let source = match self.allows(name, &sha256) {
                    Some(_) => source,
                    None => self.copies.read(&sha256).map_err(ScriptError::Damaged)?,
                };
                Ok(Runnable { name: name.clone(), sha256, source, granted })
            }
            (State::Rejected, _, Some(decision)) => {
                Err(NotRunnable::Rejected { name: name.clone(), by: decision.by, reason: decision.reason })
            }
            (state, ..) => Err(NotRunnable::Waits { name: name.clone(), state }),
        }
    }

    /// Approves the version that was looked at. What is proposed becomes the script with it.
    ///
    /// Returns the decision that was in force until now.
    pub fn approve(&self, name: &ScriptName, approve: Approve) -> Result<Option<Decision>, ScriptError> {
        approve.granted.check().map_err(ScriptError::Capabilities)?;
        let at = self.now();
        let expires = approve.expires.and_then(|after| at.checked_add(after).ok());
        self.decide(name, &approve.sha256, approve.seen, |version, record| {
            self.copies.keep(&version.sha256, &version.source)?;
            if version.is_proposed {
                copies::put(&self.folder, name, &version.source)?;
                record.proposal = None;
            }
            Ok(Decision {
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

    /// Rejects the version that was looked at. Returns the decision that was in force until now.
    pub fn reject(&self, name: &ScriptName, reject: Reject) -> Result<Option<Decision>, ScriptError> {
        if reject.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
            return Err(ScriptError::LongReason);
        }
        let at = self.now();
        self.decide(name, &reject.sha256, reject.seen, |version, record| {
            self.copies.keep(&version.sha256, &version.source)?;
            if version.is_proposed {
                record.proposal = None;
            }
            Ok(Decision {
                sha256: version.sha256,
                approved: false,
                granted: Capabilities::default(),
                by: reject.by,
                at,
                expires: None,
                reason: reject.reason,
            })
        })
    }

    /// Writes the text of a script, as a person edited it: `was` is the version that they began with, and nothing for a
    /// new one. It waits for approval like any other change. Returns its SHA-256.
    pub fn write(&self, name: &ScriptName, source: &str, was: Option<&str>) -> Result<String, ScriptError> {
        check_text(name, source)?;
        self.change(|records| {
            self.check_there(name, records.get(name), was)?;
            copies::put(&self.folder, name, source).map(|()| copies::sha256(source.as_bytes()))
        })
    }

    /// Refuses whoever would write over something else than they saw.
    fn check_there(
        &self,
        name: &ScriptName,
        record: Option<&Record>,
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

    /// Takes a script away, and what is proposed for it. What was decided stays known.
    pub fn remove(&self, name: &ScriptName) -> Result<(), ScriptError> {
        self.change(|records| {
            let proposal = records.get_mut(name).and_then(|record| record.proposal.take());
            match copies::remove(&self.folder, name) {
                Err(ScriptError::Unknown(_)) if proposal.is_some() => Ok(()),
                other => other,
            }
        })
    }

    /// Puts an approved version back in place, with what it was granted then, and approves it again.
    pub fn restore(&self, name: &ScriptName, restore: Restore) -> Result<Decision, ScriptError> {
        let Restore { sha256, by, instead_of } = restore;
        let (at, name_of, hash) = (self.now(), || name.clone(), sha256.as_str());
        self.change(|records| {
            let none = || ScriptError::NoVersion { name: name_of(), hash: shown_hash(hash) };
            let record = records.get_mut(name).ok_or_else(none)?;
            let mut fitting =
                record.decisions.iter().rev().filter(|old| old.approved && fits(&old.sha256, hash));
            let old = fitting.next().ok_or_else(none)?.clone();
            if fitting.any(|other| other.sha256 != old.sha256) {
                return Err(ScriptError::Ambiguous { name: name_of(), given: shown_hash(hash) });
            }
            if let Some(Seen { sha256, seen }) = &instead_of {
                record.check_seen(name, Some(*seen))?;
                self.check_there(name, Some(record), sha256.as_deref())?;
            }
            let source = self.copies.read(&old.sha256).map_err(ScriptError::Damaged)?;
            copies::put(&self.folder, name, &source)?;
            let decision = Decision { by, at, expires: None, ..old };
            remember(record, decision.clone());
            Ok(decision)
        })
    }

    /// Returns what was decided about a script, the newest first.
    pub fn decisions(&self, name: &ScriptName) -> Result<Vec<Decision>, ScriptError> {
        let records = self.records()?;
        Ok(records
            .get(name)
            .map(|record| record.decisions.iter().rev().cloned().collect())
            .unwrap_or_default())
    }

    /// Returns the text of a version that is still kept.
    pub fn version(&self, name: &ScriptName, hash: &str) -> Result<String, ScriptError> {
        let decisions = self.decisions(name)?;
        let none = || ScriptError::NoVersion { name: name.clone(), hash: shown_hash(hash) };
        let known = decisions.iter().find(|decision| fits(&decision.sha256, hash)).ok_or_else(none)?;
        self.copies.read(&known.sha256).map_err(|_| none())
    }

    /// Remembers that a script ran. Of the newest runs only: the audit log has all.
    pub fn ran(&self, name: &ScriptName, run: &Run) -> Result<(), ScriptError> {
        Ok(self.runs.add(name, run)?)
    }

    /// Returns the newest runs of a script, the newest first.
    pub fn runs(&self, name: &ScriptName) -> Vec<Run> {
        self.runs.of(name)
    }

    fn records(&self) -> Result<Records, ScriptError> {
        self.live.current().known.clone().map_err(ScriptError::Damaged)
    }

    fn allows(&self, name: &ScriptName, sha256: &str) -> Option<&Allowed> {
        self.allowed.iter().find(|allowed| allowed.name == *name && allowed.sha256 == sha256)
    }

    /// Returns how one stands, and its text.
    fn listed(&self, name: &ScriptName, records: &Records) -> Result<(Listed, String), ScriptError> {
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
            (Some(_), _) => State::Approved,
            (None, None) => State::Pending,
            (None, Some(_)) if !exists || problem.is_some() => State::Pending,
            (None, Some(decision)) => self.state_by(decision, &sha256),
        };
        let granted = match state {
            State::Approved => {
                allowed.map(|allowed| &allowed.granted).or(decision.map(|decision| &decision.granted))
            }
            _ => None,
        };
        let listed = Listed {
            name: name.clone(),
            bytes: source.len(),
            header: Header::of(&source),
            state,
            granted: granted.cloned(),
            decision: decision.cloned(),
            proposal,
            exists,
            seen: record.map_or(0, Record::seen),
            problem,
            sha256,
        };
        Ok((listed, source))
    }

    fn state_by(&self, decision: &Decision, sha256: &str) -> State {
        match (decision.approved, decision.sha256 == sha256) {
            (true, true) if decision.expires.is_some_and(|at| at <= self.now()) => State::Pending,
            (true, true) => State::Approved,
            (false, true) => State::Rejected,
            (_, false) => State::Changed,
        }
    }

    fn decide(
        &self,
        name: &ScriptName,
        reviewed: &str,
        seen: Option<usize>,
        decide: impl FnOnce(Version, &mut Record) -> Result<Decision, ScriptError>,
    ) -> Result<Option<Decision>, ScriptError> {
        self.change(|records| {
            if !records.contains_key(name) && records.len() >= SCRIPTS_MAX {
                return Err(ScriptError::Full);
            }
            let mut record = records.get(name).cloned().unwrap_or_default();
            let before = record.decisions.last().cloned();
            record.check_seen(name, seen)?;
            let version = self.reviewed(name, reviewed, &record)?;
            let decision = decide(version, &mut record)?;
            remember(&mut record, decision);
            records.insert(name.clone(), record);
            Ok(before)
        })
    }

    /// Finds the version that was looked at: the file as it is now, or what is proposed.
    fn reviewed(&self, name: &ScriptName, reviewed: &str, record: &Record) -> Result<Version, ScriptError> {
        let on_disk = match copies::read(&self.folder, name) {
            Ok(source) => Some(source),
            Err(ScriptError::Unknown(_)) if record.proposal.is_some() => None,
            Err(other) => return Err(other),
        };
        let now = on_disk.as_ref().map(|source| copies::sha256(source.as_bytes()));
        if let (Some(source), Some(sha256)) = (on_disk, now.clone())
            && fits(&sha256, reviewed)
        {
            return Ok(Version { sha256, source, is_proposed: false });
        }
        match &record.proposal {
            Some(proposal) if fits(&proposal.sha256, reviewed) => {
                let source = self.copies.read(&proposal.sha256).map_err(ScriptError::Damaged)?;
                Ok(Version { sha256: proposal.sha256.clone(), source, is_proposed: true })
            }
            proposal => {
                let now =
                    now.or(proposal.as_ref().map(|proposal| proposal.sha256.clone())).unwrap_or_default();
                let (reviewed, now) = (shown_hash(reviewed), shown_hash(&now));
                Err(ScriptError::NotThatVersion { name: name.clone(), reviewed, now })
            }
        }
    }

    fn change<T>(&self, edit: impl FnOnce(&mut Records) -> Result<T, ScriptError>) -> Result<T, ScriptError> {
        let file = &self.live.file;
        let lock = file.lock()?;
        let found = file.read().bytes.map_err(ScriptError::Damaged)?;
        let mut records = parse(found.as_deref()).map_err(ScriptError::Damaged)?;
        let before = records.clone();
        let done = edit(&mut records)?;
        if records != before {
            let used = records.values().flat_map(|record| {
                let decided = record.decisions.iter().map(|decision| decision.sha256.as_str());
                decided.chain(record.proposal.as_ref().map(|proposal| proposal.sha256.as_str()))
            });
            let used = used.map(str::to_owned).collect();
            let document = Document { version: VERSION, scripts: records };
            let bytes =
                serde_json::to_vec_pretty(&document).map_err(|e| ScriptError::Damaged(e.to_string()))?;
            if bytes.len() as u64 > file.bytes_max() {
                return Err(ScriptError::Full);
            }
            lock.replace(&bytes)?;
            // Only now: what is not written down yet may still need them.
            self.copies.forget_others(&used);
        }
        Ok(done)
    }
}

/// What is decided about.
struct Version {
    sha256: String,
    source: String,
    is_proposed: bool,
}

fn remember(record: &mut Record, decision: Decision) {
    record.decisions.push(decision);
    let surplus = record.decisions.len().saturating_sub(DECISIONS_MAX);
    record.decisions.drain(..surplus);
    record.forgotten += surplus;
}

/// How much of a hash is enough to name a version.
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

fn parse(bytes: Option<&[u8]>) -> Result<Records, String> {
    let Some(bytes) = bytes else { return Ok(Records::new()) };
    let value = versioned(FILE_NAME, VERSION, bytes)?;
    let document: Document =
        serde_json::from_value(value).map_err(|error| format!("{FILE_NAME} is damaged: {error}"))?;
    Ok(document.scripts)
}

#[cfg(test)]
mod tests;
