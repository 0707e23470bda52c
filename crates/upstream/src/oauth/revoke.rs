//! Logout: the tokens are revoked at their issuer, where it supports that.

use super::account::Account;
use super::login_store::Login;
use super::{OAuthError, discovery, tokens};

/// The result of a logout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogoutReport {
    /// Whether there was a login.
    pub was: bool,
    pub tokens: TokenRevocation,
}

/// What became of the tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenRevocation {
    /// There were none.
    None,
    Revoked,
    /// The issuer does not support it: they are valid until they expire.
    NotOffered,
    /// They may still be valid, for this reason.
    NotRevoked(String),
}

/// Revokes the tokens. The refresh token first: some servers revoke the rest with it, and it lives longer.
pub(super) async fn revoke(account: &Account, login: &Login) -> TokenRevocation {
    let all = [("refresh_token", &login.refresh_token), ("access_token", &login.access_token)];
    let all: Vec<_> = all.into_iter().filter_map(|(kind, token)| Some((kind, token.as_ref()?))).collect();
    if all.is_empty() {
        return TokenRevocation::None;
    }
    let revoked = async {
        // The endpoint comes from the issuer itself, at this moment: its tokens are sent to no other.
        let server = discovery::described(&account.egress, &login.about.issuer).await?;
        let Some(endpoint) = server.and_then(|server| server.revocation) else {
            return Ok(TokenRevocation::NotOffered);
        };
        let client = account.client_of(login, &endpoint)?;
        for (kind, token) in all {
            tokens::revoke(&account.egress, &endpoint, &client, kind, token).await?;
        }
        Ok::<_, OAuthError>(TokenRevocation::Revoked)
    };
    revoked.await.unwrap_or_else(|error| TokenRevocation::NotRevoked(error.to_string()))
}
