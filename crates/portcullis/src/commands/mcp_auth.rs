//! `portcullis mcp auth` and `logout`: OAuth logins to upstream servers.

use super::{LoadedHome, block_on, open};
use crate::config::{Config, McpServerSettings};
use crate::database;
use crate::home::Home;
use crate::login::{self, ServerLogin};
use crate::passphrase::PassphrasePrompt;
use crate::{BadUsage, print};
use anyhow::{Context, Result};
use portcullis_core::SystemClock;
use portcullis_core::json::printable;
use portcullis_store::secrets::SecretStore;
use portcullis_upstream::{Consent, LoginMetadata, LogoutReport, OAuthError, TokenRevocation};
use serde_json::{Value, json};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

/// The system's URL opener.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Whether the URL is also opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Browser {
    Open,
    Leave,
}

/// Logs in from the terminal.
pub(crate) fn auth(home: Option<&Path>, name: &str, browser: Browser, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    let login = login_of(&home, &loaded.config, server(&loaded.config, name)?, PassphrasePrompt::ToMake)?;
    let about = log_in(&login, browser, as_json)?;
    let withheld = about.withheld(&about.asked);
    if as_json {
        print::json(&json!({
            "server": name,
            "issuer": about.issuer,
            "resource": about.resource,
            "scopes": about.asked,
            "not_granted": withheld,
            "expires_at": about.expires_at,
        }));
    } else {
        let issuer = printable(&about.issuer);
        print::line(format!("Logged in to `{name}` with {issuer}. A running hub uses it at once."));
        if !withheld.is_empty() {
            print::line(format!("Scopes not granted: {}", printable(&withheld.join(" "))));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the authorization URL and waits for the redirect.
pub(crate) fn log_in(login: &ServerLogin, browser: Browser, as_json: bool) -> Result<LoginMetadata> {
    let terminal = TerminalConsent { browser, as_json };
    Ok(block_on(async { login.oauth().log_in(&terminal).await })??)
}

/// Logs out of a server.
pub(crate) fn logout(home: Option<&Path>, name: &str, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    let config = &loaded.config;
    let is_set = config.mcp.iter().any(|server| server.name == name && server.oauth.is_some());
    let login =
        server(config, name).and_then(|server| login_of(&home, config, server, PassphrasePrompt::ToOpen));
    let ended = match login {
        // Not configured, but tokens may still be stored.
        Err(error) if !is_set => {
            let (database, clock) = (database::open(config)?, Arc::new(SystemClock));
            let store =
                crate::passphrase::open_secrets(&home, config, &database, clock, PassphrasePrompt::ToOpen)?;
            end_left(config, name, Arc::new(store))?.ok_or(error)?
        }
        login => {
            let login = login?;
            block_on(async { login.oauth().log_out().await })??
        }
    };
    if as_json {
        let mut said = ended_json(&Ok(ended));
        said["server"] = name.into();
        print::json(&said);
    } else {
        let said = ended_words(name, ended);
        print::line(said.unwrap_or_else(|| format!("Not logged in to `{name}`.")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends a login that is no longer configured. Returns `None` if there is none.
pub(crate) fn end_left(config: &Config, name: &str, store: Arc<SecretStore>) -> Result<Option<LogoutReport>> {
    let server = config.mcp.iter().find(|server| server.name == name);
    if let Some(login) = server.and_then(|server| login::to_end(server, config, store.clone())) {
        return Ok(Some(block_on(async { login.oauth().log_out().await })??));
    }
    Ok(login::forget_orphaned(&store, name)?.then(left))
}

/// Result for a login of which only the tokens are known.
pub(crate) fn left() -> LogoutReport {
    let why = "their server is no longer configured, so they could not be revoked";
    LogoutReport { was: true, tokens: TokenRevocation::Left(why.to_owned()) }
}

/// Describes the end of a login; `None` if there was none.
pub(crate) fn ended(name: &str, ended: Result<LogoutReport, OAuthError>) -> Option<String> {
    match ended {
        Ok(ended) => ended_words(name, ended),
        Err(error) => Some(format!("Its login could not be removed: {error}")),
    }
}

fn ended_words(name: &str, LogoutReport { was, tokens }: LogoutReport) -> Option<String> {
    was.then(|| match tokens {
        TokenRevocation::None => format!("Logged out of `{name}`."),
        TokenRevocation::Revoked => format!("Logged out of `{name}` and revoked its tokens."),
        TokenRevocation::NotOffered => format!(
            "Logged out of `{name}`. Its authorization server does not support revocation: the tokens stay valid until \
             they expire."
        ),
        TokenRevocation::Left(why) => {
            format!("Logged out of `{name}`. Its tokens may still be valid: {why}")
        }
    })
}

pub(crate) fn ended_json(ended: &Result<LogoutReport, OAuthError>) -> Value {
    let (was, revoked, why) = match ended {
        Ok(LogoutReport { was, tokens }) => {
            let why = match tokens {
                TokenRevocation::Left(why) => Some(why.clone()),
                TokenRevocation::NotOffered => Some("not offered".to_owned()),
                TokenRevocation::None | TokenRevocation::Revoked => None,
            };
            (*was, *tokens == TokenRevocation::Revoked, why)
        }
        Err(error) => (false, false, Some(error.to_string())),
    };
    json!({ "logged_out": was, "revoked": revoked, "not_revoked": why })
}

pub(crate) fn login_of(
    home: &Home,
    config: &Config,
    server: &McpServerSettings,
    asking: PassphrasePrompt,
) -> Result<ServerLogin> {
    let name = &server.name;
    if server.place.is_none() {
        let message = format!("`mcp.{name}` is a local command and needs no login");
        return Err(BadUsage(message).into());
    }
    let wanted = server.oauth.as_ref().ok_or_else(|| {
        BadUsage(format!("login is not configured for `mcp.{name}`; add `oauth = true` to it"))
    })?;
    let database = database::open(config)?;
    let store = crate::passphrase::open_secrets(home, config, &database, Arc::new(SystemClock), asking)?;
    ServerLogin::new(server, wanted, config, Arc::new(store), None).with_context(|| format!("`mcp.{name}`"))
}

fn server<'a>(config: &'a Config, name: &str) -> Result<&'a McpServerSettings> {
    let known = || {
        let names: Vec<String> = config.mcp.iter().map(|server| format!("`{}`", server.name)).collect();
        match names.as_slice() {
            [] => "none are configured".to_owned(),
            names => format!("expected {}", names.join(", ")),
        }
    };
    let found = config.mcp.iter().find(|server| server.name == name);
    found.ok_or_else(|| BadUsage(format!("no such server: `{}`; {}", printable(name), known())).into())
}

/// Consent at the terminal.
struct TerminalConsent {
    browser: Browser,
    as_json: bool,
}

impl Consent for TerminalConsent {
    fn show<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>> {
        // Contains what looks like a token, so it must bypass redaction.
        let text = format!("Log in within 10 minutes at:\n\n  {url}\n");
        match self.as_json {
            true => print::note_showing(text, url),
            false => print::out_showing(format!("{text}\n"), url),
        }
        if self.browser == Browser::Open {
            // Passed as one argument, without a shell.
            let opened = Command::new(OPENER)
                .arg(url)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            if let Err(error) = opened {
                print::note(format!("Could not run `{OPENER}` ({error}); open the URL yourself."));
            }
        }
        Box::pin(async { Ok(()) })
    }
}
