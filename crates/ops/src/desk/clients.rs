//! Clients and their scopes.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientList {
    /// The MCP endpoint of this hub.
    pub url: String,
    pub clients: Vec<ClientView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientView {
    pub name: String,
    /// The first characters of the token; null for the stdio client, which has none.
    pub token_hint: Option<String>,
    /// Allowlist: globs over tools, resources and prompts.
    pub allow: Vec<String>,
    /// Denylist: globs that override `allow`.
    pub deny: Vec<String>,
    /// Any of `read`, `create`, `write` and `destroy`.
    pub effects: Vec<String>,
    /// How upstream tools are listed to it: `all` or `search`.
    pub tools: String,
    pub created: Option<Timestamp>,
    pub expires: Option<Timestamp>,
    pub expired: bool,
    /// Its last call; null if there is none in the last 100,000 records of the audit log.
    pub last_call: Option<Timestamp>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddClient {
    /// 1 to 64 characters of a-z, 0-9, `-` and `_`.
    pub name: String,
    /// Default: everything.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Only the command line offers it.
    #[serde(skip)]
    pub deny: Vec<String>,
    /// Default: all effects.
    #[serde(default)]
    pub effects: Vec<String>,
    /// `all` (the default) or `search`.
    #[serde(default)]
    pub tools: Option<String>,
    /// Lifetime, like `30d`. Default: never expires.
    #[serde(default)]
    pub expires: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeClient {
    pub allow: Vec<String>,
    pub effects: Vec<String>,
    /// `all` or `search`. Default: unchanged.
    #[serde(default)]
    pub tools: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedClient {
    pub client: ClientView,
    /// Returned only here.
    pub token: String,
    pub url: String,
    /// Configuration snippets for well-known applications.
    pub snippets: Vec<Snippet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snippet {
    /// Like `cursor`.
    pub application: String,
    pub title: String,
    /// `http` or `stdio`.
    pub transport: String,
    /// An additional hint.
    pub note: Option<String>,
    pub text: String,
}
