//! JSON-RPC envelopes. Only the envelope is understood here; `params`, `result` and `error` stay raw.

use crate::rpc::RpcError;
use portcullis_core::json::printable;
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// How long an id may be. Real ones are numbers or UUIDs; a longer one only fills logs and tables.
pub const ID_BYTES_MAX: usize = 256;
/// How long a method name may be.
pub const METHOD_BYTES_MAX: usize = 128;
/// How many messages one batch may hold.
pub const BATCH_MAX: usize = 64;

/// The id of a request: a whole number or a string, given back as it came.
///
/// Every call copies its id to several places, so copies cost nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id {
    Number(u64),
    /// The digits of any other number, so that it comes back as it was.
    Digits(Arc<str>),
    Text(Arc<str>),
}

impl Id {
    /// Reads an id from its JSON text.
    pub fn parse(raw: &str) -> Option<Id> {
        if raw.len() > ID_BYTES_MAX {
            return None;
        }
        if raw.starts_with('"') {
            return serde_json::from_str::<String>(raw).ok().map(|text| Id::Text(text.into()));
        }
        let digits = raw.strip_prefix('-').unwrap_or(raw);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(raw.parse().map_or_else(|_| Id::Digits(raw.into()), Id::Number))
    }

    /// Writes the id as JSON.
    pub fn write(&self, into: &mut Vec<u8>) {
        match self {
            // Writing into memory cannot fail.
            Id::Number(number) => drop(serde_json::to_writer(into, number)),
            Id::Digits(digits) => into.extend_from_slice(digits.as_bytes()),
            Id::Text(text) => drop(serde_json::to_writer(into, &**text)),
        }
    }

    /// Returns the id as a JSON value.
    pub fn to_value(&self) -> serde_json::Value {
        match self {
            Id::Number(number) => (*number).into(),
            Id::Digits(digits) => serde_json::from_str(digits).unwrap_or_default(),
            Id::Text(text) => (&**text).into(),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Digits(digits) => f.write_str(digits),
            Id::Text(text) => f.write_str(&printable(text)),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub id: Id,
    pub method: Cow<'a, str>,
    pub params: Option<&'a RawValue>,
}

#[derive(Debug, Clone)]
pub struct Notification<'a> {
    pub method: Cow<'a, str>,
    pub params: Option<&'a RawValue>,
}

/// An answer to a request that the hub made.
#[derive(Debug, Clone)]
pub struct Response<'a> {
    pub id: Id,
    /// The result, or the error object.
    pub outcome: Result<&'a RawValue, &'a RawValue>,
}

#[derive(Debug, Clone)]
pub enum Message<'a> {
    Request(Request<'a>),
    Notification(Notification<'a>),
    Response(Response<'a>),
}

/// A message that cannot be understood, with the id to answer to if one could be found.
#[derive(Debug, Clone)]
pub struct Malformed {
    pub id: Option<Id>,
    pub error: RpcError,
}

/// What came in one frame.
#[derive(Debug)]
pub enum Incoming<'a> {
    One(Message<'a>),
    Batch(Batch<'a>),
}

/// Several messages in one frame. Only some revisions allow it; the caller decides.
#[derive(Debug)]
pub struct Batch<'a>(pub Vec<Result<Message<'a>, Malformed>>);

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

/// Keeps `null` apart from a key that is not there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses one frame.
pub fn parse(bytes: &[u8]) -> Result<Incoming<'_>, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| refuse(RpcError::parse("not UTF-8")))?;
    let first = text.trim_start_matches([' ', '\t', '\r', '\n']).bytes().next();
    match first {
        Some(b'{') => parse_one(text).map(Incoming::One),
        Some(b'[') => parse_batch(text).map(Incoming::Batch),
        _ => Err(not_an_object(text)),
    }
}

fn parse_batch(text: &str) -> Result<Batch<'_>, Malformed> {
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
    Ok(Batch(items.into_iter().map(|item| parse_one(item.get())).collect()))
}

fn parse_one(text: &str) -> Result<Message<'_>, Malformed> {
    // `serde` would read a list too, by position; what is no object is no message.
    if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        return Err(not_an_object(text));
    }
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(error) => return Err(unreadable(text, &error)),
    };
    let id = envelope.id.map(|raw| Id::parse(raw.get()));
    let refuse =
        |reason: &str| Err(Malformed { id: id.clone().flatten(), error: RpcError::invalid_request(reason) });
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return refuse("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = envelope.method else {
        // Some libraries write both, and say `null` for the one that it is not.
        let (result, error) = match (envelope.result, envelope.error) {
            (Some(result), Some(error)) if error.get() == "null" => (Some(result), None),
            (Some(result), Some(error)) if result.get() == "null" => (None, Some(error)),
            other => other,
        };
        return match (id.clone(), result, error) {
            (Some(Some(id)), Some(result), None) => {
                Ok(Message::Response(Response { id, outcome: Ok(result) }))
            }
            (Some(Some(id)), None, Some(error)) => {
                Ok(Message::Response(Response { id, outcome: Err(error) }))
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
        return refuse("`params` must be an object");
    }
    match id {
        None => Ok(Message::Notification(Notification { method, params: envelope.params })),
        Some(Some(id)) => Ok(Message::Request(Request { id, method, params: envelope.params })),
        Some(None) => {
            refuse(&format!("`id` must be a whole number or a string of at most {ID_BYTES_MAX} bytes"))
        }
    }
}

/// A string that borrows when it holds no escapes.
#[derive(serde::Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

fn refuse(error: RpcError) -> Malformed {
    Malformed { id: None, error }
}

/// Tells JSON that is not a message from text that is not JSON.
fn unreadable(text: &str, error: &serde_json::Error) -> Malformed {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return refuse(RpcError::parse(&error.to_string()));
    }
    refuse(RpcError::invalid_request(&error.to_string()))
}

fn not_an_object(text: &str) -> Malformed {
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
            Ok(Incoming::One(Message::Request(r))) => {
                format!("request {} {} {}", r.id, r.method, r.params.map_or("-", RawValue::get))
            }
            Ok(Incoming::One(Message::Notification(n))) => format!("notification {}", n.method),
            Ok(Incoming::One(Message::Response(r))) => format!("response {} {:?}", r.id, r.outcome.is_ok()),
            Ok(Incoming::Batch(batch)) => format!("batch of {}", batch.0.len()),
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
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["a",{}]}"#, "-32600 1"),
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
        let Ok(Incoming::Batch(batch)) = parse(br#"[["2.0",1,"ping"],7]"#) else { panic!("no batch") };
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
