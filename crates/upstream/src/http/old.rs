//! HTTP+SSE, as of 2024-11-05: a stream is opened first, names the address for messages, and carries every answer.

use super::stream::{ENDPOINT, Ended, Mark, events_of_messages};
use super::{Kind, TAKEN_BYTES_MAX, Way, kind};
use crate::connection::{LinkError, RequestError};
use crate::link::Outgoing;
use portcullis_core::json::printable;
use portcullis_egress::own::{Method, Reply};
use portcullis_wire::sse::EventReader;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to name the address.
const ENDPOINT_WITHIN: Duration = Duration::from_secs(10);

impl Way {
    /// Opens the stream, and sends the first message where it says.
    pub(super) async fn begin_old(self: &Arc<Self>, message: &Outgoing<'_>) -> Result<(), RequestError> {
        let late = || other(&format!("the server named no address within {} s", ENDPOINT_WITHIN.as_secs()));
        let opening = tokio::time::timeout(ENDPOINT_WITHIN, self.open_old()).await;
        let (reply, reader, endpoint) = opening.unwrap_or_else(|_| Err(late()))?;
        let endpoint = self.old.get_or_init(|| endpoint);
        let way = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = way.hear_old(reply, reader) => {}
                () = way.end.cancelled() => {}
            }
            // Without the stream no answer can come.
            way.inbox.close();
        });
        self.post_old(endpoint, message).await
    }

    async fn open_old(&self) -> Result<(Reply, EventReader, String), RequestError> {
        let headers = self.headers(None);
        let mut reply = self.exchanges.make(Method::GET, None, &headers, bytes::Bytes::new()).await?;
        if reply.status != 200 {
            return Err(self.refused(reply, None).await);
        }
        if let Kind::Json | Kind::Other(_) = kind(&reply) {
            return Err(other("the server opened no stream of events"));
        }
        let mut reader = events_of_messages();
        while let Some(piece) = reply.piece().await.map_err(super::exchange::failed)? {
            reader.feed(&piece);
            while let Some(event) = reader.event().map_err(|error| failed(error.to_string()))? {
                if event.name.as_deref() != Some(ENDPOINT) {
                    continue;
                }
                let said = String::from_utf8_lossy(&event.data).trim().to_owned();
                let endpoint = self.exchanges.joined(&said).ok_or_else(|| {
                    failed(format!("the server names an address at another place: `{}`", printable(&said)))
                })?;
                return Ok((reply, reader, endpoint));
            }
        }
        Err(other("the stream ended before it named an address"))
    }

    /// Hands everything that comes to the inbox.
    async fn hear_old(&self, reply: Reply, reader: EventReader) {
        if let Ended::TooLong(why) = self.read(reply, reader, &mut Mark::default(), None).await {
            tracing::warn!(target: "upstream", %why, "The stream of a server cannot be read on.");
        }
    }

    /// Sends a message. Its answer comes over the stream.
    pub(super) async fn post_old(&self, endpoint: &str, message: &Outgoing<'_>) -> Result<(), RequestError> {
        let headers = self.headers(Some(message));
        let mut reply =
            self.exchanges.make(Method::POST, Some(endpoint), &headers, message.bytes.clone()).await?;
        if reply.status >= 300 {
            return Err(self.refused(reply, Some(message)).await);
        }
        let _ = reply.read(TAKEN_BYTES_MAX).await;
        Ok(())
    }
}

/// It answers, and not in this way: it may be another server by now.
fn other(why: &str) -> RequestError {
    RequestError::Link(LinkError::Unsuitable { status: 200, why: why.to_owned() })
}

fn failed(why: String) -> RequestError {
    RequestError::Link(LinkError::Failed { why, sent: false })
}
