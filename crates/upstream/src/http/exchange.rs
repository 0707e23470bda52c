//! One request to the server, with all that stands around it: headers of the configuration, who we are, and redirects.

use super::refused::{read, told};
use crate::clean::one_line;
use crate::connection::{LinkError, RequestError};
use crate::link::Credentials;
use crate::spec::{HeaderSpec, HttpSpec};
use arc_swap::ArcSwap;
use bytes::Bytes;
use portcullis_core::json::printable;
use portcullis_egress::EgressError;
use portcullis_egress::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT,
    WWW_AUTHENTICATE,
};
use portcullis_egress::own::{Ask, Method, Own, OwnError, Reply, Uri};
use std::sync::Arc;

/// How many times a server may send us on, within itself.
const REDIRECTS_MAX: usize = 3;
/// How often one request may be refused and made again: without a token, and then with one of too small a scope.
const REFUSALS_MAX: usize = 3;
/// How much of a challenge is looked at.
const CHALLENGE_CHARS_MAX: usize = 4_000;

const NAMED: HeaderValue = HeaderValue::from_static(concat!("Portcullis/", env!("CARGO_PKG_VERSION")));

pub(super) struct Exchanges {
    own: Arc<Own>,
    headers: Vec<HeaderSpec>,
    /// What every message says, whatever it is.
    usual: HeaderMap,
    credentials: Option<Arc<dyn Credentials>>,
    /// Where messages go: where it was configured, or where the server sent us on to, within itself.
    to: ArcSwap<Uri>,
}

impl Exchanges {
    pub(super) fn new(
        spec: &HttpSpec,
        credentials: Option<Arc<dyn Credentials>>,
    ) -> Result<Exchanges, EgressError> {
        let own = Own::new(spec.place.clone(), spec.extra_roots.clone())?;
        let to = own.place().path().parse().map_err(|_| EgressError::Setup {
            why: "the path of the address cannot stand in a request".to_owned(),
        })?;
        let usual = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (USER_AGENT, NAMED),
        ]);
        let (headers, to) = (spec.headers.clone(), ArcSwap::from_pointee(to));
        Ok(Exchanges { own: Arc::new(own), headers, usual, credentials, to })
    }

    /// Returns the headers of a message of which nothing is known yet.
    pub(super) fn usual(&self) -> &HeaderMap {
        &self.usual
    }

    /// Returns the path that `location`, said on the way to the server, leads to within it.
    pub(super) fn joined(&self, location: &str) -> Option<String> {
        self.own.place().joined(&self.to.load().to_string(), location)
    }

    /// Makes a request; once more where it got lost on a connection that the server was about to close, and making it
    /// twice does no harm.
    pub(super) async fn make_again(
        &self,
        method: Method,
        headers: &HeaderMap,
        body: Bytes,
        is_safe: bool,
    ) -> Result<Reply, RequestError> {
        let made = match self.attempt(&method, None, headers, &body).await {
            Err(Unmade::Broken(error)) if error.sent && error.reused && is_safe => {
                self.attempt(&method, None, headers, &body).await
            }
            made => made,
        };
        made.map_err(RequestError::from)
    }

    /// Makes a request, and returns the head of the answer whatever its status, but for those that are dealt with here.
    pub(super) async fn make(
        &self,
        method: Method,
        path: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Reply, RequestError> {
        self.attempt(&method, path, headers, &body).await.map_err(RequestError::from)
    }

    async fn attempt(
        &self,
        method: &Method,
        path: Option<&str>,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Reply, Unmade> {
        let (mut redirects, mut refusals) = (0, 0);
        let (mut to, keeps) = match path {
            Some(path) => (at(path)?, false),
            None => (Uri::clone(&self.to.load()), true),
        };
        loop {
            let headers = self.dressed(method, headers).await?;
            let used = headers.get(AUTHORIZATION).cloned();
            let ask = Ask { method: method.clone(), to: to.clone(), headers, body: body.clone() };
            let reply = self.own.send(ask).await.map_err(Unmade::Broken)?;
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
                    if !self.may_again(status, used.as_ref(), &reply, refusals).await? {
                        return Err(Unmade::Told(refusal(status, reply).await));
                    }
                }
                _ => {
                    if let Some(credentials) = &self.credentials {
                        credentials.accepted();
                    }
                    unpacked(&reply)?;
                    return Ok(reply);
                }
            }
        }
    }

    /// Asks whoever keeps our credentials whether they are better now.
    async fn may_again(
        &self,
        status: u16,
        used: Option<&HeaderValue>,
        reply: &Reply,
        refusals: usize,
    ) -> Result<bool, Unmade> {
        let Some(credentials) = self.credentials.as_ref().filter(|_| refusals <= REFUSALS_MAX) else {
            return Ok(false);
        };
        let used = used.and_then(|used| used.to_str().ok());
        credentials.refused(used, status, challenge(reply).as_deref()).await.map_err(Unmade::Told)
    }

    fn redirected(&self, reply: &Reply, from: &str, redirects: usize) -> Result<String, Unmade> {
        let failed = |why: String| Unmade::Told(LinkError::Unsuitable { status: reply.status, why });
        if redirects > REDIRECTS_MAX {
            return Err(failed(format!("the server redirects more than {REDIRECTS_MAX} times")));
        }
        let location = reply.headers.get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let location = location.ok_or_else(|| failed("the server redirects without saying where".into()))?;
        // What we are asked to say again may be private, and who we are always is.
        self.own.place().joined(from, &location).ok_or_else(|| {
            let to = one_line(&location);
            failed(format!(
                "the server redirects to another place, `{to}`; if that is right, put it into `url`"
            ))
        })
    }

    /// Adds what else a request says.
    async fn dressed(&self, method: &Method, said: &HeaderMap) -> Result<HeaderMap, Unmade> {
        let failed = |why: String| Unmade::Told(LinkError::Failed { why, sent: false });
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
                .map_err(|_| failed(format!("`headers.{name}`: the value cannot stand in a header")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        if let Some(credentials) = &self.credentials
            && let Some(value) = credentials.header().await.map_err(Unmade::Told)?
        {
            let value = HeaderValue::from_str(&value);
            let mut value = value.map_err(|_| failed("the token cannot stand in a header".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }
}

/// Reads a path that a server named.
fn at(path: &str) -> Result<Uri, Unmade> {
    let why = "the path that the server names cannot stand in a request";
    path.parse().map_err(|_| Unmade::Told(LinkError::Failed { why: why.to_owned(), sent: false }))
}

/// Why there is no answer that one could read.
enum Unmade {
    Broken(OwnError),
    Told(LinkError),
}

impl From<Unmade> for RequestError {
    fn from(unmade: Unmade) -> RequestError {
        match unmade {
            Unmade::Broken(error) => failed(error),
            Unmade::Told(error) => RequestError::Link(error),
        }
    }
}

pub(super) fn failed(error: OwnError) -> RequestError {
    RequestError::Link(LinkError::Failed { why: error.why, sent: error.sent })
}

/// Packed answers are not asked for.
fn unpacked(reply: &Reply) -> Result<(), Unmade> {
    match reply.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity" | b"") => Ok(()),
        Some(other) => {
            let why = format!("the answer is packed as `{}`", printable(&String::from_utf8_lossy(other)));
            Err(Unmade::Told(LinkError::Failed { why, sent: true }))
        }
    }
}

fn challenge(reply: &Reply) -> Option<String> {
    let all: Vec<&str> =
        reply.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
    (!all.is_empty()).then(|| all.join(", ").chars().take(CHALLENGE_CHARS_MAX).collect())
}

async fn refusal(status: u16, mut reply: Reply) -> LinkError {
    let said = challenge(&reply).map(|said| format!(" and says `{}`", printable(&said))).unwrap_or_default();
    let why = told(&read(&mut reply).await).map(|why| format!(": {why}")).unwrap_or_default();
    match status {
        401 => LinkError::NeedsAuth(format!("the server wants to know who asks (401){said}{why}")),
        _ => LinkError::Unsuitable { status, why: format!("the server does not allow it (403){said}{why}") },
    }
}
