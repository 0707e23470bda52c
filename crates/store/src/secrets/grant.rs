//! Names of secrets, and grants: the hosts and fields that a secret may be sent to.

use super::SecretError;
use portcullis_core::json::printable;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Long enough for any known environment variable.
const NAME_CHARS_MAX: usize = 64;
/// The longest name that DNS carries.
const HOST_CHARS_MAX: usize = 253;
/// Longer than any header in use.
const FIELD_CHARS_MAX: usize = 64;
/// The field of a grant without one: where nearly every service expects its token.
const USUAL_FIELD: &str = "Authorization";
/// Prefix of a handle.
const HANDLE_PREFIX: &str = "secret:";

/// Returns whether `name` may name a secret: `^[A-Z][A-Z0-9_]{0,63}$`.
pub fn is_secret_name(name: &str) -> bool {
    name.len() <= NAME_CHARS_MAX
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

pub(super) fn check_name(name: &str) -> Result<(), SecretError> {
    if is_secret_name(name) {
        return Ok(());
    }
    // For `NAME=VALUE`, the value must not appear in an error message, which is logged and pasted.
    let shown: String =
        name.chars().take_while(|c| c.is_ascii_alphanumeric() || "_-.".contains(*c)).take(32).collect();
    Err(SecretError::Name(shown))
}

/// A handle that refers to a secret where its value must not appear. Written `secret:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecretRef(String);

impl SecretRef {
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretRef {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_prefix(HANDLE_PREFIX).ok_or(SecretError::NoHandle)?;
        check_name(name)?;
        Ok(SecretRef(name.to_owned()))
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HANDLE_PREFIX}{}", self.0)
    }
}

/// A grant: one destination of a secret, as a host and a field.
///
/// Written `HOST[:FIELD]`. The host is a name or an address, or `*.example.com` for every name below
/// example.com. The field is the name of a header, or another place that the sender defines; without one it
/// is `Authorization`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
// A member that a newer program has added may narrow the grant, so that ignoring it would widen it.
#[serde(deny_unknown_fields)]
pub struct Grant {
    host: String,
    field: String,
}

impl Grant {
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns whether the secret may go into `field` of a request to `host`.
    pub fn covers(&self, host: &str, field: &str) -> bool {
        self.field.eq_ignore_ascii_case(field) && self.covers_host(&host.to_ascii_lowercase())
    }

    /// Returns whether both name the same destination.
    pub(super) fn is_same(&self, other: &Grant) -> bool {
        self.host == other.host && self.field.eq_ignore_ascii_case(&other.field)
    }

    fn covers_host(&self, host: &str) -> bool {
        // The trailing dot of a fully qualified name.
        let host = host.strip_suffix('.').unwrap_or(host);
        match self.host.strip_prefix('*') {
            None => self.host == host,
            Some(below) => host.strip_suffix(below).is_some_and(is_host_name),
        }
    }

    /// Returns whether it could have been parsed, because a file can hold anything.
    pub(super) fn is_sound(&self) -> bool {
        check_host(&self.host).is_ok() && is_field(&self.field) && self.host == self.host.to_ascii_lowercase()
    }
}

impl FromStr for Grant {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |why| SecretError::Grant { text: printable(text), why };
        if text.contains(['/', '@']) {
            return Err(refused("expected a host like api.example.com, not a URL"));
        }
        let (host, field) = match text.find(']') {
            // An IPv6 address contains colons.
            Some(end) if text.starts_with('[') => {
                let (host, rest) = text.split_at(end + 1);
                let field = rest.strip_prefix(':');
                if field.is_none() && !rest.is_empty() {
                    return Err(refused("expected `:` and a field, or nothing, after `]`"));
                }
                (host, field)
            }
            _ => text.split_once(':').map_or((text, None), |(host, field)| (host, Some(field))),
        };
        let field = field.unwrap_or(USUAL_FIELD);
        if !field.is_empty() && field.bytes().all(|b| b.is_ascii_digit() || b == b':') {
            return Err(refused("a grant has no port; expected a field like Authorization after `:`"));
        }
        if !is_field(field) {
            return Err(refused(
                "the field is 1 to 64 letters, digits, `-`, `_` and `.`, like Authorization",
            ));
        }
        let host = host.to_ascii_lowercase();
        check_host(&host).map_err(refused)?;
        Ok(Grant { host, field: field.to_owned() })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.field)
    }
}

fn check_host(host: &str) -> Result<(), &'static str> {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').and_then(|text| text.parse::<std::net::Ipv6Addr>().ok());
        return address.map(|_| ()).ok_or("expected an IPv6 address in brackets");
    }
    if let Some(below) = host.strip_prefix("*.") {
        if !is_host_name(below) || !below.contains('.') {
            return Err("`*.` must precede a domain of at least two labels, like *.example.com");
        }
        return Ok(());
    }
    if host.contains('*') {
        return Err("`*` is allowed only for subdomains, like *.example.com");
    }
    if is_host_name(host) { Ok(()) } else { Err("expected a host name like api.example.com") }
}

/// Returns whether the text is dot-separated labels of letters, digits, `-` and `_`. IPv4 addresses are, too.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= HOST_CHARS_MAX && text.split('.').all(label)
}

fn is_field(text: &str) -> bool {
    (1..=FIELD_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["A", "GITHUB_TOKEN", "A1_", &"A".repeat(64)] {
            assert!(is_secret_name(good), "{good}");
        }
        for bad in ["", "a", "1A", "_A", "A-B", "A.B", "Ä", "A B", "A\n", &"A".repeat(65)] {
            assert!(!is_secret_name(bad), "{bad}");
        }
        let error = check_name("TOKEN=hunter2-hunter2").unwrap_err().to_string();
        assert!(error.contains("`TOKEN`") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn handles() {
        let handle: SecretRef = "secret:GITHUB_TOKEN".parse().unwrap();
        assert_eq!((handle.name(), handle.to_string().as_str()), ("GITHUB_TOKEN", "secret:GITHUB_TOKEN"));
        for bad in ["GITHUB_TOKEN", "secret:", "secret:github", "Secret:A", " secret:A", "secret:A "] {
            assert!(bad.parse::<SecretRef>().is_err(), "{bad}");
        }
    }

    #[test]
    fn grants_are_read_as_they_are_meant_or_refused() {
        let mut said = String::new();
        for text in [
            "api.github.com",
            "API.GitHub.com:X-Api-Key",
            "*.example.com",
            "127.0.0.1:url",
            "[::1]:Authorization",
            "[::1]",
            "localhost",
            "*",
            "*.com",
            "api.*.com",
            "*example.com",
            "api.github.com:443",
            "api.github.com:443:Authorization",
            "https://api.github.com",
            "user@api.github.com",
            "api.github.com:",
            "",
            ":Authorization",
            "a..b",
            "[::1]x",
            "[nine]",
            "api.github.com:Auth orization",
            "bücher.example",
        ] {
            let read = text.parse::<Grant>();
            said.push_str(&read.map_or_else(|error| error.to_string(), |grant| format!("ok {grant}")));
            said.push('\n');
        }
        insta::assert_snapshot!(said, @"
        ok api.github.com:Authorization
        ok api.github.com:X-Api-Key
        ok *.example.com:Authorization
        ok 127.0.0.1:url
        ok [::1]:Authorization
        ok [::1]:Authorization
        ok localhost:Authorization
        `*` is not a grant: `*` is allowed only for subdomains, like *.example.com
        `*.com` is not a grant: `*.` must precede a domain of at least two labels, like *.example.com
        `api.*.com` is not a grant: `*` is allowed only for subdomains, like *.example.com
        `*example.com` is not a grant: `*` is allowed only for subdomains, like *.example.com
        `api.github.com:443` is not a grant: a grant has no port; expected a field like Authorization after `:`
        `api.github.com:443:Authorization` is not a grant: the field is 1 to 64 letters, digits, `-`, `_` and `.`, like Authorization
        `https://api.github.com` is not a grant: expected a host like api.example.com, not a URL
        `user@api.github.com` is not a grant: expected a host like api.example.com, not a URL
        `api.github.com:` is not a grant: the field is 1 to 64 letters, digits, `-`, `_` and `.`, like Authorization
        `` is not a grant: expected a host name like api.example.com
        `:Authorization` is not a grant: expected a host name like api.example.com
        `a..b` is not a grant: expected a host name like api.example.com
        `[::1]x` is not a grant: expected `:` and a field, or nothing, after `]`
        `[nine]` is not a grant: expected an IPv6 address in brackets
        `api.github.com:Auth orization` is not a grant: the field is 1 to 64 letters, digits, `-`, `_` and `.`, like Authorization
        `bücher.example` is not a grant: expected a host name like api.example.com
        ");
    }

    #[test]
    fn a_grant_covers_its_host_and_field_and_nothing_that_looks_like_it() {
        let covers =
            |grant: &str, host: &str, field: &str| grant.parse::<Grant>().unwrap().covers(host, field);
        for host in ["api.github.com", "API.github.com", "api.github.com."] {
            assert!(covers("api.github.com", host, "authorization"), "{host}");
        }
        for host in [
            "github.com",
            "api.github.com.evil.example",
            "xapi.github.com",
            "x.api.github.com",
            "api.github.com..",
            "api.github.com:443",
            "api.github.com@evil.example",
            "",
        ] {
            assert!(!covers("api.github.com", host, "Authorization"), "{host}");
        }
        assert!(!covers("api.github.com", "api.github.com", "X-Api-Key"));
        for host in ["a.example.com", "a.b.example.com"] {
            assert!(covers("*.example.com", host, "Authorization"), "{host}");
        }
        for host in ["example.com", ".example.com", "aexample.com", "a/.example.com", "evil@a.example.com"] {
            assert!(!covers("*.example.com", host, "Authorization"), "{host}");
        }
    }
}
