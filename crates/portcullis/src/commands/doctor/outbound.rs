//! Check of outbound tools: web, calendars, GitHub.

use super::{Finding, State, bad};
use crate::config::Config;
use portcullis_egress::{PlainHttp, SecretUrl};
use portcullis_ops::tool_families::extra_roots;
use portcullis_store::secrets::{SecretError, SecretStore};
use portcullis_tools::{CalendarLocation, CalendarSource};

/// Makes no request: connectivity is not checked.
pub(super) fn look(config: &Config, store: &SecretStore) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.egress.ca_file.is_some() {
        let state = match extra_roots(config) {
            Ok(roots) => State::Good(format!("{} additional certificates trusted", roots.len())),
            Err(error) => {
                bad(format!("{error:#}"), "fix `egress.ca_file`; the hub does not start without it")
            }
        };
        findings.push(Finding { what: "egress", state });
    }
    findings.push(Finding { what: "web", state: look_at_web(config) });
    if config.calendars.is_empty() {
        let off = "off; `[[calendars]]` with a name and a url or file enables calendar_read";
        findings.push(Finding { what: "calendars", state: State::Good(off.to_owned()) });
    }
    findings.extend(
        config
            .calendars
            .iter()
            .map(|calendar| Finding { what: "calendars", state: look_at_calendar(calendar, store) }),
    );
    findings.push(Finding { what: "github", state: look_at_github(config, store) });
    findings
}

fn look_at_web(config: &Config) -> State {
    let Some(web) = &config.web else {
        return State::Good("off; `[web]` in the configuration enables web_fetch on".to_owned());
    };
    let http = if web.plain_http == PlainHttp::Allowed { ", http:// too" } else { "" };
    match config.egress.exceptions.as_slice() {
        [] => State::Good(format!("on, public addresses only{http}")),
        exceptions => {
            let places: Vec<String> = exceptions.iter().map(ToString::to_string).collect();
            State::Good(format!("on, public addresses{http} and {}", places.join(", ")))
        }
    }
}

fn look_at_calendar(calendar: &CalendarSource, store: &SecretStore) -> State {
    let name = &calendar.name;
    match &calendar.place {
        CalendarLocation::File(path) => match std::fs::File::open(path) {
            Ok(_) => State::Good(format!("{name}: {}", path.display())),
            Err(error) => bad(
                format!("{name}: {}: {error}", path.display()),
                "create the file, or fix `file` of the calendar",
            ),
        },
        CalendarLocation::Address { address: SecretUrl::Given(_), .. } => State::Warning(format!(
            "{name}: its URL is in plain text; store it with `portcullis secrets set NAME` and refer to it as `secret:NAME`"
        )),
        CalendarLocation::Address { address: SecretUrl::Stored(handle), .. } => {
            match store.resolve_address(handle.name()) {
                Ok(_) => State::Good(format!("{name}: URL in {handle}")),
                Err(SecretError::Locked(_)) => {
                    State::Warning(format!("{name}: {handle} cannot be checked; the secret store is locked"))
                }
                Err(error) => bad(
                    format!("{name}: {error}"),
                    format!("set the URL with `portcullis secrets set {}`", handle.name()),
                ),
            }
        }
    }
}

fn look_at_github(config: &Config, store: &SecretStore) -> State {
    let Some(github) = &config.github else {
        return State::Good("off; `[github]` in the configuration enables the github_* tools on".to_owned());
    };
    let host = github.base_url.host_str().unwrap_or_default();
    let name = github.token.name();
    match store.get(&github.token) {
        Err(SecretError::Locked(_)) => {
            State::Warning(format!("{} cannot be checked; the secret store is locked", github.token))
        }
        Err(error) => bad(
            format!("no token: {error}"),
            format!(
                "create a GitHub token that can read and write issues, then run `portcullis secrets set {name} --grant {host}`"
            ),
        ),
        Ok(secret) if !secret.grants.iter().any(|grant| grant.covers(host, "Authorization")) => bad(
            format!("secret `{name}` is not granted for {host}"),
            format!("run `portcullis secrets grant {name} {host}`"),
        ),
        Ok(_) => {
            let which = match github.repositories.as_slice() {
                [] => "any repository".to_owned(),
                some => some.join(", "),
            };
            State::Good(format!("on, at {host} with {}, for {which}", github.token))
        }
    }
}
