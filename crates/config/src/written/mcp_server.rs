//! The section of an upstream server: `[mcp.NAME]`.

use super::policy_rule::{DecisionName, EffectName, LabelName};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// One upstream MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WrittenMcpServer {
    /// Command of a local server (stdio): a name looked up in PATH once, or a path, absolute or relative to `~/` or `cwd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"npx")]
    pub(crate) command: Option<String>,
    /// Arguments, passed verbatim; use `env` for variables and secrets.
    #[schemars(example = ["-y", "@modelcontextprotocol/server-filesystem"])]
    pub(crate) args: Vec<String>,
    /// Working directory; by default a private folder that no tool can reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"~/project")]
    pub(crate) cwd: Option<String>,
    /// URL of a remote server (HTTP), instead of a command: https://, http:// or unix:/SOCKET:/PATH.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"https://mcp.example.com/mcp")]
    pub(crate) url: Option<String>,
    /// Headers of every request; "${NAME}" is a variable of the hub, "secret:NAME" a secret, also after "Bearer ".
    pub(crate) headers: BTreeMap<String, String>,
    /// OAuth login, with `portcullis mcp auth NAME`: true, or a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "oauth_schema")]
    pub(crate) oauth: Option<WrittenOAuth>,
    /// Environment, besides PATH and HOME; "${NAME}" is a variable of the hub, "secret:NAME" a secret, also after "Bearer ".
    pub(crate) env: BTreeMap<String, String>,
    /// Enable the server.
    pub(crate) enabled: bool,
    /// Timeout of a call without progress, in milliseconds; by default `experimental.mcp_timeout`, 30000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 100, max = 86_400_000), example = &30_000)]
    pub(crate) timeout_ms: Option<u64>,
    /// Timeout of its start and handshake, in milliseconds; raise it for packages that take long to download.
    #[schemars(range(min = 100, max = 3_600_000))]
    pub(crate) start_timeout_ms: u64,
    /// Prefix of its tools and prompts; default NAME_, "" for none. On a clash the second tool becomes server_tool; deny rules for either name apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"git_")]
    pub(crate) prefix: Option<String>,
    /// Tools to expose, by the server's names.
    pub(crate) tools: WrittenToolFilter,
    /// New names of tools, by the server's names; the prefix is still added.
    pub(crate) rename: BTreeMap<String, String>,
    /// Effect of its tools: read, create, write or destroy; by default what was chosen with `portcullis mcp trust`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "EffectName", example = &"write")]
    pub(crate) effect: Option<EffectName>,
    /// Effects by tool, as globs over the server's names; the longest match wins.
    pub(crate) effects: BTreeMap<String, EffectName>,
    /// Labels by tool, as globs: private, untrusted, outward; by default untrusted and outward.
    pub(crate) labels: BTreeMap<String, Vec<LabelName>>,
    /// New and changed tools: ask (need review with `portcullis mcp trust`) or always (trusted without review).
    pub(crate) trust: TrustName,
    /// Start with the hub (now) or at the first call (lazy).
    pub(crate) start: StartName,
    /// Idle time after which it is stopped until the next call, like 10m; by default never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 2), example = &"10m")]
    pub(crate) idle_stop: Option<String>,
    /// Start one instance per client, to isolate clients from each other.
    pub(crate) per_client: bool,
    /// Maximum instances with `per_client`.
    #[schemars(range(min = 1, max = 1_000))]
    pub(crate) clients_max: usize,
    /// Seconds between refreshes of its tool list without a change notification.
    #[schemars(range(min = 1, max = 86_400))]
    pub(crate) relist_secs: u64,
    /// Decision on its tools if no rule matches: allow, ask or deny; by default the policy chosen with `portcullis mcp trust`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DecisionName", example = &"ask")]
    pub(crate) decision: Option<DecisionName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum TrustName {
    Ask,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum StartName {
    Now,
    Lazy,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WrittenToolFilter {
    /// Globs of tools to expose.
    #[schemars(length(min = 1))]
    pub(crate) allow: Vec<String>,
    /// Globs of tools to hide.
    pub(crate) deny: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum WrittenOAuth {
    Switch(bool),
    Settings(OAuthTable),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OAuthTable {
    /// Client ID registered with the authorization server; by default the hub registers itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1))]
    pub(crate) client_id: Option<String>,
    /// Client secret, as secret:NAME; needs a grant for the token endpoint's host and the field client_secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"secret:NOTES_CLIENT")]
    pub(crate) client_secret: Option<String>,
    /// Scopes to request, separated by spaces, instead of those the server suggests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"notes:read notes:write")]
    pub(crate) scope: Option<String>,
    /// Redirect port on 127.0.0.1; by default a free one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16", range(min = 1, max = 65_535))]
    pub(crate) callback_port: Option<u16>,
    /// URL of a client ID metadata document, if the authorization server supports those.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"https://hub.example.com/client.json")]
    pub(crate) client_metadata_url: Option<String>,
}

/// True, false or a table: one schema, so that errors in the table name their key.
fn oauth_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<OAuthTable>();
    schema.insert("type".to_owned(), json!(["boolean", "object"]));
    schema.insert("examples".to_owned(), json!([true]));
    schema
}
