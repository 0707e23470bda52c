//! The server side of MCP: transports and sessions.
//!
//! A transport reads frames and authenticates their sender. `dispatch` turns a request into a call through the gate,
//! or serves it from the hub's state. `session` holds what a client of the older protocol revisions has between two
//! messages. Nothing here decides what a client may do; the gate does.

mod accept_loop;
mod announce;
mod dispatch;
mod egress_filter;
pub mod http;
mod hub;
pub mod line;
pub mod local;
mod out_of_call;
mod paging;
mod peer;
mod request_state;
mod search;
mod services;
mod session;
mod sources;
mod stream;
mod tasks;

pub use accept_loop::AcceptLoop;
pub use hub::{
    Authenticate, ClientsUnavailable, Hub, HubLimits, HubParts, LocalClient, Ops, Readiness, ServerCounts,
    SessionCounts,
};
pub use search::ToolSearch;
pub use services::{DuplicateService, ServiceState, ServiceStatus};
