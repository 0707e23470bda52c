//! Resolves the written configuration to typed settings, and collects all errors.

mod mcp_server;
mod oauth;
mod time;

pub use mcp_server::sets_header;
pub(super) use mcp_server::{is_server_name, server_name_expected};
pub use oauth::McpOAuth;
pub use time::moment;

use super::errors::Finding;
use super::written::{
    self, DecisionName, EffectName, FormatName, KeyName, LabelName, LevelName, OriginName, ReachName,
    ViewName, WrittenDocument,
};
use super::{
    AdminSettings, ApprovalSettings, Config, ConfiguredDecision, EgressConfig, Environment, HttpSettings,
    Level, LimitSettings, LogFormat, LoggingSettings, NotifyFormat, NotifySettings, NotifyWebhook,
    RateLimitSettings, RedactionSettings, RuleSettings, SecretSettings, StdioSettings, TimeSettings,
    WorkspaceSettings,
};
use jiff::tz::TimeZone;
use portcullis_core::{
    Effect, EffectSet, Label, Labels, Origin, Pattern, PatternError, Reach, Scope, Secret, ToolView,
};
use portcullis_egress::{AllowlistEntry, HostRateLimit, SecretUrl, Url};
use portcullis_family::{Families, SectionChecks, Sections, resolve_path};
use portcullis_guard::{Days, RuleSchedule, TokenShapes};
use portcullis_store::secrets::KeyKind;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Collects errors and continues, so that all are reported at once.
pub(super) struct ConfigResolver<'a> {
    pub(super) home: &'a Path,
    env: Environment<'a>,
    pub(super) findings: Vec<Finding>,
}

/// Resolves a file. The result is valid only without findings.
pub(super) fn resolve(
    document: WrittenDocument,
    families: Families,
    home: &Path,
    env: Environment<'_>,
) -> (Config, Vec<Finding>) {
    let mut checks = ConfigResolver { home, env, findings: Vec::new() };
    let written = &document.core;
    let workspace = WorkspaceSettings {
        path: checks.path("/workspace/path", &written.workspace.path),
        enabled: written.workspace.enabled,
    };
    let zone = checks.zone(&written.time.timezone);
    let config = Config {
        http: checks.http(&written.http),
        rate_limit: RateLimitSettings {
            requests_per_second: written.rate_limit.requests_per_second,
            burst: written.rate_limit.burst,
            wait: Duration::from_millis(written.rate_limit.wait_ms),
        },
        logging: LoggingSettings {
            level: level(written.logging.level),
            format: format(written.logging.format),
        },
        families,
        sections: checks.sections(&document, &workspace),
        workspace,
        admin: AdminSettings { enabled: written.admin.enabled, allow_remote: written.admin.allow_remote },
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
        notify: checks.notify(&written.notify),
        mcp: written
            .mcp
            .iter()
            .map(|(name, server)| checks.mcp(name, server, written.experimental.mcp_timeout))
            .collect(),
        policy: written
            .policy
            .iter()
            .enumerate()
            .map(|(index, rule)| checks.rule(index, rule, &zone))
            .collect(),
        time: TimeSettings { zone },
        written: document,
    };
    (config, checks.findings)
}

/// Returns the format of the services that are known by their host.
fn notify_format_of(url: &str) -> NotifyFormat {
    let url = Url::parse(url).ok();
    match url.as_ref().and_then(Url::host_str) {
        Some("hooks.slack.com") => NotifyFormat::Slack,
        Some(host) if host == "ntfy.sh" || host.starts_with("ntfy.") => NotifyFormat::Ntfy,
        _ => NotifyFormat::Json,
    }
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
            ..Scope::everything()
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

    fn notify(&mut self, notify: &written::WrittenNotify) -> NotifySettings {
        let text = notify.url.as_str();
        let url = match text {
            "" => None,
            handle if handle.starts_with("secret:") => handle.parse().ok().map(SecretUrl::Stored),
            text => {
                let is_web = |url: &Url| matches!(url.scheme(), "https" | "http") && url.has_host();
                let known = Url::parse(text).ok().filter(is_web);
                known.map(|_| SecretUrl::Given(Secret::new(text.to_owned())))
            }
        };
        if url.is_none() && !text.is_empty() {
            let expected = "a URL like https://ntfy.sh/my-topic, or better secret:NAME";
            let text = format!("`notify.url` is invalid, expected {expected}");
            self.findings.push(Finding { pointer: "/notify/url".to_owned(), text });
        }
        let format = match notify.format {
            written::NotifyFormatName::Auto => notify_format_of(text),
            written::NotifyFormatName::Json => NotifyFormat::Json,
            written::NotifyFormatName::Ntfy => NotifyFormat::Ntfy,
            written::NotifyFormatName::Slack => NotifyFormat::Slack,
        };
        NotifySettings { webhook: url.map(|url| NotifyWebhook { url, format }), desktop: notify.desktop }
    }

    fn egress(&mut self, egress: &written::WrittenEgress) -> EgressConfig {
        let mut exceptions = Vec::new();
        for (index, text) in egress.allow.iter().enumerate() {
            match text.parse::<AllowlistEntry>() {
                Ok(exception) => exceptions.push(exception),
                Err(expected) => {
                    self.unexpected(&format!("/egress/allow/{index}"), text, &expected.to_string());
                }
            }
        }
        let per_host = HostRateLimit { per_minute: egress.per_host_per_minute, burst: egress.per_host_burst };
        let ca_file = &egress.ca_file;
        let ca_file = (!ca_file.is_empty()).then(|| self.path("/egress/ca_file", ca_file));
        EgressConfig { exceptions, per_host, ca_file }
    }

    /// Resolves the sections of the families.
    fn sections(&mut self, document: &WrittenDocument, workspace: &WorkspaceSettings) -> Sections {
        let mut checks =
            SectionChecks { home: self.home, env: self.env, workspace, findings: &mut self.findings };
        let mut sections = Sections::default();
        for (spec, section) in &document.sections {
            if let Some(settings) = section.settings(&mut checks) {
                sections.insert(spec, settings);
            }
        }
        sections
    }

    /// Resolves a path relative to the home folder; `~/` is the user's home directory.
    pub(super) fn path(&mut self, pointer: &str, text: &str) -> PathBuf {
        let (path, expected) = resolve_path(self.home, self.env, text);
        if let Some(expected) = expected {
            self.unexpected(pointer, text, expected);
        }
        path
    }
}

fn is_host(text: &str) -> bool {
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
        OriginName::Engine => Origin::Engine,
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
