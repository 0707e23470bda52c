//! Requests to secret URLs.
//!
//! The URL of a private calendar is its only credential, so it is handled as one: the URL is resolved when the request is
//! sent, and the types of the response and the error have no field for a URL or its host.

use crate::EgressClient;
use crate::checked_url::PlainHttp;
use crate::error::EgressError;
use crate::request::{EgressRequest, EgressResponse, HttpMethod};
use crate::secret_template::{SecretEscaping, SecretTemplate};
use hyper::header::{self, HeaderMap, HeaderName};
use portcullis_core::Secret;
use portcullis_store::secrets::SecretRef;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The scheme of calendar subscriptions; it means https://.
const WEBCAL: &str = "webcal://";
/// The longest `ETag` or `Last-Modified` that is kept and sent back.
const VALIDATOR_BYTES_MAX: usize = 1_024;

/// A URL that is a secret as a whole.
#[derive(Clone)]
pub enum SecretUrl {
    /// In the secret store.
    Stored(SecretRef),
    /// From the configuration.
    Given(Secret<String>),
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretUrl::Stored(handle) => write!(f, "{handle}"),
            SecretUrl::Given(_) => f.write_str("[hidden]"),
        }
    }
}

/// A request to a secret URL.
pub struct SecretUrlRequest<'a> {
    egress: &'a EgressClient,
    address: SecretUrl,
    label: String,
    headers: Vec<(HeaderName, String)>,
    /// The content type and the body of a POST request.
    sent: Option<(&'static str, String)>,
    plain_http: PlainHttp,
    bytes_max: Option<usize>,
    cancel: CancellationToken,
}

/// The response. Of its headers only those that reveal nothing about the URL.
#[derive(Debug, Clone)]
pub struct SecretUrlResponse {
    pub status: u16,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Read only for a 2xx status.
    pub body: Option<Vec<u8>>,
}

impl<'a> SecretUrlRequest<'a> {
    pub(crate) fn new(egress: &'a EgressClient, address: SecretUrl, label: String) -> SecretUrlRequest<'a> {
        let cancel = CancellationToken::new();
        let headers = Vec::new();
        SecretUrlRequest {
            egress,
            address,
            label,
            headers,
            sent: None,
            plain_http: PlainHttp::default(),
            bytes_max: None,
            cancel,
        }
    }

    /// Makes it a POST request with this body.
    pub fn post(mut self, content_type: &'static str, body: String) -> Self {
        self.sent = Some((content_type, body));
        self
    }

    pub fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn plain_http(mut self, plain_http: PlainHttp) -> Self {
        self.plain_http = plain_http;
        self
    }

    /// Lowers the size limit of the response body.
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = Some(bytes_max);
        self
    }

    /// Cancels the request with `cancel`.
    pub fn cancelled_by(mut self, cancel: &CancellationToken) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Sends the request and follows redirects.
    pub async fn send(self) -> Result<SecretUrlResponse, EgressError> {
        let address = match &self.address {
            SecretUrl::Given(address) => address.clone(),
            SecretUrl::Stored(handle) => {
                let value = self.egress.secrets.resolve_address(handle.name());
                // The store's error names the secret, never the value.
                value.map_err(|error| EgressError::Secret { why: error.to_string() })?
            }
        };
        let method = if self.sent.is_some() { HttpMethod::Post } else { HttpMethod::Get };
        let mut request = EgressRequest::new(self.egress, method, &web_address(address.expose().trim()))
            .plain_http(self.plain_http)
            .body_if(|status, _| (200..300).contains(&status))
            .cancelled_by(&self.cancel);
        for (name, value) in self.headers {
            request = request.header(name, SecretTemplate::text(value));
        }
        if let Some((content_type, body)) = self.sent {
            request = request.body(content_type, SecretTemplate::text(body), SecretEscaping::AsIs);
        }
        if let Some(bytes_max) = self.bytes_max {
            request = request.bytes_max(bytes_max);
        }
        let fetched = request.send().await.map_err(|error| error.without_url(&self.label))?;
        Ok(SecretUrlResponse::of(fetched))
    }
}

impl SecretUrlResponse {
    fn of(fetched: EgressResponse) -> SecretUrlResponse {
        let validator = |name: HeaderName| {
            let value = fetched.headers.get(name)?.to_str().ok()?;
            (value.len() <= VALIDATOR_BYTES_MAX).then(|| value.to_owned())
        };
        SecretUrlResponse {
            etag: validator(header::ETAG),
            last_modified: validator(header::LAST_MODIFIED),
            retry_after: retry_after(&fetched.headers),
            status: fetched.status,
            body: fetched.body,
        }
    }
}

/// Returns the `Retry-After` header, if it is in seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let header = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    header.trim().parse().ok().map(Duration::from_secs)
}

fn web_address(address: &str) -> Cow<'_, str> {
    match address.get(..WEBCAL.len()) {
        Some(scheme) if scheme.eq_ignore_ascii_case(WEBCAL) => {
            Cow::Owned(format!("https://{}", &address[WEBCAL.len()..]))
        }
        _ => Cow::Borrowed(address),
    }
}
