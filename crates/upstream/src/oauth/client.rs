//! OAuth client of the hub at an authorization server: configured, a client metadata document, or dynamically
//! registered. In this order, as the specification requires.

use super::discovery::AuthorizationServer;
use super::error::OAuthError;
use super::login_store::{ClientKind, Login, TokenMethod};
use super::{ClientSecret, OAuthSpec};
use crate::sanitize::one_line;
use portcullis_core::Secret;
use portcullis_egress::{EgressClient, SecretEscaping, SecretTemplate, Url, header};
use serde::Deserialize;
use serde_json::json;

/// The longest registration response. Servers repeat what was registered.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The longest client id.
const CLIENT_ID_BYTES_MAX: usize = 2 * 1024;
const WHAT: &str = "the registration of this hub";

/// A client of one authorization server.
#[derive(Debug, Clone)]
pub(super) struct OAuthClient {
    pub(super) kind: ClientKind,
    pub(super) id: String,
    pub(super) secret: Option<Secret<String>>,
    pub(super) method: TokenMethod,
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

/// Returns the client, registered if need be. `known` is the previous login.
pub(super) async fn client(
    egress: &EgressClient,
    spec: &OAuthSpec,
    server: &AuthorizationServer,
    redirect_uri: &str,
    known: Option<&Login>,
) -> Result<OAuthClient, OAuthError> {
    if let Some(id) = &spec.client_id {
        return configured(id, spec.client_secret.as_ref(), server);
    }
    if let Some(document) = spec.client_metadata_url.as_ref().filter(|_| server.takes_documents) {
        let (kind, method) = (ClientKind::Document, TokenMethod::None);
        return Ok(OAuthClient { kind, id: document.clone(), secret: None, method });
    }
    // Registered with this issuer and this redirect URI, or useless.
    let fits = |login: &&Login| {
        let about = &login.about;
        about.client == ClientKind::Registered
            && !about.client_gone
            && about.issuer == server.issuer
            && about.redirect_uri == redirect_uri
    };
    if let Some(login) = known.filter(fits) {
        return Ok(OAuthClient {
            kind: ClientKind::Registered,
            id: login.about.client_id.clone(),
            secret: login.client_secret.clone(),
            method: login.about.token_method,
        });
    }
    match &server.registration {
        Some(registration) => register(egress, server, registration, redirect_uri).await,
        None => Err(unregistered(spec, server)),
    }
}

/// Checks whether a client can be had without a person.
pub(super) fn can_be_client(spec: &OAuthSpec, server: &AuthorizationServer) -> Result<(), OAuthError> {
    let by_document = spec.client_metadata_url.is_some() && server.takes_documents;
    if spec.client_id.is_some() || by_document || server.registration.is_some() {
        return Ok(());
    }
    Err(unregistered(spec, server))
}

fn unregistered(spec: &OAuthSpec, server: &AuthorizationServer) -> OAuthError {
    let (issuer, name) = (one_line(&server.issuer), &spec.name);
    OAuthError::Unregistered(format!(
        "`{issuer}` accepts only clients that a person registered there; set `mcp.{name}.oauth.client_id` to one"
    ))
}

fn configured(
    id: &str,
    secret: Option<&ClientSecret>,
    server: &AuthorizationServer,
) -> Result<OAuthClient, OAuthError> {
    let kind = ClientKind::Configured;
    let Some(secret) = secret else {
        return Ok(OAuthClient { kind, id: id.to_owned(), secret: None, method: TokenMethod::None });
    };
    let secret = Some(secret_for(secret, &server.token)?);
    Ok(OAuthClient { kind, id: id.to_owned(), secret, method: method_with_secret(server) })
}

/// Looks up a configured secret, for the host of the token endpoint and no other.
pub(super) fn secret_for(secret: &ClientSecret, token_endpoint: &str) -> Result<Secret<String>, OAuthError> {
    let host = Url::parse(token_endpoint).ok().and_then(|url| url.host_str().map(str::to_owned));
    let host = host.ok_or_else(|| OAuthError::malformed("the token endpoint", "it has no host"))?;
    (secret.0)(&host).map_err(OAuthError::Store)
}

/// Returns how a secret is sent: in a header unless only the form is supported.
fn method_with_secret(server: &AuthorizationServer) -> TokenMethod {
    let offers = |method: TokenMethod| {
        server.token_methods.as_ref().is_none_or(|methods| methods.iter().any(|m| m == method.as_str()))
    };
    [TokenMethod::Basic, TokenMethod::Post]
        .into_iter()
        .find(|method| offers(*method))
        .unwrap_or(TokenMethod::Basic)
}

async fn register(
    egress: &EgressClient,
    server: &AuthorizationServer,
    registration: &str,
    redirect_uri: &str,
) -> Result<OAuthClient, OAuthError> {
    // A program on a person's machine keeps no secret from them; one is used where nothing else is supported.
    let public = server.token_methods.as_ref().is_none_or(|methods| methods.iter().any(|m| m == "none"));
    let asked = if public { TokenMethod::None } else { method_with_secret(server) };
    let about = json!({
        "client_name": "Portcullis",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": asked.as_str(),
    });
    let request = egress
        .post(registration)
        .header(header::ACCEPT, SecretTemplate::text("application/json"))
        .body("application/json", SecretTemplate::text(about.to_string()), SecretEscaping::AsIs)
        .bytes_max(ANSWER_BYTES_MAX);
    let answer =
        request.send().await.map_err(OAuthError::reach("the registration endpoint", registration))?;
    let body = answer.body.unwrap_or_default();
    if !matches!(answer.status, 200 | 201) {
        return Err(super::error_response::refusal(WHAT, answer.status, &body));
    }
    let registered: RegistrationResponse = serde_json::from_slice(&body)
        .map_err(|_| OAuthError::malformed("the registration response", "it names no client"))?;
    if registered.client_id.is_empty() || registered.client_id.len() > CLIENT_ID_BYTES_MAX {
        return Err(OAuthError::malformed("the registration response", "the client id is empty or too long"));
    }
    let said = registered.token_endpoint_auth_method.as_deref().map(|text| {
        let unknown = || {
            OAuthError::malformed(
                "the registration response",
                "it requires an unsupported authentication method",
            )
        };
        TokenMethod::parse(text).ok_or_else(unknown)
    });
    let method = said.transpose()?.unwrap_or(asked);
    let secret = registered.client_secret.filter(|secret| !secret.is_empty() && method != TokenMethod::None);
    if method != TokenMethod::None && secret.is_none() {
        return Err(OAuthError::malformed(
            "the registration response",
            "it requires a secret and issues none",
        ));
    }
    let (kind, id) = (ClientKind::Registered, registered.client_id);
    Ok(OAuthClient { kind, id, secret: secret.map(Secret::new), method })
}
