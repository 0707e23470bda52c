//! What a status other than success means.

use super::{Way, finish};
use crate::clean::{one_line, words};
use crate::connection::{LinkError, RequestError, in_protocol};
use crate::link::Outgoing;
use bytes::Bytes;
use portcullis_core::ForeignError;
use portcullis_egress::header::LOCATION;
use portcullis_egress::own::{Method, Reply};
use portcullis_wire::rpc;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// How long a server may take over saying why, or whether it still knows the session.
const REFUSAL_WITHIN: Duration = Duration::from_secs(5);
/// How long a session counts as known after the server said so. One that refuses much is not asked each time.
const FOUND_FOR: Duration = Duration::from_secs(1);

/// A name that no request has: those are numbers.
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":"still-there","method":"ping"}"#;

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

/// What a refusal says of the session.
#[derive(Debug, PartialEq, Eq)]
enum Session {
    Lost,
    /// It may be over, or this one request may be wrong.
    Doubtful,
    Known,
}

impl Way {
    /// Reads a refusal. Many servers say in it that the session is over, each in its own way.
    pub(super) async fn refused(&self, mut reply: Reply, message: Option<&Outgoing<'_>>) -> RequestError {
        let status = reply.status;
        let body = read(&mut reply).await;
        // In the words of the protocol, whatever the status.
        let error = error(&body);
        let has_session = self.session.get().is_some() || self.old.get().is_some();
        if has_session {
            match session(status, error.as_ref()) {
                Session::Known => {}
                Session::Doubtful if self.is_known(error.as_ref()).await => {}
                Session::Lost | Session::Doubtful => return self.lose(),
            }
        }
        // A server of the older way only, as some frameworks have it answer.
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

    /// Finds out whether the server still knows the session that it may have refused. Where it does not say, it does: then
    /// whoever asked hears what it answered.
    async fn is_known(&self, refused: Option<&ForeignError>) -> bool {
        // One after the other: whoever comes while it is found out needs not ask again.
        let mut found = self.found.lock().await;
        if self.lost.load(Ordering::Relaxed) {
            return false;
        }
        if found.is_some_and(|found| found.elapsed() < FOUND_FOR) {
            return true;
        }
        let ping = Outgoing {
            bytes: Bytes::from_static(PING),
            id: None,
            method: Some("ping"),
            name: None,
            headers: &[],
        };
        let headers = self.headers(Some(&ping));
        let to = self.old.get().map(String::as_str);
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
            // It knows the session well enough to say that it does not know the question.
            Some(Some(error)) => error.code == i64::from(rpc::METHOD_NOT_FOUND) && !is_same(refused, &error),
            Some(None) => false,
        };
        *found = is_known.then(Instant::now);
        is_known
    }
}

/// Reads why a server refuses, as far as it says so in time.
pub(super) async fn read(reply: &mut Reply) -> Bytes {
    let body = tokio::time::timeout(REFUSAL_WITHIN, reply.read(REFUSAL_BYTES_MAX)).await;
    body.ok().and_then(Result::ok).unwrap_or_default()
}

fn error(body: &[u8]) -> Option<ForeignError> {
    serde_json::from_slice::<Said<'_>>(body).ok().and_then(|said| in_protocol(said.error))
}

/// Returns what a refusal says of the session. A server that does not know it should say 404; many say 400, in whatever
/// words, and some say 404 of what only one request named.
fn session(status: u16, error: Option<&ForeignError>) -> Session {
    match (status, error) {
        (404, None) => Session::Lost,
        (404, Some(error)) if error.code != i64::from(rpc::METHOD_NOT_FOUND) && names_session(error) => {
            Session::Lost
        }
        (404 | 400, _) => Session::Doubtful,
        _ => Session::Known,
    }
}

/// Returns whether a server said the same again, or again something of sessions.
fn is_same(before: Option<&ForeignError>, now: &ForeignError) -> bool {
    names_session(now)
        || before.is_some_and(|before| (before.code, &before.message) == (now.code, &now.message))
}

fn names_session(error: &ForeignError) -> bool {
    error.message.to_ascii_lowercase().contains("session")
}

fn worded(reply: &Reply, body: &[u8]) -> String {
    let (status, usual) = (reply.status, portcullis_egress::reason(reply.status));
    let mut why = format!("the server answered {status}{usual}");
    if let Some(location) = reply.headers.get(LOCATION).filter(|_| (300..400).contains(&status)) {
        let location = String::from_utf8_lossy(location.as_bytes());
        why.push_str(&format!(", which leads to `{}`", one_line(&location)));
    }
    if let Some(said) = told(body) {
        why.push_str(&format!(": {said}"));
    }
    why
}

/// Returns what a person can read of a refusal.
pub(super) fn told(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    // Pages are for browsers.
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
        use Session::{Doubtful, Known, Lost};
        for (status, told, expected) in [
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
            assert_eq!(session(status, told.as_ref()), expected, "{status} {told:?}");
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
