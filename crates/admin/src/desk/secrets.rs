//! Values that agents may use and nobody may read. None of these types has a place for a value, except the one that
//! takes it.

use jiff::Timestamp;
use portcullis_core::Secret;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use zeroize::Zeroizing;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secrets {
    pub secrets: Vec<SecretShown>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretShown {
    pub name: String,
    /// Where it may be sent, as `HOST` or `HOST:FIELD`.
    pub grants: Vec<String>,
    pub created: Timestamp,
    /// When the value was last set.
    pub updated: Timestamp,
    /// When it was last given out, since the hub started.
    pub last_used: Option<Timestamp>,
}

/// Takes a value in. It can be neither shown nor written.
pub struct SecretValue(pub Secret<Zeroizing<String>>);

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SecretValue, D::Error> {
        String::deserialize(deserializer).map(|value| SecretValue(Secret::new(Zeroizing::new(value))))
    }
}

impl JsonSchema for SecretValue {
    fn schema_name() -> Cow<'static, str> {
        "SecretValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// At least 8 and at most 65,536 bytes.
    pub value: SecretValue,
    /// Where it may be sent, as `HOST` or `HOST:FIELD`. As it is, if left out.
    #[serde(default)]
    pub grants: Option<Vec<String>>,
    /// Whether a value is taken that clients could guess.
    #[serde(default)]
    pub weak: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantSecret {
    /// All places that it may be sent to, as `HOST` or `HOST:FIELD`.
    pub grants: Vec<String>,
}
