//! The end of a login: its tokens are taken back by who made them, where that is offered.

use super::account::Account;
use super::keep::Login;
use super::{OAuthError, discovery, tokens};

/// What came of the end of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOut {
    /// Whether there was a login.
    pub was: bool,
    pub tokens: Tokens,
}

/// What became of the tokens of a login that is forgotten here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokens {
    /// There were none.
    None,
    Revoked,
    /// Their issuer does not offer it: they are good until they expire.
    NotOffered,
    /// They may be good still, for this reason.
    Left(String),
}

/// Revokes what there is of a login. The refresh token first: some servers revoke the rest with it, and it is the one
/// that is good for longer.
pub(super) async fn revoke(account: &Account, login: &Login) -> Tokens {
    let all = [("refresh_token", &login.refresh_token), ("access_token", &login.access_token)];
    let all: Vec<_> = all.into_iter().filter_map(|(kind, token)| Some((kind, token.as_ref()?))).collect();
    if all.is_empty() {
        return Tokens::None;
    }
    let told = async {
        // Asked of the issuer itself, at this moment: nobody else is ever shown its tokens.
        let server = discovery::described(&account.egress, &login.about.issuer).await?;
        let Some(endpoint) = server.and_then(|server| server.revocation) else {
            return Ok(Tokens::NotOffered);
        };
        let client = account.client_of(login, &endpoint)?;
        for (kind, token) in all {
            tokens::revoke(&account.egress, &endpoint, &client, kind, token).await?;
        }
        Ok::<_, OAuthError>(Tokens::Revoked)
    };
    told.await.unwrap_or_else(|error| Tokens::Left(error.to_string()))
}
