//! The live stream of the page.
//!
//! It is not the stream of the API: that one tells each event by itself, as data. This one tells what the page shows,
//! ready to be shown, several times a second at most, so that five hundred calls a second are a few messages, and the
//! script has nothing to decide.

use super::rows::{Hour, Row};
use super::visit::Visit;
use crate::desk::Event;
use crate::{Clean, Listening};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long events are gathered before they are told. Faster than anybody reads.
const GATHER: Duration = Duration::from_millis(120);
/// How often the plots are told, and whether somebody is still signed in is looked up.
const EVERY: Duration = Duration::from_secs(5);
/// How many calls one message tells. The page shows no more.
const CALLS_MAX: usize = 200;

/// What a stream knows from one message to the next.
struct Live {
    visit: Visit,
    events: Listening,
    next_hour: Instant,
    begun: bool,
    closing: CancellationToken,
    _place: OwnedSemaphorePermit,
}

pub(crate) async fn stream(visit: Visit) -> Response {
    let Ok(place) = visit.pages().streams.clone().try_acquire_owned() else {
        return (StatusCode::TOO_MANY_REQUESTS, "Too many pages watch already; close some.\n")
            .into_response();
    };
    let closing = visit.pages().closing.clone();
    let events = visit.counter().listen();
    let live = Live { visit, events, closing, next_hour: Instant::now(), begun: false, _place: place };
    let messages = stream::unfold(live, |mut live| async move {
        let message = live.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(message.into()), live))
    });
    let kind = HeaderValue::from_static("text/event-stream");
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(messages)).into_response()
}

impl Live {
    /// Waits for something to tell; `None` ends the stream.
    async fn next(&mut self) -> Option<String> {
        if !self.begun {
            self.begun = true;
            let mut message = String::from("retry: 2000\n\n");
            self.tell_waiting(&mut message).await;
            return Some(message);
        }
        let mut message = String::new();
        let closing = self.closing.clone();
        let happened = tokio::select! {
            happened = timeout_at(self.next_hour, self.events.next()) => happened,
            () = closing.cancelled() => return None,
        };
        match happened {
            Ok(Some(event)) => {
                let until = Instant::now() + GATHER;
                self.gather(event, until, &mut message).await?;
            }
            Ok(None) => return None,
            Err(_) => {
                self.next_hour = Instant::now() + EVERY;
                if !self.visit.is_signed_in() {
                    return None;
                }
                let overview = self.visit.counter().ask(|desk| desk.overview()).await;
                match overview {
                    Ok(overview) => tell(&mut message, "hour", &Hour::of(&overview).told()),
                    // Something must be told, or nobody notices when the reader has gone.
                    Err(_) => message.push_str(": still here\n\n"),
                }
            }
        }
        Some(message)
    }

    /// Takes what happens for a moment, and tells it together. A call that began and ended is told once.
    async fn gather(&mut self, first: Clean<Event>, until: Instant, message: &mut String) -> Option<()> {
        let mut calls: BTreeMap<u64, Row> = BTreeMap::new();
        let mut missed = 0;
        let mut waiting = None;
        let mut scripts = false;
        let mut event = first;
        loop {
            match &*event {
                Event::CallOpened(line) | Event::CallClosed(line) => {
                    calls.insert(line.call, Row::of(line));
                    if calls.len() > CALLS_MAX {
                        calls.pop_first();
                        missed += 1;
                    }
                }
                Event::Approvals { waiting: now } => waiting = Some(*now),
                Event::Missed { count } => missed += count,
                Event::Script { .. } => scripts = true,
                Event::Server(_) => {}
            }
            match timeout_at(until, self.events.next()).await {
                Ok(Some(next)) => event = next,
                Ok(None) => return None,
                Err(_) => break,
            }
        }
        if !calls.is_empty() {
            tell(message, "calls", &calls.into_values().collect::<Vec<_>>());
        }
        if let Some(waiting) = waiting {
            tell(message, "waiting", &waiting);
        }
        if scripts {
            self.tell_waiting(message).await;
        }
        if missed > 0 {
            tell(message, "missed", &missed);
        }
        Some(())
    }

    async fn tell_waiting(&mut self, message: &mut String) {
        if let Ok(overview) = self.visit.counter().ask(|desk| desk.overview()).await {
            tell(message, "waiting", &overview.approvals_waiting);
            if let Some(scripts) = overview.scripts_waiting {
                tell(message, "scripts", &scripts);
            }
        }
    }
}

fn tell(message: &mut String, event: &str, data: &impl Serialize) {
    // JSON has no line ends of its own, so one line it is.
    if let Ok(data) = serde_json::to_string(data) {
        message.push_str(&format!("event: {event}\ndata: {data}\n\n"));
    }
}
