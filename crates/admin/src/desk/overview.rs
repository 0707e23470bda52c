//! The hub at a glance.

use super::ServerBrief;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    pub version: String,
    pub started: Timestamp,
    pub now: Timestamp,
    /// Whether every part works.
    pub ready: bool,
    pub parts: Vec<PartHealth>,
    /// What somebody should look at, in a sentence each: clients that read as if they guessed a secret.
    pub alerts: Vec<String>,
    /// How many calls wait for a decision.
    pub approvals_waiting: usize,
    /// How many scripts do; nothing where this hub has no scripts.
    pub scripts_waiting: Option<usize>,
    pub servers: Vec<ServerBrief>,
    /// Open sessions of agents, by transport.
    pub sessions: BTreeMap<String, usize>,
    /// Calls that have begun and not ended.
    pub calls_open: usize,
    /// The last 60 minutes, oldest first, without those in which nothing happened.
    pub minutes: Vec<Minute>,
}

/// One part of the hub, as `/readyz` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartHealth {
    pub name: String,
    pub works: bool,
    /// Why it does not.
    pub reason: Option<String>,
}

/// The calls that ended in one minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Minute {
    /// When it began.
    pub at: Timestamp,
    pub calls: u64,
    /// How many of them did not end well.
    pub errors: u64,
    /// How long half of them took at most, in microseconds; about.
    pub p50_us: u64,
    /// How long 95 of 100 took at most, in microseconds; about.
    pub p95_us: u64,
}

/// That something was done, where there is nothing else to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// What happened, in a sentence.
    pub said: String,
}
