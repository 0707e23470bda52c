//! Upstream servers: status, review, trust, import.

use super::TextChange;
use crate::servers::trust::is_configured;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerList {
    pub servers: Vec<ServerView>,
}

/// A response that contains configured values, which must be shown unredacted.
pub trait Configured {
    /// Restores the configured values after redaction.
    fn restore(&mut self, raw: &Self);
}

impl Configured for ServerList {
    fn restore(&mut self, raw: &ServerList) {
        self.servers.iter_mut().zip(&raw.servers).for_each(|(clean, raw)| clean.restore(raw));
    }
}

impl Configured for ServerView {
    fn restore(&mut self, raw: &ServerView) {
        self.reached_by.clone_from(&raw.reached_by);
    }
}

impl Configured for ServerDetail {
    fn restore(&mut self, raw: &ServerDetail) {
        self.server.restore(&raw.server);
        self.runs_with.clone_from(&raw.runs_with);
        for (clean, raw) in self.differences.iter_mut().zip(&raw.differences) {
            if is_configured(&raw.kind, &raw.name) {
                clean.clone_from(raw);
            }
        }
    }
}

impl Configured for ImportPreview {
    fn restore(&mut self, raw: &ImportPreview) {
        for (clean, raw) in self.files.iter_mut().zip(&raw.files) {
            for (clean, raw) in clean.servers.iter_mut().zip(&raw.servers) {
                clean.entry.clone_from(&raw.entry);
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerBrief {
    pub name: String,
    /// `starting`, `connected`, `failed`, `disabled`, `needs_auth` or `needs_client_registration`.
    pub status: String,
    /// Why it is not connected.
    pub reason: Option<String>,
    pub tools: usize,
    /// How many definitions need review.
    pub waiting: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerView {
    #[serde(flatten)]
    pub brief: ServerBrief,
    /// Command line or URL.
    pub reached_by: String,
    /// Prefix of its tool names.
    pub prefix: Option<String>,
    pub enabled: bool,
    pub enabled_in_configuration: bool,
    pub prompts: usize,
    pub resources: usize,
    /// The name it reports.
    pub own_name: Option<String>,
    /// The negotiated MCP version.
    pub revision: Option<String>,
    /// Recent lines of stderr.
    pub stderr: Vec<String>,
    /// Definitions that are not exposed, and why.
    pub dropped: Vec<NamedReason>,
    /// Definitions that need review, and why.
    pub waiting_for: Vec<PendingReview>,
    pub trusted: Option<TrustInfo>,
    /// Whether the configuration trusts it without review.
    pub always_trusted: bool,
    /// Whether it supports login.
    pub may_sign_in: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedReason {
    pub name: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingReview {
    /// `tool`, `prompt`, `instructions` or `resources`.
    pub kind: String,
    pub name: String,
    /// `new`, `changed` or `server not trusted`.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrustInfo {
    pub since: Timestamp,
    pub by: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ServerDetail {
    #[serde(flatten)]
    pub server: ServerView,
    /// Working directory, environment variables and headers, as configured.
    pub runs_with: Vec<String>,
    /// Its instructions for agents.
    pub instructions: Option<String>,
    /// Its current tools and prompts; empty before the first connection.
    pub definitions: Vec<DefinitionView>,
    /// Changes since it was trusted; everything if it is not trusted.
    pub differences: Vec<DefinitionChange>,
    /// The policy for its tools, as chosen or proposed: `ask-changes`, `allow` or `ask`.
    pub policy: Option<String>,
    /// Whether exactly this is trusted, with these effects and this policy.
    pub settled: bool,
    /// Digest of all of the above. Trusting must repeat it. Null before the first connection.
    pub seen: Option<String>,
}

impl ServerDetail {
    pub fn has_tools(&self) -> bool {
        self.definitions.iter().any(|definition| definition.effect.is_some())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefinitionView {
    /// `tool` or `prompt`.
    pub kind: String,
    /// The server's name for it.
    pub own_name: String,
    pub description: String,
    /// `trusted`, `new`, `changed` or `server not trusted`.
    pub standing: String,
    /// Of a tool: its effect, as chosen or proposed.
    pub effect: Option<String>,
    /// Of a tool: what its annotations say about its effect.
    pub advertised: Option<String>,
    /// Of a tool: the decision on a call where no rule matches. A configured effect or decision wins.
    pub decision: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefinitionChange {
    /// `tool`, `prompt`, `instructions` or `identity`.
    pub kind: String,
    pub name: String,
    /// `new`, `gone` or `changed`.
    pub how: String,
    pub change: TextChange,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustServer {
    /// `seen` of the server that was reviewed.
    pub seen: String,
    /// What a call gets where no rule matches: `ask-changes`, `allow` or `ask`. Default: as proposed.
    #[serde(default)]
    pub policy: Option<String>,
    /// Effects by the server's names of its tools, or globs: `read`, `create`, `write` or `destroy`. Default: as proposed.
    #[serde(default)]
    pub effects: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchServer {
    pub enabled: bool,
}

/// Either `command` with `args`, or `url`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AddServer {
    pub name: String,
    pub command: Option<String>,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub url: Option<String>,
    /// A value may be `secret:NAME`.
    pub env: BTreeMap<String, String>,
    /// A value may be `secret:NAME`, also after one word like `Bearer`.
    pub headers: BTreeMap<String, String>,
}

/// Source of an import.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImportSource {
    /// Configuration of another application, as text. Default: the usual places on this machine.
    pub text: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImportServers {
    pub text: Option<String>,
    /// Names in the source. Empty: all.
    pub only: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportPreview {
    pub files: Vec<ImportableFile>,
    /// The file they were written to; null for a preview.
    pub written_to: Option<String>,
    /// What was done; null for a preview.
    pub said: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportableFile {
    pub path: String,
    pub servers: Vec<ImportableServer>,
    /// Servers that cannot be imported, and why.
    pub skipped: Vec<NamedReason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportableServer {
    /// The name in this hub.
    pub name: String,
    pub own_name: String,
    /// The configuration entry that would be written.
    pub entry: String,
    /// Names of the values that move to the secret store.
    pub secrets: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerLoginUrl {
    /// The authorization URL, valid for ten minutes.
    pub url: String,
}
