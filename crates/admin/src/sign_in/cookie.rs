//! The session cookie.

use axum::http::{HeaderMap, HeaderValue, header};
use portcullis_core::Secret;

/// With the `__Host-` prefix browsers accept the cookie from this host only, for `/`, over a secure connection. They
/// treat loopback as secure.
pub const COOKIE: &str = "__Host-portcullis";
const ATTRIBUTES: &str = "; Path=/; Secure; HttpOnly; SameSite=Strict";

pub(super) fn set(secret: &Secret<String>) -> HeaderValue {
    // Base64url: always a valid header value.
    HeaderValue::from_str(&format!("{COOKIE}={}{ATTRIBUTES}", secret.expose())).unwrap_or_else(|_| forget())
}

pub(super) fn forget() -> HeaderValue {
    HeaderValue::from_static("__Host-portcullis=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0")
}

/// Returns the cookie's value, if there is exactly one. A second one may be cookie tossing.
pub(super) fn read(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    let value = own.next()?;
    own.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_cookie_counts() {
        for (sent, expected) in [
            (vec!["__Host-portcullis=abc"], Some("abc")),
            (vec!["a=b; __Host-portcullis=abc ; c=d"], Some("abc")),
            (vec!["__Host-portcullis=abc; __Host-portcullis=def"], None),
            (vec!["__Host-portcullis=abc", "__Host-portcullis=abc"], None),
            (vec!["portcullis=abc"], None),
            (vec!["__host-portcullis=abc"], None),
            (vec![], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in sent {
                headers.append(header::COOKIE, HeaderValue::from_static(value));
            }
            assert_eq!(read(&headers), expected);
        }
    }

    #[test]
    fn it_is_for_this_host_alone() {
        let set = set(&Secret::new("abc".to_owned()));
        insta::assert_snapshot!(set.to_str().unwrap(), @"__Host-portcullis=abc; Path=/; Secure; HttpOnly; SameSite=Strict");
    }
}
