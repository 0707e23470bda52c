//! Server-sent events for the page.
//!
//! Unlike the event stream of the API, which sends each event as data, this one sends finished rows, coalesced to a few
//! messages per second: 500 calls per second stay a few messages, and the page script only inserts them.

use super::page_request::PageRequest;
use super::rows::{CallRow, HourStats};
use crate::{RedactedEventStream, RedactedValue};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use portcullis_ops::desk::AdminEvent;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long events are coalesced before they are sent. Faster than a person reads.
const GATHER: Duration = Duration::from_millis(120);
/// How often plots are sent and the session is checked again.
const EVERY: Duration = Duration::from_secs(5);
/// Calls in one message. The page shows no more.
const CALLS_MAX: usize = 200;

/// State of one stream.
struct PageLiveStream {
    visit: PageRequest,
    events: RedactedEventStream,
    next_hour: Instant,
    begun: bool,
    closing: CancellationToken,
    _place: OwnedSemaphorePermit,
}

pub(crate) async fn stream(visit: PageRequest) -> Response {
    let Ok(place) = visit.pages().streams.clone().try_acquire_owned() else {
        return (StatusCode::TOO_MANY_REQUESTS, "Too many open live pages. Close some and reload.\n")
            .into_response();
    };
    let closing = visit.pages().closing.clone();
    let events = visit.counter().listen();
    let live =
        PageLiveStream { visit, events, closing, next_hour: Instant::now(), begun: false, _place: place };
    let messages = stream::unfold(live, |mut live| async move {
        let message = live.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(message.into()), live))
    });
    let kind = HeaderValue::from_static("text/event-stream");
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(messages)).into_response()
}

impl PageLiveStream {
    /// Waits for the next message; `None` ends the stream.
    async fn next(&mut self) -> Option<String> {
        if !self.begun {
            self.begun = true;
            let mut message = String::from("retry: 2000\n\n");
            self.send_waiting(&mut message).await;
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
                    Ok(overview) => push_event(&mut message, "hour", &HourStats::of(&overview).to_json()),
                    // A comment keeps the stream alive: a closed connection is noticed only by writing to it.
                    Err(_) => message.push_str(": keep-alive\n\n"),
                }
            }
        }
        Some(message)
    }

    /// Coalesces events until `until`. A call that began and ended meanwhile is sent once.
    async fn gather(
        &mut self,
        first: RedactedValue<AdminEvent>,
        until: Instant,
        message: &mut String,
    ) -> Option<()> {
        let mut calls: BTreeMap<u64, CallRow> = BTreeMap::new();
        let mut missed = 0;
        let mut waiting = None;
        let mut scripts = false;
        let zone = self.visit.zone();
        let mut event = first;
        loop {
            match &*event {
                AdminEvent::CallOpened(line) | AdminEvent::CallClosed(line) => {
                    calls.insert(line.call, CallRow::of(line, &zone));
                    if calls.len() > CALLS_MAX {
                        calls.pop_first();
                        missed += 1;
                    }
                }
                AdminEvent::Approvals { waiting: now } => waiting = Some(*now),
                AdminEvent::Missed { count } => missed += count,
                AdminEvent::Script { .. } => scripts = true,
                AdminEvent::Server(_) => {}
            }
            match timeout_at(until, self.events.next()).await {
                Ok(Some(next)) => event = next,
                Ok(None) => return None,
                Err(_) => break,
            }
        }
        if !calls.is_empty() {
            push_event(message, "calls", &calls.into_values().collect::<Vec<_>>());
        }
        if let Some(waiting) = waiting {
            push_event(message, "waiting", &waiting);
        }
        if scripts {
            self.send_waiting(message).await;
        }
        if missed > 0 {
            push_event(message, "missed", &missed);
        }
        Some(())
    }

    async fn send_waiting(&mut self, message: &mut String) {
        if let Ok(overview) = self.visit.counter().ask(|desk| desk.overview()).await {
            push_event(message, "waiting", &overview.approvals_waiting);
            if let Some(scripts) = overview.scripts_waiting {
                push_event(message, "scripts", &scripts);
            }
        }
    }
}

fn push_event(message: &mut String, event: &str, data: &impl Serialize) {
    // Compact JSON has no line breaks, so one `data:` line is enough.
    if let Ok(data) = serde_json::to_string(data) {
        message.push_str(&format!("event: {event}\ndata: {data}\n\n"));
    }
}
