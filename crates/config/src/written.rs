//! The configuration file format.
//!
//! These types are the file's grammar: the JSON schema, the example file and the reference all come from
//! them, so a doc comment here is what a user reads. Its first line says what the key does. `x-reload` says whether a
//! running hub follows a change (`live`) or needs a restart; keys have the class of their section, or each its own.
//! The sections of tool families are declared by the families; [`WrittenDocument`] has both.

mod defaults;
mod foreign_keys;
mod mcp_server;
mod policy_rule;
pub(super) mod reload_class;
pub(super) mod schema_check;
mod schema_fast_path;
mod written_document;

pub(super) use mcp_server::{
    OAuthTable, StartName, TrustName, WrittenMcpServer, WrittenOAuth, WrittenToolFilter,
};
pub(super) use policy_rule::{DecisionName, EffectName, LabelName, OriginName, ReachName, WrittenPolicyRule};
pub(super) use written_document::WrittenDocument;

use policy_rule::{all_effects, anything};
use portcullis_family::{NOT_SHOWN, hide_value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The configuration file. Every key has a default, so an empty file is valid.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Portcullis configuration")]
pub(super) struct WrittenConfig {
    /// HTTP endpoint of `portcullis serve`.
    pub(super) http: WrittenHttp,
    /// Rate limit per client.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) rate_limit: WrittenRateLimit,
    /// Logs, written to stderr.
    pub(super) logging: WrittenLogging,
    /// The folder that tools read and write.
    #[schemars(extend("x-reload" = "restart"))]
    pub(super) workspace: WrittenWorkspace,
    /// Outbound requests (egress).
    #[schemars(extend("x-reload" = "restart"))]
    pub(super) egress: WrittenEgress,
    /// The client of `portcullis stdio` without `--client`. It needs no token: the process that starts it is trusted.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) stdio: WrittenStdio,
    /// Redaction of everything that leaves the hub. Secrets of the store are always redacted.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) redaction: WrittenRedaction,
    /// Key of the secret store. PORTCULLIS_KEY, PORTCULLIS_KEY_FILE and PORTCULLIS_PASSPHRASE_FILE take precedence.
    #[schemars(extend("x-reload" = "restart"))]
    pub(super) secrets: WrittenSecrets,
    /// Limits. The defaults suit one machine with a few users.
    #[schemars(extend("x-reload" = "restart"))]
    pub(super) limits: WrittenLimits,
    /// Timeouts of approvals.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) approvals: WrittenApprovals,
    /// Notifications of calls that wait for approval.
    #[schemars(extend("x-reload" = "restart"))]
    pub(super) notify: WrittenNotify,
    /// Admin page and API.
    #[schemars(extend("x-reload" = "restart"))]
    pub(super) admin: WrittenAdmin,
    /// Time zone.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) time: WrittenTime,
    /// Upstream MCP servers by name. Their tools appear as NAME_tool and pass the same checks.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) mcp: BTreeMap<String, WrittenMcpServer>,
    /// Settings under the names that other programs gave them.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) experimental: WrittenExperimental,
    /// Policy rules; the first match wins. Without a match, the effect of the call decides, for upstream tools the server's `decision`.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) policy: Vec<WrittenPolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenHttp {
    /// Listen address; MCP_HTTP_PORT overrides the port.
    #[schemars(example = &"127.0.0.1:3000", extend("x-reload" = "restart"))]
    pub(super) listen: String,
    /// Allowed Host headers besides localhost.
    #[schemars(example = ["hub.example.com"], extend("x-reload" = "live"))]
    pub(super) allowed_hosts: Vec<String>,
    /// Allowed Origin headers of browser requests.
    #[schemars(example = ["https://app.example.com"], extend("x-reload" = "live"))]
    pub(super) allowed_origins: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenRateLimit {
    /// Requests per second and client.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) requests_per_second: u32,
    /// Burst size per client.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: u32,
    /// How long a call over the limit may wait for its turn, in milliseconds; one that would wait longer is refused. 0 refuses at once.
    #[schemars(range(min = 0, max = 60_000))]
    pub(super) wait_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenLogging {
    /// Log level: error, warn, info, debug or trace.
    #[schemars(extend("x-reload" = "live"))]
    pub(super) level: LevelName,
    /// Log format: text or json.
    #[schemars(extend("x-reload" = "restart"))]
    pub(super) format: FormatName,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenWorkspace {
    /// Folder that holds ai-data/, servers/ and secure/; relative to the home folder.
    #[schemars(length(min = 1), example = &"workspace")]
    pub(super) path: String,
    /// Enable the workspace_* tools.
    pub(super) enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenEgress {
    /// Non-public hosts and ports to allow, exact (SSRF exceptions); also over http://.
    #[schemars(example = ["127.0.0.1:8080"])]
    pub(super) allow: Vec<String>,
    /// Requests per minute and host.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) per_host_per_minute: u32,
    /// Burst size per host.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) per_host_burst: u32,
    /// PEM file with additional CA certificates, such as a company's own.
    #[schemars(example = &"company-ca.pem")]
    pub(super) ca_file: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenStdio {
    /// Client name in rules and the audit log.
    #[schemars(example = &"local")]
    pub(super) client: String,
    /// Allowed tools, resources and prompts, as globs.
    #[schemars(length(min = 1), example = ["workspace_*"])]
    pub(super) allow: Vec<String>,
    /// Denied tools, resources and prompts, as globs.
    #[schemars(example = ["*_delete"])]
    pub(super) deny: Vec<String>,
    /// Allowed effects: read, create, write, destroy.
    #[schemars(length(min = 1))]
    pub(super) effects: Vec<EffectName>,
    /// Upstream tools: `all` lists them, `search` offers `find_tools` and `call_tool` instead.
    pub(super) tools: ViewName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ViewName {
    #[default]
    All,
    Search,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenExperimental {
    /// Default of `timeout_ms` of every upstream server, in milliseconds.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub(super) mcp_timeout: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenRedaction {
    /// Redact tokens of well-known providers by their shape, even if not in the store.
    pub(super) token_shapes: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenSecrets {
    /// Source of the key: auto, credential (systemd), keyring (desktop), file or passphrase.
    pub(super) key: KeyName,
    /// Key file, outside the data folder; empty for ~/.config/portcullis/key.
    #[schemars(example = &"~/keys/portcullis")]
    pub(super) key_file: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenLimits {
    /// Maximum message on stdio, in bytes.
    #[schemars(range(min = 4096, max = 67_108_864))]
    pub(super) line_bytes_max: usize,
    /// Maximum HTTP request body, in bytes.
    #[schemars(range(min = 4096, max = 67_108_864))]
    pub(super) body_bytes_max: usize,
    /// Maximum concurrent HTTP connections.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) connections_max: usize,
    /// Maximum concurrent HTTP connections per address; behind a proxy, all have the proxy's address.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) connections_per_source_max: usize,
    /// Timeout of request headers, in seconds; also for the first byte of a new connection.
    #[schemars(range(min = 1, max = 600))]
    pub(super) headers_secs: u64,
    /// Timeout of a request body, in seconds.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) body_secs: u64,
    /// Timeout of a client that does not read its response, in seconds.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) write_secs: u64,
    /// Keep-alive timeout of an authenticated connection, in seconds.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) keep_alive_secs: u64,
    /// Invalid tokens before an address is locked out; it is slowed down after half of them.
    #[schemars(range(min = 2, max = 1_000))]
    pub(super) token_failures_max: u32,
    /// Duration of a lockout, in seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) token_lockout_secs: u64,
    /// Maximum timeout of a call, in seconds; a tool may have a lower one.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) call_secs_max: u64,
    /// Maximum result of a call, in bytes; a tool may have a lower one.
    #[schemars(range(min = 4096, max = 67_108_864))]
    pub(super) result_bytes_max: usize,
    /// Maximum calls in flight per connection or session.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) in_flight_max: usize,
    /// Maximum concurrent sessions.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sessions_max: usize,
    /// Maximum concurrent sessions per client.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sessions_per_client_max: usize,
    /// Idle timeout of a session, in seconds.
    #[schemars(range(min = 10, max = 604_800))]
    pub(super) session_idle_secs: u64,
    /// Grace period of in-flight calls at shutdown, in seconds.
    #[schemars(range(min = 0, max = 600))]
    pub(super) shutdown_grace_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenApprovals {
    /// Seconds that a call waits for a decision before the client is told to retry.
    #[schemars(range(min = 0, max = 600))]
    pub(super) wait_secs: u64,
    /// Seconds after which a pending approval expires.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub(super) pending_secs: u64,
    /// Seconds after which an unused approval expires.
    #[schemars(range(min = 60, max = 604_800))]
    pub(super) approved_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenNotify {
    /// Webhook that is told of each pending approval, or better secret:NAME. Without the arguments of the call.
    #[schemars(example = &"secret:NOTIFY_URL")]
    pub(super) url: String,
    /// Format of the webhook: auto, json, ntfy or slack. auto goes by the host, which a secret: URL does not show.
    pub(super) format: NotifyFormatName,
    /// Show a notification on the desktop, with notify-send, where there is a session.
    pub(super) desktop: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum NotifyFormatName {
    Auto,
    Json,
    Ntfy,
    Slack,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenAdmin {
    /// Enable the admin page and API.
    pub(super) enabled: bool,
    /// Serve the admin page on non-loopback addresses; use a TLS proxy in front.
    pub(super) allow_remote: bool,
}

/// Redacts the sections of this crate for display: values that are not secret references, and URL queries.
pub(super) fn hide_values(written: &mut Value) {
    // Who knows the URL of a webhook may post to it.
    if written["notify"]["url"].as_str().is_some_and(|url| !url.is_empty()) {
        hide_value(&mut written["notify"]["url"]);
    }
    for server in written["mcp"].as_object_mut().into_iter().flat_map(|mcp| mcp.values_mut()) {
        for key in ["env", "headers"] {
            let values = server[key].as_object_mut().into_iter().flat_map(|all| all.values_mut());
            values.for_each(hide_value);
        }
        if let Some(url) = server["url"].as_str().and_then(|url| url.split_once('?')) {
            server["url"] = format!("{}?{NOT_SHOWN}", url.0).into();
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenTime {
    /// Time zone of rules and calendars, such as Europe/Vienna; system is the machine's, or UTC.
    #[schemars(length(min = 1), example = &"Europe/Vienna")]
    pub(super) timezone: String,
}
// The variants have no doc comments: with them, the schema would list each as a separate case.

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LevelName {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FormatName {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyName {
    #[default]
    Auto,
    Credential,
    Keyring,
    File,
    Passphrase,
}
