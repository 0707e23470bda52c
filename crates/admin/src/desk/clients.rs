//! Who may call.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clients {
    /// Where agents on this machine find the hub.
    pub url: String,
    pub clients: Vec<ClientShown>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientShown {
    pub name: String,
    /// The first characters of its token; nothing for the one on stdio, which has none.
    pub token_hint: Option<String>,
    /// Globs over the names of tools, resources and prompts.
    pub allow: Vec<String>,
    /// Globs over those of them that it may not use.
    pub deny: Vec<String>,
    /// Of `read`, `create`, `write` and `destroy`.
    pub effects: Vec<String>,
    /// How it gets to know the tools of other servers: `all` or `search`.
    pub tools: String,
    pub created: Option<Timestamp>,
    pub expires: Option<Timestamp>,
    pub expired: bool,
    /// When it last called; nothing if it did not, as far as the last 100,000 records of the log go.
    pub last_call: Option<Timestamp>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddClient {
    /// 1 to 64 of a-z, 0-9, `-` and `_`.
    pub name: String,
    /// All names, if left out.
    #[serde(default)]
    pub allow: Vec<String>,
    /// All effects, if left out.
    #[serde(default)]
    pub effects: Vec<String>,
    /// `all` (the default) or `search`.
    #[serde(default)]
    pub tools: Option<String>,
    /// Like `30d`; for good, if left out.
    #[serde(default)]
    pub expires: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeClient {
    pub allow: Vec<String>,
    pub effects: Vec<String>,
    /// `all` or `search`; as it is, if left out.
    #[serde(default)]
    pub tools: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientMade {
    pub client: ClientShown,
    /// Shown only now.
    pub token: String,
    pub url: String,
    /// What to write into the configuration of well-known applications.
    pub snippets: Vec<Snippet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snippet {
    /// Like `cursor`.
    pub application: String,
    pub title: String,
    /// `http` or `stdio`.
    pub transport: String,
    /// What to know besides.
    pub note: Option<String>,
    pub text: String,
}
