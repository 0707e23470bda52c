//! Content type detection: by the header, or by sniffing if the header is missing or generic.

/// How a body is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    Html,
    /// Unchanged: plain text, JSON, source code.
    Text,
    Binary,
}

/// Bytes of a body that are sniffed.
const LOOK_BYTES: usize = 1024;
/// Text types besides `text/*`.
const TEXTS: [&str; 14] = [
    "application/json",
    "application/ld+json",
    "application/xml",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/x-ndjson",
    "application/sql",
    "application/graphql",
    "application/x-sh",
    "message/rfc822",
];

/// Returns the media type without parameters, in lower case.
pub(super) fn mime(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns whether a body of this type may be text.
pub(super) fn may_be_text(content_type: &str) -> bool {
    declared(&mime(content_type)) != Some(BodyKind::Binary)
}

/// Returns the kind of a body, and its charset parameter.
pub(super) fn of<'a>(content_type: &'a str, body: &[u8]) -> (BodyKind, Option<&'a str>) {
    let charset = content_type.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    let kind = match declared(&mime(content_type)) {
        // Binary data with a text type stays binary.
        Some(BodyKind::Text | BodyKind::Html) if looks_binary(body) && charset.is_none() => BodyKind::Binary,
        Some(kind) => kind,
        None if looks_binary(body) => BodyKind::Binary,
        None if looks_like_html(body) => BodyKind::Html,
        None => BodyKind::Text,
    };
    (kind, charset)
}

/// Returns the kind for a media type; `None` for a missing or generic one.
fn declared(mime: &str) -> Option<BodyKind> {
    match mime {
        "text/html" | "application/xhtml+xml" => Some(BodyKind::Html),
        "" | "application/octet-stream" | "application/unknown" | "binary/octet-stream" => None,
        _ if mime.starts_with("text/") || TEXTS.contains(&mime) => Some(BodyKind::Text),
        _ if mime.ends_with("+json") || mime.ends_with("+xml") || mime.ends_with("+yaml") => {
            Some(BodyKind::Text)
        }
        _ => Some(BodyKind::Binary),
    }
}

fn looks_binary(body: &[u8]) -> bool {
    let head = &body[..body.len().min(LOOK_BYTES)];
    let has_mark = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    head.contains(&0) && !has_mark
}

fn looks_like_html(body: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&body[..body.len().min(LOOK_BYTES)]).to_ascii_lowercase();
    let head = head.trim_start();
    ["<!doctype html", "<html", "<head", "<body", "<!--"].iter().any(|start| head.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_believed_unless_the_body_says_otherwise() {
        let png: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        let cases: [(&str, &[u8], BodyKind, Option<&str>); 11] = [
            ("text/html; charset=utf-8", b"x", BodyKind::Html, Some("utf-8")),
            ("TEXT/HTML;Charset=\"Big5\"", b"x", BodyKind::Html, Some("Big5")),
            ("application/json", b"{}", BodyKind::Text, None),
            ("application/problem+json", b"{}", BodyKind::Text, None),
            ("text/x-rust", b"fn", BodyKind::Text, None),
            ("", b"  <!DOCTYPE html><p>", BodyKind::Html, None),
            ("application/octet-stream", b"plain", BodyKind::Text, None),
            ("application/octet-stream", png, BodyKind::Binary, None),
            ("text/plain", png, BodyKind::Binary, None),
            ("image/png", b"x", BodyKind::Binary, None),
            ("application/pdf", b"%PDF-1.7", BodyKind::Binary, None),
        ];
        for (content_type, body, kind, charset) in cases {
            assert_eq!(of(content_type, body), (kind, charset), "{content_type}");
        }
        assert!(may_be_text("") && may_be_text("text/css") && !may_be_text("video/mp4"));
    }
}
