//! `portcullis mcp auth` and `logout`: logins to other servers.

use super::{Opened, block_on, open};
use crate::config::{Config, McpServer};
use crate::home::{Home, make_private};
use crate::login::{self, Login};
use crate::secrets::Asking;
use crate::{BadUsage, print};
use anyhow::{Context, Result};
use portcullis_core::SystemClock;
use portcullis_core::json::printable;
use portcullis_store::secrets::SecretStore;
use portcullis_upstream::{About, Consent, LoggedOut, OAuthError, Tokens};
use serde_json::{Value, json};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

/// What opens an address on this system.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Whether the page is opened, besides being printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Browser {
    Open,
    Leave,
}

/// Lets the person at the terminal log in to a server.
pub(crate) fn auth(home: Option<&Path>, name: &str, browser: Browser, as_json: bool) -> Result<ExitCode> {
    let Opened { home, loaded, .. } = open(home)?;
    let login = login_of(&home, &loaded.config, server(&loaded.config, name)?, Asking::ToMake)?;
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
        print::line(format!("Logged in to `{name}` by {issuer}. A running hub has it already."));
        if !withheld.is_empty() {
            print::line(format!("Asked for, and not granted: {}", printable(&withheld.join(" "))));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the page of a login, and waits until the person has been there.
pub(crate) fn log_in(login: &Login, browser: Browser, as_json: bool) -> Result<About> {
    let terminal = Terminal { browser, as_json };
    Ok(block_on(async { login.oauth().log_in(&terminal).await })??)
}

/// Forgets the login of a server.
pub(crate) fn logout(home: Option<&Path>, name: &str, as_json: bool) -> Result<ExitCode> {
    let Opened { home, loaded, .. } = open(home)?;
    let config = &loaded.config;
    let is_set = config.mcp.iter().any(|server| server.name == name && server.oauth.is_some());
    let login = server(config, name).and_then(|server| login_of(&home, config, server, Asking::ToOpen));
    let ended = match login {
        // Nothing speaks of a login; one may be kept all the same.
        Err(error) if !is_set => {
            let store = crate::secrets::open(&home, config, Arc::new(SystemClock), Asking::ToOpen)?;
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
        print::line(said.unwrap_or_else(|| format!("There was no login of `{name}`.")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends a login that the configuration does not speak of any more. Returns nothing where none is kept.
pub(crate) fn end_left(config: &Config, name: &str, store: Arc<SecretStore>) -> Result<Option<LoggedOut>> {
    let server = config.mcp.iter().find(|server| server.name == name);
    if let Some(login) = server.and_then(|server| login::to_end(server, config, store.clone())) {
        return Ok(Some(block_on(async { login.oauth().log_out().await })??));
    }
    Ok(login::forget_left(&store, name)?.then(left))
}

/// What became of a login of which nothing is known but its tokens.
pub(crate) fn left() -> LoggedOut {
    let why = "the configuration does not say any more which server they are for, so they are not revoked";
    LoggedOut { was: true, tokens: Tokens::Left(why.to_owned()) }
}

/// Says what became of a login that was to end; nothing where there was none.
pub(crate) fn ended(name: &str, ended: Result<LoggedOut, OAuthError>) -> Option<String> {
    match ended {
        Ok(ended) => ended_words(name, ended),
        Err(error) => Some(format!("What is kept of its login is left: {error}")),
    }
}

fn ended_words(name: &str, LoggedOut { was, tokens }: LoggedOut) -> Option<String> {
    was.then(|| match tokens {
        Tokens::None => format!("The login of `{name}` is forgotten."),
        Tokens::Revoked => format!("The login of `{name}` is forgotten, and its tokens are revoked."),
        Tokens::NotOffered => format!(
            "The login of `{name}` is forgotten. Who made its tokens does not offer to revoke them: they are good until \
             they expire."
        ),
        Tokens::Left(why) => {
            format!("The login of `{name}` is forgotten. Its tokens may be good still: {why}")
        }
    })
}

pub(crate) fn ended_json(ended: &Result<LoggedOut, OAuthError>) -> Value {
    let (was, revoked, why) = match ended {
        Ok(LoggedOut { was, tokens }) => {
            let why = match tokens {
                Tokens::Left(why) => Some(why.clone()),
                Tokens::NotOffered => Some("not offered".to_owned()),
                Tokens::None | Tokens::Revoked => None,
            };
            (*was, *tokens == Tokens::Revoked, why)
        }
        Err(error) => (false, false, Some(error.to_string())),
    };
    json!({ "logged_out": was, "revoked": revoked, "not_revoked": why })
}

pub(crate) fn login_of(home: &Home, config: &Config, server: &McpServer, asking: Asking) -> Result<Login> {
    let name = &server.name;
    if server.place.is_none() {
        let message = format!("`mcp.{name}` is a program on this machine, and needs no login");
        return Err(BadUsage(message).into());
    }
    let wanted = server.oauth.as_ref().ok_or_else(|| {
        BadUsage(format!("`mcp.{name}` is not set to log in; add `oauth = true` to it in the configuration"))
    })?;
    make_private(&config.workspace.secure_dir())?;
    let store = crate::secrets::open(home, config, Arc::new(SystemClock), asking)?;
    Login::new(server, wanted, config, Arc::new(store), None).with_context(|| format!("`mcp.{name}`"))
}

fn server<'a>(config: &'a Config, name: &str) -> Result<&'a McpServer> {
    let known = || {
        let names: Vec<String> = config.mcp.iter().map(|server| format!("`{}`", server.name)).collect();
        match names.as_slice() {
            [] => "none is configured".to_owned(),
            names => format!("expected {}", names.join(", ")),
        }
    };
    let found = config.mcp.iter().find(|server| server.name == name);
    found.ok_or_else(|| BadUsage(format!("no server is named `{}`; {}", printable(name), known())).into())
}

/// The person at the terminal.
struct Terminal {
    browser: Browser,
    as_json: bool,
}

impl Consent for Terminal {
    fn show<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>> {
        // It holds what looks like a token, and is to be read all the same.
        let text = format!("Log in on this page, within 10 minutes:\n\n  {url}\n");
        match self.as_json {
            true => print::note_showing(text, url),
            false => print::out_showing(format!("{text}\n"), url),
        }
        if self.browser == Browser::Open {
            // Its own argument, to a program and not to a shell.
            let opened = Command::new(OPENER)
                .arg(url)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            if let Err(error) = opened {
                print::note(format!("`{OPENER}` cannot be started ({error}); open the page yourself."));
            }
        }
        Box::pin(async { Ok(()) })
    }
}
