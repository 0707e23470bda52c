//! Tokens for servers that want to know who we are.
//!
//! The hub shows a token that it has, and renews it before it expires. To get the first one a person logs in: by
//! `portcullis mcp auth`, or wherever else there is a [`Consent`]. What is kept of a login is bound to who made it and
//! to what it is for ([`About`]), and is shown to nobody else.
//!
//! Written here rather than taken from a library: every address on the way was chosen by the server or by someone it
//! named, so every request has to take the road of `portcullis_egress`, which resolves, checks and pins. The `auth` part
//! of rmcp brings reqwest, which connects by itself, and does not say `iss`, `resource` and step-up in the way the
//! newest revision wants them; the `oauth2` crate has a pluggable client, but neither discovery nor registration, and
//! what it would save is the encoding of two forms.

mod address;
mod callback;
mod challenge;
mod client;
mod discovery;
mod error;
mod keep;
mod login;
mod revoke;
mod tokens;

pub use error::OAuthError;
pub use keep::{About, ClientKind, Keep, Login, TokenMethod, Turn};
pub use revoke::{LoggedOut, Tokens};

use crate::clean::one_line;
use crate::connection::LinkError;
use crate::link::Credentials;
use crate::spec::HeaderSpec;
use challenge::Challenge;
use client::OAuthClient;
use futures::future::BoxFuture;
use portcullis_core::{Clock, Secret};
use portcullis_egress::{Egress, EgressError, EgressSettings, NoSecrets, Resolve, Url};
use std::fmt;
use std::sync::Arc;
use tokio::sync::Mutex;

/// How many scopes are asked for at once. Nobody reads more.
const SCOPES_MAX: usize = 64;
/// How often one process asks a person. A server that is never content is left alone then.
const LOGINS_MAX: u32 = 5;
/// How often tokens are renewed because they were refused, and within how long.
const RENEWALS_MAX: usize = 3;
const RENEWALS_WITHIN_SECS: u64 = 5 * 60;
/// How long a renewal that did not succeed is not tried again, while the token is good.
const RENEW_AGAIN_SECS: u64 = 10;
/// By which an issuer says that it does not know a client.
const CLIENT_UNKNOWN: [&str; 2] = ["invalid_client", "unauthorized_client"];

/// How to log in to one server, as the configuration means it.
#[derive(Debug, Clone)]
pub struct OAuthSpec {
    pub name: String,
    /// Where the server is.
    pub url: Url,
    /// What every request to it carries.
    pub headers: Vec<HeaderSpec>,
    /// A client that a person registered with the authorization server.
    pub client_id: Option<String>,
    pub client_secret: Option<ClientSecret>,
    /// What to ask for, instead of what the server suggests.
    pub scope: Option<String>,
    /// Where people come back to; a free port if there is none.
    pub callback_port: Option<u16>,
    /// The address of a document that describes this client.
    pub client_metadata_url: Option<String>,
}

/// Looks up the secret of a configured client, to be shown to one host; or says why not.
#[derive(Clone)]
pub struct ClientSecret(pub Arc<LookUpSecret>);

/// From a host to the secret that may be shown to it.
type LookUpSecret = dyn Fn(&str) -> Result<Secret<String>, String> + Send + Sync;

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Where there is a person who can log in.
pub trait Consent: Send + Sync {
    /// Shows the address of the login page. Fails if nobody can see it.
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>>;
}

/// The login of one server.
pub struct OAuth {
    spec: OAuthSpec,
    egress: Egress,
    keep: Arc<dyn Keep>,
    clock: Arc<dyn Clock>,
    consent: Option<Arc<dyn Consent>>,
    /// Held while tokens are renewed or got, so that this happens once for all who wait.
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    logins: u32,
    /// When tokens were renewed because the server refused them, in seconds since the epoch.
    renewals: Vec<u64>,
    /// When tokens that are good still are to be renewed again, after that did not succeed.
    not_before: u64,
}

impl Progress {
    /// Returns whether renewing a refused token may be of use. A server that refuses new ones as well is not helped by more.
    fn may_renew(&mut self, now: u64) -> bool {
        self.renewals.retain(|then| now < then + RENEWALS_WITHIN_SECS);
        self.renewals.len() < RENEWALS_MAX
    }
}

/// What is known of the token that is to be renewed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// It will expire, and can be used until then.
    Good,
    Useless,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl OAuth {
    /// Makes the login of one server. `settings` are those of all requests to strangers; the server's own origin may be
    /// asked besides, since a person chose it. Without `consent` nobody is asked to log in.
    pub fn new(
        spec: OAuthSpec,
        mut settings: EgressSettings,
        resolver: Arc<dyn Resolve>,
        keep: Arc<dyn Keep>,
        clock: Arc<dyn Clock>,
        consent: Option<Arc<dyn Consent>>,
    ) -> Result<OAuth, EgressError> {
        let own = spec.url.host().zip(spec.url.port_or_known_default());
        let own = own.and_then(|(host, port)| format!("{host}:{port}").parse().ok());
        settings.exceptions.extend(own);
        let egress = Egress::new(settings, resolver, Arc::new(NoSecrets), clock.clone())?;
        Ok(OAuth { spec, egress, keep, clock, consent, progress: Mutex::default() })
    }

    /// Returns who vouches for us there, if somebody logged in.
    pub(crate) async fn issuer(&self) -> Option<String> {
        self.load().await.ok().flatten().map(|login| login.about.issuer)
    }

    /// Returns the value of the `Authorization` header as it is good now.
    pub async fn header(&self) -> Result<Option<String>, OAuthError> {
        let Some(login) = self.load().await? else { return Ok(None) };
        let Some(token) = self.token_of(&login) else { return Ok(None) };
        let now = self.clock.since_epoch().as_secs();
        if now < login.about.due() {
            return Ok(Some(bearer(token)));
        }
        let is_over = login.about.expires_at.is_some_and(|at| now >= at);
        if login.refresh_token.is_none() {
            return match is_over {
                true => Err(self.needs_person("the login has expired")),
                false => Ok(Some(bearer(token))),
            };
        }
        let used = bearer(token);
        if is_over {
            let _progress = self.progress.lock().await;
            return self.renew(&used, Token::Useless).await.map(Some);
        }
        let mut progress = self.progress.lock().await;
        if now < progress.not_before {
            return Ok(Some(used));
        }
        match self.renew(&used, Token::Good).await {
            Ok(header) => Ok(Some(header)),
            // It is good for a moment still, and whoever is away may be back by then.
            Err(error) => {
                progress.not_before = now + RENEW_AGAIN_SECS;
                tracing::warn!(target: "upstream", server = %self.spec.name, %error, "A login could not be renewed.");
                Ok(Some(used))
            }
        }
    }

    /// Hears that the server refused a request with the header `used`. Returns whether it can be made again now.
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
        let mut progress = self.progress.lock().await;
        let login = self.load().await?;
        let current = login.as_ref().and_then(|login| self.token_of(login)).map(bearer);
        if current.is_some() && current.as_deref() != used {
            // Somebody was faster.
            return Ok(true);
        }
        if status == 403 {
            return self.step_up(&mut progress, login, &challenge).await;
        }
        let has_refresh = login.as_ref().is_some_and(|login| login.refresh_token.is_some());
        let now = self.clock.since_epoch().as_secs();
        if let Some(used) = used.filter(|_| has_refresh && progress.may_renew(now)) {
            match self.renew(used, Token::Useless).await {
                Ok(_) => {
                    progress.renewals.push(now);
                    return Ok(true);
                }
                // Nothing is known of the login then; as soon as who knows can be asked, all is well.
                Err(error @ (OAuthError::Unreachable { .. } | OAuthError::Store(_))) => return Err(error),
                // Then a person has to.
                Err(error) if self.consent.is_none() => {
                    progress.renewals.push(now);
                    return Err(error);
                }
                Err(_) => progress.renewals.push(now),
            }
        }
        self.login_again(&mut progress, login, &challenge, Vec::new()).await?;
        Ok(true)
    }

    /// Lets a person log in now. Returns what is kept of it. Meanwhile what is known of the login is used as before.
    pub async fn log_in(&self, consent: &dyn Consent) -> Result<About, OAuthError> {
        let known = self.load().await?;
        let challenge = login::probe(&self.egress, &self.spec).await?;
        let wanted = known.as_ref().map(|login| login.about.wanted.clone()).unwrap_or_default();
        let login = self.log_in_knowing(known, &challenge, wanted, consent).await?;
        Ok(login.about)
    }

    /// Lets a person log in, and keeps what comes of it.
    async fn log_in_knowing(
        &self,
        known: Option<Login>,
        challenge: &Challenge,
        new: Vec<String>,
        consent: &dyn Consent,
    ) -> Result<Login, OAuthError> {
        let client_id = known.as_ref().map(|login| login.about.client_id.clone());
        match login::log_in(self, known, challenge, new, consent).await {
            Ok(login) => {
                let _turn = self.turn().await?;
                self.save(login.clone()).await?;
                Ok(login)
            }
            Err(error) => {
                if let OAuthError::Refused { code, .. } = &error
                    && CLIENT_UNKNOWN.contains(&code.as_str())
                {
                    // Whether that can be kept or not, this is why nobody is logged in.
                    let _ = self.forget_client(client_id.as_deref()).await;
                }
                Err(error)
            }
        }
    }

    /// Lets the next login make another client, if this one is still the one that is kept.
    async fn forget_client(&self, id: Option<&str>) -> Result<(), OAuthError> {
        let _turn = self.turn().await?;
        match self.load().await? {
            Some(mut login) if id == Some(login.about.client_id.as_str()) => {
                login.about.client_gone = true;
                self.save(login).await
            }
            _ => Ok(()),
        }
    }

    /// Forgets the login, after its issuer was told that its tokens are not needed any more. That they cannot be revoked
    /// keeps nobody from forgetting them.
    pub async fn log_out(&self) -> Result<LoggedOut, OAuthError> {
        let _turn = self.turn().await?;
        let login = self.load().await;
        let keep = self.keep.clone();
        let tokens = match login {
            Ok(Some(login)) => revoke::revoke(self, &login).await,
            Ok(None) => Tokens::None,
            Err(error) => Tokens::Left(error.to_string()),
        };
        let was = blocking(move || keep.forget()).await?;
        Ok(LoggedOut { was, tokens })
    }

    /// Asks for more than before. What was asked for already is not asked for again: that would never end.
    async fn step_up(
        &self,
        progress: &mut Progress,
        login: Option<Login>,
        challenge: &Challenge,
    ) -> Result<bool, OAuthError> {
        let wanted = scopes(challenge.scope.as_deref().unwrap_or_default());
        let asked = login.as_ref().map(|login| login.about.asked.as_slice()).unwrap_or_default();
        let new: Vec<String> = wanted.iter().filter(|scope| !asked.contains(scope)).cloned().collect();
        if new.is_empty() {
            let withheld = login.map(|login| login.about.withheld(&wanted)).unwrap_or_default();
            if !withheld.is_empty() {
                let words = one_line(&withheld.join(" "));
                let why = format!("the server wants `{words}`, which was asked for and is not granted");
                return Err(self.needs_person(&why));
            }
            return Err(self.needs_person("the server refuses although it got every scope that it asked for"));
        }
        self.login_again(progress, login, challenge, new).await?;
        Ok(true)
    }

    /// Lets a person log in if there is one; else keeps what they will have to be asked for.
    async fn login_again(
        &self,
        progress: &mut Progress,
        login: Option<Login>,
        challenge: &Challenge,
        new: Vec<String>,
    ) -> Result<(), OAuthError> {
        let Some(consent) = self.consent.clone() else {
            return Err(self.tell_person(login, challenge, new).await);
        };
        if progress.logins >= LOGINS_MAX {
            return Err(self.needs_person("the server wants one login after the other"));
        }
        progress.logins += 1;
        self.log_in_knowing(login, challenge, new, &*consent).await.map(drop)
    }

    /// Finds out what a person has to do.
    async fn tell_person(&self, login: Option<Login>, challenge: &Challenge, new: Vec<String>) -> OAuthError {
        if login.is_some() {
            if new.is_empty() {
                return self.needs_person("the server no longer accepts the login");
            }
            if let Err(error) = self.want(&new).await {
                return error;
            }
            let words = one_line(&new.join(" "));
            return self.needs_person(&format!("the server wants more than was granted, `{words}`"));
        }
        let found =
            discovery::discover(&self.egress, &self.spec.url, challenge.resource_metadata.as_deref()).await;
        match found.and_then(|found| client::can_be_client(&self.spec, &found.server)) {
            Ok(()) => self.needs_person("the server wants a login"),
            Err(error) => error,
        }
    }

    /// Keeps what the next login has to ask for.
    async fn want(&self, new: &[String]) -> Result<(), OAuthError> {
        let _turn = self.turn().await?;
        let Some(mut login) = self.load().await? else { return Ok(()) };
        let wanted = union(&login.about.wanted, new);
        if wanted == login.about.wanted {
            return Ok(());
        }
        login.about.wanted = wanted;
        self.save(login).await
    }

    /// Renews the token unless that was done meanwhile, here or in another process. Returns the header to use. Whoever
    /// calls this holds `progress`.
    async fn renew(&self, used: &str, token: Token) -> Result<String, OAuthError> {
        let _turn = self.turn().await?;
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
            Err(OAuthError::Refused { code, why, .. }) => {
                let client_gone = CLIENT_UNKNOWN.contains(&code.as_str());
                if client_gone || code == "invalid_grant" {
                    // It will not get better: what is of no use to anyone is not kept.
                    login.refresh_token = None;
                    login.access_token.take_if(|_| token == Token::Useless);
                    login.about.client_gone |= client_gone;
                    self.save(login).await?;
                    return Err(self.needs_person(&format!("the login has ended ({why})")));
                }
                return Err(self.needs_person(&format!("the login could not be renewed ({why})")));
            }
            Err(error) => return Err(error),
        };
        login.about.expires_at = granted.expires_at;
        login.about.renew_at = granted.renew_at;
        login.about.granted = granted.scopes.or(login.about.granted);
        let header = bearer(&granted.access_token);
        login.access_token = Some(granted.access_token);
        // A server that gives a new one has put the old one out of use.
        login.refresh_token = granted.refresh_token.or(login.refresh_token);
        self.save(login).await?;
        Ok(header)
    }

    /// Returns the client that a login was made by, as it shows itself at `endpoint`.
    fn client_of(&self, login: &Login, endpoint: &str) -> Result<OAuthClient, OAuthError> {
        let about = &login.about;
        let secret = match (about.client, &self.spec.client_secret) {
            (ClientKind::Configured, Some(secret)) => Some(client::secret_for(secret, endpoint)?),
            _ => login.client_secret.clone(),
        };
        let (kind, id, method) = (about.client, about.client_id.clone(), about.token_method);
        Ok(OAuthClient { kind, id, secret, method })
    }

    /// Returns the token of a login, if it is one for this server.
    fn token_of<'a>(&self, login: &'a Login) -> Option<&'a Secret<String>> {
        let is_ours = address::is_resource_of(&login.about.resource, &self.spec.url);
        login.access_token.as_ref().filter(|_| is_ours)
    }

    fn needs_person(&self, why: &str) -> OAuthError {
        OAuthError::NeedsPerson(format!("{why}; run `portcullis mcp auth {}`", self.spec.name))
    }

    async fn load(&self) -> Result<Option<Login>, OAuthError> {
        // Mostly one look at a file that has not changed; not worth a thread.
        self.keep.load().map_err(OAuthError::Store)
    }

    /// Waits until nobody else changes the login, in any process.
    async fn turn(&self) -> Result<Turn, OAuthError> {
        let keep = self.keep.clone();
        blocking(move || keep.turn()).await
    }

    /// Makes sure that what comes of a login can be kept.
    async fn prepare(&self) -> Result<(), OAuthError> {
        let keep = self.keep.clone();
        blocking(move || keep.prepare()).await
    }

    async fn save(&self, login: Login) -> Result<(), OAuthError> {
        let keep = self.keep.clone();
        blocking(move || keep.save(&login)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, OAuthError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| OAuthError::Store(error.to_string()))?.map_err(OAuthError::Store)
}

const BEARER: &str = "Bearer ";

fn bearer(token: &Secret<String>) -> String {
    format!("{BEARER}{}", token.expose())
}

/// Returns the scopes of a list, as far as they are written like scopes.
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
    fn header(&self) -> BoxFuture<'_, Result<Option<String>, LinkError>> {
        Box::pin(async { OAuth::header(self).await.map_err(LinkError::from) })
    }

    fn refused<'a>(
        &'a self,
        used: Option<&'a str>,
        status: u16,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, LinkError>> {
        Box::pin(async move { OAuth::refused(self, used, status, challenge).await.map_err(LinkError::from) })
    }
}
