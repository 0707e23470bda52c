//! Codes and refresh tokens become access tokens.

use super::client::OAuthClient;
use super::error::OAuthError;
use super::keep::TokenMethod;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::{Clock, Secret};
use portcullis_egress::{Egress, Escape, Fill, header};
use serde::Deserialize;
use std::time::Duration;
use url::form_urlencoded;

/// An answer with tokens. Two of the longest fit.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// What still fits in a header that servers take.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// A token that lives longer is renewed after this time all the same.
const LIFETIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
const WHERE: &str = "the place where tokens are";

/// What came of a code or a refresh token.
pub(super) struct Granted {
    pub(super) access_token: Secret<String>,
    pub(super) refresh_token: Option<Secret<String>>,
    /// Seconds since the epoch.
    pub(super) expires_at: Option<u64>,
    /// What they are good for, where the answer says so.
    pub(super) scopes: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: String,
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<String>,
    scope: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: String,
    error_description: Option<String>,
}

/// Asks for tokens. `parts` is what the grant needs besides the client.
pub(super) async fn request(
    egress: &Egress,
    clock: &dyn Clock,
    endpoint: &str,
    client: &OAuthClient,
    parts: &[(&str, &str)],
) -> Result<Granted, OAuthError> {
    let (status, body) = post(egress, WHERE, endpoint, client, parts).await?;
    if status != 200 {
        return Err(told("the tokens", status, &body));
    }
    granted(&body, clock)
}

/// Tells the issuer that a token is not needed any more (RFC 7009).
pub(super) async fn revoke(
    egress: &Egress,
    endpoint: &str,
    client: &OAuthClient,
    kind: &str,
    token: &Secret<String>,
) -> Result<(), OAuthError> {
    let parts = [("token", token.expose().as_str()), ("token_type_hint", kind)];
    let (status, body) = post(egress, "the place where tokens are revoked", endpoint, client, &parts).await?;
    match status {
        200 => Ok(()),
        status => Err(told("to revoke a token", status, &body)),
    }
}

/// Sends a form, with what shows who the client is. Returns the status and the body of the answer.
async fn post(
    egress: &Egress,
    whom: &'static str,
    endpoint: &str,
    client: &OAuthClient,
    parts: &[(&str, &str)],
) -> Result<(u16, Vec<u8>), OAuthError> {
    let (form, authorization) = written(client, parts);
    let mut request = egress.post(endpoint).header(header::ACCEPT, Fill::text("application/json"));
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, Fill::text(authorization));
    }
    let request = request.body("application/x-www-form-urlencoded", Fill::text(form), Escape::AsIs);
    let answer = request.bytes_max(ANSWER_BYTES_MAX).send().await.map_err(OAuthError::reach(whom))?;
    // Whoever sends us on sends what is in the form on.
    if !answer.redirects.is_empty() {
        return Err(OAuthError::malformed(whom, "it sends us elsewhere"));
    }
    Ok((answer.status, answer.body.unwrap_or_default()))
}

/// Returns the form, and the header by which the client shows who it is.
fn written(client: &OAuthClient, parts: &[(&str, &str)]) -> (String, Option<String>) {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(parts);
    let mut authorization = None;
    match (client.method, &client.secret) {
        (TokenMethod::Basic, Some(secret)) => {
            let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encoded(&client.id), encoded(secret.expose()));
            authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
        }
        (TokenMethod::Post, Some(secret)) => {
            form.append_pair("client_id", &client.id).append_pair("client_secret", secret.expose());
        }
        (TokenMethod::None, _) | (_, None) => {
            form.append_pair("client_id", &client.id);
        }
    }
    (form.finish(), authorization)
}

/// Says why there are no tokens, in the words of whoever refused them.
pub(super) fn told(what: &'static str, status: u16, body: &[u8]) -> OAuthError {
    match serde_json::from_slice::<ErrorAnswer>(body) {
        Ok(said) => OAuthError::refused(what, &said.error, said.error_description.as_deref()),
        Err(_) if status >= 500 || status == 429 => {
            let why = format!("it answered {status}{}", portcullis_egress::reason(status));
            OAuthError::Unreachable { what: WHERE, why }
        }
        Err(_) => {
            let code = format!("{status}{}", portcullis_egress::reason(status));
            OAuthError::refused(what, &code, None)
        }
    }
}

fn granted(body: &[u8], clock: &dyn Clock) -> Result<Granted, OAuthError> {
    const WHAT: &str = "the answer with the tokens";
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| OAuthError::malformed(WHAT, "it is not JSON with a token and its kind"))?;
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(OAuthError::malformed(WHAT, "the token is not a bearer token"));
    }
    for token in std::iter::once(&answer.access_token).chain(&answer.refresh_token) {
        // It goes into a header, and what is too short for the store could not be masked.
        let fits = (portcullis_store::secrets::VALUE_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len());
        if !fits || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(OAuthError::malformed(WHAT, "a token is too short, too long or not plain text"));
        }
    }
    let lifetime = answer.expires_in.and_then(|value| match value {
        serde_json::Value::Number(number) => number.as_u64(),
        // Not as it should be, but some servers write it so.
        serde_json::Value::String(text) => text.parse().ok(),
        _ => None,
    });
    let now = clock.since_epoch();
    let expires_at = lifetime.map(|seconds| (now + Duration::from_secs(seconds).min(LIFETIME_MAX)).as_secs());
    let scopes = answer.scope.as_ref().and_then(serde_json::Value::as_str).map(super::scopes);
    Ok(Granted {
        scopes: scopes.filter(|scopes| !scopes.is_empty()),
        access_token: Secret::new(answer.access_token),
        refresh_token: answer.refresh_token.map(Secret::new),
        expires_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::SystemClock;

    #[test]
    fn only_tokens_that_can_be_sent_and_masked_are_taken() {
        let taken = |body: &str| granted(body.as_bytes(), &SystemClock).is_ok();
        assert!(taken(r#"{"access_token":"abcdefgh","token_type":"bearer"}"#));
        assert!(taken(r#"{"access_token":"abcdefgh","token_type":"Bearer","expires_in":"60","scope":"a"}"#));
        for bad in [
            r#"{"access_token":"short","token_type":"bearer"}"#,
            r#"{"access_token":"abcdefgh","token_type":"DPoP"}"#,
            r#"{"access_token":"abcdefgh"}"#,
            r#"{"access_token":"abcd efgh","token_type":"bearer"}"#,
            r#"{"access_token":"abcd\r\nX: y","token_type":"bearer"}"#,
            r#"{"access_token":"abcdefgh","refresh_token":"x","token_type":"bearer"}"#,
            "<html>",
        ] {
            assert!(!taken(bad), "{bad}");
        }
        let long =
            format!(r#"{{"access_token":"{}","token_type":"bearer"}}"#, "a".repeat(TOKEN_BYTES_MAX + 1));
        assert!(!taken(&long));
        let forever =
            r#"{"access_token":"abcdefgh","token_type":"bearer","expires_in":18446744073709551615}"#;
        let expires_at = granted(forever.as_bytes(), &SystemClock).unwrap().expires_at.unwrap();
        assert!(expires_at <= (SystemClock.since_epoch() + LIFETIME_MAX).as_secs());
    }
}
