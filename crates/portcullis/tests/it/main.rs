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
mod approvals;
mod attacks;
mod commands;
mod each_limit;
mod forgotten;
mod held_back;
mod identity;
mod labels;
mod left_out;
mod let_go;
mod lifecycle;
mod limits;
mod matrix;
mod mcp_auth;
mod observability;
mod one_road;
mod outside;
mod own_server;
mod policy;
mod processes;
mod reload;
mod resting;
mod roles;
mod same_names;
mod scripts;
mod secrets;
mod servers;
mod sessions;
mod shop;
mod silent_change;
mod sinks;
mod standard;
mod support;
mod talk;
mod tasks;
mod terminal;
mod transcripts;
mod upstream;
mod vault;
mod watching;
