//! What is configured about one server.

use crate::guardian::HubMark;
use crate::oauth::OAuth;
use crate::trust::Trust;
use portcullis_core::{Effect, Pattern, Unruled};
use portcullis_egress::CertificateDer;
use portcullis_egress::header::HeaderName;
use portcullis_egress::own::Place;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One server, as the configuration means it.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    pub name: String,
    pub transport: TransportSpec,
    /// How long a call may go without an answer or a sign of progress.
    pub timeout: Duration,
    /// What stands before the names of its tools; empty for nothing.
    pub prefix: String,
    /// Which of its tools appear, by their own names.
    pub allow: Pattern,
    pub deny: Option<Pattern>,
    /// Under which other names its tools appear: the own name, and the other.
    pub rename: Vec<(String, String)>,
    /// What its tools do, where somebody said so. First match wins; a tool that none matches may do anything.
    pub effects: Vec<(Pattern, Effect)>,
    /// What is decided about its tools where no rule speaks.
    pub decision: Unruled,
    /// Whether what it says of itself waits for a person.
    pub trust: Trust,
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
    pub command: PathBuf,
    pub args: Vec<String>,
    pub cwd: Option<PathBuf>,
    /// All that it gets: the hub's own environment stays here. As written; [`StdioSpec::values`] says what it means.
    pub env: Vec<(String, String)>,
    pub values: Values,
    /// Whose process it is, so that it and all that it starts can be found when it is to end.
    pub mark: HubMark,
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
    pub(crate) fn effect_of(&self, tool: &str) -> Effect {
        let said = self.effects.iter().find(|(tools, _)| tools.matches(tool));
        said.map_or(Effect::Destroy, |(_, effect)| *effect)
    }

    pub(crate) fn renamed<'a>(&'a self, tool: &'a str) -> &'a str {
        self.rename.iter().find(|(own, _)| own == tool).map_or(tool, |(_, other)| other)
    }

    pub(crate) fn lists(&self, tool: &str) -> bool {
        self.allow.matches(tool) && !self.deny.as_ref().is_some_and(|deny| deny.matches(tool))
    }
}
