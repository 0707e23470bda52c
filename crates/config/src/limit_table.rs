//! The documented table of limits: configuration key, metric label, behaviour.

use super::schema;
use portcullis_core::Limit;
use std::fmt::Write;

/// Source of a limit's value.
enum LimitSource {
    /// A key of the configuration.
    Key(&'static str),
    /// Not configurable.
    Fixed(&'static str),
}

/// Returns the table as Markdown.
pub fn limit_table() -> String {
    let schema = schema();
    let mut text =
        String::from("| limit | key, or fixed value | default | when reached |\n|---|---|---|---|\n");
    for limit in Limit::ALL {
        let (bound, then) = about(limit);
        let (key, value) = match bound {
            LimitSource::Key(key) => {
                let pointer = format!("/properties/{}/default", key.replace('.', "/properties/"));
                let default = schema.pointer(&pointer).map(ToString::to_string).unwrap_or_default();
                (format!("`{key}`"), default)
            }
            LimitSource::Fixed(value) => ("fixed".to_owned(), value.to_owned()),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{}` | {key} | {value} | {then} |", limit.label());
    }
    text
}

fn about(limit: Limit) -> (LimitSource, &'static str) {
    use LimitSource::{Fixed, Key};
    match limit {
        Limit::LineBytes => (Key("limits.line_bytes_max"), "the line is skipped, with an error response"),
        Limit::BodyBytes => (Key("limits.body_bytes_max"), "413"),
        Limit::HeaderBytes => (Fixed("32 KiB"), "431, and the connection is closed"),
        Limit::Connections => (
            Key("limits.connections_max"),
            "the oldest idle unauthenticated connection is closed, or the new one; lower if the open file limit is low",
        ),
        Limit::ConnectionsPerSource => (
            Key("limits.connections_per_source_max"),
            "the oldest idle unauthenticated connection of that source is closed, or the new one",
        ),
        Limit::HeadersTime => (Key("limits.headers_secs"), "the connection is closed"),
        Limit::BodyTime => (Key("limits.body_secs"), "408, and the connection is closed"),
        Limit::WriteTime => (Key("limits.write_secs"), "the connection is closed"),
        Limit::KeepAliveTime => (Key("limits.keep_alive_secs"), "the idle connection is closed"),
        Limit::TokenFailures => (
            Key("limits.token_failures_max"),
            "429 for `limits.token_lockout_secs`; tokens already used from that address still work",
        ),
        Limit::InFlight => (Key("limits.in_flight_max"), "an error for the new request"),
        Limit::Sessions => {
            (Key("limits.sessions_max"), "the client's longest idle session is closed, or 503")
        }
        Limit::SessionsPerClient => {
            (Key("limits.sessions_per_client_max"), "the client's longest idle session is closed, or 503")
        }
        Limit::SessionIdle => (Key("limits.session_idle_secs"), "the session is closed"),
        Limit::Rate => (
            Key("rate_limit.requests_per_second"),
            "a call waits up to `rate_limit.wait_ms`; otherwise an error with the time to retry",
        ),
        Limit::RateWaiting => (Fixed("1000 waiting calls per client"), "an error with the time to retry"),
        Limit::CallTime => {
            (Key("limits.call_secs_max"), "the call ends with `timeout`; a tool may have a shorter timeout")
        }
        Limit::ArgumentBytes => (
            Fixed("772 KiB for tools that take code; otherwise the message limit"),
            "the call ends with `too_large`",
        ),
        Limit::ResultBytes => {
            (Key("limits.result_bytes_max"), "the call ends with `too_large`; a tool may have a lower limit")
        }
        Limit::JsonDepth => (Fixed("64 levels"), "an error"),
        Limit::BatchMessages => (Fixed("64 messages"), "an error for all of them"),
        Limit::Subscriptions => (Fixed("1000 resources"), "an error"),
        Limit::Listeners => (Fixed("1000 per client, 10000 in total"), "an error"),
        Limit::Tasks => (Fixed("100 per client, 1000 in total"), "an error"),
        Limit::Questions => (
            Fixed("64 per session; 64 calls per client and server that wait for the client's input"),
            "elicitation and sampling fail for the call",
        ),
        Limit::StreamBacklog => (Fixed("16 MiB unread (HTTP+SSE)"), "the session is closed"),
        Limit::OwnServers => (
            Fixed("32 clients per server with `per_client`; `mcp.NAME.clients_max`"),
            "the call ends with `unavailable`",
        ),
        Limit::ValidationSteps => (
            Fixed("10 million validation steps of arguments against the tool's schema"),
            "the call ends with `invalid_args`",
        ),
        Limit::AuditQueue => (
            Fixed("1024 unwritten records per client, 8192 in total, for 5 s"),
            "the call is refused with `unavailable`",
        ),
        Limit::SecretGuesses => (
            Fixed("10000 distinct guesses of weak secrets per client and day"),
            "further look-alikes are redacted like the secret, and an alert is raised",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Keys that refuse nothing themselves.
    const NO_LIMIT: [&str; 2] = ["limits.shutdown_grace_secs", "limits.token_lockout_secs"];

    #[test]
    fn every_key_is_in_the_table_and_the_table_knows_every_key() {
        let schema = schema();
        let keys = schema["properties"]["limits"]["properties"].as_object().unwrap().keys();
        let keys: BTreeSet<String> =
            keys.map(|key| format!("limits.{key}")).filter(|key| !NO_LIMIT.contains(&key.as_str())).collect();
        let named = Limit::ALL.into_iter().filter_map(|limit| match about(limit).0 {
            LimitSource::Key(key) if key.starts_with("limits.") => Some(key.to_owned()),
            _ => None,
        });
        assert_eq!(named.collect::<BTreeSet<String>>(), keys);
        let table = limit_table();
        assert!(table.contains("| `connections` | `limits.connections_max` | 4000 |"), "{table}");
        assert!(table.contains("| `rate` | `rate_limit.requests_per_second` | 10 |"), "{table}");
        assert_eq!(table.lines().count(), 2 + Limit::ALL.len());
    }
}
