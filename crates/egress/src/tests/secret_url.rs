//! A secret URL appears in no response and no error.

use super::reaching;
use super::site::{LoopbackSite, answer, redirect};
use crate::{EgressError, NoSecrets, SecretSource, SecretUrl, certificates, header};
use portcullis_core::{ErrorKind, Secret, ToolError};
use portcullis_store::secrets::SecretError;
use std::sync::Arc;

/// A source with one URL.
struct Kept(String);

impl SecretSource for Kept {
    fn resolve_for(&self, name: &str, _: &str, _: &str) -> Result<Secret<String>, SecretError> {
        Err(SecretError::Unknown(name.to_owned()))
    }

    fn resolve_address(&self, name: &str) -> Result<Secret<String>, SecretError> {
        match name {
            "FEED" => Ok(Secret::new(self.0.clone())),
            _ => Err(SecretError::Unknown(name.to_owned())),
        }
    }
}

fn given(address: &str) -> SecretUrl {
    SecretUrl::Given(Secret::new(address.to_owned()))
}

#[tokio::test]
async fn what_comes_back_has_no_place_for_an_address() {
    let site = LoopbackSite::open(|request| match request.split(' ').nth(1).unwrap_or_default() {
        "/private-key/me.ics" => redirect(302, "/private-key/there.ics"),
        _ if request.contains("if-none-match: \"v1\"") => answer(304, &[("etag", "\"v1\"")], ""),
        _ => answer(
            200,
            &[("etag", "\"v1\""), ("content-location", "/private-key/there.ics")],
            "BEGIN:VCALENDAR",
        ),
    })
    .await;
    let client = reaching(&[site.place()], Arc::new(Kept(site.url("/private-key/me.ics"))));
    let address = SecretUrl::Stored("secret:FEED".parse().unwrap());
    let first = client.get_secret_url(&address, "the feed").send().await.unwrap();
    assert_eq!((first.status, first.body.as_deref()), (200, Some(&b"BEGIN:VCALENDAR"[..])));
    assert!(!format!("{first:?} {address:?} {:?}", given("https://a/private-key")).contains("private-key"));
    let again =
        client.get_secret_url(&address, "the feed").header(header::IF_NONE_MATCH, first.etag.unwrap());
    let again = again.send().await.unwrap();
    assert_eq!((again.status, again.body), (304, None));
}

#[tokio::test]
async fn no_failure_says_where() {
    let site = LoopbackSite::open(|request| match request.split(' ').nth(1).unwrap_or_default() {
        "/private-key/gone" => redirect(302, "http://10.0.0.1/private-key"),
        "/private-key/circle" => redirect(302, "/private-key/circle"),
        "/private-key/nonsense" => b"220 private-key ESMTP\r\n".to_vec(),
        "/private-key/packed" => answer(200, &[("content-encoding", "private-key")], "x"),
        _ => answer(200, &[], "x".repeat(100)),
    })
    .await;
    let client = reaching(&[site.place()], Arc::new(NoSecrets));
    let mut said = Vec::new();
    for address in [
        "private-key://example.com/".to_owned(),
        "private-key".to_owned(),
        "http://private-key.example/".to_owned(),
        "https://user:private-key@example.com/".to_owned(),
        "https://private-key.example:4433/".to_owned(),
        "https://10.0.0.1/private-key".to_owned(),
        "webcal://10.0.0.1/private-key".to_owned(),
        format!("https://example.com/{}", "private-key".repeat(1_000)),
        site.url("/private-key/gone"),
        site.url("/private-key/circle"),
        site.url("/private-key/nonsense"),
        site.url("/private-key/packed"),
        site.url("/private-key/large"),
    ] {
        let error =
            client.get_secret_url(&given(&address), "the feed").bytes_max(50).send().await.unwrap_err();
        assert!(matches!(error, EgressError::Hidden { .. }), "{error}");
        let tool_error = ToolError::from(error);
        // Including the reason, which goes to the log.
        let all = format!("{tool_error:?} {:?}", tool_error.hints);
        for part in ["private-key", "127.0.0.1", "10.0.0.1", "example", "4433"] {
            assert!(!all.contains(part), "{part}: {all}");
        }
        assert!(!tool_error.hints.is_empty());
        said.push(tool_error.message);
    }
    insta::assert_snapshot!(said.join("\n"), @"
    the feed has a URL without https://
    the feed has an invalid URL
    the feed has a URL without https://
    the feed has a URL with a user name or password
    the feed has a URL with an unusual port
    the feed has no public address
    the feed has no public address
    the feed has an invalid URL
    the feed redirects to a URL that is refused
    the feed redirects to a URL that is refused
    the feed sent an invalid HTTP response
    the feed sent an invalid HTTP response
    the feed is too large
    ");
    // Control: the same errors for a URL that is not secret do name it.
    let open = client.get("https://private-key.example:4433/").send().await.unwrap_err().to_string();
    let shown = client.get("http://10.0.0.1/private-key").send().await.unwrap_err().to_string();
    assert!(open.contains("4433") || shown.contains("10.0.0.1"), "{open} {shown}");
}

#[tokio::test]
async fn a_secret_that_is_missing_is_named() {
    let client = reaching(&[], Arc::new(Kept(String::new())));
    let address = SecretUrl::Stored("secret:OTHER".parse().unwrap());
    let error = ToolError::from(client.get_secret_url(&address, "the feed").send().await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains("`OTHER`"), "{}", error.message);
}

#[test]
fn certificates_are_read_all_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str| {
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, text).unwrap();
        certificates(&path).map(|found| found.len()).map_err(|error| error.to_string())
    };
    let der = include_bytes!("certificates/authority.der");
    let base64 = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der);
    let pem = format!("# Our own\n-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
    assert_eq!(read(&pem), Ok(1));
    assert_eq!(read(&pem.repeat(3)), Ok(3));
    assert!(read("nothing").unwrap_err().starts_with("the file contains no PEM certificate"));
    let broken = pem.clone() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(
        read(&broken).unwrap_err().starts_with("certificate 2 in the file is invalid"),
        "{:?}",
        read(&broken)
    );
    assert_eq!(read(&"#".repeat(2 << 20)).unwrap_err(), "the file is larger than 1048576 bytes");
    assert!(
        certificates(&folder.path().join("none"))
            .unwrap_err()
            .to_string()
            .starts_with("the file cannot be read")
    );
}
