//! Transports: how bytes get to an upstream server and back. Nothing here knows what a request is about.
//!
//! A transport is a [`TransportLink`] for outbound messages; it hands inbound ones to an [`Inbound`]. To add one, write its
//! file, give it a variant in [`TransportSpec`] and a line in [`open`].

pub(crate) mod ancestry;
mod error;
pub(crate) mod guardian;
mod http;
mod lifecycle;
mod link;
mod oversized_line;
mod read_throttle;
mod spec;
mod stdin_writer;
pub(crate) mod stdio;
#[cfg(test)]
pub(crate) mod test_link;

pub(crate) use error::{LinkError, RequestError};
pub(crate) use guardian::ServerInstanceId;
pub(crate) use lifecycle::ConnectionLifecycle;
pub(crate) use link::{Carrier, Inbound, OutboundMessage, Receipt, TransportLink};
pub use link::{Credentials, CredentialsError};
pub use spec::{HeaderSpec, HttpSpec, ProgramLookup, StdioSpec, TransportSpec, ValueResolver, WorkingDir};

use crate::shutdown::Shutdown;
use std::sync::Arc;
use stdio::StderrTail;

/// The longest message that a server may send.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Opens the transport of one connection. `carrier` is the one that worked last time.
pub(crate) fn open(
    spec: &TransportSpec,
    instance: ServerInstanceId,
    inbound: Arc<dyn Inbound>,
    stderr: StderrTail,
    carrier: Option<Carrier>,
    shutdown: &Shutdown,
) -> Result<Arc<dyn TransportLink>, String> {
    match spec {
        TransportSpec::Stdio(spec) => stdio::start(spec, instance, inbound, stderr, shutdown),
        TransportSpec::Http(spec) => http::open(spec, inbound, carrier, shutdown),
    }
}
