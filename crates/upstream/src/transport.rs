//! Transports: how bytes get to an upstream server and back. Nothing here knows what a request is about.
//!
//! A [`ServerTransport`] opens a [`TransportLink`] for outbound messages, which hands inbound ones to an [`Inbound`]. To add one,
//! write its file with the two traits, and choose it in `ServerFactory::transport` of `portcullis-ops`. Nothing else knows
//! which transports there are; `tests/servers/new_transport.rs` adds one.

pub(crate) mod ancestry;
mod diagnostics;
pub(crate) mod environ_mark;
mod error;
pub(crate) mod guardian;
mod http;
mod lifecycle;
mod link;
mod read_throttle;
mod server_transport;
mod spec;
mod stdin_writer;
pub(crate) mod stdio;
#[cfg(test)]
pub(crate) mod test_link;

pub use diagnostics::DiagnosticTail;
pub use error::{LinkError, OversizedResponse, RequestError};
pub use lifecycle::ConnectionLifecycle;
pub use link::{
    Credentials, CredentialsError, Inbound, OutboundMessage, Receipt, TransportHint, TransportLink,
};
pub use server_transport::{ServerInstanceId, ServerTransport, TransportParts};
pub use spec::{HeaderSpec, HttpSpec, ProgramLookup, StdioSpec, ValueResolver, WorkingDir};

/// The longest message that a server may send.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
