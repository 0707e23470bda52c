//! Calls as they happen.

use super::ServerBrief;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One call, as far as it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallLine {
    /// Its number within the life of this hub.
    pub call: u64,
    /// When it began.
    pub at: Timestamp,
    pub client: String,
    /// By which way it came: `client`, `schedule`, `script`, `chat` or `admin`.
    pub origin: String,
    /// `tool`, `resource`, `prompt` or `completion`.
    pub kind: String,
    pub target: String,
    /// `read`, `create`, `write` or `destroy`.
    pub effect: String,
    /// The beginning of the arguments, without secrets.
    pub arguments: String,
    /// How it ended; nothing while it runs.
    pub end: Option<CallEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallEnd {
    /// `ok`, or the code of the error.
    pub outcome: String,
    /// `allow`, `ask` or `deny`; nothing if it was refused before anyone decided.
    pub decision: Option<String>,
    pub rule: Option<String>,
    /// Which approval let it run, and whose it was.
    pub approval: Option<String>,
    pub bytes: u64,
    pub duration_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecentCalls {
    /// Newest first; those that run, too.
    pub calls: Vec<CallLine>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    CallOpened(CallLine),
    CallClosed(CallLine),
    /// A question was put or answered. `waiting` is how many wait now.
    Approvals {
        waiting: usize,
    },
    /// Something of this server is not as before.
    Server(ServerBrief),
    /// Something of this script is not as before: its bytes, or what was decided.
    Script {
        name: String,
        /// `pending`, `approved`, `rejected` or `changed`; `gone` if there is no such script any more.
        state: String,
    },
    /// The reader was too slow; so many events are not told.
    Missed {
        count: u64,
    },
}

impl Event {
    /// The name that the stream of events gives it.
    pub fn name(&self) -> &'static str {
        match self {
            Event::CallOpened(_) => "call_opened",
            Event::CallClosed(_) => "call_closed",
            Event::Approvals { .. } => "approvals",
            Event::Server(_) => "server",
            Event::Script { .. } => "script",
            Event::Missed { .. } => "missed",
        }
    }
}

/// Hears events, each once. A slow one loses the oldest and is told how many ([`Event::Missed`]).
pub struct Listener(BoxStream<'static, Event>);

impl Listener {
    pub fn new(events: impl Stream<Item = Event> + Send + 'static) -> Listener {
        Listener(events.boxed())
    }

    /// Returns the next event; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.next().await
    }

    /// Returns an event that has happened already, if there is one.
    pub fn ready(&mut self) -> Option<Event> {
        self.0.next().now_or_never().flatten()
    }
}
