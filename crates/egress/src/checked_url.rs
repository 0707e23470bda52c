//! URL validation against SSRF, as far as it goes without resolving the host name.

use crate::error::EgressError;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use url::{Host, Url};

/// Servers accept less.
const URL_BYTES_MAX: usize = 8 * 1024;
/// The default ports of http:// and https://.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// Whether a request may go unencrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlainHttp {
    #[default]
    Refused,
    Allowed,
}

/// An exact host and port that may be reached although it is private or has an unusual port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowlistEntry {
    host: Host,
    port: u16,
}

/// Why a text is not an allowlist entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a host and a port, like 127.0.0.1:8080 or internal.example:443")]
pub struct AllowlistEntryError;

impl FromStr for AllowlistEntry {
    type Err = AllowlistEntryError;

    fn from_str(text: &str) -> Result<AllowlistEntry, AllowlistEntryError> {
        let (host, port) = text.rsplit_once(':').ok_or(AllowlistEntryError)?;
        let is_name = |c: char| c.is_alphanumeric() || "-._".contains(c);
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        if !is_bracketed && (host.is_empty() || !host.chars().all(is_name)) {
            return Err(AllowlistEntryError);
        }
        if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(AllowlistEntryError);
        }
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(AllowlistEntryError)?;
        let host = Host::parse(host).map_err(|_| AllowlistEntryError)?;
        Ok(AllowlistEntry { host, port })
    }
}

impl fmt::Display for AllowlistEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A URL that passed the checks. Parsed once, so that the URL that is checked is the URL that is requested.
#[derive(Debug, Clone)]
pub(crate) struct CheckedUrl {
    pub(crate) url: Url,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// Whether the allowlist has exactly this host and port.
    pub(crate) excepted: bool,
}

/// What a URL is checked against.
pub(crate) struct UrlRules<'a> {
    pub(crate) plain_http: PlainHttp,
    pub(crate) exceptions: &'a [AllowlistEntry],
}

impl CheckedUrl {
    /// Checks a URL that the caller gave.
    pub(crate) fn parse(text: &str, rules: &UrlRules<'_>) -> Result<CheckedUrl, EgressError> {
        if text.len() > URL_BYTES_MAX {
            return Err(EgressError::LongUrl { bytes_max: URL_BYTES_MAX });
        }
        let url = Url::parse(text).map_err(|error| EgressError::BadUrl { why: error.to_string() })?;
        CheckedUrl::check(url, rules)
    }

    /// Checks the target of a redirect.
    pub(crate) fn redirected(&self, location: &str, rules: &UrlRules<'_>) -> Result<CheckedUrl, EgressError> {
        let refused =
            |error: EgressError| EgressError::Redirect { from: self.shown_host(), why: Box::new(error) };
        if location.len() > URL_BYTES_MAX {
            return Err(refused(EgressError::LongUrl { bytes_max: URL_BYTES_MAX }));
        }
        let url = self.url.join(location);
        let url = url.map_err(|error| refused(EgressError::BadUrl { why: error.to_string() }))?;
        let next = CheckedUrl::check(url, rules).map_err(refused)?;
        // A public server must not choose among the private hosts that an administrator allowed.
        if next.excepted && !self.excepted {
            return Err(refused(EgressError::NotPublic {
                host: next.shown_host(),
                why: "an exception".to_owned(),
            }));
        }
        if self.url.scheme() == "https" && next.url.scheme() == "http" && !next.excepted {
            return Err(refused(EgressError::Downgrade));
        }
        Ok(next)
    }

    fn check(mut url: Url, rules: &UrlRules<'_>) -> Result<CheckedUrl, EgressError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EgressError::Scheme { scheme: url.scheme().to_owned() });
        }
        // A user name disguises the host for a reader, and credentials would be sent.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressError::Credentials);
        }
        let host = url.host().map(|host| host.to_owned());
        let host = host.ok_or_else(|| EgressError::BadUrl { why: "it has no host".to_owned() })?;
        let port = url.port_or_known_default().unwrap_or_default();
        let excepted = rules.exceptions.iter().any(|known| known.host == host && known.port == port);
        if !excepted && url.scheme() == "http" && rules.plain_http == PlainHttp::Refused {
            return Err(EgressError::PlainHttp);
        }
        if !excepted && !USUAL_PORTS.contains(&port) {
            return Err(EgressError::Port { port });
        }
        // Never sent, and meaningless after a redirect.
        url.set_fragment(None);
        Ok(CheckedUrl { url, host, port, excepted })
    }

    /// Returns the IP address, if the host is an IP literal.
    pub(crate) fn literal(&self) -> Option<IpAddr> {
        match self.host {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }

    /// Returns the host as it is written in a URL.
    pub(crate) fn shown_host(&self) -> String {
        self.host.to_string()
    }

    /// Returns whether both URLs have the same scheme, host and port.
    pub(crate) fn is_same_origin(&self, other: &CheckedUrl) -> bool {
        self.url.scheme() == other.url.scheme() && self.host == other.host && self.port == other.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, plain_http: PlainHttp, exceptions: &[&str]) -> Result<CheckedUrl, EgressError> {
        let exceptions: Vec<AllowlistEntry> = exceptions.iter().map(|text| text.parse().unwrap()).collect();
        CheckedUrl::parse(text, &UrlRules { plain_http, exceptions: &exceptions })
    }

    #[test]
    fn an_exception_is_an_exact_host_and_port() {
        for text in ["127.0.0.1:8080", "internal.example:443", "[::1]:3000", "Internal.Example:443"] {
            assert!(text.parse::<AllowlistEntry>().is_ok(), "{text}");
        }
        for text in [
            "",
            "127.0.0.1",
            ":80",
            "host:",
            "host:0",
            "host:70000",
            "*:80",
            "*.example.com:443",
            "http://a:80",
            "a/b:80",
            "a@b:80",
            "::1:80",
            "10.0.0.0/8:80",
            "host:+80",
        ] {
            assert_eq!(text.parse::<AllowlistEntry>(), Err(AllowlistEntryError), "{text}");
        }
        let allow = ["127.0.0.1:8080"];
        assert!(check("http://127.0.0.1:8080/x", PlainHttp::Refused, &allow).unwrap().excepted);
        // Any spelling: the comparison is on the parsed host.
        assert!(check("http://0x7f000001:8080/x", PlainHttp::Refused, &allow).unwrap().excepted);
        assert!(!check("http://127.0.0.1/x", PlainHttp::Allowed, &allow).unwrap().excepted);
        assert!(matches!(
            check("http://127.0.0.1:8081/", PlainHttp::Allowed, &allow),
            Err(EgressError::Port { .. })
        ));
        assert!(!check("http://127.0.0.2:80/", PlainHttp::Allowed, &allow).unwrap().excepted);
    }

    #[test]
    fn what_cannot_be_asked_is_refused_before_it_is_resolved() {
        let refused = |text: &str| check(text, PlainHttp::Refused, &[]).unwrap_err().to_string();
        assert_eq!(refused("file:///etc/passwd"), "`file` URLs are not supported, expected https://");
        assert_eq!(refused("http://example.com/"), "http:// is not allowed, expected https://");
        assert_eq!(refused("https://a:b@example.com/"), "the URL contains a user name or password");
        assert_eq!(refused("https://example.com:22/"), "port 22 is not allowed, expected 80 or 443");
        assert_eq!(refused("//example.com/"), "invalid URL: relative URL without a base");
        assert!(refused(&format!("https://example.com/{}", "a".repeat(9_000))).contains("8192"));
        assert!(check("https://example.com/a#b", PlainHttp::Refused, &[]).unwrap().url.fragment().is_none());
    }
}
