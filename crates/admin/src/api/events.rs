//! `/api/v1/events`: what happens, as it happens.

use super::route::{self, Ask};
use crate::App;
use crate::api::refusal;
use crate::clean::{Clean, Listening};
use crate::desk::Event;
use crate::problem::{Code, Problem};
use crate::sign_in::SignIn;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

/// How many pages may watch at once.
const STREAMS_MAX: usize = 64;
/// How many events are sent together, where so many have happened.
const TOGETHER_MAX: usize = 200;
/// How often a stream without events says that it is there, and looks whether its session still is.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The streams that are open.
pub(super) struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Streams {
        Streams(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

struct Watching {
    listening: Listening,
    sign_in: Arc<SignIn>,
    headers: HeaderMap,
    closing: CancellationToken,
    look: Interval,
    _place: OwnedSemaphorePermit,
}

pub(super) fn stream(streams: &Streams, app: &App, ask: Ask) -> Response {
    let Ok(place) = streams.0.clone().try_acquire_owned() else {
        let problem = Problem::new(Code::TooMany, format!("{STREAMS_MAX} pages watch already"));
        return refusal(problem.hint("close some of them"));
    };
    let watching = Watching {
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
    // Proxies that buffer would hold everything back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl Watching {
    /// Returns what is to be sent next; `None` when the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        tokio::select! {
            () = self.closing.cancelled() => None,
            _ = self.look.tick() => {
                // Looking is no activity: a page that is left open must not keep its session.
                self.sign_in.still_knows(&self.headers).then(|| Bytes::from_static(b": here\n\n"))
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

fn written(event: &Clean<Event>) -> String {
    // JSON has no line ends, so one line of data is enough.
    let data = route::written(&**event).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", event.name())
}
