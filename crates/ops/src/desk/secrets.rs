//! Secrets: write-only values. No response type has a field for a value.

use jiff::Timestamp;
use portcullis_core::Secret;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use zeroize::Zeroizing;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretList {
    pub secrets: Vec<SecretView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretView {
    pub name: String,
    /// Allowed hosts, as `HOST` or `HOST:FIELD`.
    pub grants: Vec<String>,
    pub created: Timestamp,
    /// When the value was last set.
    pub updated: Timestamp,
    /// When it was last used, since startup.
    pub last_used: Option<Timestamp>,
}

/// A secret that was saved, or whose allowed hosts were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReceipt {
    #[serde(flatten)]
    pub secret: SecretView,
    /// What was done.
    pub said: String,
}

/// A secret value in a request. It cannot be printed or serialized.
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
    /// Allowed hosts, as `HOST` or `HOST:FIELD`. Default: unchanged.
    #[serde(default)]
    pub grants: Option<Vec<String>>,
    /// Accept a weak value that clients could guess.
    #[serde(default)]
    pub weak: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantSecret {
    /// All allowed hosts, as `HOST` or `HOST:FIELD`.
    pub grants: Vec<String>,
}
