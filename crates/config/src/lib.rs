//! The configuration: file format, validation, resolved settings.
//!
//! One file in the home folder, validated strictly: all errors are reported at once, with file and line, and the hub does
//! not start with an invalid file. Nothing here is `Serialize`; the file format is private to this crate, and the rest of
//! the program sees [`Config`]. Tool families declare their sections themselves (`portcullis_family`).

pub mod atomic_write;
mod edit;
mod errors;
mod example;
mod excerpt;
pub mod jsonc;
mod limit_table;
mod read;
mod reserved_names;
mod resolve;
pub mod secret_detection;
mod written;

pub use edit::{
    AddRuleError, AllowRule, ConfigEditLock, EditError, InitMode, InitOutcome, NewRule, NewServer, RuleEdit,
    add_rule, add_servers, check_server, edit_rules, importable_name, init, preview_servers, remove_server,
    version,
};
pub use errors::{ConfigError, ConfigErrors};
pub use example::{example, example_with};
pub use excerpt::ConfigExcerpt;
pub use limit_table::limit_table;
pub use portcullis_family::{Environment, WorkspaceSettings};
pub use read::{FILE_NAMES, ForeignFormat, parse_foreign};
pub use resolve::{McpOAuth, moment, sets_header};
pub use written::reload_class::restart_list;
pub use written::schema_check::{schema, schema_with};

use errors::Finding;
use excerpt::FaultyPart;
use jiff::tz::TimeZone;
use portcullis_core::{DefaultDecision, Effect, EffectSet, Labels, Origin, Pattern, Reach, Scope};
use portcullis_egress::configured_client::ConfiguredEndpoint;
use portcullis_egress::header::HeaderName;
use portcullis_egress::{AllowlistEntry, HostRateLimit, SecretUrl};
use portcullis_family::{AbsentSection, ConfigSection, Families, Sections, sections};
use portcullis_guard::{RuleSchedule, TokenShapes};
use portcullis_store::secrets::KeyKind;
use portcullis_tools::FAMILIES;
use read::Document;
use reserved_names::{other_name, reserved_prefix};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use written::reload_class::restart_keys;
use written::{WrittenConfig, WrittenDocument};

/// Overrides the port of `http.listen`.
const PORT_VARIABLE: &str = "MCP_HTTP_PORT";

/// The resolved configuration, with defaults.
#[derive(Debug, Clone)]
pub struct Config {
    pub http: HttpSettings,
    pub rate_limit: RateLimitSettings,
    pub logging: LoggingSettings,
    pub workspace: WorkspaceSettings,
    /// The families of tools that the hub can have.
    pub families: Families,
    /// What their sections mean.
    pub sections: Sections,
    pub egress: EgressConfig,
    pub stdio: StdioSettings,
    pub redaction: RedactionSettings,
    pub secrets: SecretSettings,
    pub limits: LimitSettings,
    pub approvals: ApprovalSettings,
    pub notify: NotifySettings,
    pub admin: AdminSettings,
    pub time: TimeSettings,
    /// In the order of their names.
    pub mcp: Vec<McpServerSettings>,
    /// First match wins.
    pub policy: Vec<RuleSettings>,
    /// The written form, to compare two configurations by key.
    written: WrittenDocument,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    pub listen: SocketAddr,
    /// In lower case, with a port where one was given.
    pub allowed_hosts: Vec<String>,
    /// In lower case: `scheme://host[:port]`.
    pub allowed_origins: Vec<String>,
}

/// Who is told of calls that wait for approval.
#[derive(Debug, Clone)]
pub struct NotifySettings {
    pub webhook: Option<NotifyWebhook>,
    /// With `notify-send`, where there is a session.
    pub desktop: bool,
}

#[derive(Debug, Clone)]
pub struct NotifyWebhook {
    pub url: SecretUrl,
    pub format: NotifyFormat,
}

/// The format of a webhook's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyFormat {
    Json,
    /// Plain text, with title and tags in headers.
    Ntfy,
    /// An incoming webhook of Slack, and of services that take the same.
    Slack,
}

/// Rate and burst are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitSettings {
    pub requests_per_second: u32,
    pub burst: u32,
    /// How long a call over the limit may wait.
    pub wait: Duration,
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

/// The admin page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminSettings {
    pub enabled: bool,
    /// Serve on non-loopback addresses, too.
    pub allow_remote: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    pub exceptions: Vec<AllowlistEntry>,
    pub per_host: HostRateLimit,
    /// Additional CA certificates.
    pub ca_file: Option<PathBuf>,
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
    /// Timeout of its start and handshake.
    pub start_timeout: Duration,
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
    /// Without one, the policy of the review decides.
    pub decision: Option<ConfiguredDecision>,
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
        self.written.shown()
    }

    /// Returns the settings of a family's section; `None` if the section turns its family on and is missing.
    pub fn section<S: ConfigSection>(&self) -> Option<&S::Settings> {
        self.sections.get::<S>()
    }

    /// Loads the configuration of a home folder. Without a file the defaults apply.
    pub fn load(home: &Path, env: Environment<'_>) -> Result<LoadedConfig, ConfigErrors> {
        Config::load_with(FAMILIES, home, env)
    }

    /// Loads the configuration of a hub with other families.
    pub fn load_with(
        families: Families,
        home: &Path,
        env: Environment<'_>,
    ) -> Result<LoadedConfig, ConfigErrors> {
        let Some(source) = read::find(home)? else {
            let (config, warnings) = Config::with(families, "defaults", &Document::empty(), home, env)?;
            return Ok(LoadedConfig { config, path: None, warnings });
        };
        let document = read::parse(source.name, &source.text)?;
        let (config, mut warnings) = Config::with(families, source.name, &document, home, env)?;
        if source.writable_by_all {
            let advice = format!("it is writable by all users; run `chmod o-w {}`", source.path.display());
            warnings.insert(0, format!("{}: {advice}", source.name));
        }
        Ok(LoadedConfig { config, path: Some(source.path), warnings })
    }

    /// Returns the changed settings that need a restart.
    pub fn diff_needs_restart(&self, other: &Config) -> Vec<String> {
        let (mine, theirs) = (self.written.value(), other.written.value());
        let same = |key: &String| {
            let pointer = format!("/{}", key.replace('.', "/"));
            mine.pointer(&pointer) == theirs.pointer(&pointer)
        };
        let mut keys = restart_keys(self.families);
        keys.retain(|key| !same(key));
        keys
    }

    /// Returns a configuration that turns every family on, for lists of all tools.
    pub fn of_every_family(home: &Path) -> Result<Config, ConfigErrors> {
        let mut text = String::new();
        for spec in sections(FAMILIES) {
            match (spec.example, spec.absent) {
                (Some(example), _) => text.push_str(example),
                (None, AbsentSection::Off) => text.push_str(&format!("[{}]\n", spec.key)),
                (None, AbsentSection::Defaults) => {}
            }
        }
        let (config, _) =
            Config::with(FAMILIES, "defaults", &read::parse("every.toml", &text)?, home, &|_| None)?;
        Ok(config)
    }

    fn of(
        place: &str,
        document: &Document,
        home: &Path,
        env: Environment<'_>,
    ) -> Result<(Config, Vec<String>), ConfigErrors> {
        Config::with(FAMILIES, place, document, home, env)
    }

    fn with(
        families: Families,
        place: &str,
        document: &Document,
        home: &Path,
        env: Environment<'_>,
    ) -> Result<(Config, Vec<String>), ConfigErrors> {
        let (mut written, mut findings) = written::schema_check::check(&document.value, families)?;
        let port_problem = override_port(&mut written.core, env).err();
        let (mut config, more) = resolve::resolve(written, families, home, env);
        // An invalid key has its default here, which is not what the user wrote.
        let is_consequence = |finding: &Finding| {
            let table = finding.pointer.rfind('/').map_or("", |end| &finding.pointer[..=end]);
            let is_missing = document.value.pointer(&finding.pointer).is_none();
            let is_explained = |earlier: &str| {
                earlier == finding.pointer
                    || (is_missing && table.starts_with("/mcp/") && earlier.starts_with(table))
            };
            findings.iter().any(|(earlier, _)| is_explained(&earlier.pointer))
        };
        // A server's key that is missing was probably written under the wrong name.
        let more: Vec<Finding> = more.into_iter().filter(|finding| !is_consequence(finding)).collect();
        findings.extend(more.into_iter().map(|finding| (finding, FaultyPart::Value { correct: None })));
        if findings.is_empty() && port_problem.is_none() {
            for (index, rule) in config.policy.iter_mut().enumerate() {
                rule.line = document.line(&format!("/policy/{index}"));
            }
            let warnings = config.warnings(place);
            return Ok((config, warnings));
        }
        let problem = |(finding, part): (Finding, FaultyPart)| ConfigError {
            place: place.to_owned(),
            line: document.line(&finding.pointer),
            excerpt: document.excerpt(&finding, &part),
            text: finding.text,
        };
        let mut problems: Vec<ConfigError> = findings.into_iter().map(problem).collect();
        problems.sort_by_key(|problem| problem.line);
        problems.extend(port_problem);
        Err(ConfigErrors::new(problems))
    }

    fn warnings(&self, place: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        let listen = self.http.listen;
        if !listen.ip().is_loopback() {
            warnings.push(format!(
                "{place}: `http.listen` is {listen}, which other machines can reach; tokens are sent unencrypted, so use a TLS proxy"
            ));
        }
        // Not an error: a hub whose file was fine so far has to start.
        warnings.extend(self.mcp.iter().filter_map(|server| {
            let McpServerSettings { name, prefix, .. } = server;
            let shown = if prefix.is_empty() { name } else { prefix };
            let reserved = reserved_prefix(self.families, shown)?;
            let other = other_name(shown.trim_end_matches('_'));
            Some(format!(
                "{place}: the tools of server `{name}` are named like the hub's own `{reserved}_*`, so rules for those match them too; set `mcp.{name}.prefix` to \"{other}_\", or rename the server"
            ))
        }));
        warnings
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
        return Err(ConfigError { place: "environment".to_owned(), line: None, text, excerpt: None });
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
