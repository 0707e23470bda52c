//! The real program, from outside: every transport, every revision, bad input, operations.
//!
//! One binary for all of it, so that there is one link step. `forgotten` sees to it that every file here is in it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a helper that fails is a test that fails, and a test that is skipped says so"
)]

mod admin;
mod approval_notices;
mod approvals;
mod attacks;
mod changing_server;
mod commands;
mod each_limit;
mod examples;
mod fake_family;
mod identity;
mod idle_servers;
mod invalid_definitions;
mod labels;
mod lifecycle;
mod limits;
mod matrix;
mod mcp_auth;
mod observability;
mod outbound;
mod per_client_server;
mod policy;
mod processes;
mod reload;
mod roles;
mod same_names;
mod scripts;
mod secrets;
mod server_messages;
mod server_trial;
mod servers;
mod sessions;
mod silent_change;
mod single_gate;
mod sinks;
mod standard;
mod store;
mod stream_release;
mod subscriptions;
mod support;
mod surface;
mod tasks;
mod terminal;
mod transcripts;
mod trusted_effects;
mod unlisted_modules;
mod unreviewed_servers;
mod upstream;
mod vault;
