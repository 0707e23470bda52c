//! What carries messages to a server, and what comes back.

use crate::connection::{LinkError, RequestError};
use bytes::Bytes;
use futures::future::BoxFuture;
use portcullis_wire::Revision;

/// The longest message that a server may send.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One message on its way to the server.
pub(crate) struct Outgoing<'a> {
    pub(crate) bytes: Bytes,
    /// The id of a request; `None` for a notification or an answer.
    pub(crate) id: Option<u64>,
    /// The method, or nothing for an answer.
    pub(crate) method: Option<&'a str>,
    /// What the request names: a tool, a prompt or an address. Some transports show it outside of the message.
    pub(crate) name: Option<&'a str>,
    /// Headers that the server wants certain arguments in.
    pub(crate) headers: &'a [(String, String)],
}

impl<'a> Outgoing<'a> {
    /// A message that belongs to no request.
    pub(crate) fn aside(method: Option<&'a str>, bytes: Bytes) -> Outgoing<'a> {
        Outgoing { bytes, id: None, method, name: None, headers: &[] }
    }

    /// Returns whether it does no harm if the server hears it twice.
    pub(crate) fn is_safe(&self) -> bool {
        self.id.is_some() && self.method != Some("tools/call")
    }
}

/// How messages travel, where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Carrier {
    #[default]
    Usual,
    /// HTTP+SSE, as of 2024-11-05.
    Sse,
}

/// A transport that is open. What arrives it hands to its [`Inbox`](crate::inbox::Inbox); when it is dropped the transport ends.
pub(crate) trait Link: Send + Sync {
    /// Sends a message. Returns when sending has nothing more to do with it: on a line as soon as it is taken, over HTTP
    /// when the answer has arrived in the inbox. Dropped before that, the exchange is given up.
    fn send<'a>(&'a self, message: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>>;

    /// Takes a message without waiting, or gives it back where sending takes longer than that.
    fn take<'a>(&self, message: Outgoing<'a>) -> Result<Option<Outgoing<'a>>, RequestError> {
        Ok(Some(message))
    }

    /// Learns which revision is spoken from now on, and begins to hear what the server says by itself.
    fn speaks(&self, revision: Revision) {
        let _ = revision;
    }

    /// Returns how messages travel.
    fn carrier(&self) -> Carrier {
        Carrier::Usual
    }

    /// Returns whether giving an exchange up is enough for the server to know; otherwise it is told.
    fn hears_giving_up(&self) -> bool {
        false
    }
}

/// What shows a server who we are. What it says goes into the `Authorization` header.
pub(crate) trait Credentials: Send + Sync {
    /// Returns the header's value as it is good now; one that is about to expire is renewed first.
    fn header(&self) -> BoxFuture<'_, Result<Option<String>, LinkError>>;

    /// Hears that the server did not refuse.
    fn accepted(&self);

    /// Hears that the server refused with 401 or 403, and what it said in `WWW-Authenticate`. `used` is the header that
    /// was sent. Returns whether the request can be made again now.
    fn refused<'a>(
        &'a self,
        used: Option<&'a str>,
        status: u16,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, LinkError>>;
}
