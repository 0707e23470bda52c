//! Servers behind the real hub, reached over real connections.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod http;
mod http_bad;
mod http_real;
mod http_session;
mod http_weak;
mod known;
mod lists;
mod retries;
mod stdio_asks;
mod stdio_bad;
mod support;
mod watching;
