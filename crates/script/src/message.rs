//! What hub and worker say to each other.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What the hub says.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    Job(Work),
    Answer {
        answer: Result<Box<RawValue>, Refusal>,
        /// How long people have been waited for so far. That time is not the script's.
        waited_ms: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Work {
    pub name: String,
    pub source: String,
    pub function: Option<String>,
    /// A JSON array.
    pub args: Box<RawValue>,
    pub timeout_ms: u64,
    pub heap_bytes_max: usize,
    /// Only parse it.
    pub check_only: bool,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    Ready {
        missing: Vec<String>,
    },
    /// The source was parsed; what comes now is its own doing.
    Parsed,
    Ask(Ask),
    Done(Ended),
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    Http(HttpAsk),
    Tool { name: String, arguments: Box<RawValue> },
    HasSecret(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Ended {
    pub outcome: Result<Box<RawValue>, Fault>,
    pub printed: String,
}

/// A piece of a text that may hold secrets. The worker knows their names only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    Text(String),
    Secret(String),
}

/// A request that a script wants to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HttpAsk {
    pub method: String,
    pub url: Vec<Piece>,
    pub headers: Vec<(String, Vec<Piece>)>,
    pub body: Option<Vec<Piece>>,
    pub content_type: Option<String>,
    /// Whether secrets in the body stand within JSON strings.
    pub json: bool,
}

impl HttpAsk {
    /// Returns the names of the secrets that it wants to be put in.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let texts = [Some(&self.url), self.body.as_ref()].into_iter().flatten();
        let pieces = texts.chain(self.headers.iter().map(|(_, value)| value)).flatten();
        pieces.filter_map(|piece| match piece {
            Piece::Secret(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }
}

/// What came of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HttpAnswer {
    pub status: u16,
    pub url: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// Why the hub does not do what a script asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: String,
    pub message: String,
}

/// What is wrong in a script, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub message: String,
    /// From 1.
    pub line: Option<usize>,
    pub column: Option<usize>,
    /// The lines around the place, with a mark.
    pub excerpt: Option<String>,
    /// The code of the refusal, where the hub refused something.
    pub code: Option<String>,
}
