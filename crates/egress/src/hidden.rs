//! Addresses that nobody may see.
//!
//! The link of a private calendar is its only key, so it is handled as one: the address is put together when the request is
//! sent, and what comes back (an answer or an error) is of types that have no place for an address, nor for its host.

use crate::Egress;
use crate::error::EgressError;
use crate::fill::Fill;
use crate::request::{Fetched, Method, Request};
use crate::target::PlainHttp;
use hyper::header::{self, HeaderMap, HeaderName};
use portcullis_core::Secret;
use portcullis_store::secrets::SecretRef;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How calendars write https:// when they want to be subscribed to.
const WEBCAL: &str = "webcal://";
/// The longest validator that is kept and sent back.
const VALIDATOR_BYTES_MAX: usize = 1_024;

/// An address that is a secret as a whole.
#[derive(Clone)]
pub enum HiddenAddress {
    /// In the store.
    Stored(SecretRef),
    /// As a person wrote it.
    Given(Secret<String>),
}

impl fmt::Debug for HiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HiddenAddress::Stored(handle) => write!(f, "{handle}"),
            HiddenAddress::Given(_) => f.write_str("[hidden]"),
        }
    }
}

/// A request to such an address.
pub struct HiddenRequest<'a> {
    egress: &'a Egress,
    address: HiddenAddress,
    label: String,
    headers: Vec<(HeaderName, String)>,
    plain_http: PlainHttp,
    bytes_max: Option<usize>,
    cancel: CancellationToken,
}

/// What came back. Of its headers only those that say nothing about where it was.
#[derive(Debug, Clone)]
pub struct HiddenAnswer {
    pub status: u16,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
    /// Read if the status says that all is well.
    pub body: Option<Vec<u8>>,
}

impl<'a> HiddenRequest<'a> {
    pub(crate) fn new(egress: &'a Egress, address: HiddenAddress, label: String) -> HiddenRequest<'a> {
        let cancel = CancellationToken::new();
        let headers = Vec::new();
        HiddenRequest {
            egress,
            address,
            label,
            headers,
            plain_http: PlainHttp::default(),
            bytes_max: None,
            cancel,
        }
    }

    pub fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn plain_http(mut self, plain_http: PlainHttp) -> Self {
        self.plain_http = plain_http;
        self
    }

    /// Takes less than the usual size of an answer.
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = Some(bytes_max);
        self
    }

    /// Ends the request when `cancel` is.
    pub fn cancelled_by(mut self, cancel: &CancellationToken) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Sends it, and follows where it leads.
    pub async fn send(self) -> Result<HiddenAnswer, EgressError> {
        let address = match &self.address {
            HiddenAddress::Given(address) => address.clone(),
            HiddenAddress::Stored(handle) => {
                let value = self.egress.secrets.resolve_address(handle.name());
                // The store's words name the secret, never the value.
                value.map_err(|error| EgressError::Secret { why: error.to_string() })?
            }
        };
        let mut request = Request::new(self.egress, Method::Get, &web_address(address.expose().trim()))
            .plain_http(self.plain_http)
            .body_if(|status, _| (200..300).contains(&status))
            .cancelled_by(&self.cancel);
        for (name, value) in self.headers {
            request = request.header(name, Fill::text(value));
        }
        if let Some(bytes_max) = self.bytes_max {
            request = request.bytes_max(bytes_max);
        }
        let fetched = request.send().await.map_err(|error| error.hidden_as(&self.label))?;
        Ok(HiddenAnswer::of(fetched))
    }
}

impl HiddenAnswer {
    fn of(fetched: Fetched) -> HiddenAnswer {
        let validator = |name: HeaderName| {
            let value = fetched.headers.get(name)?.to_str().ok()?;
            (value.len() <= VALIDATOR_BYTES_MAX).then(|| value.to_owned())
        };
        HiddenAnswer {
            etag: validator(header::ETAG),
            last_modified: validator(header::LAST_MODIFIED),
            retry_after: retry_after(&fetched.headers),
            status: fetched.status,
            body: fetched.body,
        }
    }
}

/// Returns how many seconds a server wants to be left alone, if it says so in seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let wish = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    wish.trim().parse().ok().map(Duration::from_secs)
}

fn web_address(address: &str) -> Cow<'_, str> {
    match address.get(..WEBCAL.len()) {
        Some(scheme) if scheme.eq_ignore_ascii_case(WEBCAL) => {
            Cow::Owned(format!("https://{}", &address[WEBCAL.len()..]))
        }
        _ => Cow::Borrowed(address),
    }
}
