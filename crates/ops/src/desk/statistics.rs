//! Call statistics by range, client and server.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StatisticsQuery {
    /// `hour` (the default), `day` or `week`.
    pub range: Option<String>,
}

/// The calls that ended in the last hour, day or week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Statistics {
    /// `hour`, `day` or `week`.
    pub range: String,
    pub now: Timestamp,
    /// Calls before this time are not counted: only the newest 100,000 records of the audit log are read. Null if all are.
    pub counted_since: Option<Timestamp>,
    pub all: CallSeries,
    /// The 32 clients that called last, without those that did not call in this range.
    pub clients: Vec<CallSeries>,
    /// Upstream servers and native tool families, as the clients.
    pub servers: Vec<CallSeries>,
    /// The upstream servers and native tool families that have tools now.
    pub known_servers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallSeries {
    /// The client or server; empty for all calls.
    pub name: String,
    /// Length of a period.
    pub period_seconds: u64,
    /// Oldest first, without idle ones.
    pub periods: Vec<PeriodSummary>,
    /// Over the whole range.
    pub total: PeriodSummary,
}

/// Metrics of the calls that finished in one period.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PeriodSummary {
    /// Start of the period.
    pub at: Timestamp,
    pub calls: u64,
    /// How many of them failed.
    pub errors: u64,
    /// Approximate p50 latency in microseconds.
    pub p50_us: u64,
    /// Approximate p95 latency in microseconds.
    pub p95_us: u64,
}
