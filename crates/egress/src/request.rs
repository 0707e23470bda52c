//! An outbound request: URL check, address check, redirects, secrets.

use crate::EgressClient;
use crate::checked_url::{CheckedUrl, PlainHttp, UrlRules};
use crate::error::EgressError;
use crate::exchange::{self, ResponseHead};
use crate::public_ip::is_private_name;
use crate::secret_template::{self, SecretEscaping, SecretTemplate};
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

/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;
/// A decompressed body. Larger than nearly every page, and two of them fit in the memory that an attack may cost.
const BODY_BYTES_MAX: usize = 5 * 1024 * 1024;
/// The `Accept-Encoding` header.
const ACCEPT_ENCODINGS: &str = "gzip, deflate";
/// The field that a secret in a URL is granted for.
const URL_FIELD: &str = "url";
const USER_AGENT: &str = concat!("Portcullis/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl HttpMethod {
    /// Returns the method with this name, in upper case.
    pub fn parse(name: &str) -> Option<HttpMethod> {
        let all = [
            HttpMethod::Get,
            HttpMethod::Head,
            HttpMethod::Post,
            HttpMethod::Put,
            HttpMethod::Patch,
            HttpMethod::Delete,
        ];
        all.into_iter().find(|method| hyper::Method::from(*method).as_str() == name)
    }

    /// Returns whether the method has no side effects and no body.
    fn is_safe(self) -> bool {
        matches!(self, HttpMethod::Get | HttpMethod::Head)
    }
}

impl From<HttpMethod> for hyper::Method {
    fn from(method: HttpMethod) -> hyper::Method {
        match method {
            HttpMethod::Get => hyper::Method::GET,
            HttpMethod::Head => hyper::Method::HEAD,
            HttpMethod::Post => hyper::Method::POST,
            HttpMethod::Put => hyper::Method::PUT,
            HttpMethod::Patch => hyper::Method::PATCH,
            HttpMethod::Delete => hyper::Method::DELETE,
        }
    }
}

/// Whether a host, in lower case, is allowed.
pub type HostFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Debug, Clone)]
struct RequestBody {
    content_type: Cow<'static, str>,
    body: SecretTemplate,
    escape: SecretEscaping,
}

/// A request before it is sent. Its `Debug` shows handles of secrets, never their values.
pub struct EgressRequest<'a> {
    egress: &'a EgressClient,
    method: HttpMethod,
    url: String,
    headers: Vec<(HeaderName, SecretTemplate)>,
    first_origin_only: Vec<HeaderName>,
    url_secrets: Vec<SecretRef>,
    sent: Option<RequestBody>,
    plain_http: PlainHttp,
    bytes_max: usize,
    is_host_wanted: HostFilter,
    is_body_wanted: fn(u16, &HeaderMap) -> bool,
    cancel: CancellationToken,
}

/// Where a hop is in the redirect chain; decides which secrets and credentials are sent.
#[derive(Debug, Clone, Copy)]
struct HopPosition {
    first: bool,
    /// Whether all hops so far had the origin of the first.
    same_origin: bool,
}

/// A response with any status.
#[derive(Debug, Clone)]
pub struct EgressResponse {
    /// The URL of the last hop, without the values of secrets.
    pub final_url: Url,
    pub status: u16,
    pub headers: HeaderMap,
    /// Decompressed and bounded. `None` if `body_if` declined it.
    pub body: Option<Vec<u8>>,
    /// The earlier URLs of the redirect chain, the first one first.
    pub redirects: Vec<Url>,
}

impl<'a> EgressRequest<'a> {
    pub(crate) fn new(egress: &'a EgressClient, method: HttpMethod, url: &str) -> EgressRequest<'a> {
        EgressRequest {
            egress,
            method,
            url: url.to_owned(),
            headers: Vec::new(),
            first_origin_only: Vec::new(),
            url_secrets: Vec::new(),
            sent: None,
            plain_http: PlainHttp::default(),
            bytes_max: BODY_BYTES_MAX,
            is_host_wanted: Arc::new(|_| true),
            is_body_wanted: |_, _| true,
            cancel: CancellationToken::new(),
        }
    }

    /// Adds a header. A credential header, or one with a secret, is sent to the first origin only.
    pub fn header(mut self, name: HeaderName, value: SecretTemplate) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds a header that is sent to the first origin only.
    pub fn header_same_origin(mut self, name: HeaderName, value: SecretTemplate) -> Self {
        self.first_origin_only.push(name.clone());
        self.header(name, value)
    }

    /// Replaces `secret:NAME` in the path or query of the URL with the secret. Redirects are then followed only to hosts
    /// that the secret is granted for.
    pub fn secret_in_url(mut self, handle: SecretRef) -> Self {
        self.url_secrets.push(handle);
        self
    }

    /// Sets the body. Secrets in it are granted for the field `body`.
    pub fn body(
        mut self,
        content_type: impl Into<Cow<'static, str>>,
        body: SecretTemplate,
        escape: SecretEscaping,
    ) -> Self {
        self.sent = Some(RequestBody { content_type: content_type.into(), body, escape });
        self
    }

    pub fn plain_http(mut self, plain_http: PlainHttp) -> Self {
        self.plain_http = plain_http;
        self
    }

    /// Lowers the size limit of the response body.
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max.min(BODY_BYTES_MAX);
        self
    }

    /// Requests only hosts that pass the filter, also after a redirect.
    pub fn only_hosts(mut self, is_wanted: HostFilter) -> Self {
        self.is_host_wanted = is_wanted;
        self
    }

    /// Reads the body only if status and headers pass the filter.
    pub fn body_if(mut self, is_wanted: fn(u16, &HeaderMap) -> bool) -> Self {
        self.is_body_wanted = is_wanted;
        self
    }

    /// Cancels the request with `cancel`.
    pub fn cancelled_by(mut self, cancel: &CancellationToken) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Sends the request and follows redirects.
    pub async fn send(self) -> Result<EgressResponse, EgressError> {
        let total = self.egress.timeouts.total;
        let rules = self.rules();
        let target = CheckedUrl::parse(&self.url, &rules)?;
        let host = target.shown_host();
        let late = EgressError::Timeout { host, doing: "in all", after: total };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(EgressError::Cancelled),
            done = tokio::time::timeout(total, Box::pin(self.follow(target, &rules))) => done.unwrap_or(Err(late)),
        }
    }

    /// Checks the URL as [`EgressRequest::send`] does, including DNS, without a connection. `send` checks it again (TOCTOU).
    pub async fn check(self) -> Result<Url, EgressError> {
        let target = CheckedUrl::parse(&self.url, &self.rules())?;
        self.addresses(&target).await?;
        Ok(target.url)
    }

    fn rules(&self) -> UrlRules<'a> {
        UrlRules { plain_http: self.plain_http, exceptions: &self.egress.exceptions }
    }

    async fn follow(&self, first: CheckedUrl, rules: &UrlRules<'_>) -> Result<EgressResponse, EgressError> {
        let _slot =
            self.egress.slots.acquire().await.map_err(|e| EgressError::Setup { why: e.to_string() })?;
        let (mut target, mut method, mut hop) =
            (first, self.method, HopPosition { first: true, same_origin: true });
        let mut redirects = Vec::new();
        loop {
            let response = self.hop(&target, method, hop).await?;
            let Some(location) = location(&response) else {
                let (status, host) = (response.status.as_u16(), target.shown_host());
                let (headers, body) = match (self.is_body_wanted)(status, &response.headers) {
                    true => response
                        .read(&host, self.bytes_max)
                        .await
                        .map(|(headers, body)| (headers, Some(body)))?,
                    false => (response.headers, None),
                };
                return Ok(EgressResponse { final_url: target.url, status, headers, body, redirects });
            };
            if redirects.len() == REDIRECTS_MAX {
                return Err(EgressError::ManyRedirects { redirects_max: REDIRECTS_MAX });
            }
            let next = target.redirected(&location, rules)?;
            self.check_redirect_grants(&target, &next)?;
            let same = next.is_same_origin(&target);
            if matches!(response.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
                if !method.is_safe() && !same {
                    return Err(EgressError::SentElsewhere { host: target.shown_host() });
                }
            } else if !method.is_safe() {
                method = HttpMethod::Get;
            }
            // After a redirect to another origin, a redirect back does not restore the credentials: the other origin chose it.
            hop = HopPosition { first: false, same_origin: hop.same_origin && same };
            redirects.push(std::mem::replace(&mut target, next).url);
        }
    }

    /// Refuses a redirect to a host that a secret in the URL is not granted for. Servers repeat the query of a request in
    /// `Location`, in any encoding, so a search for the value in the new URL would not be enough.
    fn check_redirect_grants(&self, from: &CheckedUrl, to: &CheckedUrl) -> Result<(), EgressError> {
        let host = to.shown_host();
        // The host filter refuses the other host later, with its own error.
        if to.host == from.host || !(self.is_host_wanted)(&host) {
            return Ok(());
        }
        for handle in &self.url_secrets {
            secret_template::value(handle, &*self.egress.secrets, &host, URL_FIELD, SecretEscaping::Percent)
                .map_err(|error| EgressError::Redirect { from: from.shown_host(), why: Box::new(error) })?;
        }
        Ok(())
    }

    /// Sends the request of one hop.
    async fn hop(
        &self,
        target: &CheckedUrl,
        method: HttpMethod,
        hop: HopPosition,
    ) -> Result<ResponseHead, EgressError> {
        let (egress, host) = (self.egress, target.shown_host());
        if !(self.is_host_wanted)(&host) {
            return Err(EgressError::Unwanted { host });
        }
        let addresses = self.addresses(target).await?;
        egress.pace.take(&host)?;
        // After the check, so that no secret is resolved for a URL that is refused.
        let request = self.request(target, &host, method, hop)?;
        let stream = egress.connector.open(target, &addresses).await?;
        let response = exchange::send(stream, request, &host, egress.timeouts.headers).await?;
        let wants_pause =
            matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if let Some(retry_after) = response.headers.get(header::RETRY_AFTER).filter(|_| wants_pause) {
            egress.pace.bar(&host, retry_after.to_str().unwrap_or_default());
        }
        Ok(response)
    }

    /// Returns the addresses of a host, all of them public unless the allowlist has the host.
    async fn addresses(&self, target: &CheckedUrl) -> Result<Vec<IpAddr>, EgressError> {
        let host = target.shown_host();
        let refused = |why: String| EgressError::NotPublic { host: host.clone(), why };
        // A failed lookup of a name that may be private says the same as a private address (SSRF probing).
        let unknown = |why: String| match is_private_name(&host) && !target.excepted {
            true => refused(why),
            false => EgressError::Lookup { host: host.clone(), why },
        };
        let addresses = match target.literal() {
            Some(address) => vec![address],
            None => {
                let timeout = self.egress.timeouts.resolve;
                let lookup = self.egress.resolver.resolve(host.clone());
                let late = |_| unknown("DNS lookup timed out".to_owned());
                let found = tokio::time::timeout(timeout, lookup).await.map_err(late)?;
                found.map_err(|error| unknown(error.to_string()))?
            }
        };
        if addresses.is_empty() {
            return Err(unknown("the host has no address".to_owned()));
        }
        match addresses.iter().find(|address| !target.excepted && !crate::is_public(**address)) {
            // One private address is enough: a mix of private and public addresses is a sign of DNS rebinding.
            Some(private) => Err(refused(format!("{private} is not public"))),
            None => Ok(addresses),
        }
    }

    fn request(
        &self,
        target: &CheckedUrl,
        host: &str,
        method: HttpMethod,
        hop: HopPosition,
    ) -> Result<hyper::Request<Full<Bytes>>, EgressError> {
        let unusable = |what: &str| EgressError::BadUrl { why: format!("{what} cannot be sent") };
        let sent = self.sent.as_ref().filter(|_| !method.is_safe());
        let mut body = Bytes::new();
        let path = self.path(target, host, hop.first)?;
        let uri: Uri = path.expose().parse().map_err(|_| unusable("the path"))?;
        let mut request = hyper::Request::builder().uri(uri).method(hyper::Method::from(method));
        let authority = match target.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        request = request
            .header(header::HOST, authority)
            .header(header::ACCEPT_ENCODING, ACCEPT_ENCODINGS)
            .header(header::CONNECTION, "close");
        if let Some(sent) = sent {
            let filled = sent.body.filled(&*self.egress.secrets, host, "body", sent.escape)?;
            request = request.header(header::CONTENT_TYPE, &*sent.content_type);
            body = Bytes::from(filled.expose().clone());
        }
        let has_user_agent = self.headers.iter().any(|(name, _)| name == header::USER_AGENT);
        if !has_user_agent {
            request = request.header(header::USER_AGENT, USER_AGENT);
        }
        for (name, value) in &self.headers {
            if !hop.same_origin
                && (is_credential(name) || self.first_origin_only.contains(name) || value.has_secret())
            {
                continue;
            }
            let filled = value.filled(&*self.egress.secrets, host, name.as_str(), SecretEscaping::AsIs)?;
            let mut filled = HeaderValue::from_str(filled.expose()).map_err(|_| EgressError::Secret {
                why: format!("the value for `{name}` is not a valid header value"),
            })?;
            filled.set_sensitive(value.has_secret());
            request = request.header(name, filled);
        }
        request.body(Full::new(body)).map_err(|_| unusable("the request"))
    }

    /// Returns path and query. Secrets are inserted on the first hop only.
    fn path(&self, target: &CheckedUrl, host: &str, first: bool) -> Result<Secret<String>, EgressError> {
        let mut path = target.url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        for handle in self.url_secrets.iter().filter(|_| first) {
            let value = secret_template::value(
                handle,
                &*self.egress.secrets,
                host,
                URL_FIELD,
                SecretEscaping::Percent,
            )?;
            path = path.replace(&handle.to_string(), value.expose());
        }
        Ok(Secret::new(path))
    }
}

/// Headers that authenticate the sender.
fn is_credential(name: &HeaderName) -> bool {
    [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION].contains(name)
}

/// Returns the redirect target of a response.
fn location(response: &ResponseHead) -> Option<String> {
    let is_redirect = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers.get(header::LOCATION).filter(|_| is_redirect)?;
    // Servers send non-ASCII bytes as UTF-8.
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}
