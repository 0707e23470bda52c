//! Resolves the written configuration to typed settings, and collects all errors.

use super::errors::{Finding, key_path};
use super::oauth;
use super::time;
use super::written::{
    self, DecisionName, EffectName, FormatName, KeyName, LabelName, LevelName, OriginName, ReachName,
    StartName, TrustName, ViewName, WrittenConfig,
};
use super::{
    AdminSettings, ApprovalSettings, Config, ConfiguredDecision, Environment, HttpSettings, Level,
    LimitSettings, LogFormat, LoggingSettings, McpServerSettings, MemorySettings, PromptSettings,
    RateLimitSettings, RedactionSettings, RuleSettings, SecretSettings, StdioSettings, TimeSettings,
    WorkspaceSettings,
};
use jiff::tz::TimeZone;
use portcullis_core::json::printable;
use portcullis_core::{
    Effect, EffectSet, Label, Labels, Origin, Pattern, PatternError, Reach, Scope, ToolView,
};
use portcullis_egress::configured_client::{ConfiguredEndpoint, EndpointError};
use portcullis_egress::header::HeaderName;
use portcullis_guard::{Days, RuleSchedule, TokenShapes};
use portcullis_store::clients::parse_duration;
use portcullis_store::secrets::KeyKind;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Leaves room for the tool name.
const SERVER_NAME_CHARS_MAX: usize = 32;
/// Hop-by-hop and framing headers, which the hub sets. `Authorization` is not among them.
const HEADERS_TAKEN: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Collects errors and continues, so that all are reported at once.
pub(super) struct ConfigResolver<'a> {
    pub(super) home: &'a Path,
    env: Environment<'a>,
    pub(super) findings: Vec<Finding>,
}

/// Resolves a file. The result is valid only without findings.
pub(super) fn resolve(written: WrittenConfig, home: &Path, env: Environment<'_>) -> (Config, Vec<Finding>) {
    let mut checks = ConfigResolver { home, env, findings: Vec::new() };
    let zone = checks.zone(&written.time.timezone);
    let config = Config {
        http: checks.http(&written.http),
        rate_limit: RateLimitSettings {
            requests_per_second: written.rate_limit.requests_per_second,
            burst: written.rate_limit.burst,
        },
        logging: LoggingSettings {
            level: level(written.logging.level),
            format: format(written.logging.format),
        },
        workspace: WorkspaceSettings {
            path: checks.path("/workspace/path", &written.workspace.path),
            enabled: written.workspace.enabled,
        },
        memory: MemorySettings { enabled: written.memory.enabled },
        admin: AdminSettings { enabled: written.admin.enabled, allow_remote: written.admin.allow_remote },
        prompts: PromptSettings { path: checks.path("/prompts/path", &written.prompts.path) },
        vault: written.vault.as_ref().map(|vault| checks.vault(vault, &written.workspace.path)),
        web: written.web.as_ref().map(|web| checks.web(web)),
        calendars: checks.calendars(&written.calendars),
        github: written.github.as_ref().and_then(|github| checks.github(github)),
        scripts: checks.scripts(&written.scripts, &written.workspace.path),
        egress: checks.egress(&written.egress),
        stdio: checks.stdio(&written.stdio),
        redaction: RedactionSettings { token_shapes: shapes(written.redaction.token_shapes) },
        secrets: checks.secrets(&written.secrets),
        limits: checks.limits(&written.limits),
        approvals: ApprovalSettings {
            wait: Duration::from_secs(written.approvals.wait_secs),
            pending: Duration::from_secs(written.approvals.pending_secs),
            approved: Duration::from_secs(written.approvals.approved_secs),
        },
        mcp: written.mcp.iter().map(|(name, server)| checks.mcp(name, server)).collect(),
        policy: written
            .policy
            .iter()
            .enumerate()
            .map(|(index, rule)| checks.rule(index, rule, &zone))
            .collect(),
        time: TimeSettings { zone },
        written,
    };
    (config, checks.findings)
}

impl ConfigResolver<'_> {
    pub(super) fn unexpected(&mut self, pointer: &str, value: &str, expected: &str) {
        self.findings.push(Finding::unexpected(pointer, &json!(value), expected));
    }

    fn http(&mut self, http: &written::WrittenHttp) -> HttpSettings {
        let listen = http.listen.parse::<SocketAddr>().unwrap_or_else(|_| {
            self.unexpected("/http/listen", &http.listen, "an address like 127.0.0.1:3000");
            (Ipv4Addr::LOCALHOST, 0).into()
        });
        for (index, host) in http.allowed_hosts.iter().enumerate() {
            if !is_host(host) {
                let pointer = format!("/http/allowed_hosts/{index}");
                self.unexpected(&pointer, host, "a host name like hub.example.com, with :port if needed");
            }
        }
        for (index, origin) in http.allowed_origins.iter().enumerate() {
            if !is_origin(origin) {
                let pointer = format!("/http/allowed_origins/{index}");
                self.unexpected(&pointer, origin, "an origin like https://app.example.com, without a path");
            }
        }
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        HttpSettings {
            listen,
            allowed_hosts: lower(&http.allowed_hosts),
            allowed_origins: lower(&http.allowed_origins),
        }
    }

    fn stdio(&mut self, stdio: &written::WrittenStdio) -> StdioSettings {
        if !portcullis_store::clients::is_client_name(&stdio.client) {
            let expected = "a name of a-z, 0-9, `-` and `_`, 1 to 64 characters";
            self.unexpected("/stdio/client", &stdio.client, expected);
        }
        let scope = Scope {
            allow: self.pattern("/stdio/allow", &stdio.allow),
            deny: (!stdio.deny.is_empty()).then(|| self.pattern("/stdio/deny", &stdio.deny)),
            effects: effects(&stdio.effects),
            view: match stdio.tools {
                ViewName::All => ToolView::All,
                ViewName::Search => ToolView::Search,
            },
        };
        StdioSettings { client: stdio.client.clone(), scope }
    }

    fn secrets(&mut self, secrets: &written::WrittenSecrets) -> SecretSettings {
        let path = &secrets.key_file;
        let key_file = (!path.is_empty()).then(|| self.path("/secrets/key_file", path));
        SecretSettings { key: key_kind(secrets.key), key_file }
    }

    fn limits(&mut self, limits: &written::WrittenLimits) -> LimitSettings {
        if limits.sessions_per_client_max > limits.sessions_max {
            let expected = format!("at most `limits.sessions_max`, {}", limits.sessions_max);
            let value = json!(limits.sessions_per_client_max);
            self.findings.push(Finding::unexpected("/limits/sessions_per_client_max", &value, &expected));
        }
        LimitSettings {
            line_bytes_max: limits.line_bytes_max,
            body_bytes_max: limits.body_bytes_max,
            connections_max: limits.connections_max,
            connections_per_source_max: limits.connections_per_source_max,
            headers_within: Duration::from_secs(limits.headers_secs),
            body_within: Duration::from_secs(limits.body_secs),
            write_within: Duration::from_secs(limits.write_secs),
            keep_alive: Duration::from_secs(limits.keep_alive_secs),
            token_failures_max: limits.token_failures_max,
            token_lockout: Duration::from_secs(limits.token_lockout_secs),
            call_within: Duration::from_secs(limits.call_secs_max),
            result_bytes_max: limits.result_bytes_max,
            in_flight_max: limits.in_flight_max,
            sessions_max: limits.sessions_max,
            sessions_per_client_max: limits.sessions_per_client_max,
            session_idle: Duration::from_secs(limits.session_idle_secs),
            shutdown_grace: Duration::from_secs(limits.shutdown_grace_secs),
        }
    }

    fn zone(&mut self, name: &str) -> TimeZone {
        time::zone(name).unwrap_or_else(|expected| {
            self.unexpected("/time/timezone", name, &expected);
            TimeZone::UTC
        })
    }

    fn when(&mut self, index: usize, rule: &written::WrittenPolicyRule, zone: &TimeZone) -> RuleSchedule {
        let mut when = RuleSchedule::default();
        if let Some(text) = &rule.hours {
            when.hours = time::hours(text)
                .map_err(|expected| self.unexpected(&format!("/policy/{index}/hours"), text, &expected))
                .ok();
        }
        for (at, text) in rule.days.iter().flatten().enumerate() {
            match time::days(text) {
                Ok(days) => when.days = Some(when.days.unwrap_or(Days::NONE).with(days)),
                Err(expected) => self.unexpected(&format!("/policy/{index}/days/{at}"), text, &expected),
            }
        }
        if let Some(text) = &rule.until {
            when.until = time::moment(text, zone)
                .map_err(|expected| self.unexpected(&format!("/policy/{index}/until"), text, &expected))
                .ok();
        }
        when
    }

    fn mcp(&mut self, name: &str, server: &written::WrittenMcpServer) -> McpServerSettings {
        let at = |key: &str| format!("/mcp/{}/{key}", name.replace('~', "~0").replace('/', "~1"));
        if !is_server_name(name) {
            let mut pointer = at("");
            pointer.pop();
            // A key path would contain the name without delimiting it.
            let text = format!(
                "`mcp` has a server named \"{}\", expected {}",
                printable(name),
                server_name_expected()
            );
            self.findings.push(Finding { pointer, text });
        }
        for (variable, value) in &server.env {
            // No process can be started with these.
            if variable.is_empty() || variable.contains(['=', '\0']) {
                let text = format!(
                    "`mcp.{}.env` has a variable named \"{}\", expected one without `=` and NUL",
                    printable(name),
                    printable(variable)
                );
                self.findings.push(Finding { pointer: at("env"), text });
            } else if value.contains('\0') {
                let text = format!(
                    "`mcp.{}.env` has a character in `{}` that no variable can hold",
                    printable(name),
                    printable(variable)
                );
                self.findings.push(Finding { pointer: at("env"), text });
            }
        }
        let place = self.mcp_place(name, server, &at);
        let oauth = oauth::meant(server.oauth.as_ref(), name, place.as_ref(), &at, &mut self.findings);
        let mut globs: Vec<(&String, &EffectName)> = server.effects.iter().collect();
        // The longest glob is the most specific.
        globs.sort_by_key(|(glob, _)| (std::cmp::Reverse(glob.len()), glob.as_str()));
        let effects = globs.into_iter().map(|(glob, effect)| {
            (self.pattern(&at("effects"), std::slice::from_ref(glob)), effect_of(*effect))
        });
        let mut effects: Vec<(Pattern, Effect)> = effects.collect();
        effects.extend(server.effect.map(|effect| (Pattern::any(), effect_of(effect))));
        let mut globs: Vec<(&String, &Vec<LabelName>)> = server.labels.iter().collect();
        globs.sort_by_key(|(glob, _)| (std::cmp::Reverse(glob.len()), glob.as_str()));
        let labels = globs
            .into_iter()
            .map(|(glob, names)| (self.pattern(&at("labels"), std::slice::from_ref(glob)), labels_of(names)));
        let labels = labels.collect();
        let rename = self.renames(&at("rename"), &server.rename);
        McpServerSettings {
            name: name.to_owned(),
            enabled: server.enabled,
            command: self.mcp_command(name, server, &at("command")),
            args: server.args.clone(),
            cwd: server.cwd.as_ref().map(|path| self.path(&at("cwd"), path)),
            place,
            headers: self.mcp_headers(server, &at),
            oauth,
            env: server.env.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            timeout: Duration::from_millis(server.timeout_ms),
            prefix: match server.prefix.as_deref() {
                Some(written) => self.prefix(&at("prefix"), written),
                None => format!("{name}_"),
            },
            allow: self.pattern(&at("tools/allow"), &server.tools.allow),
            deny: (!server.tools.deny.is_empty())
                .then(|| self.pattern(&at("tools/deny"), &server.tools.deny)),
            rename,
            effects,
            labels,
            always_trusted: server.trust == TrustName::Always,
            lazy: server.start == StartName::Lazy,
            idle_stop: server.idle_stop.as_ref().and_then(|text| self.lasting(&at("idle_stop"), text)),
            per_client: server.per_client.then_some(server.clients_max),
            relist_every: Duration::from_secs(server.relist_secs),
            decision: verdict(server.decision),
        }
    }

    fn lasting(&mut self, pointer: &str, text: &str) -> Option<Duration> {
        let expected = "a whole number and s, m, h, d or w, like 10m";
        parse_duration(text).map_err(|_| self.unexpected(pointer, text, expected)).ok()
    }

    fn renames(&mut self, pointer: &str, names: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let mut taken = BTreeSet::new();
        for (own, other) in names {
            if other.is_empty() || !other.chars().all(legal) || !taken.insert(other) {
                let pointer = format!("{pointer}/{}", own.replace('~', "~0").replace('/', "~1"));
                self.unexpected(&pointer, other, "letters, digits, `-` and `_`, each name once");
            }
        }
        names.iter().map(|(own, other)| (own.clone(), other.clone())).collect()
    }

    /// Returns the prefix of a server's tools, written as `git` or `git_`.
    fn prefix(&mut self, pointer: &str, written: &str) -> String {
        // Other characters would be replaced in every name and leave too little room.
        if !written.is_empty() && !is_server_name(written.strip_suffix('_').unwrap_or(written)) {
            self.unexpected(pointer, written, &format!("\"\", or {}", server_name_expected()));
        }
        let between = if written.is_empty() || written.ends_with('_') { "" } else { "_" };
        format!("{written}{between}")
    }

    /// A command is a name looked up in PATH, or a path. The result must not depend on the current directory.
    fn mcp_command(&mut self, name: &str, server: &written::WrittenMcpServer, pointer: &str) -> String {
        let Some(command) = &server.command else { return String::new() };
        let path = Path::new(command);
        if !command.contains('/') || path.is_absolute() {
            return command.clone();
        }
        let whole = match (&server.cwd, command.starts_with("~/")) {
            (_, true) => self.path(pointer, command),
            (Some(cwd), false) => self.path(pointer, cwd).join(path),
            (None, false) => {
                let text = format!(
                    "`mcp.{name}.command` is {command:?}, expected a program name or an absolute path; or set `cwd`"
                );
                self.findings.push(Finding { pointer: pointer.to_owned(), text });
                path.to_owned()
            }
        };
        whole.display().to_string()
    }

    /// A server has either a command or a URL, and only the keys of its kind.
    fn mcp_place(
        &mut self,
        name: &str,
        server: &written::WrittenMcpServer,
        at: &dyn Fn(&str) -> String,
    ) -> Option<ConfiguredEndpoint> {
        let mut find = |key: &str, text: String| self.findings.push(Finding { pointer: at(key), text });
        match (&server.command, &server.url) {
            (None, None) => find(
                "command",
                format!(
                    "`mcp.{name}.command` is missing, expected the program to start, like \"npx\", or `url`"
                ),
            ),
            (Some(_), Some(_)) => {
                find("url", format!("`mcp.{name}` has `command` and `url`, expected one of them"));
            }
            (Some(_), None) if !server.headers.is_empty() => {
                find("headers", format!("`mcp.{name}.headers` is for a server with `url`; use `env`"));
            }
            (None, Some(_)) => {
                let given = [
                    ("args", !server.args.is_empty()),
                    ("cwd", server.cwd.is_some()),
                    ("env", !server.env.is_empty()),
                ];
                for (key, _) in given.iter().filter(|(_, given)| *given) {
                    find(key, format!("`mcp.{name}.{key}` is for a server with `command`"));
                }
            }
            (Some(_), None) => {}
        }
        // Arguments of a process are readable by other processes.
        if server.args.iter().any(|argument| argument.starts_with("secret:")) {
            find("args", format!("`mcp.{name}.args` holds a secret; secrets are for `env` and `headers`"));
        }
        let url = server.url.as_ref()?;
        if url.contains("${") {
            find("url", format!("`mcp.{name}.url` holds `${{`; variables are for `env` and `headers`"));
        }
        // Not quoted: a URL may contain a password.
        let invalid = |why: EndpointError| format!("`mcp.{name}.url` is not a valid URL: {why}");
        url.parse().map_err(|why| find("url", invalid(why))).ok()
    }

    fn mcp_headers(
        &mut self,
        server: &written::WrittenMcpServer,
        at: &dyn Fn(&str) -> String,
    ) -> Vec<(HeaderName, String)> {
        let mut headers = Vec::with_capacity(server.headers.len());
        for (name, value) in &server.headers {
            let lower = name.to_ascii_lowercase();
            match HeaderName::from_bytes(lower.as_bytes()) {
                Ok(header) if !sets_header(name) => headers.push((header, value.clone())),
                Ok(_) => {
                    self.unexpected(&at("headers"), name, "header names that the hub does not set itself")
                }
                // Not quoted: it may be a whole header with a secret.
                Err(_) => {
                    let text = format!(
                        "a key in `{}` is not a header name, expected NAME = \"VALUE\"",
                        key_path(&at("headers"))
                    );
                    self.findings.push(Finding { pointer: at("headers"), text });
                }
            }
        }
        headers
    }

    fn rule(&mut self, index: usize, rule: &written::WrittenPolicyRule, zone: &TimeZone) -> RuleSettings {
        RuleSettings {
            tools: self.pattern(&format!("/policy/{index}/tools"), &rule.tools),
            clients: self.pattern(&format!("/policy/{index}/clients"), &rule.clients),
            origins: rule.origins.iter().copied().map(origin).collect(),
            effects: effects(&rule.effects),
            reach: rule.reach.map(reach),
            labels: rule.labels.as_deref().map(labels_of),
            when: self.when(index, rule, zone),
            line: None,
            decision: verdict(rule.decision),
        }
    }

    fn pattern(&mut self, pointer: &str, globs: &[String]) -> Pattern {
        Pattern::new(globs).unwrap_or_else(|error| {
            let before = self.findings.len();
            // One by one, to report each invalid one.
            for (index, glob) in globs.iter().enumerate() {
                if let Err(PatternError::Bad { reason, .. }) = Pattern::new(&[glob]) {
                    let expected = format!("a glob like workspace_*: {reason}");
                    self.unexpected(&format!("{pointer}/{index}"), glob, &expected);
                }
            }
            if self.findings.len() == before {
                self.findings.push(Finding { pointer: pointer.to_owned(), text: error.to_string() });
            }
            Pattern::any()
        })
    }

    /// Resolves a path relative to the home folder; `~/` is the user's home directory.
    pub(super) fn path(&mut self, pointer: &str, text: &str) -> PathBuf {
        if text.contains('\0') {
            self.unexpected(pointer, text, "a path");
        }
        let below_user = text.strip_prefix("~/").or_else(|| (text == "~").then_some(""));
        match (below_user, (self.env)("HOME")) {
            (None, _) => self.home.join(text),
            (Some(below), Some(user)) if !user.is_empty() => Path::new(&user).join(below),
            (Some(_), _) => {
                self.unexpected(pointer, text, "a path without `~`, because HOME is not set");
                self.home.join(text)
            }
        }
    }
}

/// Returns whether the hub sets this header itself.
pub fn sets_header(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.starts_with("mcp-") || HEADERS_TAKEN.contains(&lower.as_str())
}

pub(super) fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        // A bracketed IPv6 address contains colons.
        Some((name, port)) if !text.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    let name_fits = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.chars().all(plain),
    };
    name_fits && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_origin(text: &str) -> bool {
    let scheme_fits = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    };
    text.split_once("://").is_some_and(|(scheme, host)| scheme_fits(scheme) && is_host(host))
}

fn effects(names: &[EffectName]) -> EffectSet {
    names.iter().copied().map(effect_of).collect()
}

/// Returns whether this is a valid server name.
pub(super) fn is_server_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= SERVER_NAME_CHARS_MAX && name.chars().all(legal)
}

pub(super) fn server_name_expected() -> String {
    format!("letters, digits, `-` and `_`, 1 to {SERVER_NAME_CHARS_MAX} of them")
}

fn effect_of(name: EffectName) -> Effect {
    match name {
        EffectName::Read => Effect::Read,
        EffectName::Create => Effect::Create,
        EffectName::Write => Effect::Write,
        EffectName::Destroy => Effect::Destroy,
    }
}

fn labels_of(names: &[LabelName]) -> Labels {
    let label = |name: &LabelName| match name {
        LabelName::Private => Label::Private,
        LabelName::Untrusted => Label::Untrusted,
        LabelName::Outward => Label::Outward,
    };
    names.iter().map(label).collect()
}

fn origin(name: OriginName) -> Origin {
    match name {
        OriginName::Client => Origin::Client,
        OriginName::Schedule => Origin::Schedule,
        OriginName::Script => Origin::Script,
        OriginName::Chat => Origin::Chat,
        OriginName::Admin => Origin::Admin,
    }
}

fn reach(name: ReachName) -> Reach {
    match name {
        ReachName::Local => Reach::Local,
        ReachName::Outside => Reach::Outside,
    }
}

fn verdict(name: DecisionName) -> ConfiguredDecision {
    match name {
        DecisionName::Allow => ConfiguredDecision::Allow,
        DecisionName::Ask => ConfiguredDecision::Ask,
        DecisionName::Deny => ConfiguredDecision::Deny,
    }
}

fn shapes(masked: bool) -> TokenShapes {
    if masked { TokenShapes::Mask } else { TokenShapes::Leave }
}

fn key_kind(name: KeyName) -> Option<KeyKind> {
    match name {
        KeyName::Auto => None,
        KeyName::Credential => Some(KeyKind::Credential),
        KeyName::Keyring => Some(KeyKind::Keyring),
        KeyName::File => Some(KeyKind::File),
        KeyName::Passphrase => Some(KeyKind::Passphrase),
    }
}

fn level(name: LevelName) -> Level {
    match name {
        LevelName::Error => Level::Error,
        LevelName::Warn => Level::Warn,
        LevelName::Info => Level::Info,
        LevelName::Debug => Level::Debug,
        LevelName::Trace => Level::Trace,
    }
}

fn format(name: FormatName) -> LogFormat {
    match name {
        FormatName::Text => LogFormat::Text,
        FormatName::Json => LogFormat::Json,
    }
}
