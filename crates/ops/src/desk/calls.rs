//! Live calls and the event stream.

use super::ServerBrief;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A running or finished call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallView {
    /// Call ID, unique within the run of the hub.
    pub call: u64,
    /// When it started.
    pub at: Timestamp,
    pub client: String,
    /// `client`, `schedule`, `script`, `chat`, `engine` or `admin`.
    pub origin: String,
    /// `tool`, `resource`, `prompt` or `completion`.
    pub kind: String,
    pub target: String,
    /// `read`, `create`, `write` or `destroy`.
    pub effect: String,
    /// The arguments, redacted and truncated.
    pub arguments: String,
    /// The result; null while it runs.
    pub end: Option<CallEnding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallEnding {
    /// `ok` or the error code.
    pub outcome: String,
    /// `allow`, `ask` or `deny`; null if it failed before the policy decision.
    pub decision: Option<String>,
    pub rule: Option<String>,
    /// The approval that allowed it, and who gave it.
    pub approval: Option<String>,
    pub bytes: u64,
    pub duration_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecentCalls {
    /// Newest first, including running ones.
    pub calls: Vec<CallView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AdminEvent {
    CallOpened(CallView),
    CallClosed(CallView),
    /// An approval was requested or decided. `waiting` is the number now pending.
    Approvals {
        waiting: usize,
    },
    /// The server changed.
    Server(ServerBrief),
    /// The script's source or approval changed.
    Script {
        name: String,
        /// `pending`, `approved`, `rejected` or `changed`; `gone` if it was removed.
        state: String,
    },
    /// The subscriber was too slow; this many events were dropped.
    Missed {
        count: u64,
    },
}

impl AdminEvent {
    /// The name in the event stream.
    pub fn name(&self) -> &'static str {
        match self {
            AdminEvent::CallOpened(_) => "call_opened",
            AdminEvent::CallClosed(_) => "call_closed",
            AdminEvent::Approvals { .. } => "approvals",
            AdminEvent::Server(_) => "server",
            AdminEvent::Script { .. } => "script",
            AdminEvent::Missed { .. } => "missed",
        }
    }
}

/// A subscription. A slow subscriber loses the oldest events and gets their count ([`AdminEvent::Missed`]).
pub struct AdminEventStream(BoxStream<'static, AdminEvent>);

impl AdminEventStream {
    pub fn new(events: impl Stream<Item = AdminEvent> + Send + 'static) -> AdminEventStream {
        AdminEventStream(events.boxed())
    }

    /// Returns the next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<AdminEvent> {
        self.0.next().await
    }

    /// Returns a buffered event, if there is one.
    pub fn ready(&mut self) -> Option<AdminEvent> {
        self.0.next().now_or_never().flatten()
    }
}
