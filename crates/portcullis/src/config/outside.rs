//! What reaches outside: pages, calendars, GitHub, and the way there.
//!
//! An address of a calendar and a token are keys. What is wrong with one is told without it, because a person may have
//! written the key itself where its handle belongs.

use super::meaning::{Checks, is_host};
use super::problem::{Finding, key_path};
use super::written;
use super::{Egress, Github, Web};
use portcullis_core::Secret;
use portcullis_egress::{Exception, HiddenAddress, PerHost, PlainHttp, SecretRef, Url};
use portcullis_tools::{CalendarPlace, CalendarSource, is_calendar_name, is_repository_pattern};
use serde_json::json;

/// All of them are asked at once.
const CALENDARS_MAX: usize = 32;
const HANDLE: &str = "secret:";

impl Checks<'_> {
    pub(super) fn web(&mut self, web: &written::Web) -> Web {
        if !web.user_agent.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || web.user_agent.len() > 256 {
            self.unexpected("/web/user_agent", &web.user_agent, "up to 256 printable ASCII characters");
        }
        Web {
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

    pub(super) fn egress(&mut self, egress: &written::Egress) -> Egress {
        let mut exceptions = Vec::new();
        for (index, text) in egress.allow.iter().enumerate() {
            match text.parse::<Exception>() {
                Ok(exception) => exceptions.push(exception),
                Err(expected) => {
                    self.unexpected(&format!("/egress/allow/{index}"), text, &expected.to_string());
                }
            }
        }
        let per_host = PerHost { per_minute: egress.per_host_per_minute, burst: egress.per_host_burst };
        let ca_file = &egress.ca_file;
        let ca_file = (!ca_file.is_empty()).then(|| self.path("/egress/ca_file", ca_file));
        Egress { exceptions, per_host, ca_file }
    }

    pub(super) fn calendars(&mut self, calendars: &[written::Calendar]) -> Vec<CalendarSource> {
        if calendars.len() > CALENDARS_MAX {
            let expected = format!("at most {CALENDARS_MAX} of them");
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
                self.unexpected(&format!("{pointer}/name"), name, "a name that no other calendar has");
            }
            let place = match (calendar.url.is_empty(), calendar.file.is_empty()) {
                (true, false) => CalendarPlace::File(self.path(&format!("{pointer}/file"), &calendar.file)),
                (false, true) => {
                    let plain_http = if calendar.http { PlainHttp::Allowed } else { PlainHttp::Refused };
                    match hidden_address(&calendar.url) {
                        Some(address) => CalendarPlace::Address { address, plain_http },
                        None => {
                            let expected =
                                "an address like https://example.com/me.ics, or better secret:NAME";
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

    pub(super) fn github(&mut self, github: &written::Github) -> Option<Github> {
        let token = github.token.parse::<SecretRef>();
        if token.is_err() {
            let expected = "secret:NAME, a secret that `portcullis secrets set NAME` keeps";
            self.wrong_key("/github/token", expected);
        }
        let base_url = Url::parse(&github.base_url).ok().filter(is_api);
        if base_url.is_none() {
            let expected = "an address like https://github.example.com/api/v3";
            self.unexpected("/github/base_url", &github.base_url, expected);
        }
        for (index, repository) in github.repositories.iter().enumerate() {
            if !is_repository_pattern(repository) {
                let pointer = format!("/github/repositories/{index}");
                self.unexpected(&pointer, repository, "a repository like octocat/hello-world or octocat/*");
            }
        }
        Some(Github { token: token.ok()?, base_url: base_url?, repositories: github.repositories.clone() })
    }

    fn wrong_key(&mut self, pointer: &str, expected: &str) {
        let text = format!("`{}` cannot be used, expected {expected}", key_path(pointer));
        self.findings.push(Finding { pointer: pointer.to_owned(), text });
    }
}

/// Reads an address that is not to be shown, or the handle of one.
fn hidden_address(text: &str) -> Option<HiddenAddress> {
    if text.starts_with(HANDLE) {
        return text.parse().ok().map(HiddenAddress::Stored);
    }
    let url = Url::parse(text).ok()?;
    let is_feed = matches!(url.scheme(), "https" | "http" | "webcal") && url.has_host();
    is_feed.then(|| HiddenAddress::Given(Secret::new(text.to_owned())))
}

fn is_api(url: &Url) -> bool {
    matches!(url.scheme(), "https" | "http")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
}
