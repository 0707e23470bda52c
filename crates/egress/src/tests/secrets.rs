//! A secret is sent to its host and field, and appears nowhere else.

use super::reaching;
use super::site::{LoopbackSite, answer, redirect};
use crate::{SecretEscaping, SecretSource, SecretTemplate, header};
use parking_lot::Mutex;
use portcullis_core::{Secret, ToolError};
use portcullis_store::secrets::{SecretError, SecretRef};
use std::sync::Arc;

const VALUE: &str = "s3cr\"et/v&lue";

/// Grants one secret for some fields of one host, and records each lookup.
struct Grants {
    fields: &'static [&'static str],
    asked: Mutex<Vec<String>>,
}

impl SecretSource for Grants {
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        self.asked.lock().push(format!("{name} {host} {field}"));
        if host == "127.0.0.1" && self.fields.contains(&field) {
            return Ok(Secret::new(VALUE.to_owned()));
        }
        let (name, host, field) = (name.to_owned(), host.to_owned(), field.to_owned());
        Err(SecretError::NotGranted { name, host, field })
    }
}

fn grants(fields: &'static [&'static str]) -> Arc<Grants> {
    Arc::new(Grants { fields, asked: Mutex::default() })
}

fn handle() -> SecretRef {
    "secret:TOKEN".parse().unwrap()
}

#[tokio::test]
async fn a_secret_is_put_in_when_it_is_sent_and_written_for_its_place() {
    let site = LoopbackSite::open(|_| answer(200, &[], "ok")).await;
    let client = reaching(&[site.place()], grants(&["authorization", "url", "body"]));
    let body =
        SecretTemplate::text("{\"a\":\"secret:TOKEN\",\"key\":\"").then_secret(handle()).then_text("\"}");
    let value = SecretTemplate::text("Bearer ").then_secret(handle());
    assert_eq!(format!("{value:?}"), "Bearer secret:TOKEN");
    let fetched = client
        .post(&site.url("/bot-secret:TOKEN/send?key=secret:TOKEN&x=secret:OTHER"))
        .secret_in_url(handle())
        .header(header::AUTHORIZATION, value)
        .body("application/json", body, SecretEscaping::Json)
        .send()
        .await
        .unwrap();
    let request = &site.asked()[0];
    let line = request.lines().next().unwrap();
    assert_eq!(line, "POST /bot-s3cr%22et%2Fv%26lue/send?key=s3cr%22et%2Fv%26lue&x=secret:OTHER HTTP/1.1");
    assert!(request.contains("authorization: Bearer s3cr\"et/v&lue\r\n"), "{request}");
    // Text that looks like a reference stays text.
    assert!(request.ends_with("{\"a\":\"secret:TOKEN\",\"key\":\"s3cr\\\"et/v&lue\"}"), "{request}");
    assert!(!format!("{fetched:?}").contains("s3cr"), "{fetched:?}");
}

#[tokio::test]
async fn a_secret_goes_nowhere_else() {
    let other = LoopbackSite::open(|_| answer(200, &[], "ok")).await;
    let to = other.url("/?stolen=secret:TOKEN");
    let site = LoopbackSite::open(move |_| redirect(302, &to)).await;
    let source = grants(&["x-key", "url"]);
    let client = reaching(&[site.place(), other.place()], source.clone());
    let named = || client.get(&site.url("/secret:TOKEN")).secret_in_url(handle());
    named()
        .header(header::HeaderName::from_static("x-key"), SecretTemplate::secret(handle()))
        .send()
        .await
        .unwrap();
    assert!(site.asked()[0].contains("s3cr"));
    assert!(
        !other.asked()[0].contains("s3cr") && other.asked()[0].contains("stolen=secret:TOKEN"),
        "{:?}",
        other.asked()
    );
    assert_eq!(source.asked.lock().len(), 2, "not resolved for the other origin");
}

#[tokio::test]
async fn without_a_grant_nothing_is_sent() {
    let site = LoopbackSite::open(|_| answer(200, &[], "ok")).await;
    let client = reaching(&[site.place()], grants(&["x-other"]));
    let refused = client
        .get(&site.url("/"))
        .header(header::AUTHORIZATION, SecretTemplate::secret(handle()))
        .send()
        .await;
    let error = ToolError::from(refused.unwrap_err());
    assert_eq!(
        error.to_string(),
        "denied: secret `TOKEN` is not granted for `authorization` at `127.0.0.1`; a person can allow it: portcullis secrets grant TOKEN '127.0.0.1:authorization'"
    );
    assert_eq!(site.asked().len(), 0);
    // No secret is resolved for a URL that is refused.
    let source = grants(&["authorization"]);
    let client = reaching(&[], source.clone());
    let refused = client
        .get("https://127.0.0.1/")
        .header(header::AUTHORIZATION, SecretTemplate::secret(handle()))
        .send()
        .await;
    assert_eq!(refused.unwrap_err().to_string(), "`127.0.0.1` has no public address");
    assert_eq!(source.asked.lock().len(), 0);
}
