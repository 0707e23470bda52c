//! The parameters of a request, taken apart once and not understood further.

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

/// Every parameter, as it came: those that some method knows, and the rest. A repeated key is an error.
#[derive(Debug, Default)]
pub struct Params<'a> {
    known: [Option<&'a RawValue>; Key::ALL.len()],
    others: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Params<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut params = Params::default();
        for (name, value) in Fields::deserialize(deserializer)?.0 {
            match Key::ALL.iter().position(|key| key.as_str() == name) {
                Some(at) => params.known[at] = Some(value),
                None => params.others.push((name, value)),
            }
        }
        Ok(params)
    }
}

/// The members of an object, each as it came. A repeated key is an error.
#[derive(Debug, Default)]
pub struct Fields<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Members<'a> {
            type Value = Fields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'a>, A::Error> {
                let mut members: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(4);
                let mut seen = None::<HashSet<Cow<'a, str>>>;
                while let Some(Name(name)) = map.next_key()? {
                    // Few members are looked through faster than they are hashed.
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
                Ok(Fields(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// Up to so many members are compared one by one.
const FEW: usize = 16;

/// The name of a member, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Fields<'a> {
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Refuses what could be taken for one of these names, or for another member, by whoever it is passed to.
    pub fn told_apart(&self, own: &[&str]) -> Result<(), RpcError> {
        told_apart(&self.0, own)
    }

    /// Writes the inside of an object with those members that are wanted. What is nested too deep, or has a key twice
    /// somewhere, is refused: whoever it is passed to could read it otherwise than we do.
    pub fn inside(&self, wanted: impl Fn(&str) -> bool) -> Result<String, RpcError> {
        inside(&self.0, wanted)
    }
}

/// Parameters that only some methods have, and others pass on.
const ELSEWHERE: [&str; 3] = ["task", "argument", "context"];

/// Refuses members that whoever they are passed to could take for one of our own, or for each other: what was looked at would
/// not be what is done.
fn told_apart(members: &[(Cow<'_, str>, &RawValue)], own: &[&str]) -> Result<(), RpcError> {
    let mut seen = HashSet::new();
    // Our own are different from each other, and mostly all that there is.
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
    pub const ALL: [Key; 14] = [
        Key::Name,
        Key::Arguments,
        Key::Uri,
        Key::Cursor,
        Key::Level,
        Key::Ref,
        Key::ProtocolVersion,
        Key::Capabilities,
        Key::RequestId,
        Key::InputResponses,
        Key::RequestState,
        Key::Notifications,
        Key::TaskId,
        Key::Meta,
    ];

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
        let raw = self.known[key as usize];
        raw.filter(|raw| raw.get() != "null")
    }

    /// Returns those members that no method knows and that are wanted, as the inside of an object.
    pub fn others(&self, wanted: impl Fn(&str) -> bool) -> Result<String, RpcError> {
        // Most calls have none.
        if self.others.is_empty() {
            return Ok(String::new());
        }
        let own: Vec<&str> = Key::ALL.iter().map(|key| key.as_str()).chain(ELSEWHERE).collect();
        told_apart(&self.others, &own)?;
        inside(&self.others, wanted)
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
    pub fn optional_object(&self, key: Key) -> Result<Option<Map<String, Value>>, RpcError> {
        self.object(key, portcullis_core::json::parse_strict)
    }

    /// Returns the same for what is passed on: numbers keep all their digits.
    pub fn exact_object(&self, key: Key) -> Result<Option<Map<String, Value>>, RpcError> {
        self.object(key, portcullis_core::json::parse_exact)
    }

    fn object(
        &self,
        key: Key,
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
