//! URLs from untrusted documents, checked before they are used.
//!
//! `portcullis_egress` decides where requests go, each time one is made. Here is what it cannot know: which URLs are
//! of the same server, and which may be opened in a person's browser.

use super::error::OAuthError;
use portcullis_egress::{EgressClient, Url};

/// The longest URL. An authorization request still fits in what browsers accept.
const ADDRESS_BYTES_MAX: usize = 2 * 1024;

/// Returns whether a text has only plain URL characters, and nothing that a shell, a terminal or a URL opener could
/// interpret. Stricter than the grammar: `&` and quotes have no business in a path.
fn is_plain(text: &str) -> bool {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/[]%+,".contains(c);
    path.chars().all(plain)
        && query.chars().all(|c| plain(c) || "=&;!*?".contains(c))
        && !has_hidden_control(text)
}

/// Returns whether a percent-encoding is a control character, or invalid.
fn has_hidden_control(text: &str) -> bool {
    text.split('%').skip(1).any(|after| {
        let byte = after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        byte.is_none_or(|byte| byte < 0x20 || byte == 0x7f)
    })
}

/// Checks the URL that a person's browser is sent to: https or a configured exception, public like any that the hub
/// requests, and plain.
pub(super) async fn authorization(egress: &EgressClient, text: &str) -> Result<Url, OAuthError> {
    const WHAT: &str = "the URL of the login page";
    if text.len() > ADDRESS_BYTES_MAX || !is_plain(text) {
        return Err(OAuthError::malformed(WHAT, "it is not a plain URL"));
    }
    egress.get(text).check().await.map_err(OAuthError::reach(WHAT, text))
}

/// Checks a URL of later requests first, so that no person logs in for nothing.
pub(super) async fn endpoint(
    egress: &EgressClient,
    what: &'static str,
    text: &str,
) -> Result<(), OAuthError> {
    if text.len() > ADDRESS_BYTES_MAX {
        return Err(OAuthError::malformed(what, "its URL is too long"));
    }
    egress.get(text).check().await.map(drop).map_err(OAuthError::reach(what, text))
}

/// Returns whether a token for `resource` is for the server at `server`: the same origin, and a path at or above.
pub(super) fn is_resource_of(resource: &str, server: &Url) -> bool {
    if resource.len() > ADDRESS_BYTES_MAX {
        return false;
    }
    let Ok(resource) = Url::parse(resource) else { return false };
    if resource.fragment().is_some() || !resource.username().is_empty() || resource.password().is_some() {
        return false;
    }
    let above = resource.path().trim_end_matches('/');
    let below = server.path().strip_prefix(above);
    resource.origin() == server.origin()
        && resource.origin().is_tuple()
        && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        && resource.query().is_none_or(|query| server.query() == Some(query))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::SystemClock;
    use portcullis_egress::{EgressSettings, NoSecrets, Resolve};
    use std::io;
    use std::net::IpAddr;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// Every name has a public address.
    struct Public;

    impl Resolve for Public {
        fn resolve(&self, _: String) -> futures::future::BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            Box::pin(async { Ok(vec!["93.184.216.34".parse().unwrap()]) })
        }
    }

    fn egress() -> EgressClient {
        let settings = EgressSettings::default();
        EgressClient::new(settings, Arc::new(Public), Arc::new(NoSecrets), Arc::new(SystemClock)).unwrap()
    }

    #[tokio::test]
    async fn a_browser_is_sent_to_plain_public_pages_only() {
        let egress = egress();
        for good in [
            "https://example.com/authorize",
            "https://login.example.com/tenant-1/oauth2/v2.0/authorize?prompt=consent&p=b_1",
            "https://example.com/a%20b",
        ] {
            assert!(authorization(&egress, good).await.is_ok(), "{good}");
        }
        for bad in [
            "http://example.com/authorize",
            "https://user@example.com/",
            "https://example.com:8443/authorize",
            "https://10.0.0.1/authorize",
            "https://example.com/a#b",
            "https://example.com/`id`",
            "https://example.com/a?b=$(id)",
            "https://example.com/a b",
            "https://example.com/%0aid",
            "https://example.com/%zz",
            &format!("https://example.com/{}", "a".repeat(ADDRESS_BYTES_MAX)),
        ] {
            assert!(authorization(&egress, bad).await.is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn no_address_of_the_corpus_reaches_a_browser() {
        let root = std::env::var_os("PORTCULLIS_SHARED").map(PathBuf::from);
        let root = root.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
        let Ok(text) = std::fs::read_to_string(root.join("fixtures/corpora/oauth_urls.jsonl")) else {
            eprintln!("skipped: oauth_urls.jsonl is not there");
            return;
        };
        let egress = egress();
        let (mut all, mut weak) = (0, 0);
        for line in text.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let address = case["authorization_endpoint"].as_str().unwrap();
            assert!(authorization(&egress, address).await.is_err(), "{address}");
            all += 1;
            // A check of the scheme alone would accept some: the corpus can tell the difference.
            weak += usize::from(Url::parse(address).is_ok_and(|url| url.scheme().starts_with("http")));
        }
        eprintln!("figure: {all} addresses, 0 reach a browser; with the scheme alone {weak}");
        assert!(all > 0 && weak > 0);
    }

    #[test]
    fn a_token_is_for_one_server() {
        let server = Url::parse("https://mcp.example.com/v1/mcp").unwrap();
        for good in [
            "https://mcp.example.com/v1/mcp",
            "https://mcp.example.com/v1/",
            "https://mcp.example.com",
            "https://MCP.example.com:443/v1",
        ] {
            assert!(is_resource_of(good, &server), "{good}");
        }
        for bad in [
            "https://evil.example.com/v1/mcp",
            "http://mcp.example.com/v1/mcp",
            "https://mcp.example.com:8443/v1/mcp",
            "https://mcp.example.com/v1/mcp/more",
            "https://mcp.example.com/v1/m",
            "https://mcp.example.com/v1/mcp#x",
            "https://mcp.example.com/v1/mcp?x=1",
            "https://mcp.example.com@evil.example.com/v1/mcp",
            "urn:mcp",
            "",
        ] {
            assert!(!is_resource_of(bad, &server), "{bad}");
        }
    }
}
