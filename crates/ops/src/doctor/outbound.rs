//! Check of outbound tools: web, calendars, GitHub.

use super::{CheckState, HealthCheck};
use crate::config::Config;
use crate::tool_families::extra_roots;
use portcullis_egress::{PlainHttp, SecretUrl};
use portcullis_store::secrets::{SecretError, SecretStore};
use portcullis_tools::{CalendarLocation, CalendarSource};

/// Makes no request: connectivity is not checked.
pub fn check_outbound(config: &Config, store: &SecretStore) -> Vec<HealthCheck> {
    let mut findings = Vec::new();
    if config.egress.ca_file.is_some() {
        let state = match extra_roots(config) {
            Ok(roots) => CheckState::Good(format!("{} additional certificates trusted", roots.len())),
            Err(error) => CheckState::bad(
                format!("{error:#}"),
                "fix `egress.ca_file`; the hub does not start without it",
            ),
        };
        findings.push(HealthCheck { what: "egress", state });
    }
    findings.push(HealthCheck { what: "web", state: look_at_web(config) });
    if config.calendars.is_empty() {
        let off = "off; `[[calendars]]` with a name and a url or file enables calendar_read";
        findings.push(HealthCheck { what: "calendars", state: CheckState::Good(off.to_owned()) });
    }
    findings.extend(
        config
            .calendars
            .iter()
            .map(|calendar| HealthCheck { what: "calendars", state: look_at_calendar(calendar, store) }),
    );
    findings.push(HealthCheck { what: "github", state: look_at_github(config, store) });
    findings
}

fn look_at_web(config: &Config) -> CheckState {
    let Some(web) = &config.web else {
        return CheckState::Good("off; `[web]` in the configuration enables web_fetch on".to_owned());
    };
    let http = if web.plain_http == PlainHttp::Allowed { ", http:// too" } else { "" };
    match config.egress.exceptions.as_slice() {
        [] => CheckState::Good(format!("on, public addresses only{http}")),
        exceptions => {
            let places: Vec<String> = exceptions.iter().map(ToString::to_string).collect();
            CheckState::Good(format!("on, public addresses{http} and {}", places.join(", ")))
        }
    }
}

fn look_at_calendar(calendar: &CalendarSource, store: &SecretStore) -> CheckState {
    let name = &calendar.name;
    match &calendar.place {
        CalendarLocation::File(path) => match std::fs::File::open(path) {
            Ok(_) => CheckState::Good(format!("{name}: {}", path.display())),
            Err(error) => CheckState::bad(
                format!("{name}: {}: {error}", path.display()),
                "create the file, or fix `file` of the calendar",
            ),
        },
        CalendarLocation::Address { address: SecretUrl::Given(_), .. } => CheckState::Warning(format!(
            "{name}: its URL is in plain text; store it with `portcullis secrets set NAME` and refer to it as `secret:NAME`"
        )),
        CalendarLocation::Address { address: SecretUrl::Stored(handle), .. } => {
            match store.resolve_address(handle.name()) {
                Ok(_) => CheckState::Good(format!("{name}: URL in {handle}")),
                Err(SecretError::Locked(_)) => CheckState::Warning(format!(
                    "{name}: {handle} cannot be checked; the secret store is locked"
                )),
                Err(error) => CheckState::bad(
                    format!("{name}: {error}"),
                    format!("set the URL with `portcullis secrets set {}`", handle.name()),
                ),
            }
        }
    }
}

fn look_at_github(config: &Config, store: &SecretStore) -> CheckState {
    let Some(github) = &config.github else {
        return CheckState::Good(
            "off; `[github]` in the configuration enables the github_* tools on".to_owned(),
        );
    };
    let host = github.base_url.host_str().unwrap_or_default();
    let name = github.token.name();
    match store.get(&github.token) {
        Err(SecretError::Locked(_)) => {
            CheckState::Warning(format!("{} cannot be checked; the secret store is locked", github.token))
        }
        Err(error) => CheckState::bad(
            format!("no token: {error}"),
            format!(
                "create a GitHub token that can read and write issues, then run `portcullis secrets set {name} --grant {host}`"
            ),
        ),
        Ok(secret) if !secret.grants.iter().any(|grant| grant.covers(host, "Authorization")) => {
            CheckState::bad(
                format!("secret `{name}` is not granted for {host}"),
                format!("run `portcullis secrets grant {name} {host}`"),
            )
        }
        Ok(_) => {
            let which = match github.repositories.as_slice() {
                [] => "any repository".to_owned(),
                some => some.join(", "),
            };
            CheckState::Good(format!("on, at {host} with {}, for {which}", github.token))
        }
    }
}
