//! One HTTP exchange with the server: configured headers, credentials, redirects, retry.

use super::error_status::{read, readable};
use crate::sanitize::one_line;
use crate::transport::{Credentials, CredentialsError};
use crate::transport::{HeaderSpec, HttpSpec};
use crate::transport::{LinkError, RequestError};
use arc_swap::ArcSwap;
use bytes::Bytes;
use portcullis_core::json::printable;
use portcullis_egress::EgressError;
use portcullis_egress::configured_client::{
    ConfiguredClient, ConfiguredClientError, ConfiguredRequest, ConfiguredResponse, Method, Uri,
};
use portcullis_egress::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT,
    WWW_AUTHENTICATE,
};
use std::sync::Arc;

/// How many redirects are followed, within the server's origin.
const REDIRECTS_MAX: usize = 3;
/// How often one request is repeated after a refusal: without a token, and then with one of too small a scope.
const REFUSALS_MAX: usize = 3;
/// How much of a challenge is parsed.
const CHALLENGE_CHARS_MAX: usize = 4_000;

const NAMED: HeaderValue = HeaderValue::from_static(concat!("Portcullis/", env!("CARGO_PKG_VERSION")));

pub(super) struct HttpExchanger {
    own: Arc<ConfiguredClient>,
    headers: Vec<HeaderSpec>,
    /// The headers of every message.
    usual: HeaderMap,
    credentials: Option<Arc<dyn Credentials>>,
    /// The path: the configured one, or where the server redirected to within its origin.
    to: ArcSwap<Uri>,
}

impl HttpExchanger {
    pub(super) fn new(spec: &HttpSpec) -> Result<HttpExchanger, EgressError> {
        let own = ConfiguredClient::new(spec.place.clone(), spec.extra_roots.clone())?;
        let to = own.place().path().parse().map_err(|_| EgressError::Setup {
            why: "the path of the URL is not valid in a request".to_owned(),
        })?;
        let usual = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (USER_AGENT, NAMED),
        ]);
        let (headers, credentials) = (spec.headers.clone(), spec.oauth.clone());
        let to = ArcSwap::from_pointee(to);
        Ok(HttpExchanger { own: Arc::new(own), headers, usual, credentials, to })
    }

    pub(super) fn usual(&self) -> &HeaderMap {
        &self.usual
    }

    /// Returns the path that a `location` leads to within the server's origin.
    pub(super) fn joined(&self, location: &str) -> Option<String> {
        self.own.place().joined(&self.to.load().to_string(), location)
    }

    /// Sends a request; once more where the server closed a reused connection and the request is idempotent.
    pub(super) async fn send_with_retry(
        &self,
        method: Method,
        headers: &HeaderMap,
        body: Bytes,
        is_safe: bool,
    ) -> Result<ConfiguredResponse, RequestError> {
        let made = match self.attempt(&method, None, headers, &body).await {
            Err(ExchangeError::Broken(error)) if error.sent && error.reused && is_safe => {
                self.attempt(&method, None, headers, &body).await
            }
            made => made,
        };
        made.map_err(RequestError::from)
    }

    /// Sends a request, and returns the head of the response, after redirects and refusals are handled.
    pub(super) async fn make(
        &self,
        method: Method,
        path: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<ConfiguredResponse, RequestError> {
        self.attempt(&method, path, headers, &body).await.map_err(RequestError::from)
    }

    async fn attempt(
        &self,
        method: &Method,
        path: Option<&str>,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<ConfiguredResponse, ExchangeError> {
        let (mut redirects, mut refusals) = (0, 0);
        let (mut to, keeps) = match path {
            Some(path) => (at(path)?, false),
            None => (Uri::clone(&self.to.load()), true),
        };
        loop {
            let headers = self.with_credentials(method, headers).await?;
            let used = headers.get(AUTHORIZATION).cloned();
            let ask =
                ConfiguredRequest { method: method.clone(), to: to.clone(), headers, body: body.clone() };
            let reply = self.own.send(ask).await.map_err(ExchangeError::Broken)?;
            match reply.status {
                307 | 308 => {
                    redirects += 1;
                    to = at(&self.redirected(&reply, &to.to_string(), redirects)?)?;
                    if keeps {
                        self.to.store(Arc::new(to.clone()));
                    }
                }
                status @ (401 | 403) => {
                    refusals += 1;
                    if !self.may_retry(status, used.as_ref(), &reply, refusals).await? {
                        return Err(ExchangeError::Link(refusal(status, reply).await));
                    }
                }
                _ => {
                    if let Some(credentials) = &self.credentials {
                        credentials.accepted();
                    }
                    check_uncompressed(&reply)?;
                    return Ok(reply);
                }
            }
        }
    }

    /// Asks for new credentials after a refusal.
    async fn may_retry(
        &self,
        status: u16,
        used: Option<&HeaderValue>,
        reply: &ConfiguredResponse,
        refusals: usize,
    ) -> Result<bool, ExchangeError> {
        let Some(credentials) = self.credentials.as_ref().filter(|_| refusals <= REFUSALS_MAX) else {
            return Ok(false);
        };
        let used = used.and_then(|used| used.to_str().ok());
        credentials.refused(used, status, challenge(reply).as_deref()).await.map_err(ExchangeError::from)
    }

    fn redirected(
        &self,
        reply: &ConfiguredResponse,
        from: &str,
        redirects: usize,
    ) -> Result<String, ExchangeError> {
        let failed = |why: String| ExchangeError::Link(LinkError::Unsuitable { status: reply.status, why });
        if redirects > REDIRECTS_MAX {
            return Err(failed(format!("the server redirects more than {REDIRECTS_MAX} times")));
        }
        let location = reply.headers.get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let location = location.ok_or_else(|| failed("the server redirects without saying where".into()))?;
        // The message may be private, and the credentials always are.
        self.own.place().joined(from, &location).ok_or_else(|| {
            let to = one_line(&location);
            failed(format!(
                "the server redirects to another origin, `{to}`; if that is right, set `url` to it"
            ))
        })
    }

    /// Adds configured headers and credentials.
    async fn with_credentials(&self, method: &Method, said: &HeaderMap) -> Result<HeaderMap, ExchangeError> {
        let failed = |why: String| ExchangeError::Link(LinkError::Failed { why, sent: false });
        let mut headers = said.clone();
        if *method != Method::POST {
            let accepted = match *method {
                Method::GET => "text/event-stream",
                _ => "application/json, text/event-stream",
            };
            headers.insert(ACCEPT, HeaderValue::from_static(accepted));
            headers.insert(USER_AGENT, NAMED);
        }
        for header in &self.headers {
            let name = &header.name;
            let value = (header.values.0)(&header.written)
                .map_err(|why| failed(format!("`headers.{name}`: {why}")))?;
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| failed(format!("`headers.{name}`: the value is not valid in a header")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        if let Some(credentials) = &self.credentials
            && let Some(value) = credentials.header().await.map_err(ExchangeError::from)?
        {
            let value = HeaderValue::from_str(&value);
            let mut value = value.map_err(|_| failed("the token is not valid in a header".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }
}

/// Parses a path that a server sent.
fn at(path: &str) -> Result<Uri, ExchangeError> {
    let why = "the path that the server names is not valid in a request";
    path.parse().map_err(|_| ExchangeError::Link(LinkError::Failed { why: why.to_owned(), sent: false }))
}

/// Why there is no readable response.
enum ExchangeError {
    Broken(ConfiguredClientError),
    Link(LinkError),
}

impl From<CredentialsError> for ExchangeError {
    fn from(error: CredentialsError) -> ExchangeError {
        ExchangeError::Link(error.into())
    }
}

impl From<ExchangeError> for RequestError {
    fn from(unmade: ExchangeError) -> RequestError {
        match unmade {
            ExchangeError::Broken(error) => failed(error),
            ExchangeError::Link(error) => RequestError::Link(error),
        }
    }
}

pub(super) fn failed(error: ConfiguredClientError) -> RequestError {
    RequestError::Link(LinkError::Failed { why: error.why, sent: error.sent })
}

/// The hub does not ask for compressed responses.
fn check_uncompressed(reply: &ConfiguredResponse) -> Result<(), ExchangeError> {
    match reply.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity" | b"") => Ok(()),
        Some(other) => {
            let why =
                format!("the response is compressed with `{}`", printable(&String::from_utf8_lossy(other)));
            Err(ExchangeError::Link(LinkError::Failed { why, sent: true }))
        }
    }
}

fn challenge(reply: &ConfiguredResponse) -> Option<String> {
    let all: Vec<&str> =
        reply.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
    (!all.is_empty()).then(|| all.join(", ").chars().take(CHALLENGE_CHARS_MAX).collect())
}

async fn refusal(status: u16, mut reply: ConfiguredResponse) -> LinkError {
    let said = challenge(&reply).map(|said| format!(" and says `{}`", printable(&said))).unwrap_or_default();
    let why = readable(&read(&mut reply).await).map(|why| format!(": {why}")).unwrap_or_default();
    match status {
        401 => LinkError::NeedsAuth(format!("the server requires a login (401){said}{why}")),
        _ => LinkError::Unsuitable { status, why: format!("the server does not allow it (403){said}{why}") },
    }
}
