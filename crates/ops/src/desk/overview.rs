//! Health, alerts and metrics of the hub.

use super::{PeriodSummary, ServerBrief};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    pub version: String,
    pub started: Timestamp,
    pub now: Timestamp,
    /// Whether all components are healthy.
    pub ready: bool,
    pub parts: Vec<ComponentHealth>,
    /// Alerts, one sentence each, such as a client whose requests look like guessing a secret.
    pub alerts: Vec<String>,
    /// Number of pending approvals.
    pub approvals_waiting: usize,
    /// Number of scripts that need approval; null if the hub has no scripts.
    pub scripts_waiting: Option<usize>,
    pub servers: Vec<ServerBrief>,
    /// Open MCP sessions by transport.
    pub sessions: BTreeMap<String, usize>,
    /// Calls in flight.
    pub calls_open: usize,
    /// The last 60 minutes, oldest first, without idle ones.
    pub minutes: Vec<PeriodSummary>,
}

/// Health of one component, as in `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentHealth {
    pub name: String,
    pub works: bool,
    /// Why it is unhealthy.
    pub reason: Option<String>,
}

/// Confirmation of a command that returns nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActionReceipt {
    /// What was done, in one sentence.
    pub said: String,
}
