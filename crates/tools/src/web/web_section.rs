//! The `[web]` section.

use portcullis_egress::PlainHttp;
use portcullis_family::{AbsentSection, ConfigSection, SectionChecks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longer than any real one.
const USER_AGENT_BYTES_MAX: usize = 256;

/// Public web. This section enables `web_fetch`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSection {
    /// Allow unencrypted pages (http://).
    http: bool,
    /// Obey robots.txt.
    respect_robots: bool,
    /// User-Agent header; empty for Portcullis and its version.
    #[schemars(example = &"ExampleBot/1.0 (+https://example.com/bot)")]
    user_agent: String,
    /// Allowed domains, including subdomains; empty allows all.
    #[schemars(example = ["example.com"])]
    allow: Vec<String>,
    /// Denied domains, including subdomains.
    #[schemars(example = ["example.net"])]
    deny: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSettings {
    pub plain_http: PlainHttp,
    pub respect_robots: bool,
    /// Replaces the default `User-Agent`.
    pub user_agent: Option<String>,
    /// Allowed domains with their subdomains, in lower case; any if empty.
    pub allow: Vec<String>,
    /// Denied domains, in lower case.
    pub deny: Vec<String>,
}

impl ConfigSection for WebSection {
    const KEY: &'static str = "web";
    const ABSENT: AbsentSection = AbsentSection::Off;
    type Settings = WebSettings;

    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<WebSettings> {
        let agent = &self.user_agent;
        if !agent.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || agent.len() > USER_AGENT_BYTES_MAX {
            checks.unexpected("/web/user_agent", agent, "up to 256 printable ASCII characters");
        }
        Some(WebSettings {
            plain_http: if self.http { PlainHttp::Allowed } else { PlainHttp::Refused },
            respect_robots: self.respect_robots,
            user_agent: Some(agent.clone()).filter(|name| !name.is_empty()),
            allow: domains(checks, "/web/allow", &self.allow),
            deny: domains(checks, "/web/deny", &self.deny),
        })
    }
}

fn domains(checks: &mut SectionChecks<'_>, pointer: &str, domains: &[String]) -> Vec<String> {
    for (index, domain) in domains.iter().enumerate() {
        if !is_domain(domain) {
            checks.unexpected(&format!("{pointer}/{index}"), domain, "a domain like example.com");
        }
    }
    domains.iter().map(|domain| domain.to_ascii_lowercase()).collect()
}

fn is_domain(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !text.is_empty() && !text.starts_with('.') && text.chars().all(fits)
}
