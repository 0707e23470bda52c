//! Upstream servers behind the real hub, over real connections.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod era_cache;
mod http;
mod http_bad;
mod http_real;
mod http_session;
mod http_weak;
mod lists;
mod new_transport;
mod notifications;
mod retries;
mod stdio_asks;
mod stdio_bad;
mod support;
