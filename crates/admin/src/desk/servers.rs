//! The servers behind the hub.

use super::TextChange;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Servers {
    pub servers: Vec<ServerShown>,
}

/// An answer that shows how servers are configured.
pub trait Configured {
    /// Puts what is configured back as it is.
    fn restore(&mut self, raw: &Self);
}

impl Configured for Servers {
    fn restore(&mut self, raw: &Servers) {
        self.servers.iter_mut().zip(&raw.servers).for_each(|(clean, raw)| clean.restore(raw));
    }
}

impl Configured for ServerShown {
    fn restore(&mut self, raw: &ServerShown) {
        self.reached_by.clone_from(&raw.reached_by);
    }
}

impl Configured for ServerWhole {
    fn restore(&mut self, raw: &ServerWhole) {
        self.server.restore(&raw.server);
        self.runs_with.clone_from(&raw.runs_with);
        let is_configured = |one: &DefinitionChange| {
            one.kind == "identity" && ["command", "args", "url"].contains(&one.name.as_str())
        };
        for (clean, raw) in self.differences.iter_mut().zip(&raw.differences) {
            if is_configured(raw) {
                clean.clone_from(raw);
            }
        }
    }
}

impl Configured for Importable {
    fn restore(&mut self, raw: &Importable) {
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
    /// How much of it waits for a person.
    pub waiting: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerShown {
    #[serde(flatten)]
    pub brief: ServerBrief,
    /// Its command line or address.
    pub reached_by: String,
    /// What is in front of the names of its tools.
    pub prefix: Option<String>,
    pub enabled: bool,
    pub enabled_in_configuration: bool,
    pub prompts: usize,
    pub resources: usize,
    /// What it calls itself.
    pub own_name: Option<String>,
    /// Which revision of MCP is spoken.
    pub revision: Option<String>,
    /// The last lines it said on standard error.
    pub stderr: Vec<String>,
    /// What does not appear, and why.
    pub dropped: Vec<NamedReason>,
    /// What waits for a person, and why.
    pub waiting_for: Vec<Waiting>,
    pub trusted: Option<TrustedShown>,
    /// Whether the configuration takes it as it comes.
    pub always_trusted: bool,
    /// Whether somebody can log in to it from here.
    pub may_sign_in: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedReason {
    pub name: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// `tool`, `prompt`, `instructions` or `resources`.
    pub kind: String,
    pub name: String,
    /// `new`, `changed` or `server not trusted`.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrustedShown {
    pub since: Timestamp,
    pub by: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ServerWhole {
    #[serde(flatten)]
    pub server: ServerShown,
    /// Its folder, and every variable or header with its value, as they are configured.
    pub runs_with: Vec<String>,
    /// What it tells agents.
    pub instructions: Option<String>,
    /// Its tools and prompts as it says them now; nothing before it was first connected.
    pub definitions: Vec<DefinitionShown>,
    /// What is not as it was when somebody trusted it; everything where nobody has.
    pub differences: Vec<DefinitionChange>,
    /// Of all of the above. Trusting names it. Nothing while the server is not known.
    pub seen: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefinitionShown {
    /// `tool` or `prompt`.
    pub kind: String,
    /// As the server calls it.
    pub own_name: String,
    pub description: String,
    /// `trusted`, `new`, `changed` or `server not trusted`.
    pub standing: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefinitionChange {
    /// `tool`, `prompt`, `instructions`, or what the server is known by.
    pub kind: String,
    pub name: String,
    /// `new`, `gone` or `changed`.
    pub how: String,
    pub change: TextChange,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustServer {
    /// What was looked at: `seen` of the server.
    pub seen: String,
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

/// Where to look for servers to take over.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImportFrom {
    /// A configuration of another program, as text. The usual places on this machine, if left out.
    pub text: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImportServers {
    pub text: Option<String>,
    /// By the names they have there; all, if empty.
    pub only: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Importable {
    pub files: Vec<ImportableFile>,
    /// Where they were written; nothing if nothing was.
    pub written_to: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportableFile {
    pub path: String,
    pub servers: Vec<ImportableServer>,
    /// What cannot be taken over, and why.
    pub skipped: Vec<NamedReason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportableServer {
    /// The name it gets here.
    pub name: String,
    pub own_name: String,
    /// The entry for the configuration, as it would be written.
    pub entry: String,
    /// Which values go into the secret store, by the names they get there.
    pub secrets: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignInPage {
    /// Where the person logs in, within ten minutes.
    pub url: String,
}
