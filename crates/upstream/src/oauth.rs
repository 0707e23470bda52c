//! OAuth client: tokens for upstream servers that want a login.
//!
//! The hub sends a token that it has, and renews it before it expires. To get the first one a person logs in: by
//! `portcullis mcp auth`, or through any other [`LoginPrompt`]. A login is bound to its issuer and its resource
//! ([`LoginMetadata`]), and is sent to no other.
//!
//! Written here rather than taken from a library: every URL on the way was chosen by the server or by a party that
//! it named, so every request has to go through `portcullis_egress`, which resolves, checks and pins (SSRF). The
//! `auth` part of rmcp brings reqwest, which connects by itself, and does not handle `iss`, `resource` and step-up
//! as the newest revision requires; the `oauth2` crate has a pluggable client, but neither discovery nor
//! registration, and would save the encoding of two forms.

mod account;
mod address;
mod callback;
mod challenge;
mod client;
mod discovery;
mod error;
mod error_response;
mod login;
mod login_store;
mod renewals;
mod revoke;
mod tokens;

pub use error::OAuthError;
pub use login_store::{ClientKind, Login, LoginLock, LoginMetadata, LoginStore, TokenMethod};
pub use revoke::{LogoutReport, TokenRevocation};

use crate::sanitize::one_line;
use crate::shutdown::Shutdown;
use crate::transport::HeaderSpec;
use crate::transport::{Credentials, CredentialsError};
use account::{Account, RenewalReason, bearer};
use challenge::Challenge;
use futures::future::BoxFuture;
use portcullis_core::{Clock, Secret, blocking};
use portcullis_egress::{EgressClient, EgressError, EgressSettings, NoSecrets, Resolve, Url};
use renewals::TokenRenewer;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Mutex;

/// How many scopes are requested at once. No person reads more.
const SCOPES_MAX: usize = 64;
/// How often one process asks a person to log in. A server that never accepts is left alone then.
const LOGINS_MAX: u32 = 5;
/// Error codes for an unknown client.
const CLIENT_UNKNOWN: [&str; 2] = ["invalid_client", "unauthorized_client"];

/// How to log in to one server, as configured.
#[derive(Debug, Clone)]
pub struct OAuthSpec {
    pub name: String,
    /// The URL of the server.
    pub url: Url,
    /// Headers of every request to it.
    pub headers: Vec<HeaderSpec>,
    /// A client that a person registered with the authorization server.
    pub client_id: Option<String>,
    pub client_secret: Option<ClientSecret>,
    /// The scope to request, instead of what the server suggests.
    pub scope: Option<String>,
    /// The port of the redirect URI; a free one if absent.
    pub callback_port: Option<u16>,
    /// The URL of a client metadata document.
    pub client_metadata_url: Option<String>,
}

/// Looks up the secret of a configured client, for one host; or says why not.
#[derive(Clone)]
pub struct ClientSecret(pub Arc<LookUpSecret>);

type LookUpSecret = dyn Fn(&str) -> Result<Secret<String>, String> + Send + Sync;

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// A way to reach a person who can log in.
pub trait LoginPrompt: Send + Sync {
    /// Shows the URL of the login page. Fails if no person can see it.
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>>;
}

/// The login of one server.
pub struct OAuth {
    account: Arc<Account>,
    renewals: TokenRenewer,
    prompt: Option<Arc<dyn LoginPrompt>>,
    /// How often a person was asked. Locked while one is, so that it happens once for all calls that wait.
    logins: Mutex<u32>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("spec", &self.account.spec).finish_non_exhaustive()
    }
}

impl OAuth {
    /// Makes the login of one server. `settings` are those of all requests to untrusted hosts; the server's
    /// configured origin is an exception. Without `prompt` no person is asked.
    pub fn new(
        spec: OAuthSpec,
        mut settings: EgressSettings,
        resolver: Arc<dyn Resolve>,
        keep: Arc<dyn LoginStore>,
        clock: Arc<dyn Clock>,
        prompt: Option<Arc<dyn LoginPrompt>>,
        shutdown: Shutdown,
    ) -> Result<OAuth, EgressError> {
        let own = spec.url.host().zip(spec.url.port_or_known_default());
        let own = own.and_then(|(host, port)| format!("{host}:{port}").parse().ok());
        settings.exceptions.extend(own);
        let egress = EgressClient::new(settings, resolver, Arc::new(NoSecrets), clock.clone())?;
        let account = Arc::new(Account { spec, egress, keep, clock });
        let renewals = TokenRenewer::new(account.clone(), shutdown);
        Ok(OAuth { account, renewals, prompt, logins: Mutex::default() })
    }

    /// Returns the value of the `Authorization` header, renewed if need be.
    pub async fn header(&self) -> Result<Option<String>, OAuthError> {
        let Some(login) = self.account.load().await? else { return Ok(None) };
        let Some(token) = self.account.token_of(&login) else { return Ok(None) };
        let now = self.account.now();
        if now < login.about.due() {
            return Ok(Some(bearer(token)));
        }
        let is_over = login.about.expires_at.is_some_and(|at| now >= at);
        let used = bearer(token);
        match (login.refresh_token.is_some(), is_over) {
            (false, true) => Err(self.account.needs_person("the login has expired")),
            (true, true) => self.renewals.renewed(&used, RenewalReason::Over).await.map(Some),
            (true, false) => Ok(Some(self.renewals.renewed_soon(used).await)),
            (false, false) => Ok(Some(used)),
        }
    }

    /// Takes note that the server refused a request with the header `used`. Returns whether it can be sent again
    /// now.
    pub async fn refused(
        &self,
        used: Option<&str>,
        status: u16,
        challenge: Option<&str>,
    ) -> Result<bool, OAuthError> {
        let challenge = challenge.map(Challenge::parse).unwrap_or_default();
        let wants_scope = challenge.error.as_deref() == Some("insufficient_scope");
        if status != 401 && !(status == 403 && wants_scope) {
            return Ok(false);
        }
        let login = self.account.load().await?;
        if self.is_newer(login.as_ref(), used) {
            return Ok(true);
        }
        let has_refresh = login.is_some_and(|login| login.refresh_token.is_some());
        if let Some(used) =
            used.filter(|_| status == 401 && has_refresh && self.renewals.may(RenewalReason::Refused))
        {
            match self.renewals.renewed(used, RenewalReason::Refused).await {
                Ok(_) => return Ok(true),
                Err(error @ (OAuthError::Unreachable { .. } | OAuthError::Store(_))) => return Err(error),
                // Then a person has to log in.
                Err(error) if self.prompt.is_none() => return Err(error),
                Err(_) => {}
            }
        }
        let mut logins = self.logins.lock().await;
        let login = self.account.load().await?;
        if self.is_newer(login.as_ref(), used) {
            return Ok(true);
        }
        match status {
            403 => self.step_up(&mut logins, login, &challenge).await,
            _ => self.login_again(&mut logins, login, &challenge, Vec::new()).await,
        }?;
        Ok(true)
    }

    /// Takes note that the server accepted the last token.
    pub fn accepted(&self) {
        self.renewals.accepted();
    }

    /// Returns whether there is a newer token than the one that was used.
    fn is_newer(&self, login: Option<&Login>, used: Option<&str>) -> bool {
        let current = login.and_then(|login| self.account.token_of(login)).map(bearer);
        current.is_some() && current.as_deref() != used
    }

    /// Lets a person log in now. Meanwhile the current login stays in use.
    pub async fn log_in(&self, prompt: &dyn LoginPrompt) -> Result<LoginMetadata, OAuthError> {
        let known = self.account.load().await?;
        let challenge = login::probe(&self.account.egress, &self.account.spec).await?;
        let wanted = known.as_ref().map(|login| login.about.wanted.clone()).unwrap_or_default();
        let login = self.log_in_knowing(known, &challenge, wanted, prompt).await?;
        Ok(login.about)
    }

    /// Lets a person log in, and saves the result.
    async fn log_in_knowing(
        &self,
        known: Option<Login>,
        challenge: &Challenge,
        new: Vec<String>,
        prompt: &dyn LoginPrompt,
    ) -> Result<Login, OAuthError> {
        let client_id = known.as_ref().map(|login| login.about.client_id.clone());
        match login::log_in(&self.account, known, challenge, new, prompt).await {
            Ok(login) => {
                let _turn = self.account.lock().await?;
                self.account.save(login.clone()).await?;
                Ok(login)
            }
            Err(error) => {
                if let OAuthError::Refused { code, .. } = &error
                    && CLIENT_UNKNOWN.contains(&code.as_str())
                {
                    // Whether that can be saved or not, the reason is the same.
                    let _ = self.forget_client(client_id.as_deref()).await;
                }
                Err(error)
            }
        }
    }

    /// Makes the next login register another client, if this one is still saved.
    async fn forget_client(&self, id: Option<&str>) -> Result<(), OAuthError> {
        let _turn = self.account.lock().await?;
        match self.account.load().await? {
            Some(mut login) if id == Some(login.about.client_id.as_str()) => {
                login.about.client_gone = true;
                self.account.save(login).await
            }
            _ => Ok(()),
        }
    }

    /// Forgets the login, after its tokens were revoked. They are forgotten even if they cannot be revoked.
    pub async fn log_out(&self) -> Result<LogoutReport, OAuthError> {
        let _turn = self.account.lock().await?;
        let login = self.account.load().await;
        let keep = self.account.keep.clone();
        let tokens = match login {
            Ok(Some(login)) => revoke::revoke(&self.account, &login).await,
            Ok(None) => TokenRevocation::None,
            Err(error) => TokenRevocation::NotRevoked(error.to_string()),
        };
        let was = blocking(move || keep.forget().map_err(OAuthError::Store)).await?;
        Ok(LogoutReport { was, tokens })
    }

    /// Requests more scopes. Those that were requested already are not requested again: that would never end.
    async fn step_up(
        &self,
        logins: &mut u32,
        login: Option<Login>,
        challenge: &Challenge,
    ) -> Result<(), OAuthError> {
        let wanted = scopes(challenge.scope.as_deref().unwrap_or_default());
        let asked = login.as_ref().map(|login| login.about.asked.as_slice()).unwrap_or_default();
        let new: Vec<String> = wanted.iter().filter(|scope| !asked.contains(scope)).cloned().collect();
        if new.is_empty() {
            let withheld = login.map(|login| login.about.withheld(&wanted)).unwrap_or_default();
            if !withheld.is_empty() {
                let words = one_line(&withheld.join(" "));
                let why = format!("the server wants `{words}`, which was requested and not granted");
                return Err(self.account.needs_person(&why));
            }
            return Err(self
                .account
                .needs_person("the server refuses although it got every scope that it asked for"));
        }
        self.login_again(logins, login, challenge, new).await
    }

    /// Lets a person log in if one is there; otherwise saves which scopes the next login has to request.
    async fn login_again(
        &self,
        logins: &mut u32,
        login: Option<Login>,
        challenge: &Challenge,
        new: Vec<String>,
    ) -> Result<(), OAuthError> {
        let Some(prompt) = self.prompt.clone() else {
            return Err(self.tell_person(login, challenge, new).await);
        };
        if *logins >= LOGINS_MAX {
            return Err(self.account.needs_person("the server wants one login after the other"));
        }
        *logins += 1;
        self.log_in_knowing(login, challenge, new, &*prompt).await.map(drop)
    }

    /// Returns what a person has to do.
    async fn tell_person(&self, login: Option<Login>, challenge: &Challenge, new: Vec<String>) -> OAuthError {
        if login.is_some() {
            if new.is_empty() {
                return self.account.needs_person("the server no longer accepts the login");
            }
            if let Err(error) = self.want(&new).await {
                return error;
            }
            let words = one_line(&new.join(" "));
            return self.account.needs_person(&format!("the server wants more than was granted, `{words}`"));
        }
        let found = discovery::discover(
            &self.account.egress,
            &self.account.spec.url,
            challenge.resource_metadata.as_deref(),
        )
        .await;
        match found.and_then(|found| client::can_be_client(&self.account.spec, &found.server)) {
            Ok(()) => self.account.needs_person("the server wants a login"),
            Err(error) => error,
        }
    }

    /// Saves scopes for the next login.
    async fn want(&self, new: &[String]) -> Result<(), OAuthError> {
        let _turn = self.account.lock().await?;
        let Some(mut login) = self.account.load().await? else { return Ok(()) };
        let wanted = union(&login.about.wanted, new);
        if wanted == login.about.wanted {
            return Ok(());
        }
        login.about.wanted = wanted;
        self.account.save(login).await
    }
}

/// Returns the valid scopes of a list.
fn scopes(list: &str) -> Vec<String> {
    let legal = |scope: &&str| scope.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    list.split(' ')
        .filter(|scope| !scope.is_empty())
        .filter(legal)
        .take(SCOPES_MAX)
        .map(str::to_owned)
        .collect()
}

fn union(one: &[String], other: &[String]) -> Vec<String> {
    let mut all = one.to_vec();
    for scope in other {
        if !all.contains(scope) && all.len() < SCOPES_MAX {
            all.push(scope.clone());
        }
    }
    all
}

impl Credentials for OAuth {
    fn header(&self) -> BoxFuture<'_, Result<Option<String>, CredentialsError>> {
        Box::pin(async { OAuth::header(self).await.map_err(CredentialsError::from) })
    }

    fn accepted(&self) {
        OAuth::accepted(self);
    }

    fn refused<'a>(
        &'a self,
        used: Option<&'a str>,
        status: u16,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, CredentialsError>> {
        Box::pin(async move {
            OAuth::refused(self, used, status, challenge).await.map_err(CredentialsError::from)
        })
    }

    fn issuer(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { self.account.load().await.ok().flatten().map(|login| login.about.issuer) })
    }
}
