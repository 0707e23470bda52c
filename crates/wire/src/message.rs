//! JSON-RPC envelopes: requests, notifications, responses, batches. `params`, `result` and `error` stay raw.

use crate::rpc::RpcError;
use portcullis_core::json::printable;
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Bound on a request id. Real ids are numbers or UUIDs; longer ones would only fill logs and tables.
pub const ID_BYTES_MAX: usize = 256;
/// Bound on a method name.
pub const METHOD_BYTES_MAX: usize = 128;
/// Bound on the messages of one batch.
pub const BATCH_MAX: usize = 64;

/// The id of a request: an integer or a string, echoed unchanged.
///
/// Cheap to clone, because every call stores its id in several places.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    Number(u64),
    /// An integer outside `u64`, as its digits, so that it is echoed exactly.
    Digits(Arc<str>),
    Text(Arc<str>),
}

impl RequestId {
    /// Reads an id from its JSON text.
    pub fn parse(raw: &str) -> Option<RequestId> {
        if raw.len() > ID_BYTES_MAX {
            return None;
        }
        if raw.starts_with('"') {
            return serde_json::from_str::<String>(raw).ok().map(|text| RequestId::Text(text.into()));
        }
        let digits = raw.strip_prefix('-').unwrap_or(raw);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(raw.parse().map_or_else(|_| RequestId::Digits(raw.into()), RequestId::Number))
    }

    /// Writes the id as JSON.
    pub fn write(&self, into: &mut Vec<u8>) {
        match self {
            // Writing into memory cannot fail.
            RequestId::Number(number) => drop(serde_json::to_writer(into, number)),
            RequestId::Digits(digits) => into.extend_from_slice(digits.as_bytes()),
            RequestId::Text(text) => drop(serde_json::to_writer(into, &**text)),
        }
    }

    /// Returns the id as a JSON value.
    pub fn to_value(&self) -> serde_json::Value {
        match self {
            RequestId::Number(number) => (*number).into(),
            RequestId::Digits(digits) => serde_json::from_str(digits).unwrap_or_default(),
            RequestId::Text(text) => (&**text).into(),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Number(number) => number.fmt(f),
            RequestId::Digits(digits) => f.write_str(digits),
            RequestId::Text(text) => f.write_str(&printable(text)),
        }
    }
}

#[derive(Debug, Clone)]
pub struct RpcRequest<'a> {
    pub id: RequestId,
    pub method: Cow<'a, str>,
    pub params: Option<&'a RawValue>,
}

#[derive(Debug, Clone)]
pub struct RpcNotification<'a> {
    pub method: Cow<'a, str>,
    pub params: Option<&'a RawValue>,
}

/// A response to a request that the hub sent.
#[derive(Debug, Clone)]
pub struct RpcResponse<'a> {
    pub id: RequestId,
    /// The result, or the error object.
    pub outcome: Result<&'a RawValue, &'a RawValue>,
}

#[derive(Debug, Clone)]
pub enum Message<'a> {
    Request(RpcRequest<'a>),
    Notification(RpcNotification<'a>),
    Response(RpcResponse<'a>),
}

/// A message that could not be parsed, with its request id if one was found.
#[derive(Debug, Clone)]
pub struct MalformedMessage {
    pub id: Option<RequestId>,
    pub error: RpcError,
}

/// The content of one frame.
#[derive(Debug)]
pub enum IncomingFrame<'a> {
    One(Message<'a>),
    Batch(RpcBatch<'a>),
}

/// A JSON-RPC batch. Only some revisions allow it; the transport decides.
#[derive(Debug)]
pub struct RpcBatch<'a>(pub Vec<Result<Message<'a>, MalformedMessage>>);

#[derive(serde::Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Distinguishes `null` from an absent key.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses one frame.
pub fn parse(bytes: &[u8]) -> Result<IncomingFrame<'_>, MalformedMessage> {
    let text = std::str::from_utf8(bytes).map_err(|_| refuse(RpcError::parse("not UTF-8")))?;
    let first = text.trim_start_matches([' ', '\t', '\r', '\n']).bytes().next();
    match first {
        Some(b'{') => parse_one(text).map(IncomingFrame::One),
        Some(b'[') => parse_batch(text).map(IncomingFrame::Batch),
        _ => Err(not_an_object(text)),
    }
}

fn parse_batch(text: &str) -> Result<RpcBatch<'_>, MalformedMessage> {
    let items: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|e| refuse(RpcError::parse(&e.to_string())))?;
    if items.is_empty() {
        return Err(refuse(RpcError::invalid_request("an empty batch")));
    }
    if items.len() > BATCH_MAX {
        portcullis_core::Limit::BatchMessages.hit();
        let count = items.len();
        let reason = format!("{count} messages in one batch, at most {BATCH_MAX} are allowed");
        return Err(refuse(RpcError::invalid_request(&reason)));
    }
    Ok(RpcBatch(items.into_iter().map(|item| parse_one(item.get())).collect()))
}

fn parse_one(text: &str) -> Result<Message<'_>, MalformedMessage> {
    // `serde` would also read an array, by position; a JSON-RPC message is an object.
    if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        return Err(not_an_object(text));
    }
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(error) => return Err(unreadable(text, &error)),
    };
    let id = envelope.id.map(|raw| RequestId::parse(raw.get()));
    let refuse = |reason: &str| {
        Err(MalformedMessage { id: id.clone().flatten(), error: RpcError::invalid_request(reason) })
    };
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return refuse("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = envelope.method else {
        // Some libraries send both members, with `null` for the unused one.
        let (result, error) = match (envelope.result, envelope.error) {
            (Some(result), Some(error)) if error.get() == "null" => (Some(result), None),
            (Some(result), Some(error)) if result.get() == "null" => (None, Some(error)),
            other => other,
        };
        return match (id.clone(), result, error) {
            (Some(Some(id)), Some(result), None) => {
                Ok(Message::Response(RpcResponse { id, outcome: Ok(result) }))
            }
            (Some(Some(id)), None, Some(error)) => {
                Ok(Message::Response(RpcResponse { id, outcome: Err(error) }))
            }
            _ => refuse("neither a request (`method`) nor a response (`id` with `result` or `error`)"),
        };
    };
    let Ok(method) = serde_json::from_str::<BorrowedText<'_>>(method.get()) else {
        return refuse("`method` must be a string");
    };
    let method = method.0;
    if method.is_empty() || method.len() > METHOD_BYTES_MAX {
        return refuse(&format!("`method` must have 1 to {METHOD_BYTES_MAX} bytes"));
    }
    if let Some(params) = envelope.params
        && !params.get().starts_with('{')
    {
        // JSON-RPC allows a list, but no method of MCP takes one; anything else is no request at all.
        return match id.clone().flatten() {
            Some(id) if params.get().starts_with('[') => {
                let reason = "`params` must be an object, with each parameter by its name";
                Err(MalformedMessage { id: Some(id), error: RpcError::invalid_params(reason) })
            }
            _ => refuse("`params` must be an object"),
        };
    }
    match id {
        None => Ok(Message::Notification(RpcNotification { method, params: envelope.params })),
        Some(Some(id)) => Ok(Message::Request(RpcRequest { id, method, params: envelope.params })),
        Some(None) => {
            refuse(&format!("`id` must be a whole number or a string of at most {ID_BYTES_MAX} bytes"))
        }
    }
}

/// A string that borrows when it holds no escapes.
#[derive(serde::Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

fn refuse(error: RpcError) -> MalformedMessage {
    MalformedMessage { id: None, error }
}

/// Distinguishes valid JSON that is no message (invalid request) from invalid JSON (parse error).
fn unreadable(text: &str, error: &serde_json::Error) -> MalformedMessage {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return refuse(RpcError::parse(&error.to_string()));
    }
    refuse(RpcError::invalid_request(&error.to_string()))
}

fn not_an_object(text: &str) -> MalformedMessage {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => refuse(RpcError::invalid_request("expected an object")),
        Err(_) if text.trim().is_empty() => refuse(RpcError::parse("an empty message")),
        Err(error) => refuse(RpcError::parse(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        match parse(text.as_bytes()) {
            Ok(IncomingFrame::One(Message::Request(r))) => {
                format!("request {} {} {}", r.id, r.method, r.params.map_or("-", RawValue::get))
            }
            Ok(IncomingFrame::One(Message::Notification(n))) => format!("notification {}", n.method),
            Ok(IncomingFrame::One(Message::Response(r))) => {
                format!("response {} {:?}", r.id, r.outcome.is_ok())
            }
            Ok(IncomingFrame::Batch(batch)) => format!("batch of {}", batch.0.len()),
            Err(m) => format!("{} {}", m.error.code, m.id.map_or("-".to_owned(), |id| id.to_string())),
        }
    }

    #[test]
    fn envelopes() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping -"),
            (
                r#"{"jsonrpc":"2.0","id":"a\"b","method":"p\u0069ng","params":{"x":1.50}}"#,
                r#"request a"b ping {"x":1.50}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":99999999999999999999999999,"method":"ping"}"#,
                "request 99999999999999999999999999 ping -",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                "notification notifications/initialized",
            ),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "response 7 true"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{}}"#, "response 7 false"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#, "-32600 7"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#, "response 7 true"),
            (r#"{"jsonrpc":"2.0","id":7,"result":null,"error":{}}"#, "response 7 false"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "-32600 -"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "-32600 -"),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, "-32600 -"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "-32600 1"),
            (r#"{"id":1,"method":"ping"}"#, "-32600 1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "-32600 1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#, "-32600 1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["a",{}]}"#, "-32602 1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "-32602 1"),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":[]}"#, "-32600 -"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "-32600 -"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#, "-32600 -"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},7]"#, "batch of 2"),
            ("[]", "-32600 -"),
            ("true", "-32600 -"),
            ("", "-32700 -"),
            ("{", "-32700 -"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, "-32700 -"),
            ("\u{feff}{}", "-32700 -"),
        ];
        for (text, expected) in cases {
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn an_item_of_a_batch_is_an_object() {
        let Ok(IncomingFrame::Batch(batch)) = parse(br#"[["2.0",1,"ping"],7]"#) else { panic!("no batch") };
        assert!(batch.0.iter().all(Result::is_err), "{batch:?}");
    }

    #[test]
    fn not_utf8_is_a_parse_error() {
        assert_eq!(parse(b"{\"jsonrpc\":\"\xff\"}").unwrap_err().error.code, crate::rpc::PARSE_ERROR);
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{deep}}}}}"#);
        assert!(check(&text).starts_with("request 1 ping"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
