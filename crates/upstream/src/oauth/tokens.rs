//! Token endpoint: codes and refresh tokens become access tokens.

use super::client::OAuthClient;
use super::error::OAuthError;
use super::error_response::{TOKEN_ENDPOINT, is_error_response, refusal};
use super::login_store::{RENEW_BEFORE, TokenMethod};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::{Clock, Secret};
use portcullis_egress::{EgressClient, SecretEscaping, SecretTemplate, header};
use serde::Deserialize;
use std::time::Duration;
use url::form_urlencoded;

/// The longest token response. Two of the longest tokens fit.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The longest token that still fits in a header.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// A token that lives longer is renewed after this time all the same.
const LIFETIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A successful token response.
pub(super) struct TokenGrant {
    pub(super) access_token: Secret<String>,
    pub(super) refresh_token: Option<Secret<String>>,
    /// Seconds since the epoch.
    pub(super) expires_at: Option<u64>,
    /// Before the expiry, so that no call sees an expired token.
    pub(super) renew_at: Option<u64>,
    /// The granted scopes, where the response names them.
    pub(super) scopes: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<String>,
    scope: Option<serde_json::Value>,
}

/// Requests tokens. `parts` are the parameters of the grant.
pub(super) async fn request(
    egress: &EgressClient,
    clock: &dyn Clock,
    endpoint: &str,
    client: &OAuthClient,
    parts: &[(&str, &str)],
) -> Result<TokenGrant, OAuthError> {
    let (status, body) = post(egress, TOKEN_ENDPOINT, endpoint, client, parts).await?;
    if status != 200 {
        return Err(refusal("the tokens", status, &body));
    }
    granted(&body, clock)
}

/// Revokes a token (RFC 7009).
pub(super) async fn revoke(
    egress: &EgressClient,
    endpoint: &str,
    client: &OAuthClient,
    kind: &str,
    token: &Secret<String>,
) -> Result<(), OAuthError> {
    let parts = [("token", token.expose().as_str()), ("token_type_hint", kind)];
    let (status, body) = post(egress, "the revocation endpoint", endpoint, client, &parts).await?;
    match status {
        200 => Ok(()),
        status => Err(refusal("to revoke a token", status, &body)),
    }
}

/// Sends a form with the client's authentication. Returns the status and the body of the response.
async fn post(
    egress: &EgressClient,
    whom: &'static str,
    endpoint: &str,
    client: &OAuthClient,
    parts: &[(&str, &str)],
) -> Result<(u16, Vec<u8>), OAuthError> {
    let (form, authorization) = written(client, parts);
    let mut request = egress.post(endpoint).header(header::ACCEPT, SecretTemplate::text("application/json"));
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, SecretTemplate::text(authorization));
    }
    let request =
        request.body("application/x-www-form-urlencoded", SecretTemplate::text(form), SecretEscaping::AsIs);
    let answer =
        request.bytes_max(ANSWER_BYTES_MAX).send().await.map_err(OAuthError::reach(whom, endpoint))?;
    // A redirect would forward the form.
    if !answer.redirects.is_empty() {
        return Err(OAuthError::malformed(whom, "it redirects"));
    }
    Ok((answer.status, answer.body.unwrap_or_default()))
}

/// Returns the form, and the authentication header of the client.
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

fn granted(body: &[u8], clock: &dyn Clock) -> Result<TokenGrant, OAuthError> {
    const WHAT: &str = "the token response";
    let answer: TokenResponse = serde_json::from_slice(body).map_err(|_| {
        // Some servers refuse with a status of success.
        match is_error_response(body) {
            true => refusal("the tokens", 200, body),
            false => OAuthError::malformed(WHAT, "it is not JSON with a token and its type"),
        }
    })?;
    let refresh_token = answer.refresh_token.filter(|token| !token.is_empty());
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(OAuthError::malformed(WHAT, "the token is not a bearer token"));
    }
    for token in std::iter::once(&answer.access_token).chain(&refresh_token) {
        // It goes into a header, and the store cannot redact what is too short.
        let fits = (portcullis_store::secrets::VALUE_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len());
        if !fits || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(OAuthError::malformed(WHAT, "a token is too short, too long or not plain text"));
        }
    }
    let lifetime = answer.expires_in.and_then(|value| match value {
        serde_json::Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        // Against the specification, but some servers write it so.
        serde_json::Value::String(text) => text.parse().ok(),
        _ => None,
    });
    let now = clock.since_epoch();
    let lifetime = lifetime.map(|seconds| Duration::from_secs(seconds).min(LIFETIME_MAX));
    let expires_at = lifetime.map(|lifetime| (now + lifetime).as_secs());
    let renew_at = lifetime.map(|lifetime| (now + lifetime - RENEW_BEFORE.min(lifetime / 2)).as_secs());
    let scopes = answer.scope.as_ref().and_then(serde_json::Value::as_str).map(super::scopes);
    Ok(TokenGrant {
        scopes: scopes.filter(|scopes| !scopes.is_empty()),
        access_token: Secret::new(answer.access_token),
        refresh_token: refresh_token.map(Secret::new),
        expires_at,
        renew_at,
    })
}

/// Returns the whole seconds of a fractional time.
fn whole(seconds: f64) -> Option<u64> {
    Duration::try_from_secs_f64(seconds).ok().map(|time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::SystemClock;
    use std::time::SystemTime;

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
            r#"{"error":"invalid_grant"}"#,
            "<html>",
        ] {
            assert!(!taken(bad), "{bad}");
        }
        let long =
            format!(r#"{{"access_token":"{}","token_type":"bearer"}}"#, "a".repeat(TOKEN_BYTES_MAX + 1));
        assert!(!taken(&long));
        let empty = r#"{"access_token":"abcdefgh","refresh_token":"","token_type":"bearer"}"#;
        assert!(granted(empty.as_bytes(), &SystemClock).unwrap().refresh_token.is_none());
        let forever =
            r#"{"access_token":"abcdefgh","token_type":"bearer","expires_in":18446744073709551615}"#;
        let expires_at = granted(forever.as_bytes(), &SystemClock).unwrap().expires_at.unwrap();
        assert!(expires_at <= (SystemClock.since_epoch() + LIFETIME_MAX).as_secs());
    }

    #[test]
    fn a_token_is_renewed_a_minute_before_it_expires_or_after_half_of_its_life() {
        let times = |expires_in: &str| {
            let body =
                format!(r#"{{"access_token":"abcdefgh","token_type":"bearer","expires_in":{expires_in}}}"#);
            let granted = granted(body.as_bytes(), &Fixed).unwrap();
            (granted.renew_at, granted.expires_at)
        };
        assert_eq!(times("3600"), (Some(1_000 + 3_540), Some(1_000 + 3_600)));
        assert_eq!(times("3600.5"), (Some(1_000 + 3_540), Some(1_000 + 3_600)));
        assert_eq!(times("60"), (Some(1_000 + 30), Some(1_000 + 60)));
        assert_eq!(times("0"), (Some(1_000), Some(1_000)));
        for unknown in ["-1", "null", "[]", "true", "\"soon\"", "-1.5"] {
            assert_eq!(times(unknown), (None, None), "{unknown}");
        }
    }

    /// A clock that stands still.
    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_000)
        }
    }
}
