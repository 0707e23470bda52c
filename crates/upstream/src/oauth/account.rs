//! The account of the hub at one server: its login, and the store of that login.

use super::client::{self, OAuthClient};
use super::login_store::{ClientKind, Login, LoginLock, LoginStore};
use super::{CLIENT_UNKNOWN, OAuthError, OAuthSpec, address, tokens};
use portcullis_core::{Clock, Secret, blocking};
use portcullis_egress::EgressClient;
use std::sync::Arc;

/// Why a token is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RenewalReason {
    /// It will expire, and is valid until then.
    Due,
    Over,
    Refused,
}

pub(super) struct Account {
    pub(super) spec: OAuthSpec,
    pub(super) egress: EgressClient,
    pub(super) keep: Arc<dyn LoginStore>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Account {
    pub(super) fn now(&self) -> u64 {
        self.clock.since_epoch().as_secs()
    }

    /// Renews the token, unless this or another process has done so meanwhile. Returns the header to use.
    pub(super) async fn renew(&self, used: &str, why: RenewalReason) -> Result<String, OAuthError> {
        let _turn = self.lock().await?;
        let Some(mut login) = self.load().await? else {
            return Err(self.needs_person("the login is gone"));
        };
        if let Some(header) = self.token_of(&login).map(bearer).filter(|header| header != used) {
            return Ok(header);
        }
        let Some(refresh_token) = login.refresh_token.clone() else {
            return Err(self.needs_person("the login has expired"));
        };
        let about = &login.about;
        let client = self.client_of(&login, &about.token_endpoint)?;
        let parts = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.expose().as_str()),
            ("resource", about.resource.as_str()),
        ];
        let renewed =
            tokens::request(&self.egress, &*self.clock, &about.token_endpoint, &client, &parts).await;
        let granted = match renewed {
            Ok(granted) => granted,
            Err(OAuthError::Refused { code, why: said, .. }) => {
                let client_gone = CLIENT_UNKNOWN.contains(&code.as_str());
                if client_gone || code == "invalid_grant" {
                    // The refresh token is invalid for good.
                    login.refresh_token = None;
                    login.access_token.take_if(|_| why != RenewalReason::Due);
                    login.about.client_gone |= client_gone;
                    self.save(login).await?;
                    return Err(self.needs_person(&format!("the login has ended ({said})")));
                }
                return Err(self.needs_person(&format!("the login could not be renewed ({said})")));
            }
            Err(error) => return Err(error),
        };
        login.about.expires_at = granted.expires_at;
        login.about.renew_at = granted.renew_at;
        login.about.granted = granted.scopes.or(login.about.granted);
        let header = bearer(&granted.access_token);
        login.access_token = Some(granted.access_token);
        // A server that issues a new one has revoked the old one.
        login.refresh_token = granted.refresh_token.or(login.refresh_token);
        self.save(login).await?;
        Ok(header)
    }

    /// Returns the client of a login, as it authenticates at `endpoint`.
    pub(super) fn client_of(&self, login: &Login, endpoint: &str) -> Result<OAuthClient, OAuthError> {
        let about = &login.about;
        let secret = match (about.client, &self.spec.client_secret) {
            (ClientKind::Configured, Some(secret)) => Some(client::secret_for(secret, endpoint)?),
            _ => login.client_secret.clone(),
        };
        let (kind, id, method) = (about.client, about.client_id.clone(), about.token_method);
        Ok(OAuthClient { kind, id, secret, method })
    }

    /// Returns the token of a login, if it is for this server.
    pub(super) fn token_of<'a>(&self, login: &'a Login) -> Option<&'a Secret<String>> {
        let is_ours = address::is_resource_of(&login.about.resource, &self.spec.url);
        login.access_token.as_ref().filter(|_| is_ours)
    }

    pub(super) fn needs_person(&self, why: &str) -> OAuthError {
        OAuthError::NeedsPerson(format!("{why}; run `portcullis mcp auth {}`", self.spec.name))
    }

    pub(super) async fn load(&self) -> Result<Option<Login>, OAuthError> {
        // Mostly one `stat` of an unchanged file; not worth a thread.
        self.keep.load().map_err(OAuthError::Store)
    }

    /// Waits for the lock on the login, across processes.
    pub(super) async fn lock(&self) -> Result<LoginLock, OAuthError> {
        let keep = self.keep.clone();
        blocking(move || keep.lock().map_err(OAuthError::Store)).await
    }

    /// Makes sure that a login can be saved.
    pub(super) async fn prepare(&self) -> Result<(), OAuthError> {
        let keep = self.keep.clone();
        blocking(move || keep.prepare().map_err(OAuthError::Store)).await
    }

    pub(super) async fn save(&self, login: Login) -> Result<(), OAuthError> {
        let keep = self.keep.clone();
        blocking(move || keep.save(&login).map_err(OAuthError::Store)).await
    }
}

const BEARER: &str = "Bearer ";

pub(super) fn bearer(token: &Secret<String>) -> String {
    format!("{BEARER}{}", token.expose())
}
