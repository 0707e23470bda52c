//! Error responses of an authorization server (RFC 6749), in its own words.

use super::error::OAuthError;
use crate::sanitize::one_line;
use serde::Deserialize;

/// What errors of it are called.
pub(super) const TOKEN_ENDPOINT: &str = "the token endpoint";
/// Errors that are temporary.
const PASSING: [&str; 3] = ["server_error", "temporarily_unavailable", "slow_down"];

#[derive(Deserialize)]
struct TokenErrorResponse {
    error: String,
    error_description: Option<String>,
}

/// Returns whether the body of a response is an error, whatever its status.
pub(super) fn is_error_response(body: &[u8]) -> bool {
    serde_json::from_slice::<TokenErrorResponse>(body).is_ok()
}

/// Returns why there are no tokens, in the words of the issuer. A temporary error is no refusal.
pub(super) fn refusal(what: &'static str, status: u16, body: &[u8]) -> OAuthError {
    let said = serde_json::from_slice::<TokenErrorResponse>(body).ok();
    let code = said.as_ref().map(|said| said.error.as_str());
    if status >= 500 || status == 429 || code.is_some_and(|code| PASSING.contains(&code)) {
        let said = code.map(|code| format!(": {}", one_line(code))).unwrap_or_default();
        let why = format!("it answered {status}{}{said}", portcullis_egress::reason(status));
        return OAuthError::Unreachable { what: TOKEN_ENDPOINT, why };
    }
    match said {
        Some(said) => OAuthError::refused(what, &said.error, said.error_description.as_deref()),
        None => {
            let code = format!("{status}{}", portcullis_egress::reason(status));
            OAuthError::refused(what, &code, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_pass_is_no_refusal() {
        let refusal = |status: u16, body: &str| refusal("the tokens", status, body.as_bytes());
        for (status, body) in [
            (503, "<html>"),
            (503, r#"{"error":"temporarily_unavailable"}"#),
            (500, r#"{"error":"invalid_grant"}"#),
            (429, r#"{"error":"rate_limited"}"#),
            (400, r#"{"error":"slow_down"}"#),
        ] {
            let error = refusal(status, body);
            assert!(matches!(error, OAuthError::Unreachable { .. }), "{status} {body}: {error}");
        }
        for (status, body) in [(400, r#"{"error":"invalid_grant"}"#), (401, "no"), (200, r#"{"error":"no"}"#)]
        {
            let error = refusal(status, body);
            assert!(matches!(error, OAuthError::Refused { .. }), "{status} {body}: {error}");
        }
    }
}
