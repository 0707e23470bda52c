//! The configuration: what was written, checked, and what it means.
//!
//! One file in the home folder. It is read strictly: whatever is wrong is told at once, each with its
//! place, and a hub does not start on half of a configuration. Nothing here is `Serialize`; the shape of
//! the file is private to this module, and everyone else sees [`Config`].

mod add_rule;
mod by_hand;
mod check;
mod edit_rules;
mod edit_servers;
mod example;
mod fits;
mod inline;
mod limit_table;
mod meaning;
mod oauth;
mod outside;
mod problem;
mod read;
mod scripts;
mod sections;
mod time;
mod vault;
mod written;

pub use add_rule::{AddRuleError, AllowRule, add_rule};
pub use check::schema;
pub(crate) use edit_rules::{RuleEdit, WrittenRule, edit_rules, version};
pub(crate) use edit_servers::check_server;
pub use edit_servers::{EditError, Editing, NewServer, add_servers, preview_servers, remove_server};
pub use example::example;
pub use limit_table::limit_table;
pub(crate) use meaning::sets_header;
pub use oauth::McpOAuth;
pub use problem::{ConfigErrors, Problem};
pub(crate) use time::moment;

use jiff::tz::TimeZone;
use portcullis_core::{Effect, EffectSet, Labels, Origin, Pattern, Reach, Scope, Unruled};
use portcullis_egress::header::HeaderName;
use portcullis_egress::own::Place;
use portcullis_egress::{Exception, PerHost, PlainHttp, SecretRef, Url};
use portcullis_guard::{TokenShapes, When};
use portcullis_script::Strictness;
use portcullis_store::scripts::{Allowed, Capabilities};
use portcullis_store::secrets::KeyKind;
use portcullis_tools::{Author, CalendarSource, RemoteAddress};
use problem::Finding;
use read::Document;
use serde_json::json;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use written::Written;

/// Replaces the port of `http.listen`.
const PORT_VARIABLE: &str = "MCP_HTTP_PORT";

/// Settings that are read once, when the hub starts. A running one takes the others over from a changed file.
const NEED_RESTART: [&str; 56] = [
    "http.listen",
    "admin.enabled",
    "admin.allow_remote",
    "logging.format",
    "workspace.path",
    "workspace.enabled",
    "memory.enabled",
    "prompts.path",
    "vault.path",
    "vault.git_repo",
    "vault.auto_sync",
    "vault.git_token",
    "vault.git_user",
    "vault.git_author",
    "vault.pull_after_secs",
    "vault.git_timeout_secs",
    "web.http",
    "web.respect_robots",
    "web.user_agent",
    "web.allow",
    "web.deny",
    "egress.allow",
    "egress.per_host_per_minute",
    "egress.per_host_burst",
    "egress.ca_file",
    "calendars",
    "github.token",
    "github.base_url",
    "github.repositories",
    "scripts.enabled",
    "scripts.path",
    "scripts.timeout_ms",
    "scripts.memory_mb",
    "scripts.sandbox",
    "scripts.warm",
    "scripts.exec",
    "scripts.allow",
    "secrets.key",
    "secrets.key_file",
    "limits.line_bytes_max",
    "limits.body_bytes_max",
    "limits.connections_max",
    "limits.connections_per_source_max",
    "limits.headers_secs",
    "limits.body_secs",
    "limits.write_secs",
    "limits.keep_alive_secs",
    "limits.token_failures_max",
    "limits.token_lockout_secs",
    "limits.call_secs_max",
    "limits.result_bytes_max",
    "limits.in_flight_max",
    "limits.sessions_max",
    "limits.sessions_per_client_max",
    "limits.session_idle_secs",
    "limits.shutdown_grace_secs",
];

/// Where environment variables come from; a test brings its own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What a file means, complete with defaults.
#[derive(Debug, Clone)]
pub struct Config {
    pub http: Http,
    pub rate_limit: RateLimit,
    pub logging: Logging,
    pub workspace: Workspace,
    pub memory: Memory,
    pub prompts: Prompts,
    /// `None` if there are no vault tools.
    pub vault: Option<Vault>,
    /// `None` if there are no web tools.
    pub web: Option<Web>,
    /// Empty if there is no calendar tool.
    pub calendars: Vec<CalendarSource>,
    /// `None` if there are no GitHub tools.
    pub github: Option<Github>,
    pub scripts: ScriptSettings,
    pub egress: Egress,
    pub stdio: Stdio,
    pub redaction: Redaction,
    pub secrets: Secrets,
    pub limits: Limits,
    pub approvals: Approvals,
    pub admin: Admin,
    pub time: Time,
    /// In the order of their names.
    pub mcp: Vec<McpServer>,
    /// First match wins.
    pub policy: Vec<Rule>,
    /// What it was made from, to compare two configurations key by key.
    written: Written,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    pub listen: SocketAddr,
    /// In lower case, with a port where one was given.
    pub allowed_hosts: Vec<String>,
    /// In lower case: `scheme://host[:port]`.
    pub allowed_origins: Vec<String>,
}

/// Both are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub requests_per_second: u32,
    pub burst: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logging {
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
pub struct Workspace {
    /// Absolute if the home folder is.
    pub path: PathBuf,
    pub enabled: bool,
}

/// Where people look and decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admin {
    pub enabled: bool,
    /// Also where others could read along.
    pub allow_remote: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    pub path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vault {
    pub path: PathBuf,
    /// `None` if it is not synced.
    pub sync: Option<VaultSync>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultSync {
    pub address: RemoteAddress,
    pub token: Option<SecretRef>,
    pub user: String,
    pub author: Author,
    pub pull_after: Duration,
    pub within: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Web {
    pub plain_http: PlainHttp,
    pub respect_robots: bool,
    pub user_agent: Option<String>,
    /// In lower case.
    pub allow: Vec<String>,
    /// In lower case.
    pub deny: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Egress {
    pub exceptions: Vec<Exception>,
    pub per_host: PerHost,
    /// Certificates of authorities, besides the well-known ones.
    pub ca_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Github {
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
    pub strictness: Strictness,
    pub warm: usize,
    /// What code may use that nobody approved.
    pub exec: Capabilities,
    /// What the configuration itself approves.
    pub allow: Vec<Allowed>,
}

#[derive(Debug, Clone)]
pub struct Stdio {
    pub client: String,
    pub scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redaction {
    pub token_shapes: TokenShapes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets {
    /// `None` is whichever is found.
    pub key: Option<KeyKind>,
    pub key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
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
pub struct Approvals {
    pub wait: Duration,
    pub pending: Duration,
    pub approved: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    pub zone: TimeZone,
}

/// One other MCP server.
#[derive(Debug, Clone)]
pub struct McpServer {
    pub name: String,
    pub enabled: bool,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: Option<PathBuf>,
    /// Where it is, if it is no program to start.
    pub place: Option<Place>,
    /// As written: `${NAME}` and `secret:NAME` are looked up when they are sent.
    pub headers: Vec<(HeaderName, String)>,
    /// How to log in there, if that is wanted.
    pub oauth: Option<McpOAuth>,
    /// As written: `${NAME}` and `secret:NAME` are looked up when it starts.
    pub env: Vec<(String, String)>,
    pub timeout: Duration,
    /// With the `_` between it and the names; empty for nothing.
    pub prefix: String,
    pub allow: Pattern,
    pub deny: Option<Pattern>,
    /// The own name, and the other.
    pub rename: Vec<(String, String)>,
    /// First match wins.
    pub effects: Vec<(Pattern, Effect)>,
    /// First match wins.
    pub labels: Vec<(Pattern, Labels)>,
    /// Whether what it offers is taken as it comes.
    pub always_trusted: bool,
    /// Whether it is started only when one of its tools is called.
    pub lazy: bool,
    /// After how long without a call it is ended until the next one.
    pub idle_stop: Option<Duration>,
    /// How many clients may have one of their own; `None` where all share one.
    pub per_client: Option<usize>,
    pub relist_every: Duration,
    pub decision: Verdict,
}

/// One rule of the policy. It matches when every part does.
#[derive(Debug, Clone)]
pub struct Rule {
    pub tools: Pattern,
    pub clients: Pattern,
    pub origins: Vec<Origin>,
    pub effects: EffectSet,
    /// `None` is any.
    pub reach: Option<Reach>,
    /// `None` is any, and none.
    pub labels: Option<Labels>,
    pub when: When,
    pub decision: Verdict,
    /// Where it stands in the file, if the file's format tells.
    pub line: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Ask,
    Deny,
}

impl From<Verdict> for Unruled {
    fn from(verdict: Verdict) -> Unruled {
        match verdict {
            Verdict::Allow => Unruled::Allow,
            Verdict::Ask => Unruled::Ask,
            Verdict::Deny => Unruled::Deny,
        }
    }
}

/// A configuration, and where it came from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// `None` if there is no file and everything is as by default.
    pub path: Option<PathBuf>,
    /// What is allowed but should be looked at.
    pub warnings: Vec<String>,
}

impl Config {
    /// Returns what the file says, complete with defaults. Whatever may be private in it is not shown.
    pub(crate) fn shown(&self) -> serde_json::Value {
        let mut written = json!(self.written);
        written::hide_values(&mut written);
        written
    }

    /// Reads the configuration in a home folder. No file means the defaults.
    pub fn load(home: &Path, env: Environment<'_>) -> Result<Loaded, ConfigErrors> {
        let Some(source) = read::find(home)? else {
            let (config, warnings) = Config::of("defaults", &Document::empty(), home, env)?;
            return Ok(Loaded { config, path: None, warnings });
        };
        let document = read::parse(source.name, &source.text)?;
        let (config, mut warnings) = Config::of(source.name, &document, home, env)?;
        if source.writable_by_all {
            let advice =
                format!("anyone on this machine can change it; `chmod o-w {}`", source.path.display());
            warnings.insert(0, format!("{}: {advice}", source.name));
        }
        Ok(Loaded { config, path: Some(source.path), warnings })
    }

    /// Names the settings that differ between two configurations and are read only at the start.
    pub fn diff_needs_restart(&self, other: &Config) -> Vec<&'static str> {
        let (mine, theirs) = (json!(self.written), json!(other.written));
        let differs = |key: &&str| {
            let pointer = format!("/{}", key.replace('.', "/"));
            mine.pointer(&pointer) != theirs.pointer(&pointer)
        };
        NEED_RESTART.into_iter().filter(differs).collect()
    }

    fn of(
        place: &str,
        document: &Document,
        home: &Path,
        env: Environment<'_>,
    ) -> Result<(Config, Vec<String>), ConfigErrors> {
        let (mut written, mut findings) = check::check(&document.value)?;
        let port_problem = override_port(&mut written, env).err();
        let (mut config, more) = meaning::meaning(written, home, env);
        // A key that was left out for its shape has its default here, which is not what the user wrote.
        findings.extend(more);
        if findings.is_empty() && port_problem.is_none() {
            for (index, rule) in config.policy.iter_mut().enumerate() {
                rule.line = document.line(&format!("/policy/{index}"));
            }
            let warnings = config.warnings(place);
            return Ok((config, warnings));
        }
        let problem = |finding: Finding| Problem {
            place: place.to_owned(),
            line: document.line(&finding.pointer),
            text: finding.text,
        };
        let mut problems: Vec<Problem> = findings.into_iter().map(problem).collect();
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
            "{place}: `http.listen` is {listen}, which other machines can reach; tokens travel unencrypted, so put TLS in front"
        )]
    }
}

impl Workspace {
    /// Returns the only folder that tools can reach.
    pub fn data_dir(&self) -> PathBuf {
        self.path.join("ai-data")
    }

    /// Returns the folder in which a server is started that has no other. No tool can reach it.
    pub fn server_dir(&self, name: &str) -> PathBuf {
        self.path.join("servers").join(name)
    }

    /// Returns the folder that no tool can reach.
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

/// Takes the port from the environment. An empty variable counts as none.
fn override_port(written: &mut Written, env: Environment<'_>) -> Result<(), Problem> {
    let Some(text) = env(PORT_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(()) };
    let text = text.to_string_lossy();
    let Ok(port) = text.parse::<u16>() else {
        let shown = portcullis_core::json::printable(&text);
        let text = format!("`{PORT_VARIABLE}` is \"{shown}\", expected a port, 0 to 65535");
        return Err(Problem { place: "environment".to_owned(), line: None, text });
    };
    // An address that cannot be read is reported as it was written.
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
