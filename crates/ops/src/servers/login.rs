//! OAuth logins to servers: which one, and how it ends.

use super::{action, find_server};
use crate::config::{Config, McpServerSettings};
use crate::context::Operations;
use crate::login::{self, ServerLogin};
use crate::secret_store::PassphrasePrompt;
use crate::{Actor, Problem};
use anyhow::Context;
use portcullis_upstream::{LoginMetadata, LoginPrompt, LogoutReport, OAuthError, TokenRevocation};
use serde_json::{Value, json};
use std::sync::Arc;

/// How a login ended, or why it could not be removed.
pub type LogoutResult = Result<LogoutReport, OAuthError>;

impl Operations {
    /// Returns the login of a server, by its name.
    pub fn login_of(&self, name: &str, prompt: PassphrasePrompt) -> Result<ServerLogin, Problem> {
        let config = self.config();
        self.open_login(&config, find_server(&config, name)?, prompt)
    }

    /// Returns the login of a server, also in a configuration that is not in force yet.
    pub fn open_login(
        &self,
        config: &Config,
        server: &McpServerSettings,
        prompt: PassphrasePrompt,
    ) -> Result<ServerLogin, Problem> {
        let name = &server.name;
        if server.is_local() {
            return Err(Problem::invalid(format!("`mcp.{name}` is a local command and needs no login")));
        }
        let wanted = server.oauth.as_ref().ok_or_else(|| {
            Problem::invalid(format!("login is not configured for `mcp.{name}`; add `oauth = true` to it"))
        })?;
        let store = self.unlock_secrets(prompt)?.clone();
        let login = ServerLogin::new(server, wanted, config, store, None, self.server_shutdown().clone());
        Ok(login.with_context(|| format!("`mcp.{name}`"))?)
    }

    /// Opens the login of a server that is about to be added.
    pub fn draft_login(&self, config: &Config, server: &McpServerSettings) -> Result<DraftLogin, Problem> {
        let login = self.open_login(config, server, PassphrasePrompt::ToMake)?;
        Ok(DraftLogin { name: server.name.clone(), was_kept: login.is_kept(), login })
    }

    /// Logs in to a server. Ends when the person has consented, which takes minutes.
    pub async fn log_in_to_server(
        &self,
        name: &str,
        login: &ServerLogin,
        consent: &dyn LoginPrompt,
        by: &Actor,
    ) -> Result<LoginMetadata, Problem> {
        let log_in = async { Ok(login.oauth().log_in(consent).await.map_err(anyhow::Error::from)?) };
        self.changes.record_async(by, action::LOG_IN, json!({ "name": name }), log_in).await
    }

    /// Logs out of a server, also of one that is no longer configured. In a command, the secrets are unlocked before.
    pub async fn log_out_of_server(&self, name: &str, by: &Actor) -> Result<LogoutReport, Problem> {
        let log_out = async { Ok(self.login_to_end(name)?.end().await.map_err(anyhow::Error::from)?) };
        self.changes.record_async(by, action::LOG_OUT, json!({ "name": name }), log_out).await
    }

    /// Finds the login to a server in order to log out.
    fn login_to_end(&self, name: &str) -> Result<EndingLogin, Problem> {
        let config = self.config();
        let server = config.mcp.iter().find(|server| server.name == name);
        match self.login_of(name, PassphrasePrompt::ToOpen) {
            // Not configured, but tokens may still be stored.
            Err(problem) if server.is_none_or(|server| server.oauth.is_none()) => {
                let store = self.unlock_secrets(PassphrasePrompt::ToOpen)?;
                if let Some(login) = server.and_then(|server| {
                    login::to_end(server, &config, store.clone(), self.server_shutdown().clone())
                }) {
                    return Ok(EndingLogin::Known(Arc::new(login)));
                }
                let had = login::forget_orphaned(store, name).map_err(anyhow::Error::from)?;
                if had { Ok(EndingLogin::Orphaned) } else { Err(problem) }
            }
            login => Ok(EndingLogin::Known(Arc::new(login?))),
        }
    }
}

/// The login of a server that is about to be added.
pub struct DraftLogin {
    pub login: ServerLogin,
    name: String,
    /// Whether tokens were stored before.
    was_kept: bool,
}

impl DraftLogin {
    /// Logs out, because the server was not added: nothing in the configuration refers to the login, so it could not be ended
    /// later. One from before stays. Returns what was done, in one sentence.
    pub async fn undo(self) -> Option<String> {
        if self.was_kept {
            return None;
        }
        logout_sentence(&self.name, &self.login.oauth().log_out().await)
    }
}

/// A login that is to be ended.
pub enum EndingLogin {
    Known(Arc<ServerLogin>),
    /// Its server is unknown: the tokens were removed, and cannot be revoked.
    Orphaned,
}

impl EndingLogin {
    /// Logs out, and revokes the tokens where possible.
    pub async fn end(&self) -> LogoutResult {
        match self {
            EndingLogin::Known(login) => login.oauth().log_out().await,
            EndingLogin::Orphaned => {
                let why = "their server is no longer configured, so they could not be revoked";
                Ok(LogoutReport { was: true, tokens: TokenRevocation::NotRevoked(why.to_owned()) })
            }
        }
    }
}

/// Returns the end of a login as `--json` prints it.
pub fn logout_listing(ended: &LogoutResult) -> Value {
    let (was, revoked, why) = match ended {
        Ok(LogoutReport { was, tokens }) => {
            let why = match tokens {
                TokenRevocation::NotRevoked(why) => Some(why.clone()),
                TokenRevocation::NotOffered => Some("not offered".to_owned()),
                TokenRevocation::None | TokenRevocation::Revoked => None,
            };
            (*was, *tokens == TokenRevocation::Revoked, why)
        }
        Err(error) => (false, false, Some(error.to_string())),
    };
    json!({ "logged_out": was, "revoked": revoked, "not_revoked": why })
}

/// Describes the end of a login; `None` if there was none.
pub fn logout_sentence(name: &str, ended: &LogoutResult) -> Option<String> {
    let LogoutReport { was, tokens } = match ended {
        Ok(report) => report,
        Err(error) => return Some(format!("Its login could not be removed: {error}")),
    };
    was.then(|| match tokens {
        TokenRevocation::None => format!("Logged out of `{name}`."),
        TokenRevocation::Revoked => format!("Logged out of `{name}` and revoked its tokens."),
        TokenRevocation::NotOffered => format!(
            "Logged out of `{name}`. Its authorization server does not support revocation: the tokens stay valid until \
             they expire."
        ),
        TokenRevocation::NotRevoked(why) => {
            format!("Logged out of `{name}`. Its tokens may still be valid: {why}")
        }
    })
}
