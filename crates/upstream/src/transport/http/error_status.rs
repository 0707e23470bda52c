//! HTTP error status: what it says of the request, and whether the session is lost.

use super::{HttpTransport, finish};
use crate::sanitize::{one_line, words};
use crate::transport::OutboundMessage;
use crate::transport::error::{LinkError, RequestError, in_protocol};
use bytes::Bytes;
use portcullis_core::ForeignError;
use portcullis_egress::configured_client::{ConfiguredResponse, Method};
use portcullis_egress::header::LOCATION;
use portcullis_wire::rpc;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How much of an error body is read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// The timeout of reading an error body, and of checking the session.
const REFUSAL_WITHIN: Duration = Duration::from_secs(5);
/// How long a confirmed session counts as known, so that a server with many errors is not asked each time.
const FOUND_FOR: Duration = Duration::from_secs(1);

/// An id that no request has: those are numbers.
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":"still-there","method":"ping"}"#;

#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

/// What an error says of the session.
#[derive(Debug, PartialEq, Eq)]
enum SessionState {
    Lost,
    /// It may be lost, or only this request is wrong.
    Doubtful,
    Known,
}

impl HttpTransport {
    /// Reads an error response. Many servers report a lost session in it, each differently.
    pub(super) async fn refused(
        &self,
        mut reply: ConfiguredResponse,
        message: Option<&OutboundMessage<'_>>,
    ) -> RequestError {
        let status = reply.status;
        let body = read(&mut reply).await;
        // A JSON-RPC error counts, whatever the status.
        let error = error(&body);
        let has_session = self.session.get().is_some() || self.legacy_endpoint.get().is_some();
        if has_session {
            match session(status, error.as_ref()) {
                SessionState::Known => {}
                SessionState::Doubtful if self.is_known(error.as_ref()).await => {}
                SessionState::Lost | SessionState::Doubtful => return self.lose(),
            }
        }
        // Some frameworks answer so for a server of HTTP+SSE only.
        let is_other_way = matches!(status, 404 | 405 | 501)
            && message.is_some_and(|message| message.method == Some("initialize"));
        match error {
            Some(error)
                if message.is_some_and(|message| message.id.is_some()) && status >= 400 && !is_other_way =>
            {
                RequestError::Refused(error)
            }
            _ => RequestError::Link(LinkError::Unsuitable { status, why: worded(&reply, &body) }),
        }
    }

    /// Checks whether the server still knows the session. Without a clear answer it does: then the caller gets the
    /// error.
    async fn is_known(&self, refused: Option<&ForeignError>) -> bool {
        // One at a time: a caller that comes meanwhile uses the same answer.
        let mut found = self.found.lock().await;
        if self.lost.load(Ordering::Relaxed) {
            return false;
        }
        if found.is_some_and(|found| found.elapsed() < FOUND_FOR) {
            return true;
        }
        let ping = OutboundMessage {
            bytes: Bytes::from_static(PING),
            id: None,
            method: Some("ping"),
            name: None,
            headers: &[],
        };
        let headers = self.headers(Some(&ping));
        let to = self.legacy_endpoint.get().map(String::as_str);
        let asking = async {
            let mut reply = self.exchanges.make(Method::POST, to, &headers, ping.bytes.clone()).await.ok()?;
            if !matches!(reply.status, 400 | 404) {
                finish(reply);
                return None;
            }
            Some(error(&read(&mut reply).await))
        };
        let answered = tokio::time::timeout(REFUSAL_WITHIN, asking).await;
        let is_known = match answered.ok().flatten() {
            None => true,
            // It knows the session well enough to reject the method.
            Some(Some(error)) => error.code == i64::from(rpc::METHOD_NOT_FOUND) && !is_same(refused, &error),
            Some(None) => false,
        };
        *found = is_known.then(Instant::now);
        is_known
    }
}

/// Reads an error body within the timeout.
pub(super) async fn read(reply: &mut ConfiguredResponse) -> Bytes {
    let body = tokio::time::timeout(REFUSAL_WITHIN, reply.read(REFUSAL_BYTES_MAX)).await;
    body.ok().and_then(Result::ok).unwrap_or_default()
}

fn error(body: &[u8]) -> Option<ForeignError> {
    serde_json::from_slice::<ErrorBody<'_>>(body).ok().and_then(|said| in_protocol(said.error))
}

/// Returns what an error says of the session. The specification wants 404 for an unknown one; many servers send 400
/// with any text, and some send 404 for a missing item.
fn session(status: u16, error: Option<&ForeignError>) -> SessionState {
    match (status, error) {
        (404, None) => SessionState::Lost,
        (404, Some(error)) if error.code != i64::from(rpc::METHOD_NOT_FOUND) && names_session(error) => {
            SessionState::Lost
        }
        (404 | 400, _) => SessionState::Doubtful,
        _ => SessionState::Known,
    }
}

/// Returns whether a server repeats its error, or again mentions sessions.
fn is_same(before: Option<&ForeignError>, now: &ForeignError) -> bool {
    names_session(now)
        || before.is_some_and(|before| (before.code, &before.message) == (now.code, &now.message))
}

fn names_session(error: &ForeignError) -> bool {
    error.message.to_ascii_lowercase().contains("session")
}

fn worded(reply: &ConfiguredResponse, body: &[u8]) -> String {
    let (status, usual) = (reply.status, portcullis_egress::reason(reply.status));
    let mut why = format!("the server answered {status}{usual}");
    if let Some(location) = reply.headers.get(LOCATION).filter(|_| (300..400).contains(&status)) {
        let location = String::from_utf8_lossy(location.as_bytes());
        why.push_str(&format!(", which leads to `{}`", one_line(&location)));
    }
    if let Some(said) = readable(body) {
        why.push_str(&format!(": {said}"));
    }
    why
}

/// Returns the readable text of an error body.
pub(super) fn readable(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    // HTML pages are for browsers.
    (!text.is_empty() && !text.starts_with('<')).then(|| words(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i64, message: &str) -> Option<ForeignError> {
        Some(ForeignError { code, message: message.to_owned(), data: None })
    }

    #[test]
    fn a_lost_session_is_told_from_a_bad_request() {
        use SessionState::{Doubtful, Known, Lost};
        for (status, error, expected) in [
            (404, None, Lost),
            (404, said(-32001, "Session not found"), Lost),
            (404, said(-32601, "Method not found"), Doubtful),
            (404, said(-32601, "unknown session"), Doubtful),
            (404, said(-32002, "Resource not found"), Doubtful),
            (400, None, Doubtful),
            (400, said(-32000, "Bad Request: No valid session ID provided"), Doubtful),
            (400, said(-32602, "`level` is no level"), Doubtful),
            (500, None, Known),
            (429, None, Known),
        ] {
            assert_eq!(session(status, error.as_ref()), expected, "{status} {error:?}");
        }
    }

    #[test]
    fn a_server_that_does_not_know_the_question_knows_the_session() {
        for (before, now, expected) in [
            (said(-32601, "unknown session"), said(-32601, "unknown session"), true),
            (None, said(-32601, "no such session"), true),
            (said(-32602, "bad"), said(-32601, "Method not found"), false),
            (None, said(-32601, "Method not found"), false),
        ] {
            assert_eq!(is_same(before.as_ref(), &now.unwrap()), expected, "{before:?}");
        }
    }
}
