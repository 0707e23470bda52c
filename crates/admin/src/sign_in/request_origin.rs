//! Origin of a request, from `Sec-Fetch-Site` and `Origin`. Page scripts cannot set these headers.

use axum::http::{HeaderMap, header};

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOrigin {
    /// Same origin, or an address typed by a person.
    Here,
    /// No browser, or one without these headers.
    Program,
    /// Another site, or another port of this machine.
    Elsewhere,
}

/// Classifies a request by `Sec-Fetch-Site` and `Origin`.
///
/// The server has already checked `Origin` against the configured allowlist. That list is for `/mcp` and may contain
/// other sites, which must not reach the admin interface.
pub fn request_origin(headers: &HeaderMap) -> RequestOrigin {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or("?"));
    let (origin, host) = (text(header::ORIGIN), text(header::HOST).unwrap_or_default());
    let is_own = |origin: &str| {
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|rest| !rest.is_empty() && rest.eq_ignore_ascii_case(host))
    };
    match (site, origin) {
        (Some(site), _) if !matches!(site, "same-origin" | "none") => RequestOrigin::Elsewhere,
        (_, Some(origin)) if !is_own(origin) => RequestOrigin::Elsewhere,
        (None, None) => RequestOrigin::Program,
        _ => RequestOrigin::Here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_our_own_page_and_programs_count() {
        for (site, origin, expected) in [
            (None, None, RequestOrigin::Program),
            (Some("same-origin"), None, RequestOrigin::Here),
            (Some("none"), None, RequestOrigin::Here),
            (Some("same-origin"), Some("http://127.0.0.1:3000"), RequestOrigin::Here),
            (None, Some("http://127.0.0.1:3000"), RequestOrigin::Here),
            (None, Some("https://127.0.0.1:3000"), RequestOrigin::Here),
            (Some("same-site"), Some("http://127.0.0.1:3000"), RequestOrigin::Elsewhere),
            (Some("cross-site"), None, RequestOrigin::Elsewhere),
            (Some(""), None, RequestOrigin::Elsewhere),
            (None, Some("http://127.0.0.1:8080"), RequestOrigin::Elsewhere),
            (None, Some("http://evil.test"), RequestOrigin::Elsewhere),
            (None, Some("null"), RequestOrigin::Elsewhere),
            (None, Some("http://"), RequestOrigin::Elsewhere),
            (Some("same-origin"), Some("http://evil.test"), RequestOrigin::Elsewhere),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:3000"));
            if let Some(site) = site {
                headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            assert_eq!(request_origin(&headers), expected, "{site:?} {origin:?}");
        }
    }
}
