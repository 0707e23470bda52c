//! Redaction of everything that leaves for a client.
//!
//! Invariant: a client receives only a [`RedactedMessage`], and only this module makes one. Results, and messages of a
//! running call, passed the gate's redaction and are not scanned again. The server's own texts (lists, errors,
//! notifications) are redacted here. Values that the client needs back unchanged are not touched: ids, progress tokens
//! and the state of a round.

use bytes::Bytes;
use portcullis_core::Scrub;
use portcullis_wire::rpc::{self, RpcErrorData, RpcOutcome};
use portcullis_wire::{RequestId, RpcError, era};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;

/// A message, or a part of one, without secrets.
#[derive(Debug, Clone)]
pub(crate) struct RedactedMessage(Bytes);

impl RedactedMessage {
    /// Wraps a message that passed the gate's redaction. Not for anything else.
    pub(crate) fn already_redacted(message: Bytes) -> RedactedMessage {
        RedactedMessage(message)
    }

    /// Wraps a constant text.
    pub(crate) fn words(text: &'static str) -> RedactedMessage {
        RedactedMessage(Bytes::from_static(text.as_bytes()))
    }

    /// Joins several responses to a batch.
    pub(crate) fn batch(responses: &[RedactedMessage]) -> RedactedMessage {
        let bytes = responses.iter().map(|response| response.0.len() + 1).sum::<usize>() + 1;
        let mut array = Vec::with_capacity(bytes);
        for response in responses {
            array.push(if array.is_empty() { b'[' } else { b',' });
            array.extend_from_slice(&response.0);
        }
        array.push(b']');
        RedactedMessage(array.into())
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }
}

/// The result of a request as JSON text.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Redacted: by the gate, or in parts.
    Clean(Vec<u8>),
    /// Written by the server, not redacted yet.
    Unchecked(Vec<u8>),
}

/// The reply to a request. An error is always redacted.
pub(crate) type RpcReply = Result<ReplyBody, RpcError>;

/// A reply that the server wrote itself.
pub(crate) fn unchecked(answer: RpcOutcome) -> RpcReply {
    answer.map(ReplyBody::Unchecked)
}

/// Redacts and serializes messages.
#[derive(Clone)]
pub(crate) struct EgressFilter {
    scrub: Arc<dyn Scrub>,
}

impl EgressFilter {
    pub(crate) fn new(scrub: Arc<dyn Scrub>) -> EgressFilter {
        EgressFilter { scrub }
    }

    /// A number that changes with the set of secrets; cached redacted texts are then stale.
    pub(crate) fn generation(&self) -> u64 {
        self.scrub.generation()
    }

    /// Serializes a response. The id is the client's own and is not changed.
    pub(crate) fn response(&self, id: Option<&RequestId>, reply: RpcReply) -> RedactedMessage {
        let answer = match reply {
            Ok(ReplyBody::Clean(result)) => Ok(result),
            Ok(ReplyBody::Unchecked(result)) => self.object(result),
            Err(error) => Err(self.error(error)),
        };
        RedactedMessage(rpc::response(id, answer))
    }

    /// Serializes a notification; `tag` is the id of the listening request.
    pub(crate) fn notification(
        &self,
        method: &str,
        mut params: Value,
        tag: Option<&Value>,
    ) -> RedactedMessage {
        self.scrub.scrub_value(&mut params);
        if let Some(tag) = tag {
            params = era::tagged(params, tag);
        }
        RedactedMessage(rpc::notification(method, &params))
    }

    /// Redacts one item of a list.
    pub(crate) fn item(&self, item: Box<RawValue>) -> Box<RawValue> {
        let Ok(mut value) = serde_json::from_str::<Value>(item.get()) else { return item };
        self.scrub.scrub_value(&mut value);
        serde_json::value::to_raw_value(&value).unwrap_or_default()
    }

    /// Redacts a page such as `/readyz`.
    pub(crate) fn page(&self, mut value: Value) -> RedactedMessage {
        self.scrub.scrub_value(&mut value);
        RedactedMessage(format!("{value:#}\n").into())
    }

    fn object(&self, result: Vec<u8>) -> RpcOutcome {
        let parsed: Result<Value, _> = serde_json::from_slice(&result);
        let mut value = parsed.map_err(|error| {
            tracing::error!(target: "mcp", %error, "result is not valid JSON");
            RpcError::new(rpc::INTERNAL_ERROR, "the result could not be redacted, so it is withheld")
        })?;
        self.scrub.scrub_value(&mut value);
        Ok(value.to_string().into_bytes())
    }

    fn error(&self, mut error: RpcError) -> RpcError {
        if let std::borrow::Cow::Owned(scrubbed) = self.scrub.scrub(&error.message) {
            error.message = scrubbed;
        }
        error.data = error.data.map(|data| self.data(data));
        error
    }

    /// Redacts the data of an error. Data from an upstream keeps its exact bytes, unless it contains a secret.
    fn data(&self, data: RpcErrorData) -> RpcErrorData {
        let (mut value, exact) = match data {
            RpcErrorData::Own(value) => (value, None),
            RpcErrorData::Exact(raw) => (serde_json::from_str(raw.get()).unwrap_or_default(), Some(raw)),
        };
        let before = exact.as_ref().map(|_| value.clone());
        self.scrub.scrub_value(&mut value);
        // The text is scanned too: parsing a number may change its digits.
        let is_clean = |raw: &RawValue| matches!(self.scrub.scrub(raw.get()), std::borrow::Cow::Borrowed(_));
        match exact {
            Some(raw) if before.as_ref() == Some(&value) && is_clean(&raw) => RpcErrorData::Exact(raw),
            _ => RpcErrorData::Own(value),
        }
    }
}
