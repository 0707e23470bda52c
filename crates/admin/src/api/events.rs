//! `/api/v1/events`: server-sent events.

use super::route::{self, ApiRequest};
use crate::AdminApp;
use crate::api::refusal;
use crate::redacted_desk::{RedactedEventStream, RedactedValue};
use crate::sign_in::SignIn;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use portcullis_ops::desk::AdminEvent;
use portcullis_ops::{Problem, ProblemCode};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

/// Concurrent streams.
const STREAMS_MAX: usize = 64;
/// Events coalesced into one chunk.
const TOGETHER_MAX: usize = 200;
/// Keep-alive interval of an idle stream; the session is checked again at the same time.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Limits open streams.
pub(super) struct StreamSlots(Arc<Semaphore>);

impl Default for StreamSlots {
    fn default() -> StreamSlots {
        StreamSlots(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

struct ApiEventStream {
    listening: RedactedEventStream,
    sign_in: Arc<SignIn>,
    headers: HeaderMap,
    closing: CancellationToken,
    look: Interval,
    _place: OwnedSemaphorePermit,
}

pub(super) fn stream(streams: &StreamSlots, app: &AdminApp, ask: ApiRequest) -> Response {
    let Ok(place) = streams.0.clone().try_acquire_owned() else {
        let problem =
            Problem::new(ProblemCode::TooMany, format!("too many event streams: the limit is {STREAMS_MAX}"));
        return refusal(problem.hint("close some and retry"));
    };
    let watching = ApiEventStream {
        listening: app.counter.listen(),
        sign_in: app.sign_in.clone(),
        headers: ask.headers,
        closing: app.closing.clone(),
        look: tokio::time::interval(LOOK_EVERY),
        _place: place,
    };
    let chunks = futures::stream::unfold(watching, |mut watching| async move {
        let chunk = watching.next().await?;
        Some((Ok::<Bytes, Infallible>(chunk), watching))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Keeps proxies from buffering the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl ApiEventStream {
    /// Returns the next chunk; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        tokio::select! {
            () = self.closing.cancelled() => None,
            _ = self.look.tick() => {
                // Checked without extending: a page left open must not keep its session alive.
                self.sign_in.is_session_valid(&self.headers).then(|| Bytes::from_static(b": here\n\n"))
            }
            event = self.listening.next() => {
                let mut text = written(&event?);
                for _ in 1..TOGETHER_MAX {
                    let Some(event) = self.listening.ready() else { break };
                    text.push_str(&written(&event));
                }
                Some(text.into())
            }
        }
    }
}

fn written(event: &RedactedValue<AdminEvent>) -> String {
    // Compact JSON has no line breaks, so one `data:` line is enough.
    let data = route::to_visible_json(&**event).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", event.name())
}
