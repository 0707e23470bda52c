//! The HTTP client for URLs that a model or a third party chose, guarded against SSRF.
//!
//! No URL is trusted. The client parses it once, resolves its host itself, refuses it if any address is not public, and
//! connects to an address that was checked and to no other. It follows redirects itself and checks each hop like the
//! first. Time, size and request rate are bounded. A secret is inserted when the request is sent, only for the host and
//! field that it was granted for.
//!
//! Endpoints that an administrator configured may be private: `configured_client.rs` reaches them.
//!
//! Only `connect.rs` opens connections. The lint in `clippy.toml` enforces that.

mod ca_file;
mod checked_url;
pub mod configured_client;
mod connect;
mod decode;
mod error;
mod exchange;
mod host_throttle;
mod public_ip;
mod request;
mod resolve;
mod secret_template;
mod secret_url;

#[cfg(test)]
mod tests;

pub use ca_file::{CaFileError, certificates};
pub use checked_url::{AllowlistEntry, AllowlistEntryError, PlainHttp};
pub use error::EgressError;
pub use host_throttle::HostRateLimit;
pub use hyper::header;
pub use hyper::header::HeaderMap;
pub use portcullis_store::secrets::SecretRef;
pub use public_ip::is_public;
pub use request::{EgressRequest, EgressResponse, HostFilter, HttpMethod};
pub use resolve::{Resolve, SystemResolver};
pub use secret_template::{NoSecrets, SecretEscaping, SecretSource, SecretTemplate};
pub use secret_url::{SecretUrl, SecretUrlRequest, SecretUrlResponse};
pub use tokio_rustls::rustls::pki_types::CertificateDer;
pub use url::{Host, Url};

use connect::Connector;
use host_throttle::HostThrottle;
use portcullis_core::Clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Requests in flight. Each holds at most one body, so this bounds the memory of all.
const IN_FLIGHT_MAX: usize = 16;

/// Timeouts of the phases of a request.
#[derive(Debug, Clone, Copy)]
pub struct EgressTimeouts {
    pub resolve: Duration,
    /// Of one connection, including the TLS handshake.
    pub connect: Duration,
    /// From sending the request to the end of the response headers.
    pub headers: Duration,
    /// Of everything, redirects included.
    pub total: Duration,
}

impl Default for EgressTimeouts {
    fn default() -> EgressTimeouts {
        EgressTimeouts {
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            headers: Duration::from_secs(15),
            // Less than the deadline of a tool call, so that the caller learns which phase was slow.
            total: Duration::from_secs(25),
        }
    }
}

/// Settings of all requests.
#[derive(Debug, Clone, Default)]
pub struct EgressSettings {
    /// Hosts that may be reached although they are private or have an unusual port.
    pub exceptions: Vec<AllowlistEntry>,
    pub per_host: HostRateLimit,
    pub timeouts: EgressTimeouts,
    /// Certificates that are trusted in addition to the built-in roots.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

/// The client. Cheap to share behind an `Arc`.
pub struct EgressClient {
    exceptions: Vec<AllowlistEntry>,
    timeouts: EgressTimeouts,
    resolver: Arc<dyn Resolve>,
    secrets: Arc<dyn SecretSource>,
    connector: Connector,
    pace: HostThrottle,
    slots: Semaphore,
}

impl fmt::Debug for EgressClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("exceptions", &self.exceptions).finish_non_exhaustive()
    }
}

impl EgressClient {
    /// Fails only if a certificate of `extra_roots` cannot be used.
    pub fn new(
        settings: EgressSettings,
        resolver: Arc<dyn Resolve>,
        secrets: Arc<dyn SecretSource>,
        clock: Arc<dyn Clock>,
    ) -> Result<EgressClient, EgressError> {
        Ok(EgressClient {
            connector: Connector::new(settings.extra_roots, settings.timeouts.connect)?,
            exceptions: settings.exceptions,
            timeouts: settings.timeouts,
            resolver,
            secrets,
            pace: HostThrottle::new(settings.per_host, clock),
            slots: Semaphore::new(IN_FLIGHT_MAX),
        })
    }

    /// Builds a GET request.
    pub fn get(&self, url: &str) -> EgressRequest<'_> {
        EgressRequest::new(self, HttpMethod::Get, url)
    }

    /// Builds a request to a secret URL, GET unless it has a body. `label` replaces the URL in errors.
    pub fn get_secret_url(&self, address: &SecretUrl, label: impl Into<String>) -> SecretUrlRequest<'_> {
        SecretUrlRequest::new(self, address.clone(), label.into())
    }

    /// Builds a request with any method.
    pub fn request(&self, method: HttpMethod, url: &str) -> EgressRequest<'_> {
        EgressRequest::new(self, method, url)
    }

    /// Builds a POST request.
    pub fn post(&self, url: &str) -> EgressRequest<'_> {
        EgressRequest::new(self, HttpMethod::Post, url)
    }
}

impl EgressClient {
    /// Returns whether a secret could be sent to `url` in this header now: whether it exists and is granted. Nothing is
    /// sent, and no value is released.
    pub fn can_send(
        &self,
        handle: &SecretRef,
        url: &Url,
        header: &header::HeaderName,
    ) -> Result<(), EgressError> {
        let host = url.host_str().unwrap_or_default();
        let released = self.secrets.releases(handle.name(), host, header.as_str());
        released.map_err(|error| EgressError::Secret { why: error.to_string() })
    }
}

/// Returns the reason phrase of a status after a space, or an empty text for an unknown status.
pub fn reason(status: u16) -> String {
    let known = hyper::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    known.map(|reason| format!(" {reason}")).unwrap_or_default()
}
