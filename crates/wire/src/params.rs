//! The parameters of a request, taken apart once and not understood further.

use crate::rpc::RpcError;
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;
use serde_json::value::RawValue;

/// Every parameter that some method knows, as it came. A repeated key is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Params<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    cursor: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    level: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present", rename = "ref")]
    reference: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    input_responses: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    request_state: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    notifications: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present", rename = "_meta")]
    meta: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A parameter, by the name it has on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Name,
    Arguments,
    Uri,
    Cursor,
    Level,
    Ref,
    ProtocolVersion,
    Capabilities,
    RequestId,
    InputResponses,
    RequestState,
    Notifications,
    TaskId,
    Meta,
}

impl Key {
    pub fn as_str(self) -> &'static str {
        match self {
            Key::Name => "name",
            Key::Arguments => "arguments",
            Key::Uri => "uri",
            Key::Cursor => "cursor",
            Key::Level => "level",
            Key::Ref => "ref",
            Key::ProtocolVersion => "protocolVersion",
            Key::Capabilities => "capabilities",
            Key::RequestId => "requestId",
            Key::InputResponses => "inputResponses",
            Key::RequestState => "requestState",
            Key::Notifications => "notifications",
            Key::TaskId => "taskId",
            Key::Meta => "_meta",
        }
    }
}

impl<'a> Params<'a> {
    pub fn parse(raw: Option<&'a RawValue>) -> Result<Params<'a>, RpcError> {
        match raw {
            None => Ok(Params::default()),
            Some(raw) => serde_json::from_str(raw.get()).map_err(RpcError::invalid_params),
        }
    }

    /// Returns a parameter as it came; `null` counts as absent.
    pub fn raw(&self, key: Key) -> Option<&'a RawValue> {
        let raw = match key {
            Key::Name => self.name,
            Key::Arguments => self.arguments,
            Key::Uri => self.uri,
            Key::Cursor => self.cursor,
            Key::Level => self.level,
            Key::Ref => self.reference,
            Key::ProtocolVersion => self.protocol_version,
            Key::Capabilities => self.capabilities,
            Key::RequestId => self.request_id,
            Key::InputResponses => self.input_responses,
            Key::RequestState => self.request_state,
            Key::Notifications => self.notifications,
            Key::TaskId => self.task_id,
            Key::Meta => self.meta,
        };
        raw.filter(|raw| raw.get() != "null")
    }

    /// Returns a parameter that must be a string, where it is given.
    pub fn optional_text(&self, key: Key) -> Result<Option<String>, RpcError> {
        let Some(raw) = self.raw(key) else { return Ok(None) };
        serde_json::from_str(raw.get())
            .map(Some)
            .map_err(|_| RpcError::invalid_params(format_args!("`{}` must be a string", key.as_str())))
    }

    /// Returns a parameter that must be given and be a string.
    pub fn text(&self, key: Key) -> Result<String, RpcError> {
        self.optional_text(key)?
            .ok_or_else(|| RpcError::invalid_params(format_args!("`{}` is missing", key.as_str())))
    }

    /// Returns a parameter that must be an object, where it is given. Repeated keys are refused.
    pub fn optional_object(&self, key: Key) -> Result<Option<serde_json::Map<String, Value>>, RpcError> {
        let Some(raw) = self.raw(key) else { return Ok(None) };
        let key = key.as_str();
        match portcullis_core::json::parse_strict(raw.get()) {
            Ok(Value::Object(object)) => Ok(Some(object)),
            Ok(_) => Err(RpcError::invalid_params(format_args!("`{key}` must be an object"))),
            Err(error) => Err(RpcError::invalid_params(format_args!("`{key}`: {error}"))),
        }
    }
}
