//! The parameters of a request, split into raw members. Ambiguous member names are rejected.

use crate::rpc::RpcError;
use portcullis_core::json::folded;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

/// All parameters, raw: those that some method defines, and the rest. A duplicate key is an error.
#[derive(Debug, Default)]
pub struct Params<'a> {
    known: [Option<&'a RawValue>; ParamKey::ALL.len()],
    others: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Params<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut params = Params::default();
        for (name, value) in RawMembers::deserialize(deserializer)?.0 {
            match ParamKey::ALL.iter().position(|key| key.as_str() == name) {
                Some(at) => params.known[at] = Some(value),
                None => params.others.push((name, value)),
            }
        }
        Ok(params)
    }
}

/// The members of an object, raw. A duplicate key is an error.
#[derive(Debug, Default)]
pub struct RawMembers<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Members<'a> {
            type Value = RawMembers<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawMembers<'a>, A::Error> {
                let mut members: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(4);
                let mut seen = None::<HashSet<Cow<'a, str>>>;
                while let Some(MemberName(name)) = map.next_key()? {
                    // A linear search beats hashing for few members.
                    let repeated = match &mut seen {
                        Some(seen) => !seen.insert(name.clone()),
                        None => members.iter().any(|(known, _)| *known == name),
                    };
                    if repeated {
                        return Err(serde::de::Error::custom(format_args!("duplicate field `{name}`")));
                    }
                    members.push((name, map.next_value()?));
                    if members.len() == FEW {
                        seen = Some(members.iter().map(|(name, _)| name.clone()).collect());
                    }
                }
                Ok(RawMembers(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// Up to this many members are searched linearly.
const FEW: usize = 16;

/// A member name, borrowed if it holds no escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> RawMembers<'a> {
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Rejects members that an upstream server could confuse with one of `own` or with each other (case, hidden characters).
    pub fn reject_confusable(&self, own: &[&str]) -> Result<(), RpcError> {
        reject_confusable_names(&self.0, own)
    }

    /// Writes the wanted members as the inside of an object. Too deep nesting and duplicate keys are rejected: an upstream
    /// server could parse them differently than the hub.
    pub fn join_members(&self, wanted: impl Fn(&str) -> bool) -> Result<String, RpcError> {
        inside(&self.0, wanted)
    }
}

/// Parameters that only some methods define; for others they are forwarded.
const ELSEWHERE: [&str; 3] = ["task", "argument", "context"];

/// Rejects members that an upstream server could confuse with the hub's own or with each other: the call that was checked
/// would not be the call that runs.
fn reject_confusable_names(members: &[(Cow<'_, str>, &RawValue)], own: &[&str]) -> Result<(), RpcError> {
    let mut seen = HashSet::new();
    // The hub's own names are distinct, and usually the only ones.
    for name in members.iter().map(|(name, _)| &**name).filter(|name| !own.contains(name)) {
        let folded_name = folded(name);
        let taken = own.iter().find(|own| folded(own) == folded_name).map(ToString::to_string);
        let taken = taken.or_else(|| (!seen.insert(folded_name)).then(|| "another".to_owned()));
        if let Some(taken) = taken {
            let name = portcullis_core::json::printable(name);
            return Err(RpcError::invalid_params(format_args!(
                "`{name}` could be taken for `{taken}`; leave it out"
            )));
        }
    }
    Ok(())
}

fn inside(members: &[(Cow<'_, str>, &RawValue)], wanted: impl Fn(&str) -> bool) -> Result<String, RpcError> {
    let mut text = String::new();
    for (name, value) in members.iter().filter(|(name, _)| wanted(name)) {
        portcullis_core::json::parse_exact(value.get()).map_err(|error| {
            let name = portcullis_core::json::printable(name);
            RpcError::invalid_params(format_args!("`{name}`: {error}"))
        })?;
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&Value::from(name.as_ref()).to_string());
        text.push(':');
        text.push_str(value.get());
    }
    Ok(text)
}

/// A parameter that the hub reads, by its name on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKey {
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

impl ParamKey {
    pub const ALL: [ParamKey; 14] = [
        ParamKey::Name,
        ParamKey::Arguments,
        ParamKey::Uri,
        ParamKey::Cursor,
        ParamKey::Level,
        ParamKey::Ref,
        ParamKey::ProtocolVersion,
        ParamKey::Capabilities,
        ParamKey::RequestId,
        ParamKey::InputResponses,
        ParamKey::RequestState,
        ParamKey::Notifications,
        ParamKey::TaskId,
        ParamKey::Meta,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ParamKey::Name => "name",
            ParamKey::Arguments => "arguments",
            ParamKey::Uri => "uri",
            ParamKey::Cursor => "cursor",
            ParamKey::Level => "level",
            ParamKey::Ref => "ref",
            ParamKey::ProtocolVersion => "protocolVersion",
            ParamKey::Capabilities => "capabilities",
            ParamKey::RequestId => "requestId",
            ParamKey::InputResponses => "inputResponses",
            ParamKey::RequestState => "requestState",
            ParamKey::Notifications => "notifications",
            ParamKey::TaskId => "taskId",
            ParamKey::Meta => "_meta",
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

    /// Returns a parameter unparsed; `null` counts as absent.
    pub fn raw(&self, key: ParamKey) -> Option<&'a RawValue> {
        let raw = self.known[key as usize];
        raw.filter(|raw| raw.get() != "null")
    }

    /// Returns the wanted parameters that no method defines, as the inside of an object.
    pub fn others(&self, wanted: impl Fn(&str) -> bool) -> Result<String, RpcError> {
        // Most calls have none.
        if self.others.is_empty() {
            return Ok(String::new());
        }
        let own: Vec<&str> = ParamKey::ALL.iter().map(|key| key.as_str()).chain(ELSEWHERE).collect();
        reject_confusable_names(&self.others, &own)?;
        inside(&self.others, wanted)
    }

    /// Returns an optional string parameter.
    pub fn optional_text(&self, key: ParamKey) -> Result<Option<String>, RpcError> {
        let Some(raw) = self.raw(key) else { return Ok(None) };
        serde_json::from_str(raw.get())
            .map(Some)
            .map_err(|_| RpcError::invalid_params(format_args!("`{}` must be a string", key.as_str())))
    }

    /// Returns a required string parameter.
    pub fn text(&self, key: ParamKey) -> Result<String, RpcError> {
        self.optional_text(key)?
            .ok_or_else(|| RpcError::invalid_params(format_args!("`{}` is missing", key.as_str())))
    }

    /// Returns an optional object parameter. Duplicate keys are rejected.
    pub fn optional_object(&self, key: ParamKey) -> Result<Option<Map<String, Value>>, RpcError> {
        self.object(key, portcullis_core::json::parse_strict)
    }

    /// Like `optional_object`, for values that are forwarded: numbers keep all digits.
    pub fn exact_object(&self, key: ParamKey) -> Result<Option<Map<String, Value>>, RpcError> {
        self.object(key, portcullis_core::json::parse_exact)
    }

    fn object(
        &self,
        key: ParamKey,
        parse: fn(&str) -> Result<Value, serde_json::Error>,
    ) -> Result<Option<Map<String, Value>>, RpcError> {
        let Some(raw) = self.raw(key) else { return Ok(None) };
        let key = key.as_str();
        match parse(raw.get()) {
            Ok(Value::Object(object)) => Ok(Some(object)),
            Ok(_) => Err(RpcError::invalid_params(format_args!("`{key}` must be an object"))),
            Err(error) => Err(RpcError::invalid_params(format_args!("`{key}`: {error}"))),
        }
    }
}
