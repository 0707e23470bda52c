//! Errors of outbound requests.
//!
//! The messages go to the client that chose the URL, which may be hostile. They never contain an internal address, nor
//! tell a private name from one that does not exist where the name can only be private (SSRF probing). The reason goes to
//! the log as `source`.

use portcullis_core::json::printable;
use portcullis_core::{ErrorKind, ToolError};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("invalid URL: {why}")]
    BadUrl { why: String },
    #[error("the URL is longer than {bytes_max} bytes")]
    LongUrl { bytes_max: usize },
    #[error("`{scheme}` URLs are not supported, expected https://", scheme = printable(scheme))]
    Scheme { scheme: String },
    #[error("http:// is not allowed, expected https://")]
    PlainHttp,
    #[error("the URL contains a user name or password")]
    Credentials,
    #[error("port {port} is not allowed, expected 80 or 443")]
    Port { port: u16 },
    /// Also where the lookup of a name fails that only a private network can have.
    #[error("`{host}` has no public address", host = printable(host))]
    NotPublic { host: String, why: String },
    #[error("`{host}` cannot be looked up", host = printable(host))]
    Lookup { host: String, why: String },
    #[error("host `{host}` is not allowed", host = printable(host))]
    Unwanted { host: String },
    #[error("the redirect goes from https:// to http://")]
    Downgrade,
    #[error("`{from}` redirects to a URL that is refused: {why}", from = printable(from))]
    Redirect { from: String, why: Box<EgressError> },
    #[error("more than {redirects_max} redirects")]
    ManyRedirects { redirects_max: usize },
    #[error("`{host}` redirects the request body to another host", host = printable(host))]
    SentElsewhere { host: String },
    #[error("`{host}` is not answering", host = printable(host))]
    Connect { host: String, why: String },
    #[error("`{host}` failed TLS certificate verification", host = printable(host))]
    Tls { host: String, why: String },
    #[error("`{host}` sent an invalid HTTP response", host = printable(host))]
    BadResponse { host: String, why: String },
    #[error("`{host}` took longer than {} s {doing}", after.as_secs(), host = printable(host))]
    Timeout { host: String, doing: &'static str, after: Duration },
    #[error("the response has more than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("the response decompresses to more than {ratio_max} times its size")]
    Bomb { ratio_max: usize },
    #[error("the response has content encoding `{encoding}`, expected gzip, deflate or none", encoding = printable(encoding))]
    Encoding { encoding: String },
    #[error("the response cannot be decompressed")]
    Corrupt { why: String },
    #[error("too many requests to `{host}`", host = printable(host))]
    Paced { host: String, retry_after: Duration },
    #[error("{why}")]
    Secret { why: String },
    /// An error about a secret URL. The message consists of constants, so it cannot contain a part of the URL.
    #[error("{label} {what}")]
    Hidden {
        label: String,
        what: &'static str,
        kind: ErrorKind,
        advice: &'static str,
        retry_after: Option<Duration>,
    },
    #[error("cancelled by the caller")]
    Cancelled,
    #[error("the HTTP client could not be created: {why}")]
    Setup { why: String },
}

impl EgressError {
    fn kind(&self) -> ErrorKind {
        use EgressError as E;
        match self {
            E::BadUrl { .. } | E::LongUrl { .. } => ErrorKind::InvalidArgs,
            E::Scheme { .. } | E::PlainHttp | E::Credentials | E::Port { .. } | E::NotPublic { .. } => {
                ErrorKind::Denied
            }
            E::Unwanted { .. }
            | E::Downgrade
            | E::Redirect { .. }
            | E::SentElsewhere { .. }
            | E::Secret { .. } => ErrorKind::Denied,
            E::ManyRedirects { .. }
            | E::Lookup { .. }
            | E::Connect { .. }
            | E::Tls { .. }
            | E::BadResponse { .. } => ErrorKind::Upstream,
            E::Corrupt { .. } | E::Encoding { .. } => ErrorKind::Upstream,
            E::Timeout { .. } => ErrorKind::Timeout,
            E::TooLarge { .. } | E::Bomb { .. } => ErrorKind::TooLarge,
            E::Paced { .. } => ErrorKind::RateLimited,
            E::Hidden { kind, .. } => *kind,
            E::Cancelled => ErrorKind::Cancelled,
            E::Setup { .. } => ErrorKind::Internal,
        }
    }

    /// Returns the error for a secret URL, which `label` replaces.
    ///
    /// Host, scheme and port are left out too: each may be part of the secret.
    pub(crate) fn without_url(self, label: &str) -> EgressError {
        use EgressError as E;
        const FIX_URL: &str = "tell the user: correct its URL in the configuration or the secret store";
        let retry_after = match &self {
            E::Paced { retry_after, .. } => Some(*retry_after),
            _ => None,
        };
        let kind = self.kind();
        let (what, advice) = match self {
            // These contain nothing of the URL.
            E::Cancelled | E::Setup { .. } | E::Secret { .. } | E::Hidden { .. } => return self,
            E::BadUrl { .. } | E::LongUrl { .. } => ("has an invalid URL", FIX_URL),
            E::Scheme { .. } | E::PlainHttp => ("has a URL without https://", FIX_URL),
            E::Credentials => ("has a URL with a user name or password", FIX_URL),
            E::Port { .. } => ("has a URL with an unusual port", FIX_URL),
            E::NotPublic { .. } => (
                "has no public address",
                "try again later, or tell the user: private addresses are reached only if `egress.allow` names the exact host and port",
            ),
            E::Lookup { .. } => (
                "has a host that cannot be looked up",
                "try again in a minute, or tell the user: correct its URL in the configuration or the secret store",
            ),
            E::Unwanted { .. } => ("is on a host that is not allowed", FIX_URL),
            E::Downgrade | E::Redirect { .. } | E::ManyRedirects { .. } | E::SentElsewhere { .. } => {
                ("redirects to a URL that is refused", FIX_URL)
            }
            E::Connect { .. } => ("is not answering", "try again in a minute"),
            E::Timeout { .. } => ("did not answer in time", "try again in a minute"),
            E::Tls { .. } => (
                "failed TLS certificate verification",
                "tell the user: its certificate is not valid for its host",
            ),
            E::BadResponse { .. } | E::Corrupt { .. } | E::Encoding { .. } => {
                ("sent an invalid HTTP response", FIX_URL)
            }
            E::TooLarge { .. } | E::Bomb { .. } => {
                ("is too large", "tell the user: the response is larger than the limit")
            }
            E::Paced { .. } => ("was requested too often", "wait a while before you try again"),
        };
        E::Hidden { label: label.to_owned(), what, kind, advice, retry_after }
    }

    /// Returns a hint for the caller.
    fn advice(&self) -> Option<String> {
        use EgressError as E;
        let hint = match self {
            E::BadUrl { .. } | E::LongUrl { .. } | E::Scheme { .. } => {
                "give a full URL, like https://example.com/page"
            }
            E::PlainHttp => "use https://; an administrator can allow http:// in the configuration",
            E::Credentials => "remove the part before `@`",
            E::Port { .. } => {
                "use the default port; an administrator can add the exact host and port to `egress.allow`"
            }
            E::NotPublic { .. } => {
                "check the spelling; private and local addresses are refused, unless an administrator adds the exact \
                 host and port to `egress.allow`"
            }
            E::Lookup { .. } => {
                "check the spelling of the host; if it is right, the name server or the network is away: try again in a minute"
            }
            E::Unwanted { .. } => "the configuration lists the allowed hosts; choose another",
            E::Downgrade => "request the http:// URL itself, if that is allowed",
            E::Redirect { why, .. } => return why.advice(),
            E::ManyRedirects { .. } => "the site may redirect in a loop; try another URL",
            E::SentElsewhere { .. } => "send it to the other host yourself, if you trust that",
            E::Connect { .. } | E::Timeout { .. } => "try again in a minute, or another URL",
            E::Tls { .. } => "the certificate is not valid for this host; do not trust its content",
            E::BadResponse { .. } | E::Corrupt { .. } | E::Encoding { .. } => {
                "try another URL; this one is broken"
            }
            E::TooLarge { .. } | E::Bomb { .. } => "look for a smaller page that has what you need",
            E::Hidden { advice, .. } => advice,
            E::Secret { .. } => {
                "an administrator can allow a host for the secret with `portcullis secrets grant`"
            }
            E::Paced { .. } | E::Cancelled | E::Setup { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// Returns the reason, for the log only.
    fn reason(&self) -> Option<&str> {
        use EgressError as E;
        match self {
            E::NotPublic { why, .. }
            | E::Lookup { why, .. }
            | E::Connect { why, .. }
            | E::Tls { why, .. } => Some(why),
            E::BadResponse { why, .. } | E::Corrupt { why } => Some(why),
            E::Redirect { why, .. } => why.reason(),
            _ => None,
        }
    }
}

impl From<EgressError> for ToolError {
    fn from(error: EgressError) -> ToolError {
        let mut tool_error = match &error {
            EgressError::Paced { retry_after, .. } => {
                ToolError::busy_outside(error.to_string(), Some(*retry_after))
            }
            EgressError::Hidden { kind: ErrorKind::RateLimited, retry_after, .. } => {
                ToolError::busy_outside(error.to_string(), *retry_after)
            }
            _ => {
                let mut tool_error = ToolError::new(error.kind(), error.to_string());
                tool_error.hints.extend(error.advice());
                tool_error
            }
        };
        if let Some(reason) = error.reason() {
            tool_error = tool_error.caused_by(reason);
        }
        tool_error
    }
}
