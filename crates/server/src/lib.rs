//! The server side of MCP: transports and sessions.
//!
//! A transport reads frames and knows who sent them. `dispatch` turns a message into a call for the
//! gate, or answers it from what the hub is. `session` is what a client of the older protocol
//! revisions has between two messages. Nothing here decides what a client may do; the gate does.

mod announce;
mod clean;
mod dispatch;
pub mod http;
mod hub;
pub mod line;
pub mod local;
mod outside;
mod paging;
mod peer;
mod seal;
mod search;
mod session;
mod sources;
mod stream;
mod tasks;

pub use hub::{Authenticate, Hub, HubLimits, HubParts, Ops, Readiness, ServerCounts, SessionCounts};
pub use search::Search;
