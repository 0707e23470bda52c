//! Why a request to an upstream server has no result: transport faults and protocol errors, in one type.

use super::MESSAGE_BYTES_MAX;
use crate::sanitize::words;
use portcullis_core::hidden_chars::escape_hidden;
use portcullis_core::{ErrorKind, ForeignError, ToolError};
use portcullis_wire::rpc;
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;

/// What a client has to know before it retries.
const NOT_KNOWN: &str = "the call may or may not have run";

/// The size of a response that is over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OversizedResponse {
    Bytes(u64),
    /// Its end was not read.
    MoreThan(u64),
}

impl fmt::Display for OversizedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OversizedResponse::Bytes(bytes) => write!(f, "{bytes}"),
            OversizedResponse::MoreThan(bytes) => write!(f, "more than {bytes}"),
        }
    }
}

/// Why a request has no result. Its text is one line, whatever the server sent.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the server answered with error {}: {}", .0.code, escape_hidden(&.0.message))]
    Refused(ForeignError),
    #[error("the server did not respond within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the connection to the server ended")]
    Closed,
    #[error("the response has {0} bytes, the limit is {MESSAGE_BYTES_MAX}")]
    TooLong(OversizedResponse),
    /// The transport failed, for a reason that a person can act on.
    #[error("{}", escape_hidden(&.0.to_string()))]
    Link(LinkError),
}

/// A fault of the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkError {
    /// The server wants credentials.
    NeedsAuth(String),
    NeedsRegistration(String),
    /// There are no credentials for the moment. Nothing was sent, and the connection is fine.
    NoCredentials(String),
    /// The server no longer knows the session.
    SessionLost,
    /// An HTTP response that is not MCP.
    Unsuitable {
        status: u16,
        why: String,
    },
    /// Any other fault. `sent` says whether the server may have acted on the message.
    Failed {
        why: String,
        sent: bool,
    },
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkError::NeedsAuth(why) | LinkError::NeedsRegistration(why) | LinkError::NoCredentials(why) => {
                f.write_str(why)
            }
            LinkError::SessionLost => f.write_str("the server does not know the session any more"),
            LinkError::Unsuitable { why, .. } | LinkError::Failed { why, .. } => f.write_str(why),
        }
    }
}

/// Parses a JSON-RPC error; `None` if it is something else.
pub(crate) fn in_protocol(error: &RawValue) -> Option<ForeignError> {
    rpc::parse_foreign_error(error).map(|said| ForeignError { message: words(&said.message), ..said })
}

impl RequestError {
    /// Reads an error response. What is no JSON-RPC error is quoted.
    pub(crate) fn refused(error: &RawValue) -> RequestError {
        RequestError::Refused(in_protocol(error).unwrap_or_else(|| {
            let said = serde_json::from_str::<Value>(error.get()).unwrap_or_default();
            let message = match (&said, &said["message"]) {
                (Value::String(message), _) | (_, Value::String(message)) => message.clone(),
                (Value::Null, _) => String::new(),
                (other, _) => other.to_string(),
            };
            let message = if message.is_empty() { "an error without a reason".to_owned() } else { message };
            ForeignError { code: i64::from(rpc::INTERNAL_ERROR), message: words(&message), data: None }
        }))
    }

    /// Returns the error for the client that called the server `name`.
    pub(crate) fn into_tool_error(self, name: &str) -> ToolError {
        match self {
            RequestError::Refused(error) => ToolError::foreign(name, error),
            RequestError::Timeout(after) => ToolError::timeout(after)
                .hint(format!(
                    "`mcp.{name}.timeout_ms` says how long a call may take without a sign of progress"
                ))
                .hint(NOT_KNOWN),
            RequestError::Closed => {
                ToolError::unavailable(format!("server `{name}` ended while the call was under way"))
                    .hint(format!("it is started again; {NOT_KNOWN}"))
            }
            error @ RequestError::TooLong(_) => {
                ToolError::new(ErrorKind::TooLarge, format!("server `{name}`: {error}"))
                    .hint("ask for less at a time; the call may have been carried out")
            }
            RequestError::Link(error) => {
                let tool_error = ToolError::new(ErrorKind::Unavailable, format!("server `{name}`: {error}"));
                match &error {
                    // An expired login brings its own hint.
                    LinkError::NeedsAuth(why) if why.contains("`portcullis mcp auth") => tool_error,
                    LinkError::NeedsAuth(_) => tool_error.hint(format!("run `portcullis mcp auth {name}`")),
                    LinkError::NeedsRegistration(_) => {
                        tool_error.hint(format!("set `mcp.{name}.oauth.client_id` in the configuration"))
                    }
                    LinkError::SessionLost => tool_error.hint("try again: a new session is opened"),
                    LinkError::Unsuitable { status: 429 | 503, .. } => tool_error.hint("try again later"),
                    // A refusal, which comes before the server acts.
                    LinkError::Unsuitable { status: 400..=499, .. } => {
                        tool_error.hint("see `portcullis mcp status`")
                    }
                    LinkError::Unsuitable { .. } => {
                        tool_error.hint("see `portcullis mcp status`").hint(NOT_KNOWN)
                    }
                    LinkError::Failed { sent: true, .. } => tool_error.hint(NOT_KNOWN),
                    LinkError::Failed { sent: false, .. } | LinkError::NoCredentials(_) => {
                        tool_error.hint("try again later")
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_said_is_told_whatever_its_form() {
        for (error, expected) in [
            (r#"{"code":-32000,"message":"no"}"#, "error -32000: no"),
            (r#""invalid_session""#, "error -32603: invalid_session"),
            (r#"{"message":"boom"}"#, "error -32603: boom"),
            (r#"{"code":"E1","reason":"boom"}"#, r#"error -32603: {"code":"E1","reason":"boom"}"#),
            ("null", "error -32603: an error without a reason"),
            (r#""""#, "error -32603: an error without a reason"),
        ] {
            let raw = RawValue::from_string(error.to_owned()).unwrap();
            let text = RequestError::refused(&raw).to_string();
            assert_eq!(text, format!("the server answered with {expected}"), "{error}");
        }
    }

    #[test]
    fn whoever_calls_again_knows_whether_it_may_have_been_carried_out() {
        let why = || "why".to_owned();
        let unsuitable = |status| RequestError::Link(LinkError::Unsuitable { status, why: why() });
        for (error, words, is_in_doubt) in [
            (RequestError::Timeout(Duration::from_secs(1)), "`mcp.shop.timeout_ms`", true),
            (RequestError::Closed, "it is started again", true),
            (unsuitable(200), "`portcullis mcp status`", true),
            (unsuitable(302), "`portcullis mcp status`", true),
            (unsuitable(500), "`portcullis mcp status`", true),
            (unsuitable(502), "`portcullis mcp status`", true),
            (unsuitable(504), "`portcullis mcp status`", true),
            (unsuitable(503), "try again later", false),
            (unsuitable(429), "try again later", false),
            (unsuitable(403), "`portcullis mcp status`", false),
            (RequestError::Link(LinkError::Failed { why: why(), sent: true }), "", true),
            (RequestError::Link(LinkError::Failed { why: why(), sent: false }), "try again later", false),
        ] {
            let of = error.to_string();
            let hints = error.into_tool_error("shop").hints.join("; ");
            assert_eq!(
                (hints.contains(words), hints.contains(NOT_KNOWN)),
                (true, is_in_doubt),
                "{of}: {hints}"
            );
        }
    }

    #[test]
    fn whoever_called_gets_the_words_as_they_were_and_how_it_stands_is_one_line() {
        let said = format!("[\n\t{{ می\u{200c}خواهم }}\n]{}", " more".repeat(100));
        let raw = json!({ "code": -32000, "message": format!("{said}\u{202e}\u{1b}") });
        let error = RequestError::refused(&RawValue::from_string(raw.to_string()).unwrap());
        let line = said.replace('\n', "\\u{a}").replace('\t', "\\u{9}");
        assert_eq!(error.to_string(), format!("the server answered with error -32000: {line}"));
        let tool_error = error.into_tool_error("shop");
        assert_eq!(tool_error.foreign.unwrap().message, said);
        let link = LinkError::Unsuitable { status: 500, why: "a\nb".to_owned() };
        assert_eq!(RequestError::Link(link.clone()).to_string(), "a\\u{a}b");
        assert_eq!(RequestError::Link(link).into_tool_error("shop").message, "server `shop`: a\nb");
    }
}
