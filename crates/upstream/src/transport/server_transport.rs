//! A way to reach an upstream server: the trait that a transport implements, and what it is given to open a connection.

use super::diagnostics::DiagnosticTail;
use super::link::{Inbound, TransportHint, TransportLink};
use crate::shutdown::Shutdown;
use futures::future::BoxFuture;
use portcullis_egress::Url;
use portcullis_store::pins::ServerIdentity;
use std::fmt;
use std::sync::Arc;

/// The name of a server, and of its client where it is a per-client server. The same before and after a
/// configuration change.
pub type ServerInstanceId = (String, Option<String>);

/// How one server is reached, as configured. The hub opens it again for every connection.
pub trait ServerTransport: fmt::Debug + Send + Sync {
    /// Opens one connection. Nothing need be sent before the first message.
    fn open(&self, parts: TransportParts<'_>) -> Result<Arc<dyn TransportLink>, String>;

    /// Returns the facts by which an administrator recognises the server: a pin is valid only while they stay the same.
    fn identity(&self) -> BoxFuture<'_, ServerIdentity>;

    /// Returns whether the server runs on this machine, as a child of the hub.
    fn is_local(&self) -> bool;

    /// Returns the URL of the server, where it has one. A person may be sent to its origin.
    fn url(&self) -> Option<&Url> {
        None
    }

    /// Resolves when a connection may be opened: whatever the previous one held is released.
    fn wait_free<'a>(&'a self, instance: &'a ServerInstanceId) -> BoxFuture<'a, ()> {
        let _ = instance;
        Box::pin(std::future::ready(()))
    }
}

/// What a transport is given to open a connection.
pub struct TransportParts<'a> {
    pub instance: ServerInstanceId,
    /// The receiver of everything that the server sends.
    pub inbound: Arc<dyn Inbound>,
    /// Takes what a person should read where the connection fails.
    pub diagnostics: DiagnosticTail,
    /// What the last connection left for this one ([`TransportLink::hint`]).
    pub hint: Option<TransportHint>,
    pub shutdown: &'a Shutdown,
}
