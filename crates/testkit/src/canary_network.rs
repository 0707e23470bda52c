//! A network for egress tests: public pages, and canaries at every address that must not be reached (SSRF).

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a part of tests")]

mod canaries;
mod score;
mod site;
mod weak_client;

pub use canaries::{CANARY_PORT, CanaryNetwork, PORTS, PUBLIC, ScriptedResolver, corpus, inside};
pub use score::{EgressCase, EgressScore, UrlSchemes, score};
pub(crate) use site::acceptor;
pub use site::authority;
pub use weak_client::{SsrfMistake, WeakClient};
