//! HTTP+SSE of 2024-11-05: a stream is opened first, names the endpoint for messages, and carries every response.

use super::response_stream::{ENDPOINT, StreamCursor, StreamEnd, events_of_messages};
use super::{ACK_BYTES_MAX, HttpTransport, ResponseFormat, kind};
use crate::transport::OutboundMessage;
use crate::transport::{LinkError, RequestError};
use portcullis_core::json::printable;
use portcullis_egress::configured_client::{ConfiguredResponse, Method};
use portcullis_wire::sse::SseReader;
use std::sync::Arc;
use std::time::Duration;

/// The timeout for the `endpoint` event.
const ENDPOINT_WITHIN: Duration = Duration::from_secs(10);

impl HttpTransport {
    /// Opens the stream, and sends the first message to the endpoint that it names.
    pub(super) async fn begin_legacy(
        self: &Arc<Self>,
        message: &OutboundMessage<'_>,
    ) -> Result<(), RequestError> {
        let late = || other(&format!("the server named no address within {} s", ENDPOINT_WITHIN.as_secs()));
        let opening = tokio::time::timeout(ENDPOINT_WITHIN, self.open_old()).await;
        let (reply, reader, endpoint) = opening.unwrap_or_else(|_| Err(late()))?;
        let endpoint = self.legacy_endpoint.get_or_init(|| endpoint);
        let transport = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = transport.read_legacy(reply, reader) => {}
                () = transport.end.cancelled() => {}
            }
            // Without the stream no response can arrive.
            transport.inbound.close();
        });
        self.post_legacy(endpoint, message).await
    }

    async fn open_old(&self) -> Result<(ConfiguredResponse, SseReader, String), RequestError> {
        let headers = self.headers(None);
        let mut reply = self.exchanges.make(Method::GET, None, &headers, bytes::Bytes::new()).await?;
        if reply.status != 200 {
            return Err(self.refused(reply, None).await);
        }
        if let ResponseFormat::Json | ResponseFormat::Other(_) = kind(&reply) {
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
                    failed(format!("the server's endpoint URL has another origin: `{}`", printable(&said)))
                })?;
                return Ok((reply, reader, endpoint));
            }
        }
        Err(other("the stream ended before it named an address"))
    }

    /// Hands every message to the demultiplexer.
    async fn read_legacy(&self, reply: ConfiguredResponse, reader: SseReader) {
        if let StreamEnd::TooLong(why) = self.read(reply, reader, &mut StreamCursor::default(), None).await {
            tracing::warn!(target: "upstream", %why, "event stream broke off");
        }
    }

    /// Sends a message. Its response comes over the stream.
    pub(super) async fn post_legacy(
        &self,
        endpoint: &str,
        message: &OutboundMessage<'_>,
    ) -> Result<(), RequestError> {
        let headers = self.headers(Some(message));
        let mut reply =
            self.exchanges.make(Method::POST, Some(endpoint), &headers, message.bytes.clone()).await?;
        if reply.status >= 300 {
            return Err(self.refused(reply, Some(message)).await);
        }
        let _ = reply.read(ACK_BYTES_MAX).await;
        Ok(())
    }
}

/// The server answers, but not in this way: it may have been replaced.
fn other(why: &str) -> RequestError {
    RequestError::Link(LinkError::Unsuitable { status: 200, why: why.to_owned() })
}

fn failed(why: String) -> RequestError {
    RequestError::Link(LinkError::Failed { why, sent: false })
}
