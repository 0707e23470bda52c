//! Every limit that a client can hit, with a counter of hits for the metrics.
//!
//! The counters are process-wide statics: some limits are in parsers without access to the hub, and a process has one hub.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit that refuses a request or ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    LineBytes,
    BodyBytes,
    HeaderBytes,
    Connections,
    ConnectionsPerSource,
    HeadersTime,
    BodyTime,
    WriteTime,
    KeepAliveTime,
    TokenFailures,
    InFlight,
    Sessions,
    SessionsPerClient,
    SessionIdle,
    Rate,
    RateWaiting,
    CallTime,
    ArgumentBytes,
    ResultBytes,
    JsonDepth,
    BatchMessages,
    Subscriptions,
    Listeners,
    Tasks,
    Questions,
    StreamBacklog,
    OwnServers,
    ValidationSteps,
    AuditQueue,
    SecretGuesses,
}

impl Limit {
    pub const ALL: [Limit; 30] = [
        Limit::LineBytes,
        Limit::BodyBytes,
        Limit::HeaderBytes,
        Limit::Connections,
        Limit::ConnectionsPerSource,
        Limit::HeadersTime,
        Limit::BodyTime,
        Limit::WriteTime,
        Limit::KeepAliveTime,
        Limit::TokenFailures,
        Limit::InFlight,
        Limit::Sessions,
        Limit::SessionsPerClient,
        Limit::SessionIdle,
        Limit::Rate,
        Limit::RateWaiting,
        Limit::CallTime,
        Limit::ArgumentBytes,
        Limit::ResultBytes,
        Limit::JsonDepth,
        Limit::BatchMessages,
        Limit::Subscriptions,
        Limit::Listeners,
        Limit::Tasks,
        Limit::Questions,
        Limit::StreamBacklog,
        Limit::OwnServers,
        Limit::ValidationSteps,
        Limit::AuditQueue,
        Limit::SecretGuesses,
    ];

    /// Returns the name in metrics and documentation.
    pub fn label(self) -> &'static str {
        match self {
            Limit::LineBytes => "line_bytes",
            Limit::BodyBytes => "body_bytes",
            Limit::HeaderBytes => "header_bytes",
            Limit::Connections => "connections",
            Limit::ConnectionsPerSource => "connections_per_source",
            Limit::HeadersTime => "headers_time",
            Limit::BodyTime => "body_time",
            Limit::WriteTime => "write_time",
            Limit::KeepAliveTime => "keep_alive_time",
            Limit::TokenFailures => "token_failures",
            Limit::InFlight => "in_flight",
            Limit::Sessions => "sessions",
            Limit::SessionsPerClient => "sessions_per_client",
            Limit::SessionIdle => "session_idle",
            Limit::Rate => "rate",
            Limit::RateWaiting => "rate_waiting",
            Limit::CallTime => "call_time",
            Limit::ArgumentBytes => "argument_bytes",
            Limit::ResultBytes => "result_bytes",
            Limit::JsonDepth => "json_depth",
            Limit::BatchMessages => "batch_messages",
            Limit::Subscriptions => "subscriptions",
            Limit::Listeners => "listeners",
            Limit::Tasks => "tasks",
            Limit::Questions => "questions",
            Limit::StreamBacklog => "stream_backlog",
            Limit::OwnServers => "per_client_servers",
            Limit::ValidationSteps => "validation_steps",
            Limit::AuditQueue => "audit_queue",
            Limit::SecretGuesses => "secret_guesses",
        }
    }

    /// Counts a hit.
    pub fn hit(self) {
        self.counter().fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of hits since the process started.
    pub fn hits(self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }

    fn counter(self) -> &'static AtomicU64 {
        static HITS: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];
        &HITS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_has_a_counter_and_a_label_of_its_own() {
        let places: Vec<usize> = Limit::ALL.iter().map(|limit| *limit as usize).collect();
        assert_eq!(places, (0..Limit::ALL.len()).collect::<Vec<_>>());
        let labels: BTreeSet<_> = Limit::ALL.iter().map(|limit| limit.label()).collect();
        assert_eq!(labels.len(), Limit::ALL.len());
    }

    #[test]
    fn hits_are_counted() {
        // No other test of this crate hits this limit.
        let before = Limit::StreamBacklog.hits();
        Limit::StreamBacklog.hit();
        assert_eq!(Limit::StreamBacklog.hits(), before + 1);
    }
}
