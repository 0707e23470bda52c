//! Configuration of one upstream server.

use crate::shutdown::Shutdown;
use crate::tool_rules::ToolRules;
use crate::transport::ServerTransport;
use crate::trust::Trust;
use portcullis_core::{DefaultDecision, Effect, Labels, Pattern};
use portcullis_store::catalogs::CatalogStore;
use portcullis_store::pins::TrustedServer;
use std::sync::Arc;
use std::time::Duration;

/// One server, as configured.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    pub name: String,
    pub transport: Arc<dyn ServerTransport>,
    /// How long a call may go without a response or a sign of progress.
    pub timeout: Duration,
    /// How long it may take from its start to the end of the handshake.
    pub start_timeout: Duration,
    /// The prefix of its tools' public names, with the `_`; may be empty.
    pub prefix: String,
    /// The allowlist of its tools, by their own names; `deny` is the denylist.
    pub allow: Pattern,
    pub deny: Option<Pattern>,
    /// Own names and the public names that replace them.
    pub rename: Vec<(String, String)>,
    /// The configured effects of its tools. First match wins; a tool without one may do anything.
    pub effects: Vec<(Pattern, Effect)>,
    /// The configured data labels of its tools. First match wins; a tool without one may read and disclose anything.
    pub labels: Vec<(Pattern, Labels)>,
    /// The configured decision about its tools where no rule matches. Without one, the review decides.
    pub decision: Option<DefaultDecision>,
    /// Whether its definitions need review.
    pub trust: Trust,
    pub start: StartPolicy,
    /// Idle time after which it is stopped until the next call; never if absent.
    pub idle_stop: Option<Duration>,
    /// Whether each client gets its own instance.
    pub per_client: Option<PerClient>,
    /// How often its lists are read again without a notification.
    pub relist_every: Duration,
    /// What stops it when the hub or command ends.
    pub shutdown: Shutdown,
}

/// When a server is started.
#[derive(Debug, Clone)]
pub enum StartPolicy {
    AtOnce,
    /// At once, and all of it is to be reviewed by a person.
    ToBeSeen,
    /// By the first call. Its catalog comes from the cache, or it is started once to read it.
    AtNeed(Arc<CatalogStore>),
}

/// How many clients may have their own instance at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerClient {
    pub clients_max: usize,
}

impl ServerSpec {
    /// The default of `relist_every`.
    pub const RELIST_EVERY: Duration = Duration::from_secs(5 * 60);

    pub(crate) fn is_lazy(&self) -> bool {
        matches!(self.start, StartPolicy::AtNeed(_))
    }

    /// Returns what holds for its tools, if it is `trusted` like this.
    pub(crate) fn tool_rules<'a>(&'a self, trusted: Option<&'a TrustedServer>) -> ToolRules<'a> {
        ToolRules { effects: &self.effects, decision: self.decision, trusted }
    }

    /// Returns the data labels of a tool, by its own name.
    pub fn labels_of(&self, tool: &str) -> Labels {
        labels_of(&self.labels, tool)
    }

    pub(crate) fn lists(&self, tool: &str) -> bool {
        lists(&self.allow, self.deny.as_ref(), tool)
    }
}

/// Returns the data labels of a tool. Without configured ones they are the worst.
pub fn labels_of(said: &[(Pattern, Labels)], tool: &str) -> Labels {
    said.iter().find(|(tools, _)| tools.matches(tool)).map_or(Labels::FOREIGN, |(_, labels)| *labels)
}

/// Returns whether a tool is exposed, by its own name.
pub fn lists(allow: &Pattern, deny: Option<&Pattern>, tool: &str) -> bool {
    allow.matches(tool) && !deny.is_some_and(|deny| deny.matches(tool))
}
