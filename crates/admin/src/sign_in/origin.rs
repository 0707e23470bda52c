//! Where a request comes from, as the browser tells it. A page cannot change what is read here.

use axum::http::{HeaderMap, header};

/// Who made a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Our own page, or the person by typing an address.
    Here,
    /// Not a browser, or one that says nothing.
    Program,
    /// A page of another site, or of another port of this machine.
    Elsewhere,
}

/// Says who made a request, by `Sec-Fetch-Site` and `Origin`.
///
/// The server has compared `Origin` with what the configuration allows. That may be more than our own: it lets pages of
/// others call `/mcp`, and they have no business here.
pub fn came_from(headers: &HeaderMap) -> Sender {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or("?"));
    let (origin, host) = (text(header::ORIGIN), text(header::HOST).unwrap_or_default());
    let is_own = |origin: &str| {
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|rest| !rest.is_empty() && rest.eq_ignore_ascii_case(host))
    };
    match (site, origin) {
        (Some(site), _) if !matches!(site, "same-origin" | "none") => Sender::Elsewhere,
        (_, Some(origin)) if !is_own(origin) => Sender::Elsewhere,
        (None, None) => Sender::Program,
        _ => Sender::Here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_our_own_page_and_programs_count() {
        for (site, origin, expected) in [
            (None, None, Sender::Program),
            (Some("same-origin"), None, Sender::Here),
            (Some("none"), None, Sender::Here),
            (Some("same-origin"), Some("http://127.0.0.1:3000"), Sender::Here),
            (None, Some("http://127.0.0.1:3000"), Sender::Here),
            (None, Some("https://127.0.0.1:3000"), Sender::Here),
            (Some("same-site"), Some("http://127.0.0.1:3000"), Sender::Elsewhere),
            (Some("cross-site"), None, Sender::Elsewhere),
            (Some(""), None, Sender::Elsewhere),
            (None, Some("http://127.0.0.1:8080"), Sender::Elsewhere),
            (None, Some("http://evil.test"), Sender::Elsewhere),
            (None, Some("null"), Sender::Elsewhere),
            (None, Some("http://"), Sender::Elsewhere),
            (Some("same-origin"), Some("http://evil.test"), Sender::Elsewhere),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:3000"));
            if let Some(site) = site {
                headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            assert_eq!(came_from(&headers), expected, "{site:?} {origin:?}");
        }
    }
}
