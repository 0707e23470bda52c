//! What is configured about one server.

use crate::guardian::Processes;
use crate::oauth::OAuth;
use crate::trust::Trust;
use portcullis_core::{Effect, Labels, Pattern, Unruled};
use portcullis_egress::CertificateDer;
use portcullis_egress::header::HeaderName;
use portcullis_egress::own::Place;
use portcullis_store::offers::Offers;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// One server, as the configuration means it.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    pub name: String,
    pub transport: TransportSpec,
    /// How long a call may go without an answer or a sign of progress.
    pub timeout: Duration,
    /// What stands before the names of its tools, with the `_` between; empty for nothing.
    pub prefix: String,
    /// Which of its tools appear, by their own names.
    pub allow: Pattern,
    pub deny: Option<Pattern>,
    /// Under which other names its tools appear: the own name, and the other.
    pub rename: Vec<(String, String)>,
    /// What its tools do, where somebody said so. First match wins; a tool that none matches may do anything.
    pub effects: Vec<(Pattern, Effect)>,
    /// What its tools have to do with data, where somebody said so. First match wins; one that none matches may say anything and
    /// tell anyone.
    pub labels: Vec<(Pattern, Labels)>,
    /// What is decided about its tools where no rule speaks.
    pub decision: Unruled,
    /// Whether what it says of itself waits for a person.
    pub trust: Trust,
    /// When it is started.
    pub start: Start,
    /// After how long without a call it is ended, until the next one; never if this is missing.
    pub idle_stop: Option<Duration>,
    /// Whether each client gets one of its own.
    pub per_client: Option<PerClient>,
    /// How often it is asked what it offers, though it said nothing of a change.
    pub relist_every: Duration,
}

/// When a server is started.
#[derive(Debug, Clone)]
pub enum Start {
    AtOnce,
    /// At once, for somebody who is to see all of it.
    ToBeSeen,
    /// By the first call. What it offers is known from the last time, or it is started once to learn it.
    AtNeed(Arc<Offers>),
}

/// How many clients may have a server of their own at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerClient {
    pub clients_max: usize,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum TransportSpec {
    Stdio(StdioSpec),
    Http(HttpSpec),
}

/// A server that is a child process.
#[derive(Debug, Clone)]
pub struct StdioSpec {
    pub program: Program,
    pub args: Vec<String>,
    pub cwd: Folder,
    /// All that it gets: the hub's own environment stays here. As written; [`StdioSpec::values`] says what it means.
    pub env: Vec<(String, String)>,
    pub values: Values,
    /// Whose process it is, so that it and all that it starts can be found when it is to end.
    pub processes: Arc<Processes>,
}

/// Where a program is started. Many read files that are there, and some run them.
#[derive(Debug, Clone)]
pub enum Folder {
    /// Where the hub was.
    Inherited,
    /// What a person chose.
    Chosen(PathBuf),
    /// One that nobody else writes to. It is made where it is missing.
    Own(PathBuf),
}

impl Folder {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Folder::Inherited => None,
            Folder::Chosen(path) | Folder::Own(path) => Some(path),
        }
    }
}

/// Finds a program whenever it is to be started: one that was not there may have been installed since.
#[derive(Clone)]
pub struct Program(pub Arc<dyn Fn() -> Result<PathBuf, String> + Send + Sync>);

impl Program {
    /// Returns where it is, an absolute path, or says why there is none.
    pub(crate) fn find(&self) -> Result<PathBuf, String> {
        (self.0)()
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Program")
    }
}

/// A server that is reached over HTTP, at a place that a person chose.
#[derive(Debug, Clone)]
pub struct HttpSpec {
    pub place: Place,
    pub headers: Vec<HeaderSpec>,
    /// What shows the server who we are, where that is got by logging in.
    pub oauth: Option<Arc<OAuth>>,
    /// Certificates that are trusted besides the well-known ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

/// A header that every request carries. As written; [`HeaderSpec::values`] says what it means, each time.
#[derive(Debug, Clone)]
pub struct HeaderSpec {
    pub name: HeaderName,
    pub written: String,
    pub values: Values,
}

/// Looks up what a written value stands for, each time it is needed; or says what is missing.
#[derive(Clone)]
pub struct Values(pub Arc<LookUp>);

/// From what is written to what it means.
type LookUp = dyn Fn(&str) -> Result<String, String> + Send + Sync;

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values")
    }
}

impl ServerSpec {
    /// How often a server is asked what it offers, where nothing else is said.
    pub const RELIST_EVERY: Duration = Duration::from_secs(5 * 60);

    pub(crate) fn is_lazy(&self) -> bool {
        matches!(self.start, Start::AtNeed(_))
    }

    pub(crate) fn effect_of(&self, tool: &str) -> Effect {
        effect_of(&self.effects, tool)
    }

    /// Returns what a tool does, where somebody said so.
    pub(crate) fn stated_effect(&self, tool: &str) -> Option<Effect> {
        stated_effect(&self.effects, tool)
    }

    /// Returns what a tool has to do with data, by the name that the server gives it.
    pub fn labels_of(&self, tool: &str) -> Labels {
        labels_of(&self.labels, tool)
    }

    pub(crate) fn lists(&self, tool: &str) -> bool {
        lists(&self.allow, self.deny.as_ref(), tool)
    }
}

/// Returns what a tool does, by the name that its server gives it. What nobody said is taken for the worst.
pub fn effect_of(said: &[(Pattern, Effect)], tool: &str) -> Effect {
    stated_effect(said, tool).unwrap_or(Effect::Destroy)
}

fn stated_effect(said: &[(Pattern, Effect)], tool: &str) -> Option<Effect> {
    said.iter().find(|(tools, _)| tools.matches(tool)).map(|(_, effect)| *effect)
}

/// The same, of what a tool has to do with data.
pub fn labels_of(said: &[(Pattern, Labels)], tool: &str) -> Labels {
    said.iter().find(|(tools, _)| tools.matches(tool)).map_or(Labels::FOREIGN, |(_, labels)| *labels)
}

/// Returns whether a tool appears, by the name that its server gives it.
pub fn lists(allow: &Pattern, deny: Option<&Pattern>, tool: &str) -> bool {
    allow.matches(tool) && !deny.is_some_and(|deny| deny.matches(tool))
}
