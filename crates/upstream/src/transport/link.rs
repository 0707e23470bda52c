//! The traits between a transport and the JSON-RPC layer above it: outbound messages, inbound messages, credentials.

use super::error::{LinkError, OversizedResponse, RequestError};
use super::lifecycle::ConnectionLifecycle;
use bytes::Bytes;
use futures::future::BoxFuture;
use portcullis_wire::Revision;
use std::fmt;
use std::sync::Arc;

/// One message to the server.
pub struct OutboundMessage<'a> {
    pub bytes: Bytes,
    /// The id of a request; `None` for a notification or a response.
    pub id: Option<u64>,
    /// The method; `None` for a response.
    pub method: Option<&'a str>,
    /// The tool, prompt or URI that the request is about. Streamable HTTP repeats it in a header.
    pub name: Option<&'a str>,
    /// Arguments that the server wants in headers.
    pub headers: &'a [(String, String)],
}

impl<'a> OutboundMessage<'a> {
    /// A notification or a response.
    pub(crate) fn one_way(method: Option<&'a str>, bytes: Bytes) -> OutboundMessage<'a> {
        OutboundMessage { bytes, id: None, method, name: None, headers: &[] }
    }

    /// Returns whether it is harmless to send it twice.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.id.is_some() && self.method != Some("tools/call")
    }
}

/// What a transport found out about a server, so that the next connection need not. Only the transport reads it; the hub
/// caches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportHint(Arc<str>);

impl TransportHint {
    pub fn new(text: &str) -> TransportHint {
        TransportHint(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An open transport. It hands inbound messages to its [`Inbound`]; dropping it closes the transport.
pub trait TransportLink: Send + Sync {
    /// Sends a message. Returns when the transport is done with it: over stdio as soon as it is queued, over HTTP
    /// when the response has arrived. Dropping the future cancels the exchange.
    fn send<'a>(&'a self, message: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>>;

    /// Sends a message without waiting, or gives it back where that is not possible.
    fn take<'a>(&self, message: OutboundMessage<'a>) -> Result<Option<OutboundMessage<'a>>, RequestError> {
        Ok(Some(message))
    }

    /// Sets the negotiated revision, and begins to listen to notifications.
    fn set_revision(&self, revision: Revision) {
        let _ = revision;
    }

    /// Returns what the next connection to the server need not find out again.
    fn hint(&self) -> Option<TransportHint> {
        None
    }

    /// Returns whether dropping an exchange cancels the request at the server; otherwise it is notified.
    fn cancels_on_drop(&self) -> bool {
        false
    }
}

/// What became of an inbound message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// A message with a recipient.
    Message,
    /// A message without one.
    Idle,
    /// No JSON-RPC message.
    Noise,
}

/// The receiver of everything that a transport reads.
pub trait Inbound: Send + Sync {
    /// Takes one message. `request` is the request on whose stream it came, where the transport has a stream for each.
    fn receive(&self, bytes: &[u8], request: Option<u64>) -> Receipt;

    /// Fails a request whose response is over the size limit.
    fn response_too_long(&self, id: u64, size: OversizedResponse);

    /// Returns whether a request still waits for its response.
    fn awaits(&self, id: u64) -> bool;

    /// Takes note that the server closed the stream of a request and will respond on another one.
    fn stream_closed(&self, id: u64);

    /// Takes note that notifications arrive again after a gap, in which anything may have changed.
    fn listening_resumed(&self);

    /// Fails every request that waits: the server is gone.
    fn close(&self);

    fn lifecycle(&self) -> &ConnectionLifecycle;
}

/// Why there are no credentials to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialsError {
    /// A person has to log in.
    NeedsLogin(String),
    /// A person has to register the hub as a client first.
    NeedsRegistration(String),
    /// For the moment; trying again may help.
    Unavailable(String),
}

impl From<CredentialsError> for LinkError {
    fn from(error: CredentialsError) -> LinkError {
        match error {
            CredentialsError::NeedsLogin(why) => LinkError::NeedsAuth(why),
            CredentialsError::NeedsRegistration(why) => LinkError::NeedsRegistration(why),
            CredentialsError::Unavailable(why) => LinkError::NoCredentials(why),
        }
    }
}

/// The source of the `Authorization` header.
pub trait Credentials: fmt::Debug + Send + Sync {
    /// Returns the header's value; one that is about to expire is renewed first.
    fn header(&self) -> BoxFuture<'_, Result<Option<String>, CredentialsError>>;

    /// Takes note that the server accepted the header.
    fn accepted(&self);

    /// Takes note that the server refused the header `used` with 401 or 403, and of its `WWW-Authenticate` challenge.
    /// Returns whether the request can be sent again now.
    fn refused<'a>(
        &'a self,
        used: Option<&'a str>,
        status: u16,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, CredentialsError>>;

    /// Returns the authorization server that vouches for the hub, where there is one. It is part of a server's identity.
    fn issuer(&self) -> BoxFuture<'_, Option<String>>;
}
