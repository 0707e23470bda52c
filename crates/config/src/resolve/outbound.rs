//! Resolves the outbound sections: web, calendars, GitHub, egress.
//!
//! Calendar URLs and tokens are credentials. Errors do not quote them, because the file may contain the value itself
//! instead of `secret:NAME`.

use super::{ConfigResolver, is_host};
use crate::errors::{Finding, key_path};
use crate::written;
use crate::{EgressConfig, GithubSettings, WebSettings};
use portcullis_core::Secret;
use portcullis_egress::{AllowlistEntry, HostRateLimit, PlainHttp, SecretRef, SecretUrl, Url};
use portcullis_tools::{CalendarLocation, CalendarSource, is_calendar_name, is_repository_pattern};
use serde_json::json;

/// All calendars are fetched concurrently.
const CALENDARS_MAX: usize = 32;
const HANDLE: &str = "secret:";

impl ConfigResolver<'_> {
    pub(super) fn web(&mut self, web: &written::WrittenWeb) -> WebSettings {
        if !web.user_agent.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || web.user_agent.len() > 256 {
            self.unexpected("/web/user_agent", &web.user_agent, "up to 256 printable ASCII characters");
        }
        WebSettings {
            plain_http: if web.http { PlainHttp::Allowed } else { PlainHttp::Refused },
            respect_robots: web.respect_robots,
            user_agent: Some(web.user_agent.clone()).filter(|name| !name.is_empty()),
            allow: self.domains("/web/allow", &web.allow),
            deny: self.domains("/web/deny", &web.deny),
        }
    }

    fn domains(&mut self, pointer: &str, domains: &[String]) -> Vec<String> {
        for (index, domain) in domains.iter().enumerate() {
            let is_domain = is_host(domain) && !domain.contains(':') && !domain.starts_with('.');
            if !is_domain {
                self.unexpected(&format!("{pointer}/{index}"), domain, "a domain like example.com");
            }
        }
        domains.iter().map(|domain| domain.to_ascii_lowercase()).collect()
    }

    pub(super) fn egress(&mut self, egress: &written::WrittenEgress) -> EgressConfig {
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

    pub(super) fn calendars(&mut self, calendars: &[written::WrittenCalendar]) -> Vec<CalendarSource> {
        if calendars.len() > CALENDARS_MAX {
            let expected = format!("at most {CALENDARS_MAX} calendars");
            self.findings.push(Finding::unexpected("/calendars", &json!(calendars.len()), &expected));
        }
        let mut sources: Vec<CalendarSource> = Vec::new();
        for (index, calendar) in calendars.iter().enumerate().take(CALENDARS_MAX) {
            let pointer = format!("/calendars/{index}");
            let name = &calendar.name;
            if !is_calendar_name(name) {
                self.unexpected(&format!("{pointer}/name"), name, "a name of 1 to 64 characters");
            }
            if sources.iter().any(|known| known.name.to_lowercase() == name.to_lowercase()) {
                self.unexpected(&format!("{pointer}/name"), name, "a unique name");
            }
            let place = match (calendar.url.is_empty(), calendar.file.is_empty()) {
                (true, false) => {
                    CalendarLocation::File(self.path(&format!("{pointer}/file"), &calendar.file))
                }
                (false, true) => {
                    let plain_http = if calendar.http { PlainHttp::Allowed } else { PlainHttp::Refused };
                    match hidden_address(&calendar.url) {
                        Some(address) => CalendarLocation::Address { address, plain_http },
                        None => {
                            let expected = "a URL like https://example.com/me.ics, or better secret:NAME";
                            self.wrong_key(&format!("{pointer}/url"), expected);
                            continue;
                        }
                    }
                }
                _ => {
                    let text = format!("`{}` needs either `url` or `file`", key_path(&pointer));
                    self.findings.push(Finding { pointer, text });
                    continue;
                }
            };
            sources.push(CalendarSource { name: name.clone(), place });
        }
        sources
    }

    pub(super) fn github(&mut self, github: &written::WrittenGithub) -> Option<GithubSettings> {
        let token = github.token.parse::<SecretRef>();
        if token.is_err() {
            let expected = "secret:NAME, stored with `portcullis secrets set NAME`";
            self.wrong_key("/github/token", expected);
        }
        let base_url = Url::parse(&github.base_url).ok().filter(is_api);
        if base_url.is_none() {
            let expected = "a URL like https://github.example.com/api/v3";
            self.unexpected("/github/base_url", &github.base_url, expected);
        }
        for (index, repository) in github.repositories.iter().enumerate() {
            if !is_repository_pattern(repository) {
                let pointer = format!("/github/repositories/{index}");
                self.unexpected(&pointer, repository, "a repository like octocat/hello-world or octocat/*");
            }
        }
        Some(GithubSettings {
            token: token.ok()?,
            base_url: base_url?,
            repositories: github.repositories.clone(),
        })
    }

    fn wrong_key(&mut self, pointer: &str, expected: &str) {
        let text = format!("`{}` is invalid, expected {expected}", key_path(pointer));
        self.findings.push(Finding { pointer: pointer.to_owned(), text });
    }
}

/// Parses a secret URL, or `secret:NAME`.
fn hidden_address(text: &str) -> Option<SecretUrl> {
    if text.starts_with(HANDLE) {
        return text.parse().ok().map(SecretUrl::Stored);
    }
    let url = Url::parse(text).ok()?;
    let is_feed = matches!(url.scheme(), "https" | "http" | "webcal") && url.has_host();
    is_feed.then(|| SecretUrl::Given(Secret::new(text.to_owned())))
}

fn is_api(url: &Url) -> bool {
    matches!(url.scheme(), "https" | "http")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
}
