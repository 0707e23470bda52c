//! JSON-RPC error objects, and serialization of messages.

use crate::message::RequestId;
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
/// In the range reserved for servers; the code of the hub's rate limit.
pub const SERVER_ERROR: i32 = -32000;
/// A resource that does not exist, in the revisions with `initialize`.
pub const RESOURCE_NOT_FOUND: i32 = -32002;
pub const HEADER_MISMATCH: i32 = -32020;
pub const MISSING_CAPABILITY: i32 = -32021;
pub const UNSUPPORTED_VERSION: i32 = -32022;
/// A person must open URLs first, in the revisions with `initialize`.
pub const URL_ELICITATION_REQUIRED: i32 = -32042;

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<RpcErrorData>,
    /// Not sent: clients see one server, the hub.
    #[serde(skip)]
    pub said_by: RpcErrorSource,
}

/// Who reported an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcErrorSource {
    Hub,
    /// An upstream server; the hub forwards the error.
    Other,
}

/// The `data` of an error.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum RpcErrorData {
    Own(Value),
    /// From an upstream server, forwarded unchanged.
    Exact(Box<RawValue>),
}

impl PartialEq for RpcErrorData {
    fn eq(&self, other: &RpcErrorData) -> bool {
        match (self, other) {
            (RpcErrorData::Own(one), RpcErrorData::Own(other)) => one == other,
            (RpcErrorData::Exact(one), RpcErrorData::Exact(other)) => one.get() == other.get(),
            _ => false,
        }
    }
}

impl RpcError {
    pub fn new(code: i32, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None, said_by: RpcErrorSource::Hub }
    }

    pub fn with(mut self, data: Value) -> RpcError {
        self.data = Some(RpcErrorData::Own(data));
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

    /// Returns an upstream server's error for forwarding. A code outside `i32` becomes an internal error.
    pub fn passed_on(error: ForeignError) -> RpcError {
        let code = i32::try_from(error.code).unwrap_or(INTERNAL_ERROR);
        RpcError {
            code,
            message: error.message,
            data: error.data.map(RpcErrorData::Exact),
            said_by: RpcErrorSource::Other,
        }
    }

    pub fn invalid_params(reason: impl std::fmt::Display) -> RpcError {
        RpcError::new(INVALID_PARAMS, format!("Invalid params: {reason}"))
    }
}

/// Parses an error object; `None` if it is not a JSON-RPC error.
pub fn parse_foreign_error(error: &RawValue) -> Option<ForeignError> {
    #[derive(Deserialize)]
    struct ErrorObject {
        code: i64,
        message: String,
        data: Option<Box<RawValue>>,
    }
    let ErrorObject { code, message, data } = serde_json::from_str(error.get()).ok()?;
    Some(ForeignError { code, message, data })
}

/// The outcome of a request: the result as JSON text, or an error.
pub type RpcOutcome = Result<Vec<u8>, RpcError>;

/// Writes the response to a request.
pub fn response(id: Option<&RequestId>, outcome: RpcOutcome) -> Bytes {
    let mut head = Vec::with_capacity(128);
    head.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    match id {
        Some(id) => id.write(&mut head),
        None => head.extend_from_slice(b"null"),
    }
    let mut message = match outcome {
        Ok(mut result) => {
            head.extend_from_slice(br#","result":"#);
            // Shifted within its own allocation, which is cheaper than a second one for a large result.
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

/// Writes a request from the hub. `null` means no parameters.
pub fn request(id: u64, method: &str, params: &Value) -> Bytes {
    let mut message = serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": method });
    if !params.is_null() {
        message["params"] = params.clone();
    }
    message.to_string().into()
}
