//! The one HTTP client for addresses that a model or a stranger chose.
//!
//! Whoever names an address decides where this machine knocks, so nothing here trusts one. An address is parsed once;
//! its name is resolved here; it is refused if any answer is not public; the connection goes to an address that was
//! checked, and nowhere else. Redirects are followed here, each hop checked like the first. Time, size and pace are
//! bounded. A secret is put in when a request is sent, towards the host and field it was granted for.
//!
//! A place that a person wrote into the configuration is another matter: `own.rs` reaches it wherever it is.
//!
//! Connections are opened in `connect.rs` only. The lint in `clippy.toml` keeps it that way.

mod address;
mod authority;
mod connect;
mod decode;
mod error;
mod exchange;
mod fill;
mod hidden;
pub mod own;
mod pace;
mod request;
mod resolve;
mod target;

#[cfg(test)]
mod tests;

pub use address::is_public;
pub use authority::{AuthorityError, certificates};
pub use error::EgressError;
pub use fill::{Escape, Fill, NoSecrets, SecretSource};
pub use hidden::{HiddenAddress, HiddenAnswer, HiddenRequest};
pub use hyper::header;
pub use hyper::header::HeaderMap;
pub use pace::PerHost;
pub use portcullis_store::secrets::SecretRef;
pub use request::{Fetched, HostFilter, Method, Request};
pub use resolve::{Resolve, SystemResolver};
pub use target::{Exception, ExceptionError, PlainHttp};
pub use tokio_rustls::rustls::pki_types::CertificateDer;
pub use url::Url;

use connect::Connector;
use pace::Pace;
use portcullis_core::Clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Requests under way at the same time. Each holds at most one body, so this bounds the memory of all.
const IN_FLIGHT_MAX: usize = 16;

/// How long each part of a request may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub resolve: Duration,
    /// Of one connection, with TLS.
    pub connect: Duration,
    /// From the request to the end of the answer's headers.
    pub headers: Duration,
    /// Of everything, redirects included.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            headers: Duration::from_secs(15),
            // Less than the deadline of a tool, so that the caller hears what took so long.
            total: Duration::from_secs(25),
        }
    }
}

/// What holds for every request.
#[derive(Debug, Clone, Default)]
pub struct EgressSettings {
    /// Places that may be reached although they are not public, or on an unusual port.
    pub exceptions: Vec<Exception>,
    pub per_host: PerHost,
    pub timeouts: Timeouts,
    /// Certificates that are trusted besides the well-known ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

/// The client. Cheap to share behind an `Arc`.
pub struct Egress {
    exceptions: Vec<Exception>,
    timeouts: Timeouts,
    resolver: Arc<dyn Resolve>,
    secrets: Arc<dyn SecretSource>,
    connector: Connector,
    pace: Pace,
    slots: Semaphore,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("exceptions", &self.exceptions).finish_non_exhaustive()
    }
}

impl Egress {
    /// Fails only if a certificate of `extra_roots` cannot be used.
    pub fn new(
        settings: EgressSettings,
        resolver: Arc<dyn Resolve>,
        secrets: Arc<dyn SecretSource>,
        clock: Arc<dyn Clock>,
    ) -> Result<Egress, EgressError> {
        Ok(Egress {
            connector: Connector::new(settings.extra_roots, settings.timeouts.connect)?,
            exceptions: settings.exceptions,
            timeouts: settings.timeouts,
            resolver,
            secrets,
            pace: Pace::new(settings.per_host, clock),
            slots: Semaphore::new(IN_FLIGHT_MAX),
        })
    }

    /// Begins a request that only looks.
    pub fn get(&self, url: &str) -> Request<'_> {
        Request::new(self, Method::Get, url)
    }

    /// Begins a request to an address that nobody may see. `label` stands for it in what is told.
    pub fn get_hidden(&self, address: &HiddenAddress, label: impl Into<String>) -> HiddenRequest<'_> {
        HiddenRequest::new(self, address.clone(), label.into())
    }

    /// Begins a request of any kind.
    pub fn request(&self, method: Method, url: &str) -> Request<'_> {
        Request::new(self, method, url)
    }

    /// Begins a request that sends something.
    pub fn post(&self, url: &str) -> Request<'_> {
        Request::new(self, Method::Post, url)
    }
}

/// Returns the usual words for a status, after a blank; nothing if there are none.
pub fn reason(status: u16) -> String {
    let known = hyper::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    known.map(|reason| format!(" {reason}")).unwrap_or_default()
}
