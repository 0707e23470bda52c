//! What may leave, and the one place where it is made.
//!
//! Whatever goes to a client is a [`Clean`], and only this module makes one. Results, and what a call says while it
//! runs, have passed the gate, whose redaction saw every text: they are not looked at again. Everything that the server
//! writes itself (lists, refusals, notices) is looked through here. What a client needs back as it sent it is not
//! touched: ids, progress tokens, and the state of a round.

use bytes::Bytes;
use portcullis_core::Scrub;
use portcullis_wire::rpc::{self, Answer, Data};
use portcullis_wire::{Id, RpcError, era};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;

/// A message, or a part of one, in which nothing is secret.
#[derive(Debug, Clone)]
pub(crate) struct Clean(Bytes);

impl Clean {
    /// What the gate gave, put into words. Only for what has passed its redaction.
    pub(crate) fn guarded(message: Bytes) -> Clean {
        Clean(message)
    }

    /// The hub's own words, which hold nothing of anyone's.
    pub(crate) fn words(text: &'static str) -> Clean {
        Clean(Bytes::from_static(text.as_bytes()))
    }

    /// Several responses as one array.
    pub(crate) fn batch(responses: &[Clean]) -> Clean {
        let bytes = responses.iter().map(|response| response.0.len() + 1).sum::<usize>() + 1;
        let mut array = Vec::with_capacity(bytes);
        for response in responses {
            array.push(if array.is_empty() { b'[' } else { b',' });
            array.extend_from_slice(&response.0);
        }
        array.push(b']');
        Clean(array.into())
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }
}

/// The result of a request as JSON text.
#[derive(Debug)]
pub(crate) enum Body {
    /// Nothing in it is secret: it passed the gate, or it was looked through in parts.
    Clean(Vec<u8>),
    /// Written by the server; nobody has looked.
    Unchecked(Vec<u8>),
}

/// What is sent back for a request. An error is always looked through.
pub(crate) type Reply = Result<Body, RpcError>;

/// A reply that the server wrote itself.
pub(crate) fn unchecked(answer: Answer) -> Reply {
    answer.map(Body::Unchecked)
}

/// Makes what leaves.
#[derive(Clone)]
pub(crate) struct Outgoing {
    scrub: Arc<dyn Scrub>,
}

impl Outgoing {
    pub(crate) fn new(scrub: Arc<dyn Scrub>) -> Outgoing {
        Outgoing { scrub }
    }

    /// Changes whenever what is kept clean must be made clean again.
    pub(crate) fn generation(&self) -> u64 {
        self.scrub.generation()
    }

    /// Writes the response to a request. The id is the client's own and goes back as it came.
    pub(crate) fn response(&self, id: Option<&Id>, reply: Reply) -> Clean {
        let answer = match reply {
            Ok(Body::Clean(result)) => Ok(result),
            Ok(Body::Unchecked(result)) => self.object(result),
            Err(error) => Err(self.error(error)),
        };
        Clean(rpc::response(id, answer))
    }

    /// Writes a notification of the server's own; `tag` is the id of the request that listens for it.
    pub(crate) fn notification(&self, method: &str, mut params: Value, tag: Option<&Value>) -> Clean {
        self.scrub.scrub_value(&mut params);
        if let Some(tag) = tag {
            params = era::tagged(params, tag);
        }
        Clean(rpc::notification(method, &params))
    }

    /// Returns one item of a list without secrets.
    pub(crate) fn item(&self, item: Box<RawValue>) -> Box<RawValue> {
        let Ok(mut value) = serde_json::from_str::<Value>(item.get()) else { return item };
        self.scrub.scrub_value(&mut value);
        serde_json::value::to_raw_value(&value).unwrap_or_default()
    }

    /// Returns a page for people and programs, such as what `/readyz` says.
    pub(crate) fn page(&self, mut value: Value) -> Clean {
        self.scrub.scrub_value(&mut value);
        Clean(format!("{value:#}\n").into())
    }

    fn object(&self, result: Vec<u8>) -> Answer {
        let parsed: Result<Value, _> = serde_json::from_slice(&result);
        let mut value = parsed.map_err(|error| {
            tracing::error!(target: "mcp", %error, "A result is not JSON.");
            RpcError::new(rpc::INTERNAL_ERROR, "the result could not be checked, so it is withheld")
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

    /// Looks through what an error says. What was only passed on keeps every byte, unless it has to be changed.
    fn data(&self, data: Data) -> Data {
        let (mut value, exact) = match data {
            Data::Own(value) => (value, None),
            Data::Exact(raw) => (serde_json::from_str(raw.get()).unwrap_or_default(), Some(raw)),
        };
        let before = exact.as_ref().map(|_| value.clone());
        self.scrub.scrub_value(&mut value);
        // Seen as text too: a number that is read as a value may not be the one that was written.
        let is_clean = |raw: &RawValue| matches!(self.scrub.scrub(raw.get()), std::borrow::Cow::Borrowed(_));
        match exact {
            Some(raw) if before.as_ref() == Some(&value) && is_clean(&raw) => Data::Exact(raw),
            _ => Data::Own(value),
        }
    }
}
