//! Why a request was not made or not answered.
//!
//! The texts are for whoever chose the address, who may be hostile: they never say which internal address a name has, nor
//! tell a name that is private from one that does not exist. That goes to the log, by `source`.

use portcullis_core::json::printable;
use portcullis_core::{ErrorKind, ToolError};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("not an address: {why}")]
    BadUrl { why: String },
    #[error("the address is longer than {bytes_max} bytes")]
    LongUrl { bytes_max: usize },
    #[error("`{scheme}` is not fetched, expected an address with https://", scheme = printable(scheme))]
    Scheme { scheme: String },
    #[error("http:// is not allowed, expected https://")]
    PlainHttp,
    #[error("the address holds a user name or password")]
    Credentials,
    #[error("port {port} is not allowed, expected 80 or 443")]
    Port { port: u16 },
    /// One text for a name that is private, one that does not exist and one that cannot be looked up.
    #[error("`{host}` has no public address", host = printable(host))]
    NotPublic { host: String, why: String },
    #[error("`{host}` may not be asked", host = printable(host))]
    Unwanted { host: String },
    #[error("the redirect goes from https:// to http://")]
    Downgrade,
    #[error("`{from}` redirects to an address that is refused: {why}", from = printable(from))]
    Redirect { from: String, why: Box<EgressError> },
    #[error("more than {redirects_max} redirects")]
    ManyRedirects { redirects_max: usize },
    #[error("`{host}` redirects what was to be sent to another host", host = printable(host))]
    SentElsewhere { host: String },
    #[error("`{host}` is not answering", host = printable(host))]
    Connect { host: String, why: String },
    #[error("`{host}` could not prove who it is (TLS)", host = printable(host))]
    Tls { host: String, why: String },
    #[error("`{host}` did not answer in HTTP", host = printable(host))]
    BadResponse { host: String, why: String },
    #[error("`{host}` took longer than {} s {doing}", after.as_secs(), host = printable(host))]
    Timeout { host: String, doing: &'static str, after: Duration },
    #[error("the answer has more than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("the answer unpacks to more than {ratio_max} times its size")]
    Bomb { ratio_max: usize },
    #[error("the answer is packed as `{encoding}`, expected gzip or nothing", encoding = printable(encoding))]
    Encoding { encoding: String },
    #[error("the answer cannot be unpacked")]
    Corrupt { why: String },
    #[error("`{host}` was asked too often", host = printable(host))]
    Paced { host: String, retry_after: Duration },
    #[error("{why}")]
    Secret { why: String },
    /// About an address that is not shown: the words are ours, so that nothing of it is among them.
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
    #[error("the client could not be made: {why}")]
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
            E::ManyRedirects { .. } | E::Connect { .. } | E::Tls { .. } | E::BadResponse { .. } => {
                ErrorKind::Upstream
            }
            E::Corrupt { .. } | E::Encoding { .. } => ErrorKind::Upstream,
            E::Timeout { .. } => ErrorKind::Timeout,
            E::TooLarge { .. } | E::Bomb { .. } => ErrorKind::TooLarge,
            E::Paced { .. } => ErrorKind::RateLimited,
            E::Hidden { kind, .. } => *kind,
            E::Cancelled => ErrorKind::Cancelled,
            E::Setup { .. } => ErrorKind::Internal,
        }
    }

    /// Returns the same about an address that is not shown, which `label` stands for.
    ///
    /// Not even the host is named, nor a scheme or port: a private link may be all of these.
    pub(crate) fn hidden_as(self, label: &str) -> EgressError {
        use EgressError as E;
        const TELL: &str =
            "tell the user: its address in the configuration or the secret store has to be corrected";
        let retry_after = match &self {
            E::Paced { retry_after, .. } => Some(*retry_after),
            _ => None,
        };
        let kind = self.kind();
        let (what, advice) = match self {
            // These say nothing about the address.
            E::Cancelled | E::Setup { .. } | E::Secret { .. } | E::Hidden { .. } => return self,
            E::BadUrl { .. } | E::LongUrl { .. } => ("has an address that cannot be read", TELL),
            E::Scheme { .. } | E::PlainHttp => ("has an address without https://", TELL),
            E::Credentials => ("has an address with a user name or password", TELL),
            E::Port { .. } => ("has an address with an unusual port", TELL),
            E::NotPublic { .. } => (
                "has no public address",
                "try again later, or tell the user: private addresses are reached only if `egress.allow` names the exact host and port",
            ),
            E::Unwanted { .. } => ("may not be asked", TELL),
            E::Downgrade | E::Redirect { .. } | E::ManyRedirects { .. } | E::SentElsewhere { .. } => {
                ("redirects to where we do not follow", TELL)
            }
            E::Connect { .. } => ("is not answering", "try again in a minute"),
            E::Timeout { .. } => ("did not answer in time", "try again in a minute"),
            E::Tls { .. } => (
                "could not prove who it is (TLS)",
                "tell the user: its certificate is not valid for its host",
            ),
            E::BadResponse { .. } | E::Corrupt { .. } | E::Encoding { .. } => {
                ("answered something that is not HTTP as we know it", TELL)
            }
            E::TooLarge { .. } | E::Bomb { .. } => {
                ("is too large", "tell the user: it has more than is read")
            }
            E::Paced { .. } => ("was asked too often", "wait a while before you ask again"),
        };
        E::Hidden { label: label.to_owned(), what, kind, advice, retry_after }
    }

    /// Says what the caller can do about it.
    fn advice(&self) -> Option<String> {
        use EgressError as E;
        let said = match self {
            E::BadUrl { .. } | E::LongUrl { .. } | E::Scheme { .. } => {
                "give a whole address, like https://example.com/page"
            }
            E::PlainHttp => "use https://; a person can allow http:// in the configuration",
            E::Credentials => "leave the part before `@` out",
            E::Port { .. } => {
                "use the usual port; a person can add the exact host and port to `egress.allow`"
            }
            E::NotPublic { .. } => {
                "check the spelling; private and local addresses are not reached, unless a person adds the exact \
                 host and port to `egress.allow`"
            }
            E::Unwanted { .. } => "the configuration says which hosts may be asked; choose another",
            E::Downgrade => "ask for the http:// address itself, if that is allowed",
            E::Redirect { why, .. } => return why.advice(),
            E::ManyRedirects { .. } => "the site sends visitors in circles; try another address",
            E::SentElsewhere { .. } => "send it to the other host yourself, if you trust that",
            E::Connect { .. } | E::Timeout { .. } => "try again in a minute, or another address",
            E::Tls { .. } => "the certificate is not valid for this host; do not trust what is there",
            E::BadResponse { .. } | E::Corrupt { .. } | E::Encoding { .. } => {
                "try another address; this one is broken"
            }
            E::TooLarge { .. } | E::Bomb { .. } => "look for a smaller page that has what you need",
            E::Hidden { advice, .. } => advice,
            E::Secret { .. } => "`portcullis secrets grant` lets a person say where a secret may go",
            E::Paced { .. } | E::Cancelled | E::Setup { .. } => return None,
        };
        Some(said.to_owned())
    }

    /// Returns what the log should know and the caller should not.
    fn reason(&self) -> Option<&str> {
        use EgressError as E;
        match self {
            E::NotPublic { why, .. } | E::Connect { why, .. } | E::Tls { why, .. } => Some(why),
            E::BadResponse { why, .. } | E::Corrupt { why } => Some(why),
            E::Redirect { why, .. } => why.reason(),
            _ => None,
        }
    }
}

impl From<EgressError> for ToolError {
    fn from(error: EgressError) -> ToolError {
        let mut told = match &error {
            EgressError::Paced { retry_after, .. } => {
                ToolError::busy_outside(error.to_string(), Some(*retry_after))
            }
            EgressError::Hidden { kind: ErrorKind::RateLimited, retry_after, .. } => {
                ToolError::busy_outside(error.to_string(), *retry_after)
            }
            _ => {
                let mut told = ToolError::new(error.kind(), error.to_string());
                told.hints.extend(error.advice());
                told
            }
        };
        if let Some(reason) = error.reason() {
            told = told.caused_by(reason);
        }
        told
    }
}
