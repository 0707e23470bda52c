//! `portcullis mcp auth` and `logout`: OAuth logins to upstream servers.

use super::{block_on_watched, browser, environment, this_user};
use crate::login::ServerLogin;
use crate::print;
use anyhow::Result;
use portcullis_core::json::printable;
use portcullis_ops::secret_store::PassphrasePrompt;
use portcullis_ops::servers::login::{logout_listing, logout_sentence};
use portcullis_ops::{Operations, ShutdownWatch};
use portcullis_upstream::{LoginMetadata, LoginPrompt};
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;

/// Whether the URL is also opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Browser {
    Open,
    Leave,
}

/// Logs in from the terminal.
pub(super) fn auth(ops: &Operations, name: &str, browser: Browser, as_json: bool) -> Result<ExitCode> {
    let login = ops.login_of(name, PassphrasePrompt::ToMake)?;
    let about = log_in(ops, name, &login, browser, as_json)?;
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
pub(crate) fn log_in(
    ops: &Operations,
    name: &str,
    login: &ServerLogin,
    browser: Browser,
    as_json: bool,
) -> Result<LoginMetadata> {
    let terminal = TerminalConsent { browser, as_json };
    Ok(block_on_watched(
        &ShutdownWatch::of(ops.server_shutdown()),
        ops.log_in_to_server(name, login, &terminal, &this_user()),
    )??)
}

/// Logs out of a server.
pub(super) fn logout(ops: &Operations, name: &str, as_json: bool) -> Result<ExitCode> {
    // A prompt does not fit into the runtime.
    ops.unlock_secrets(PassphrasePrompt::ToOpen)?;
    let ended = Ok(block_on_watched(
        &ShutdownWatch::of(ops.server_shutdown()),
        ops.log_out_of_server(name, &this_user()),
    )??);
    let mut view = logout_listing(&ended);
    view["server"] = name.into();
    let said = logout_sentence(name, &ended);
    print::either(as_json, &view, said.unwrap_or_else(|| format!("Not logged in to `{name}`.")));
    Ok(ExitCode::SUCCESS)
}

/// Consent at the terminal.
struct TerminalConsent {
    browser: Browser,
    as_json: bool,
}

impl LoginPrompt for TerminalConsent {
    fn show<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>> {
        // Contains what looks like a token, so it must bypass redaction.
        let text = format!("Log in within 10 minutes at:\n\n  {url}\n");
        match self.as_json {
            true => print::note_showing(text, url),
            false => print::out_showing(format!("{text}\n"), url),
        }
        if self.browser == Browser::Open
            && let Err(reason) = browser::open(url, &environment)
        {
            print::note(format!("Not opened: {reason}. Open the URL yourself."));
        }
        Box::pin(async { Ok(()) })
    }
}
