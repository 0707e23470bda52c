//! JSON-RPC errors, and writing of messages.

use crate::message::Id;
use bytes::Bytes;
use portcullis_core::ForeignError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub const PARSE_ERROR: i32 = -32700;
pub const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const INVALID_PARAMS: i32 = -32602;
pub const INTERNAL_ERROR: i32 = -32603;
/// The server's own range; used for the rate limit, as the contract says.
pub const SERVER_ERROR: i32 = -32000;
/// A resource that does not exist, in the revisions with `initialize`.
pub const RESOURCE_NOT_FOUND: i32 = -32002;
pub const HEADER_MISMATCH: i32 = -32020;
pub const MISSING_CAPABILITY: i32 = -32021;
pub const UNSUPPORTED_VERSION: i32 = -32022;
/// A person has to follow addresses first, in the revisions with `initialize`.
pub const URL_ELICITATION_REQUIRED: i32 = -32042;

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// Not sent: whoever reads it sees the hub only.
    #[serde(skip)]
    pub said_by: SaidBy,
}

/// Whose error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaidBy {
    Hub,
    /// Somebody else, and it is only passed on.
    Other,
}

/// What an error says besides its message.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Data {
    Own(Value),
    /// Another server's, passed on as it came.
    Exact(Box<RawValue>),
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        match (self, other) {
            (Data::Own(one), Data::Own(other)) => one == other,
            (Data::Exact(one), Data::Exact(other)) => one.get() == other.get(),
            _ => false,
        }
    }
}

impl RpcError {
    pub fn new(code: i32, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None, said_by: SaidBy::Hub }
    }

    pub fn with(mut self, data: Value) -> RpcError {
        self.data = Some(Data::Own(data));
        self
    }

    pub fn parse(reason: &str) -> RpcError {
        RpcError::new(PARSE_ERROR, format!("Parse error: {reason}; send one JSON object per message"))
    }

    pub fn invalid_request(reason: &str) -> RpcError {
        RpcError::new(INVALID_REQUEST, format!("Invalid request: {reason}"))
    }

    pub fn method_not_found(method: &str) -> RpcError {
        let method = portcullis_core::json::printable(method);
        RpcError::new(METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }

    /// Returns what somebody else said, to be passed on. A code that is none here is that of no particular error.
    pub fn passed_on(said: ForeignError) -> RpcError {
        let code = i32::try_from(said.code).unwrap_or(INTERNAL_ERROR);
        RpcError { code, message: said.message, data: said.data.map(Data::Exact), said_by: SaidBy::Other }
    }

    pub fn invalid_params(reason: impl std::fmt::Display) -> RpcError {
        RpcError::new(INVALID_PARAMS, format!("Invalid params: {reason}"))
    }
}

/// Reads an error object, word for word; `None` if it is none of the protocol.
pub fn said(error: &RawValue) -> Option<ForeignError> {
    #[derive(Deserialize)]
    struct Said {
        code: i64,
        message: String,
        data: Option<Box<RawValue>>,
    }
    let Said { code, message, data } = serde_json::from_str(error.get()).ok()?;
    Some(ForeignError { code, message, data })
}

/// What is sent back for a request: the result as JSON text, or an error.
pub type Answer = Result<Vec<u8>, RpcError>;

/// Writes the response to a request.
pub fn response(id: Option<&Id>, answer: Answer) -> Bytes {
    let mut head = Vec::with_capacity(128);
    head.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    match id {
        Some(id) => id.write(&mut head),
        None => head.extend_from_slice(b"null"),
    }
    let mut message = match answer {
        Ok(mut result) => {
            head.extend_from_slice(br#","result":"#);
            // Moved up within its own memory: another place for a large result costs more than that.
            result.splice(0..0, head);
            result
        }
        Err(error) => {
            head.extend_from_slice(br#","error":"#);
            // Writing into memory cannot fail, and an error object has string keys only.
            let _ = serde_json::to_writer(&mut head, &error);
            head
        }
    };
    message.push(b'}');
    message.into()
}

/// Writes a notification.
pub fn notification(method: &str, params: &Value) -> Bytes {
    let message = serde_json::json!({ "jsonrpc": "2.0", "method": method, "params": params });
    message.to_string().into()
}

/// Writes a request of the hub's own. `null` stands for no parameters.
pub fn request(id: u64, method: &str, params: &Value) -> Bytes {
    let mut message = serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": method });
    if !params.is_null() {
        message["params"] = params.clone();
    }
    message.to_string().into()
}
