//! The stream that answers one request, and how it is taken up again where it broke.

use super::{Kind, Way, finish, kind};
use crate::connection::{LinkError, RequestError};
use crate::inbox::Receipt;
use crate::link::MESSAGE_BYTES_MAX;
use crate::patience::{A_LINE, Patience};
use portcullis_egress::header::{HeaderName, HeaderValue};
use portcullis_egress::own::{Method, Reply};
use portcullis_wire::Era;
use portcullis_wire::sse::{EventReader, EventTooLong};
use std::time::Duration;

pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How long to wait before a stream is taken up again, where the server does not say.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Nobody is asked more often than this, nor does a server that wants more time than that get it.
pub(super) const RETRY_MIN: Duration = Duration::from_millis(100);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(30);
/// The event that names the address for messages, the older way.
pub(super) const ENDPOINT: &str = "endpoint";
/// How often a stream is taken up again on which nothing comes.
const RESUMED_MAX: usize = 10;

/// The answer is longer than any message. Asked again it would be so again.
pub(super) const TOO_LONG: RequestError =
    RequestError::TooLong { bytes: MESSAGE_BYTES_MAX as u64, ended: false };

/// Where a stream stands.
pub(super) struct Mark {
    pub(super) last: Option<HeaderValue>,
    pub(super) retry: Duration,
}

impl Default for Mark {
    fn default() -> Mark {
        Mark { last: None, retry: RETRY }
    }
}

/// How a stream ended.
pub(super) enum Ended {
    /// What was waited for has come.
    Answered,
    /// It is over, after so many events.
    Over { events: usize, why: Option<String> },
    /// An event is longer than any message, and would not be shorter next time.
    TooLong(EventTooLong),
    /// It names the address for messages: this is the stream of the older way, whatever it was to answer.
    Older,
}

impl Way {
    /// Reads the stream that answers a request, until the answer is there.
    pub(super) async fn follow(&self, reply: Reply, id: u64) -> Result<(), RequestError> {
        let failed = |why: String| RequestError::Link(LinkError::Failed { why, sent: true });
        let (mut mark, mut reply, mut silent) = (Mark::default(), reply, 0);
        loop {
            let (events, why) = match self.read(reply, events_of_messages(), &mut mark, Some(id)).await {
                Ended::Answered => return Ok(()),
                Ended::TooLong(_) => return Err(TOO_LONG),
                Ended::Older => {
                    let why = "the server opened a stream of HTTP+SSE".to_owned();
                    return Err(RequestError::Link(LinkError::Unsuitable { status: 200, why }));
                }
                Ended::Over { events, why } => (events, why),
            };
            let is_meant = why.is_none();
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            // Only the older era remembers what it said.
            let resumable = mark.last.is_some() && self.era() != Some(Era::PerRequest);
            silent = if events > 0 { 0 } else { silent + 1 };
            if !resumable || silent > RESUMED_MAX {
                return Err(failed(format!("the server ended its answer before it was complete{why}")));
            }
            if is_meant {
                // The server would rather be asked again than keep a stream open; so may the client be.
                self.inbox.lets_go(id);
            }
            reply = self.resumed(&mark, &mut silent).await?;
        }
    }

    /// Opens the stream again where it broke off. The server has the request already, so whatever happens here, it may
    /// have acted on it.
    async fn resumed(&self, mark: &Mark, silent: &mut usize) -> Result<Reply, RequestError> {
        let failed = |why: String| RequestError::Link(LinkError::Failed { why, sent: true });
        loop {
            tokio::time::sleep(mark.retry.max(RETRY_MIN)).await;
            let mut headers = self.headers(None).into_owned();
            headers.extend(mark.last.clone().map(|last| (LAST_EVENT, last)));
            let why = match self.exchanges.make(Method::GET, None, &headers, bytes::Bytes::new()).await {
                Ok(reply) if reply.status == 200 && matches!(kind(&reply), Kind::Events) => return Ok(reply),
                // As one says in whose place the server is not there yet.
                Ok(reply) if matches!(reply.status, 502..=504) => format!("status {}", reply.status),
                Ok(reply) => {
                    let status = reply.status;
                    return Err(failed(format!("the server broke off and does not go on (status {status})")));
                }
                Err(error) => passes(error)?,
            };
            *silent += 1;
            if *silent > RESUMED_MAX {
                return Err(failed(format!("the server broke off and cannot be reached again: {why}")));
            }
        }
    }

    /// Hands what comes over a stream to the inbox: until the answer to `about` is there, or the stream ends.
    pub(super) async fn read(
        &self,
        mut reply: Reply,
        mut reader: EventReader,
        mark: &mut Mark,
        about: Option<u64>,
    ) -> Ended {
        let (mut events, mut patience) = (0, None);
        loop {
            loop {
                let event = match reader.event() {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => return Ended::TooLong(error),
                };
                events += 1;
                // Before anything is agreed: afterwards it is no more than an event of a name that nobody knows.
                if about.is_some() && self.revision.get().is_none() && event.name.as_deref() == Some(ENDPOINT)
                {
                    return Ended::Older;
                }
                if let Some(id) = event.id {
                    mark.last = HeaderValue::from_str(&id).ok().filter(|id| !id.is_empty());
                }
                if let Some(ms) = event.retry_ms {
                    mark.retry = Duration::from_millis(ms).min(RETRY_MAX);
                }
                let receipt = match event.data.is_empty() {
                    true => Receipt::Message,
                    false => self.inbox.receive(&event.data, about),
                };
                if about.is_some_and(|id| !self.inbox.awaits(id)) {
                    finish(reply);
                    return Ended::Answered;
                }
                if receipt != Receipt::Message
                    && patience.get_or_insert_with(Patience::new).spend(A_LINE).await
                {
                    tracing::warn!(target: "upstream",
                        "A server says much that nobody needs; it is listened to more slowly.");
                }
            }
            let piece = match reply.piece().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ended::Over { events, why: None },
                Err(error) => return Ended::Over { events, why: Some(error.why) },
            };
            reader.feed(&piece);
        }
    }
}

/// Returns why a stream cannot be opened again, where that may pass. Whoever is told otherwise learns that the server may have
/// acted: no login and no later attempt makes that undone.
fn passes(error: RequestError) -> Result<String, RequestError> {
    match error {
        RequestError::Link(LinkError::Failed { why, .. } | LinkError::NoCredentials(why)) => Ok(why),
        RequestError::Link(error) => {
            Err(RequestError::Link(LinkError::Failed { why: error.to_string(), sent: true }))
        }
        other => Err(other),
    }
}

/// Reads events that hold a message each.
pub(super) fn events_of_messages() -> EventReader {
    EventReader::new(MESSAGE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_let_in_again_learns_that_the_server_may_have_acted() {
        let why = || "why".to_owned();
        for error in [LinkError::Failed { why: why(), sent: false }, LinkError::NoCredentials(why())] {
            assert_eq!(passes(RequestError::Link(error)).ok(), Some(why()));
        }
        for error in [
            LinkError::NeedsAuth(why()),
            LinkError::NeedsRegistration(why()),
            LinkError::Unsuitable { status: 403, why: why() },
        ] {
            let told = passes(RequestError::Link(error.clone())).unwrap_err();
            let expected = LinkError::Failed { why: why(), sent: true };
            assert!(matches!(&told, RequestError::Link(told) if *told == expected), "{error:?} {told:?}");
        }
    }
}
