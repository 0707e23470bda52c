//! The configured URL of a vault's remote repository.

use std::fmt;
use std::str::FromStr;
use url::Url;

/// Longer than any URL in use.
const ADDRESS_BYTES_MAX: usize = 2_000;

/// How a repository is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteScheme {
    Https,
    /// Unencrypted, so no secret is sent, except on loopback.
    Http,
    Ssh,
    /// A folder on this machine.
    File,
}

/// A validated remote, in a form that git cannot interpret as an option or a helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAddress {
    text: String,
    kind: RemoteScheme,
    host: Option<String>,
}

impl RemoteScheme {
    /// Returns git's name for it.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            RemoteScheme::Https => "https",
            RemoteScheme::Http => "http",
            RemoteScheme::Ssh => "ssh",
            RemoteScheme::File => "file",
        }
    }
}

impl RemoteAddress {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn kind(&self) -> RemoteScheme {
        self.kind
    }

    /// Returns the host for secret grants, if a secret may be sent at all.
    pub fn secret_host(&self) -> Option<&str> {
        let host = self.host.as_deref()?;
        let on_this_machine = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        match self.kind {
            RemoteScheme::Https => Some(host),
            RemoteScheme::Http if on_this_machine => Some(host),
            RemoteScheme::Http | RemoteScheme::Ssh | RemoteScheme::File => None,
        }
    }
}

impl FromStr for RemoteAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<RemoteAddress, &'static str> {
        const EXPECTED: &str = "an address like https://example.com/me/notes.git, git@example.com:me/notes.git or /path/to/notes.git";
        if text.is_empty() || text.len() > ADDRESS_BYTES_MAX || text.starts_with('-') {
            return Err(EXPECTED);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("an address without blanks");
        }
        let of = |kind, host: Option<&str>| RemoteAddress {
            text: text.to_owned(),
            kind,
            host: host.map(str::to_ascii_lowercase),
        };
        if text.starts_with('/') {
            return Ok(of(RemoteScheme::File, None));
        }
        if let Some((scheme, _)) = text.split_once("://") {
            let url = Url::parse(text).map_err(|_| EXPECTED)?;
            if url.password().is_some() {
                return Err("an address without a password; use `vault.git_token`");
            }
            return match scheme {
                "https" | "http" if !url.username().is_empty() => {
                    Err("an address without a user; use `vault.git_user`")
                }
                "https" => Ok(of(RemoteScheme::Https, url.host_str())),
                "http" => Ok(of(RemoteScheme::Http, url.host_str())),
                // A host with a leading dash would be an ssh option (argument injection).
                "ssh" => url
                    .host_str()
                    .filter(|host| !host.starts_with('-'))
                    .map(|host| of(RemoteScheme::Ssh, Some(host)))
                    .ok_or(EXPECTED),
                "file" if url.host_str().is_none_or(str::is_empty) => Ok(of(RemoteScheme::File, None)),
                _ => Err(EXPECTED),
            };
        }
        // `user@host:path`; `helper::address` would start a program.
        let (before, path) = text.split_once(':').ok_or(EXPECTED)?;
        let host = before.rsplit('@').next().unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_host = !host.is_empty() && host.chars().all(plain) && !host.starts_with('-');
        let user = before.strip_suffix(host).unwrap_or_default();
        let is_user = user.is_empty()
            || user.strip_suffix('@').is_some_and(|user| user.chars().all(plain) && !user.starts_with('-'));
        if !is_host || !is_user || path.is_empty() || path.starts_with([':', '-']) {
            return Err(EXPECTED);
        }
        Ok(of(RemoteScheme::Ssh, Some(host)))
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_look_like() {
        for (text, kind, host) in [
            ("https://example.com/me/notes.git", RemoteScheme::Https, Some("example.com")),
            ("http://127.0.0.1:8080/notes.git", RemoteScheme::Http, Some("127.0.0.1")),
            ("http://example.com/notes.git", RemoteScheme::Http, None),
            ("git@example.com:me/notes.git", RemoteScheme::Ssh, None),
            ("example.com:notes.git", RemoteScheme::Ssh, None),
            ("ssh://git@example.com:22/notes.git", RemoteScheme::Ssh, None),
            ("/srv/notes.git", RemoteScheme::File, None),
            ("file:///srv/notes.git", RemoteScheme::File, None),
        ] {
            let address: RemoteAddress = text.parse().unwrap();
            assert_eq!((address.kind(), address.secret_host()), (kind, host), "{text}");
        }
        for text in [
            "",
            "ext::sh -c touch% /tmp/x",
            "ext::sh",
            "fd::17",
            "-oProxyCommand=x",
            "--upload-pack=x",
            "ssh://-oProxyCommand=x/notes",
            "-x@host:path",
            "git@-host:path",
            "host:-path",
            "https://me:word@example.com/x.git",
            "https://token@example.com/x.git",
            "ftp://example.com/x",
            "file://host/x",
            "notes",
            "https://example.com/a b",
            "https://example.com/\n",
        ] {
            assert!(text.parse::<RemoteAddress>().is_err(), "{text}");
        }
    }
}
