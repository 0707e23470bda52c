//! A transport for tests: it accepts every message and answers none.

use super::{OutboundMessage, RequestError, TransportLink};
use futures::future::BoxFuture;

pub(crate) struct NullLink;

impl TransportLink for NullLink {
    fn send<'a>(&'a self, _: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async { Ok(()) })
    }
}
