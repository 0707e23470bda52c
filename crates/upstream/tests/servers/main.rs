//! Servers behind the real hub, reached over real connections.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a helper that fails is a test that fails, and a test that is skipped says so"
)]

mod http;
mod http_bad;
mod http_real;
mod support;
