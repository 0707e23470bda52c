//! The address of an endpoint that an administrator configured: a URL or a Unix socket.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use tokio_rustls::rustls::pki_types::ServerName;
use url::{Host, Position, Url};

/// Longer than any URL in a configuration.
const URL_BYTES_MAX: usize = 2_048;
/// The default path on a Unix socket.
const SOCKET_PATH: &str = "/mcp";

/// An endpoint: `https://host/path`, `http://host:port/path`, or `unix:/run/some.sock:/path` for a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredEndpoint {
    url: Url,
    pub(super) at: EndpointAddr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EndpointAddr {
    Host { name: String, port: u16, tls: bool },
    Socket(PathBuf),
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EndpointError(String);

impl FromStr for ConfiguredEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<ConfiguredEndpoint, EndpointError> {
        let no = |why: &str| EndpointError(why.to_owned());
        if text.len() > URL_BYTES_MAX {
            return Err(EndpointError(format!("the URL is longer than {URL_BYTES_MAX} bytes")));
        }
        if let Some(rest) = text.strip_prefix("unix:") {
            let (socket, path) = match rest.rfind(":/") {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, SOCKET_PATH),
            };
            if !socket.starts_with('/') {
                return Err(no("the socket path must be absolute, like unix:/run/notes.sock:/mcp"));
            }
            // A request over a Unix socket carries `Host: localhost`.
            let url = Url::parse("http://localhost").and_then(|base| base.join(path));
            let url = url.map_err(|error| EndpointError(error.to_string()))?;
            return Ok(ConfiguredEndpoint { url, at: EndpointAddr::Socket(PathBuf::from(socket)) });
        }
        let url = Url::parse(text).map_err(|error| EndpointError(error.to_string()))?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(no("expected https://, http:// or unix:")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(no("the URL contains a user name or password; put them into `headers`"));
        }
        if url.fragment().is_some() {
            return Err(no("the part after `#` is never sent; remove it"));
        }
        let (Some(name), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(no("the URL has no host"));
        };
        let at = EndpointAddr::Host { name: name.to_owned(), port, tls };
        Ok(ConfiguredEndpoint { url, at })
    }
}

impl fmt::Display for ConfiguredEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            EndpointAddr::Host { .. } => self.url.fmt(f),
            EndpointAddr::Socket(path) => write!(f, "unix:{}:{}", path.display(), self.path()),
        }
    }
}

impl ConfiguredEndpoint {
    /// Path and query.
    pub fn path(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }

    /// Returns the public URL; `None` for a Unix socket.
    pub fn url(&self) -> Option<&Url> {
        matches!(self.at, EndpointAddr::Host { .. }).then_some(&self.url)
    }

    /// Returns the host that secrets are granted for: `localhost` for a Unix socket.
    pub fn host(&self) -> &str {
        match &self.at {
            EndpointAddr::Host { name, .. } => name,
            EndpointAddr::Socket(_) => "localhost",
        }
    }

    /// Resolves `location`, from a response to the path `from`, to a path; `None` if it has another origin.
    pub fn joined(&self, from: &str, location: &str) -> Option<String> {
        let next = self.url.join(from).ok()?.join(location).ok()?;
        let here = next.origin() == self.url.origin() && next.username().is_empty();
        here.then(|| next[Position::BeforePath..Position::AfterQuery].to_owned())
    }

    /// The endpoint in error messages. Without the path, which may hold a credential.
    pub(super) fn shown(&self) -> String {
        match &self.at {
            EndpointAddr::Host { .. } => self.authority(),
            EndpointAddr::Socket(path) => path.display().to_string(),
        }
    }

    pub(super) fn authority(&self) -> String {
        match self.url.port() {
            Some(port) => format!("{}:{port}", self.url.host_str().unwrap_or_default()),
            None => self.url.host_str().unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn literal(&self) -> Option<IpAddr> {
        match self.url.host()? {
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
            Host::Domain(_) => None,
        }
    }

    /// Returns the name that the certificate must be valid for.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, String> {
        match self.literal() {
            Some(address) => Ok(ServerName::from(address)),
            None => {
                let name = self.host().trim_end_matches('.').to_owned();
                ServerName::try_from(name).map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_a_person_writes_them() {
        for (text, shown, path) in [
            ("https://mcp.example.com/mcp?x=1", "mcp.example.com", "/mcp?x=1"),
            ("http://127.0.0.1:3000/mcp", "127.0.0.1:3000", "/mcp"),
            ("http://[::1]:80/", "[::1]", "/"),
            ("unix:/run/notes.sock", "/run/notes.sock", "/mcp"),
            ("unix:/run/notes.sock:/other?a", "/run/notes.sock", "/other?a"),
        ] {
            let place: ConfiguredEndpoint = text.parse().unwrap();
            assert_eq!((place.shown().as_str(), place.path()), (shown, path), "{text}");
        }
        for text in ["ftp://x", "https://a:b@x/", "unix:run/x.sock", "https://x/#a", "x", "https://", "unix:"]
        {
            assert!(text.parse::<ConfiguredEndpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_leads_away() {
        let place: ConfiguredEndpoint = "https://mcp.example.com/a/mcp".parse().unwrap();
        for (location, expected) in [
            ("/mcp/", Some("/mcp/")),
            ("mcp/?x", Some("/a/mcp/?x")),
            ("https://mcp.example.com:443/b", Some("/b")),
            ("http://mcp.example.com/b", None),
            ("https://mcp.example.com:8443/b", None),
            ("https://mcp.example.com.evil.example/b", None),
            ("//evil.example/b", None),
            ("https://x@mcp.example.com/b", None),
            ("\\\\evil.example\\b", None),
        ] {
            assert_eq!(place.joined(place.path(), location).as_deref(), expected, "{location}");
        }
    }
}
