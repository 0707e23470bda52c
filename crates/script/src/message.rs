//! The messages between hub and worker.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A message from the hub.
#[derive(Debug, Serialize, Deserialize)]
pub enum HubMessage {
    Job(JobSpec),
    Answer {
        answer: Result<Box<RawValue>, HostRefusal>,
        /// Total time spent waiting for people so far. It does not count towards the script's timeout.
        waited_ms: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    pub source: String,
    pub function: Option<String>,
    /// A JSON array.
    pub args: Box<RawValue>,
    pub timeout_ms: u64,
    pub heap_bytes_max: usize,
    /// Parse only, do not run.
    pub check_only: bool,
}

/// A message from a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum WorkerMessage {
    Ready {
        missing: Vec<String>,
    },
    /// The source was parsed. A crash after this message is not a parser crash.
    Parsed,
    Ask(HostRequest),
    Done(JobResult),
}

#[derive(Debug, Serialize, Deserialize)]
pub enum HostRequest {
    Http(ScriptHttpRequest),
    Tool { name: String, arguments: Box<RawValue> },
    HasSecret(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub struct JobResult {
    pub outcome: Result<Box<RawValue>, ScriptDiagnostic>,
    pub printed: String,
}

/// A piece of a text that may contain secrets. The worker knows only their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextPiece {
    Text(String),
    Secret(String),
}

/// An HTTP request by a script.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptHttpRequest {
    pub method: String,
    pub url: Vec<TextPiece>,
    pub headers: Vec<(String, Vec<TextPiece>)>,
    pub body: Option<Vec<TextPiece>>,
    pub content_type: Option<String>,
    /// Whether secrets in the body are inside JSON strings, and escaped as such.
    pub json: bool,
}

impl ScriptHttpRequest {
    /// Returns the names of the secrets that the request refers to.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let texts = [Some(&self.url), self.body.as_ref()].into_iter().flatten();
        let pieces = texts.chain(self.headers.iter().map(|(_, value)| value)).flatten();
        pieces.filter_map(|piece| match piece {
            TextPiece::Secret(name) => Some(name.as_str()),
            TextPiece::Text(_) => None,
        })
    }
}

/// The response to a script's HTTP request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptHttpResponse {
    pub status: u16,
    pub url: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// Why the hub refused a request of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRefusal {
    pub code: String,
    pub message: String,
}

/// An error in a script, with its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptDiagnostic {
    pub message: String,
    /// 1-based.
    pub line: Option<usize>,
    pub column: Option<usize>,
    /// The surrounding lines, with a marker.
    pub excerpt: Option<String>,
    /// The error code, if the hub refused a request.
    pub code: Option<String>,
}
