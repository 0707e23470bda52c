//! The configuration: file format, validation, resolved settings.
//!
//! One file in the home folder, validated strictly: all errors are reported at once, with file and line, and the hub does
//! not start with an invalid file. Nothing here is `Serialize`; the file format is private to this crate, and the rest of
//! the program sees [`Config`].

pub mod atomic_write;
mod edit;
mod errors;
mod example;
pub mod jsonc;
mod limit_table;
mod read;
mod resolve;
pub mod secret_detection;
mod written;

pub use edit::{
    AddRuleError, AllowRule, ConfigEditLock, EditError, NewRule, NewServer, RuleEdit, add_rule, add_servers,
    check_server, edit_rules, preview_servers, remove_server, version,
};
pub use errors::{ConfigError, ConfigErrors};
pub use example::example;
pub use limit_table::limit_table;
pub use read::FILE_NAMES;
pub use resolve::{McpOAuth, moment, sets_header};
pub use written::reload_class::restart_list;
pub use written::schema_check::schema;

use errors::Finding;
use jiff::tz::TimeZone;
use portcullis_core::{DefaultDecision, Effect, EffectSet, Labels, Origin, Pattern, Reach, Scope};
use portcullis_egress::configured_client::ConfiguredEndpoint;
use portcullis_egress::header::HeaderName;
use portcullis_egress::{AllowlistEntry, HostRateLimit, PlainHttp, SecretRef, Url};
use portcullis_guard::{RuleSchedule, TokenShapes};
use portcullis_script::SandboxStrictness;
use portcullis_store::secrets::KeyKind;
use portcullis_tools::scripts::{PreapprovedScript, ScriptPermissions};
use portcullis_tools::{CalendarSource, CommitAuthor, RemoteAddress};
use read::Document;
use serde_json::json;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use written::WrittenConfig;
use written::reload_class::restart_keys;

/// Overrides the port of `http.listen`.
const PORT_VARIABLE: &str = "MCP_HTTP_PORT";

/// Source of environment variables; tests inject their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The resolved configuration, with defaults.
#[derive(Debug, Clone)]
pub struct Config {
    pub http: HttpSettings,
    pub rate_limit: RateLimitSettings,
    pub logging: LoggingSettings,
    pub workspace: WorkspaceSettings,
    pub memory: MemorySettings,
    pub prompts: PromptSettings,
    /// `None` if there are no vault tools.
    pub vault: Option<VaultSettings>,
    /// `None` if there are no web tools.
    pub web: Option<WebSettings>,
    /// Empty if there is no calendar tool.
    pub calendars: Vec<CalendarSource>,
    /// `None` if there are no GitHub tools.
    pub github: Option<GithubSettings>,
    pub scripts: ScriptSettings,
    pub egress: EgressConfig,
    pub stdio: StdioSettings,
    pub redaction: RedactionSettings,
    pub secrets: SecretSettings,
    pub limits: LimitSettings,
    pub approvals: ApprovalSettings,
    pub admin: AdminSettings,
    pub time: TimeSettings,
    /// In the order of their names.
    pub mcp: Vec<McpServerSettings>,
    /// First match wins.
    pub policy: Vec<RuleSettings>,
    /// The written form, to compare two configurations by key.
    written: WrittenConfig,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    pub listen: SocketAddr,
    /// In lower case, with a port where one was given.
    pub allowed_hosts: Vec<String>,
    /// In lower case: `scheme://host[:port]`.
    pub allowed_origins: Vec<String>,
}

/// Both are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitSettings {
    pub requests_per_second: u32,
    pub burst: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggingSettings {
    pub level: Level,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceSettings {
    /// Absolute if the home folder is.
    pub path: PathBuf,
    pub enabled: bool,
}

/// The admin page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminSettings {
    pub enabled: bool,
    /// Serve on non-loopback addresses, too.
    pub allow_remote: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySettings {
    pub enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSettings {
    pub path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultSettings {
    pub path: PathBuf,
    /// `None` if it is not synced.
    pub sync: Option<VaultSyncSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultSyncSettings {
    pub address: RemoteAddress,
    pub token: Option<SecretRef>,
    pub user: String,
    pub author: CommitAuthor,
    pub pull_after: Duration,
    pub within: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSettings {
    pub plain_http: PlainHttp,
    pub respect_robots: bool,
    pub user_agent: Option<String>,
    /// In lower case.
    pub allow: Vec<String>,
    /// In lower case.
    pub deny: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    pub exceptions: Vec<AllowlistEntry>,
    pub per_host: HostRateLimit,
    /// Additional CA certificates.
    pub ca_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GithubSettings {
    pub token: SecretRef,
    pub base_url: Url,
    /// `owner/name` or `owner/*`.
    pub repositories: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptSettings {
    pub enabled: bool,
    pub folder: PathBuf,
    pub timeout: Duration,
    pub memory_bytes_max: u64,
    pub strictness: SandboxStrictness,
    pub warm: usize,
    /// Grants of `script_exec` code.
    pub exec: ScriptPermissions,
    /// Pre-approved scripts.
    pub allow: Vec<PreapprovedScript>,
}

#[derive(Debug, Clone)]
pub struct StdioSettings {
    pub client: String,
    pub scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedactionSettings {
    pub token_shapes: TokenShapes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSettings {
    /// `None` detects the source.
    pub key: Option<KeyKind>,
    pub key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings {
    pub line_bytes_max: usize,
    pub body_bytes_max: usize,
    pub connections_max: usize,
    pub connections_per_source_max: usize,
    pub headers_within: Duration,
    pub body_within: Duration,
    pub write_within: Duration,
    pub keep_alive: Duration,
    pub token_failures_max: u32,
    pub token_lockout: Duration,
    pub call_within: Duration,
    pub result_bytes_max: usize,
    pub in_flight_max: usize,
    pub sessions_max: usize,
    pub sessions_per_client_max: usize,
    pub session_idle: Duration,
    pub shutdown_grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalSettings {
    pub wait: Duration,
    pub pending: Duration,
    pub approved: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSettings {
    pub zone: TimeZone,
}

/// One upstream MCP server.
#[derive(Debug, Clone)]
pub struct McpServerSettings {
    pub name: String,
    pub enabled: bool,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: Option<PathBuf>,
    /// URL, if it is not a local command.
    pub place: Option<ConfiguredEndpoint>,
    /// As written: `${NAME}` and `secret:NAME` are resolved per request.
    pub headers: Vec<(HeaderName, String)>,
    /// OAuth settings.
    pub oauth: Option<McpOAuth>,
    /// As written: `${NAME}` and `secret:NAME` are resolved at start.
    pub env: Vec<(String, String)>,
    pub timeout: Duration,
    /// With the trailing `_`; empty for none.
    pub prefix: String,
    pub allow: Pattern,
    pub deny: Option<Pattern>,
    /// Server's name and new name.
    pub rename: Vec<(String, String)>,
    /// First match wins.
    pub effects: Vec<(Pattern, Effect)>,
    /// First match wins.
    pub labels: Vec<(Pattern, Labels)>,
    /// Whether it is trusted without review.
    pub always_trusted: bool,
    /// Whether it starts at the first call.
    pub lazy: bool,
    /// Idle timeout.
    pub idle_stop: Option<Duration>,
    /// Maximum instances per client; `None` if all clients share one.
    pub per_client: Option<usize>,
    pub relist_every: Duration,
    pub decision: ConfiguredDecision,
}

impl McpServerSettings {
    /// Returns whether it runs on this machine, started by the hub.
    pub fn is_local(&self) -> bool {
        self.place.is_none()
    }
}

/// One policy rule. It matches if all conditions match.
#[derive(Debug, Clone)]
pub struct RuleSettings {
    pub tools: Pattern,
    pub clients: Pattern,
    pub origins: Vec<Origin>,
    pub effects: EffectSet,
    /// `None` is any.
    pub reach: Option<Reach>,
    /// `None` is any, and none.
    pub labels: Option<Labels>,
    pub when: RuleSchedule,
    pub decision: ConfiguredDecision,
    /// Line in the file, if the format reports it.
    pub line: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfiguredDecision {
    Allow,
    Ask,
    Deny,
}

impl From<ConfiguredDecision> for DefaultDecision {
    fn from(verdict: ConfiguredDecision) -> DefaultDecision {
        match verdict {
            ConfiguredDecision::Allow => DefaultDecision::Allow,
            ConfiguredDecision::Ask => DefaultDecision::Ask,
            ConfiguredDecision::Deny => DefaultDecision::Deny,
        }
    }
}

/// A configuration and its source.
#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// `None` if there is no file and the defaults apply.
    pub path: Option<PathBuf>,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Config {
    /// Returns the file with defaults, redacted.
    pub fn shown(&self) -> serde_json::Value {
        let mut written = json!(self.written);
        written::hide_values(&mut written);
        written
    }

    /// Loads the configuration of a home folder. Without a file the defaults apply.
    pub fn load(home: &Path, env: Environment<'_>) -> Result<LoadedConfig, ConfigErrors> {
        let Some(source) = read::find(home)? else {
            let (config, warnings) = Config::of("defaults", &Document::empty(), home, env)?;
            return Ok(LoadedConfig { config, path: None, warnings });
        };
        let document = read::parse(source.name, &source.text)?;
        let (config, mut warnings) = Config::of(source.name, &document, home, env)?;
        if source.writable_by_all {
            let advice = format!("it is writable by all users; run `chmod o-w {}`", source.path.display());
            warnings.insert(0, format!("{}: {advice}", source.name));
        }
        Ok(LoadedConfig { config, path: Some(source.path), warnings })
    }

    /// Returns the changed settings that need a restart.
    pub fn diff_needs_restart(&self, other: &Config) -> Vec<String> {
        let (mine, theirs) = (json!(self.written), json!(other.written));
        let same = |key: &String| {
            let pointer = format!("/{}", key.replace('.', "/"));
            mine.pointer(&pointer) == theirs.pointer(&pointer)
        };
        let mut keys = restart_keys();
        keys.retain(|key| !same(key));
        keys
    }

    fn of(
        place: &str,
        document: &Document,
        home: &Path,
        env: Environment<'_>,
    ) -> Result<(Config, Vec<String>), ConfigErrors> {
        let (mut written, mut findings) = written::schema_check::check(&document.value)?;
        let port_problem = override_port(&mut written, env).err();
        let (mut config, more) = resolve::resolve(written, home, env);
        // An invalid key has its default here, which is not what the user wrote.
        findings.extend(more);
        if findings.is_empty() && port_problem.is_none() {
            for (index, rule) in config.policy.iter_mut().enumerate() {
                rule.line = document.line(&format!("/policy/{index}"));
            }
            let warnings = config.warnings(place);
            return Ok((config, warnings));
        }
        let problem = |finding: Finding| ConfigError {
            place: place.to_owned(),
            line: document.line(&finding.pointer),
            text: finding.text,
        };
        let mut problems: Vec<ConfigError> = findings.into_iter().map(problem).collect();
        problems.sort_by_key(|problem| problem.line);
        problems.extend(port_problem);
        Err(ConfigErrors::new(problems))
    }

    fn warnings(&self, place: &str) -> Vec<String> {
        let listen = self.http.listen;
        if listen.ip().is_loopback() {
            return Vec::new();
        }
        vec![format!(
            "{place}: `http.listen` is {listen}, which other machines can reach; tokens are sent unencrypted, so use a TLS proxy"
        )]
    }
}

impl WorkspaceSettings {
    /// Returns the only folder that tools can access.
    pub fn data_dir(&self) -> PathBuf {
        self.path.join("ai-data")
    }

    /// Returns the default working directory of servers. No tool can access it.
    pub fn server_dir(&self, name: &str) -> PathBuf {
        self.path.join("servers").join(name)
    }

    /// Returns the private folder that no tool can access.
    pub fn secure_dir(&self) -> PathBuf {
        self.path.join("secure")
    }
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }
}

/// Reads the port from the environment. An empty variable counts as unset.
fn override_port(written: &mut WrittenConfig, env: Environment<'_>) -> Result<(), ConfigError> {
    let Some(text) = env(PORT_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(()) };
    let text = text.to_string_lossy();
    let Ok(port) = text.parse::<u16>() else {
        let shown = portcullis_core::json::printable(&text);
        let text = format!("`{PORT_VARIABLE}` is \"{shown}\", expected a port, 0 to 65535");
        return Err(ConfigError { place: "environment".to_owned(), line: None, text });
    };
    // An invalid address is reported as written.
    if let Ok(mut listen) = written.http.listen.parse::<SocketAddr>() {
        listen.set_port(port);
        written.http.listen = listen.to_string();
    }
    Ok(())
}

#[cfg(test)]
mod own_keys_tests;
#[cfg(test)]
mod tests;
