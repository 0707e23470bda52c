//! A request from its address to the last hop.

use crate::Egress;
use crate::error::EgressError;
use crate::exchange::{self, Answer};
use crate::fill::{self, Escape, Fill};
use crate::target::{PlainHttp, Rules, Target};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{StatusCode, Uri};
use portcullis_core::Secret;
use portcullis_store::secrets::SecretRef;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use url::Url;

/// How many times a server may send us on.
const REDIRECTS_MAX: usize = 5;
/// A body in full, unpacked. Larger than nearly every page; two of them fit in what an attack may cost.
const BODY_BYTES_MAX: usize = 5 * 1024 * 1024;
/// What a server is told to send.
const PACKINGS: &str = "gzip, deflate";
/// The field that a secret in an address is granted for.
const URL_FIELD: &str = "url";
const USER_AGENT: &str = concat!("Portcullis/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// Returns the method of that name, in upper case.
    pub fn parse(name: &str) -> Option<Method> {
        let all = [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete];
        all.into_iter().find(|method| hyper::Method::from(*method).as_str() == name)
    }

    /// Returns whether it only looks, and has no body.
    fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

impl From<Method> for hyper::Method {
    fn from(method: Method) -> hyper::Method {
        match method {
            Method::Get => hyper::Method::GET,
            Method::Head => hyper::Method::HEAD,
            Method::Post => hyper::Method::POST,
            Method::Put => hyper::Method::PUT,
            Method::Patch => hyper::Method::PATCH,
            Method::Delete => hyper::Method::DELETE,
        }
    }
}

/// Whether a host, in lower case, may be asked.
pub type HostFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Debug, Clone)]
struct Sent {
    content_type: Cow<'static, str>,
    body: Fill,
    escape: Escape,
}

/// A request to be sent. Its `Debug` shows handles of secrets, never their values.
pub struct Request<'a> {
    egress: &'a Egress,
    method: Method,
    url: String,
    headers: Vec<(HeaderName, Fill)>,
    only_at_home: Vec<HeaderName>,
    url_secrets: Vec<SecretRef>,
    sent: Option<Sent>,
    plain_http: PlainHttp,
    bytes_max: usize,
    is_host_wanted: HostFilter,
    is_body_wanted: fn(u16, &HeaderMap) -> bool,
    cancel: CancellationToken,
}

/// What came back, whatever its status.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Where it was found, without the values of secrets.
    pub final_url: Url,
    pub status: u16,
    pub headers: HeaderMap,
    /// Unpacked, and within bounds. `None` if it was not wanted.
    pub body: Option<Vec<u8>>,
    /// The addresses that led there, the first one first.
    pub redirects: Vec<Url>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(egress: &'a Egress, method: Method, url: &str) -> Request<'a> {
        Request {
            egress,
            method,
            url: url.to_owned(),
            headers: Vec::new(),
            only_at_home: Vec::new(),
            url_secrets: Vec::new(),
            sent: None,
            plain_http: PlainHttp::default(),
            bytes_max: BODY_BYTES_MAX,
            is_host_wanted: Arc::new(|_| true),
            is_body_wanted: |_, _| true,
            cancel: CancellationToken::new(),
        }
    }

    /// Adds a header. One that identifies the caller, or holds a secret, goes to the first origin only.
    pub fn header(mut self, name: HeaderName, value: Fill) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds a header that goes to the first origin only, whatever it is called.
    pub fn header_at_home(mut self, name: HeaderName, value: Fill) -> Self {
        self.only_at_home.push(name.clone());
        self.header(name, value)
    }

    /// Puts a secret in the place where the path or query of the address says `secret:NAME`. Redirects are then followed
    /// only to hosts that the secret is granted for.
    pub fn secret_in_url(mut self, handle: SecretRef) -> Self {
        self.url_secrets.push(handle);
        self
    }

    /// Sends a body. Secrets in it are granted for the field `body`.
    pub fn body(mut self, content_type: impl Into<Cow<'static, str>>, body: Fill, escape: Escape) -> Self {
        self.sent = Some(Sent { content_type: content_type.into(), body, escape });
        self
    }

    pub fn plain_http(mut self, plain_http: PlainHttp) -> Self {
        self.plain_http = plain_http;
        self
    }

    /// Takes less than the usual size of an answer.
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max.min(BODY_BYTES_MAX);
        self
    }

    /// Asks only hosts that pass, also after a redirect.
    pub fn only_hosts(mut self, is_wanted: HostFilter) -> Self {
        self.is_host_wanted = is_wanted;
        self
    }

    /// Reads the body only if status and headers pass.
    pub fn body_if(mut self, is_wanted: fn(u16, &HeaderMap) -> bool) -> Self {
        self.is_body_wanted = is_wanted;
        self
    }

    /// Ends the request when `cancel` is.
    pub fn cancelled_by(mut self, cancel: &CancellationToken) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Sends it, and follows where it leads.
    pub async fn send(self) -> Result<Fetched, EgressError> {
        let total = self.egress.timeouts.total;
        let rules = self.rules();
        let target = Target::parse(&self.url, &rules)?;
        let host = target.shown_host();
        let late = EgressError::Timeout { host, doing: "in all", after: total };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(EgressError::Cancelled),
            done = tokio::time::timeout(total, Box::pin(self.follow(target, &rules))) => done.unwrap_or(Err(late)),
        }
    }

    /// Checks the address as [`Request::send`] would, and asks nobody but the resolver. What is sent later is checked again.
    pub async fn check(self) -> Result<Url, EgressError> {
        let target = Target::parse(&self.url, &self.rules())?;
        self.addresses(&target).await?;
        Ok(target.url)
    }

    fn rules(&self) -> Rules<'a> {
        Rules { plain_http: self.plain_http, exceptions: &self.egress.exceptions }
    }

    async fn follow(&self, first: Target, rules: &Rules<'_>) -> Result<Fetched, EgressError> {
        let _slot =
            self.egress.slots.acquire().await.map_err(|e| EgressError::Setup { why: e.to_string() })?;
        let (mut target, mut method, mut at_home) = (first, self.method, true);
        let mut redirects = Vec::new();
        loop {
            let answer = self.hop(&target, method, at_home, redirects.is_empty()).await?;
            let Some(location) = location(&answer) else {
                let (status, host) = (answer.status.as_u16(), target.shown_host());
                let (headers, body) = match (self.is_body_wanted)(status, &answer.headers) {
                    true => answer
                        .read(&host, self.bytes_max)
                        .await
                        .map(|(headers, body)| (headers, Some(body)))?,
                    false => (answer.headers, None),
                };
                return Ok(Fetched { final_url: target.url, status, headers, body, redirects });
            };
            if redirects.len() == REDIRECTS_MAX {
                return Err(EgressError::ManyRedirects { redirects_max: REDIRECTS_MAX });
            }
            let next = target.redirected(&location, rules)?;
            self.check_redirect_grants(&target, &next)?;
            let same = next.is_same_origin(&target);
            if matches!(answer.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
                if !method.is_safe() && !same {
                    return Err(EgressError::SentElsewhere { host: target.shown_host() });
                }
            } else if !method.is_safe() {
                method = Method::Get;
            }
            // Once abroad, a way back home brings nothing back: the stranger chose it.
            at_home &= same;
            redirects.push(std::mem::replace(&mut target, next).url);
        }
    }

    /// Refuses a redirect to a host that a secret in the address is not granted for. Servers repeat the query of a
    /// request in `Location`, in whatever spelling, so what the new address looks like is not asked.
    fn check_redirect_grants(&self, from: &Target, to: &Target) -> Result<(), EgressError> {
        let host = to.shown_host();
        // A host that is not wanted is refused before it is asked, in other words.
        if to.host == from.host || !(self.is_host_wanted)(&host) {
            return Ok(());
        }
        for handle in &self.url_secrets {
            fill::value(handle, &*self.egress.secrets, &host, URL_FIELD, Escape::Percent)
                .map_err(|error| EgressError::Redirect { from: from.shown_host(), why: Box::new(error) })?;
        }
        Ok(())
    }

    /// Asks one host.
    async fn hop(
        &self,
        target: &Target,
        method: Method,
        at_home: bool,
        first: bool,
    ) -> Result<Answer, EgressError> {
        let (egress, host) = (self.egress, target.shown_host());
        if !(self.is_host_wanted)(&host) {
            return Err(EgressError::Unwanted { host });
        }
        let addresses = self.addresses(target).await?;
        egress.pace.take(&host)?;
        // After the check, so that no secret is looked up for an address that is refused.
        let request = self.request(target, &host, method, at_home, first)?;
        let stream = egress.connector.open(target, &addresses).await?;
        let answer = exchange::ask(stream, request, &host, egress.timeouts.headers).await?;
        let wants_pause =
            matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if let Some(wish) = answer.headers.get(header::RETRY_AFTER).filter(|_| wants_pause) {
            egress.pace.bar(&host, wish.to_str().unwrap_or_default());
        }
        Ok(answer)
    }

    /// Returns the addresses of a host, all of them public unless a person named the place.
    async fn addresses(&self, target: &Target) -> Result<Vec<IpAddr>, EgressError> {
        let host = target.shown_host();
        let refused = |why: String| EgressError::NotPublic { host: host.clone(), why };
        let addresses = match target.literal() {
            Some(address) => vec![address],
            None => {
                let patience = self.egress.timeouts.resolve;
                let lookup = self.egress.resolver.resolve(host.clone());
                let late = |_| refused("the name could not be looked up in time".to_owned());
                let found = tokio::time::timeout(patience, lookup).await.map_err(late)?;
                found.map_err(|error| refused(error.to_string()))?
            }
        };
        if addresses.is_empty() {
            return Err(refused("it has no address".to_owned()));
        }
        match addresses.iter().find(|address| !target.excepted && !crate::is_public(**address)) {
            // One is enough: whoever mixes private and public addresses is up to something.
            Some(private) => Err(refused(format!("{private} is not public"))),
            None => Ok(addresses),
        }
    }

    fn request(
        &self,
        target: &Target,
        host: &str,
        method: Method,
        at_home: bool,
        first: bool,
    ) -> Result<hyper::Request<Full<Bytes>>, EgressError> {
        let unusable = |what: &str| EgressError::BadUrl { why: format!("{what} cannot be sent") };
        let sent = self.sent.as_ref().filter(|_| !method.is_safe());
        let mut body = Bytes::new();
        let path = self.path(target, host, first)?;
        let uri: Uri = path.expose().parse().map_err(|_| unusable("the path"))?;
        let mut request = hyper::Request::builder().uri(uri).method(hyper::Method::from(method));
        let authority = match target.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        request = request
            .header(header::HOST, authority)
            .header(header::ACCEPT_ENCODING, PACKINGS)
            .header(header::CONNECTION, "close");
        if let Some(sent) = sent {
            let filled = sent.body.filled(&*self.egress.secrets, host, "body", sent.escape)?;
            request = request.header(header::CONTENT_TYPE, &*sent.content_type);
            body = Bytes::from(filled.expose().clone());
        }
        let names_itself = self.headers.iter().any(|(name, _)| name == header::USER_AGENT);
        if !names_itself {
            request = request.header(header::USER_AGENT, USER_AGENT);
        }
        for (name, value) in &self.headers {
            if !at_home && (is_credential(name) || self.only_at_home.contains(name) || value.has_secret()) {
                continue;
            }
            let filled = value.filled(&*self.egress.secrets, host, name.as_str(), Escape::AsIs)?;
            let mut filled = HeaderValue::from_str(filled.expose()).map_err(|_| EgressError::Secret {
                why: format!("the value for `{name}` cannot stand in a header"),
            })?;
            filled.set_sensitive(value.has_secret());
            request = request.header(name, filled);
        }
        request.body(Full::new(body)).map_err(|_| unusable("the request"))
    }

    /// Returns path and query, with the secrets in them on the first hop only.
    fn path(&self, target: &Target, host: &str, first: bool) -> Result<Secret<String>, EgressError> {
        let mut path = target.url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        for handle in self.url_secrets.iter().filter(|_| first) {
            let value = fill::value(handle, &*self.egress.secrets, host, URL_FIELD, Escape::Percent)?;
            path = path.replace(&handle.to_string(), value.expose());
        }
        Ok(Secret::new(path))
    }
}

/// Headers that say who is asking.
fn is_credential(name: &HeaderName) -> bool {
    [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION].contains(name)
}

/// Returns where an answer sends us, if it does.
fn location(answer: &Answer) -> Option<String> {
    let sends_on = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = answer.headers.get(header::LOCATION).filter(|_| sends_on)?;
    // Bytes beyond ASCII are UTF-8 wherever anyone means them.
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}
