//! What a status other than success means.

use super::Way;
use crate::connection::{LinkError, RequestError};
use portcullis_core::json::printable;
use portcullis_egress::own::Reply;
use portcullis_wire::rpc;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;

/// How much of a refusal is read, and how much of it is told.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
const REFUSAL_CHARS_MAX: usize = 300;
/// How long a server may take over saying why.
const REFUSAL_WITHIN: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

impl Way {
    /// Reads a refusal. Many servers say in it that the session is over, each in its own way.
    pub(super) async fn refused(&self, mut reply: Reply, id: Option<u64>) -> RequestError {
        let status = reply.status;
        let body = tokio::time::timeout(REFUSAL_WITHIN, reply.read(REFUSAL_BYTES_MAX)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        // In the words of the protocol, whatever the status.
        let told =
            serde_json::from_slice::<Said<'_>>(&body).ok().map(|said| RequestError::refused(said.error));
        let has_session = self.session.get().is_some() || self.old.get().is_some();
        if has_session && is_lost(status, told.as_ref()) {
            return self.lose();
        }
        match told {
            Some(told) if id.is_some() && status >= 400 => told,
            _ => RequestError::Link(LinkError::Unsuitable { status, why: worded(status, &body) }),
        }
    }
}

/// Returns whether a refusal means that the server does not know the session. It should say 404; many say 400.
fn is_lost(status: u16, told: Option<&RequestError>) -> bool {
    match (status, told) {
        (404, Some(RequestError::Refused(error))) => error.code != i64::from(rpc::METHOD_NOT_FOUND),
        (404, _) => true,
        // Another fault of the request is told in the words of the protocol, and has nothing to do with sessions.
        (400, Some(RequestError::Refused(error))) => {
            let message = error.message.to_ascii_lowercase();
            message.contains("session") || message.contains("initializ")
        }
        (400, _) => true,
        _ => false,
    }
}

fn worded(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    let usual = portcullis_egress::reason(status);
    // Pages are for browsers.
    if text.is_empty() || text.starts_with('<') {
        return format!("the server answered {status}{usual}");
    }
    let text: String = printable(text).chars().take(REFUSAL_CHARS_MAX).collect();
    format!("the server answered {status}{usual}: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_session_is_told_from_a_bad_request() {
        let said = |error: &str| {
            let raw = RawValue::from_string(error.to_owned()).unwrap();
            Some(RequestError::refused(&raw))
        };
        for (status, told, expected) in [
            (404, None, true),
            (404, said(r#"{"code":-32001,"message":"Session not found"}"#), true),
            (404, said(r#"{"code":-32601,"message":"Method not found"}"#), false),
            (400, None, true),
            (400, said(r#"{"code":-32000,"message":"Bad Request: No valid session ID provided"}"#), true),
            (400, said(r#"{"code":-32000,"message":"Bad Request: Server not initialized"}"#), true),
            (400, said(r#"{"code":-32602,"message":"`level` is no level"}"#), false),
            (500, None, false),
            (429, None, false),
        ] {
            assert_eq!(is_lost(status, told.as_ref()), expected, "{status} {told:?}");
        }
    }
}
