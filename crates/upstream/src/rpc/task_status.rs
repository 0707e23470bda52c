//! The status of a task at an upstream server, as both eras write it.

use portcullis_wire::ClientDialect;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    InputRequired,
    Completed,
    Failed,
    Cancelled,
    #[default]
    #[serde(other)]
    Working,
}

impl Phase {
    pub(crate) fn is_last(self) -> bool {
        matches!(self, Phase::Completed | Phase::Failed | Phase::Cancelled)
    }
}

/// The status, with the members of both eras.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpstreamTask {
    #[serde(rename = "taskId")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) status: Phase,
    pub(crate) status_message: Option<String>,
    pub(crate) poll_interval: Option<f64>,
    pub(crate) poll_interval_ms: Option<f64>,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) error: Option<Box<RawValue>>,
    pub(crate) input_requests: Option<Map<String, Value>>,
}

impl UpstreamTask {
    /// Returns the task that a server answers with instead of a result.
    pub(crate) fn begun(dialect: &dyn ClientDialect, result: &RawValue) -> Option<UpstreamTask> {
        serde_json::from_str(dialect.begun_task(result)?.get()).ok()
    }
}
