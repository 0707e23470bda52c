//! SSE stream that carries the response to one request, and how it is resumed after a break.

use super::{HttpTransport, ResponseFormat, finish, kind};
use crate::transport::read_throttle::{LINE_COST, ReadThrottle};
use crate::transport::{LinkError, OversizedResponse, RequestError};
use crate::transport::{MESSAGE_BYTES_MAX, Receipt};
use portcullis_egress::configured_client::{ConfiguredResponse, Method};
use portcullis_egress::header::{HeaderName, HeaderValue};
use portcullis_wire::ClientDialect;
use portcullis_wire::sse::{SseEventTooLong, SseReader};
use std::time::Duration;

pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// The delay before a stream is resumed, where the server does not set one.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Bounds of that delay, whatever the server sets.
pub(super) const RETRY_MIN: Duration = Duration::from_millis(100);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(30);
/// The event of HTTP+SSE that names the endpoint.
pub(super) const ENDPOINT: &str = "endpoint";
/// How often a stream is resumed on which nothing arrives.
const RESUMED_MAX: usize = 10;

/// The response is over the size limit, and would be again.
pub(super) const TOO_LONG: RequestError =
    RequestError::TooLong(OversizedResponse::MoreThan(MESSAGE_BYTES_MAX as u64));

/// The position in a stream.
pub(super) struct StreamCursor {
    pub(super) last: Option<HeaderValue>,
    pub(super) retry: Duration,
}

impl Default for StreamCursor {
    fn default() -> StreamCursor {
        StreamCursor { last: None, retry: RETRY }
    }
}

/// How a stream ended.
pub(super) enum StreamEnd {
    /// The response has arrived.
    Answered,
    /// It is over, after so many events.
    Over { events: usize, why: Option<String> },
    /// An event is over the size limit, and would be again.
    TooLong(SseEventTooLong),
    /// It names an endpoint: this is a stream of HTTP+SSE.
    Older,
}

impl HttpTransport {
    /// Reads the stream of a request until the response has arrived.
    pub(super) async fn follow(&self, reply: ConfiguredResponse, id: u64) -> Result<(), RequestError> {
        let failed = |why: String| RequestError::Link(LinkError::Failed { why, sent: true });
        let (mut mark, mut reply, mut silent) = (StreamCursor::default(), reply, 0);
        loop {
            let (events, why) = match self.read(reply, events_of_messages(), &mut mark, Some(id)).await {
                StreamEnd::Answered => return Ok(()),
                StreamEnd::TooLong(_) => return Err(TOO_LONG),
                StreamEnd::Older => {
                    let why = "the server opened a stream of HTTP+SSE".to_owned();
                    return Err(RequestError::Link(LinkError::Unsuitable { status: 200, why }));
                }
                StreamEnd::Over { events, why } => (events, why),
            };
            let is_meant = why.is_none();
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            // Only the older era can repeat events.
            let resumable = mark.last.is_some() && self.dialect().is_none_or(ClientDialect::resumes_streams);
            silent = if events > 0 { 0 } else { silent + 1 };
            if !resumable || silent > RESUMED_MAX {
                return Err(failed(format!("the server ended its response before it was complete{why}")));
            }
            if is_meant {
                // The server wants to be polled instead of keeping a stream open; the client may be, too.
                self.inbound.stream_closed(id);
            }
            reply = self.resumed(&mark, &mut silent).await?;
        }
    }

    /// Resumes the stream. The server has the request already, so it may have acted on it, whatever happens here.
    async fn resumed(
        &self,
        mark: &StreamCursor,
        silent: &mut usize,
    ) -> Result<ConfiguredResponse, RequestError> {
        let failed = |why: String| RequestError::Link(LinkError::Failed { why, sent: true });
        loop {
            tokio::time::sleep(mark.retry.max(RETRY_MIN)).await;
            let mut headers = self.headers(None).into_owned();
            headers.extend(mark.last.clone().map(|last| (LAST_EVENT, last)));
            let why = match self.exchanges.make(Method::GET, None, &headers, bytes::Bytes::new()).await {
                Ok(reply) if reply.status == 200 && matches!(kind(&reply), ResponseFormat::Events) => {
                    return Ok(reply);
                }
                // A proxy whose server is not up yet.
                Ok(reply) if matches!(reply.status, 502..=504) => format!("status {}", reply.status),
                Ok(reply) => {
                    let status = reply.status;
                    return Err(failed(format!("the server broke off and does not go on (status {status})")));
                }
                Err(error) => if_temporary(error)?,
            };
            *silent += 1;
            if *silent > RESUMED_MAX {
                return Err(failed(format!("the server broke off and cannot be reached again: {why}")));
            }
        }
    }

    /// Hands the messages of a stream to the demultiplexer until the response to `about` has arrived, or the stream
    /// ends.
    pub(super) async fn read(
        &self,
        mut reply: ConfiguredResponse,
        mut reader: SseReader,
        mark: &mut StreamCursor,
        about: Option<u64>,
    ) -> StreamEnd {
        let (mut events, mut throttle) = (0, None);
        loop {
            loop {
                let event = match reader.event() {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => return StreamEnd::TooLong(error),
                };
                events += 1;
                // Only before the handshake: afterwards it is an unknown event.
                if about.is_some() && self.revision.get().is_none() && event.name.as_deref() == Some(ENDPOINT)
                {
                    return StreamEnd::Older;
                }
                if let Some(id) = event.id {
                    mark.last = HeaderValue::from_str(&id).ok().filter(|id| !id.is_empty());
                }
                if let Some(ms) = event.retry_ms {
                    mark.retry = Duration::from_millis(ms).min(RETRY_MAX);
                }
                let receipt = match event.data.is_empty() {
                    true => Receipt::Message,
                    false => self.inbound.receive(&event.data, about),
                };
                if about.is_some_and(|id| !self.inbound.awaits(id)) {
                    finish(reply);
                    return StreamEnd::Answered;
                }
                if receipt != Receipt::Message
                    && throttle.get_or_insert_with(ReadThrottle::new).charge(LINE_COST).await
                {
                    tracing::warn!(target: "upstream",
                        "server sends useless messages; reading is throttled");
                }
            }
            let piece = match reply.piece().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return StreamEnd::Over { events, why: None },
                Err(error) => return StreamEnd::Over { events, why: Some(error.why) },
            };
            reader.feed(&piece);
        }
    }
}

/// Returns why a stream cannot be resumed, where that may pass. Otherwise the error says that the server may have
/// acted: no login and no retry undoes that.
fn if_temporary(error: RequestError) -> Result<String, RequestError> {
    match error {
        RequestError::Link(LinkError::Failed { why, .. } | LinkError::NoCredentials(why)) => Ok(why),
        RequestError::Link(error) => {
            Err(RequestError::Link(LinkError::Failed { why: error.to_string(), sent: true }))
        }
        other => Err(other),
    }
}

pub(super) fn events_of_messages() -> SseReader {
    SseReader::new(MESSAGE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_let_in_again_learns_that_the_server_may_have_acted() {
        let why = || "why".to_owned();
        for error in [LinkError::Failed { why: why(), sent: false }, LinkError::NoCredentials(why())] {
            assert_eq!(if_temporary(RequestError::Link(error)).ok(), Some(why()));
        }
        for error in [
            LinkError::NeedsAuth(why()),
            LinkError::NeedsRegistration(why()),
            LinkError::Unsuitable { status: 403, why: why() },
        ] {
            let mapped = if_temporary(RequestError::Link(error.clone())).unwrap_err();
            let expected = LinkError::Failed { why: why(), sent: true };
            assert!(
                matches!(&mapped, RequestError::Link(mapped) if *mapped == expected),
                "{error:?} {mapped:?}"
            );
        }
    }
}
