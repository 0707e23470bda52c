//! A world to send requests into: public pages, and canaries at every address that must not be reached.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a part of tests")]

mod canaries;
mod score;
mod site;
mod weak;

pub use canaries::{CANARY_PORT, Names, PORTS, PUBLIC, World, corpus, inside};
pub use score::{Case, Schemes, Score, score};
pub(crate) use site::acceptor;
pub use site::authority;
pub use weak::{Mistake, Weak};
