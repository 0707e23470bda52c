//! One login: from a refusal through the browser to tokens.

use super::account::Account;
use super::callback::CallbackListener;
use super::challenge::Challenge;
use super::client::{self, OAuthClient};
use super::discovery::{self, AuthDiscovery, AuthorizationServer};
use super::error::OAuthError;
use super::login_store::{Login, LoginMetadata};
use super::{LoginPrompt, OAuthSpec, scopes, tokens, union};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_core::json::printable;
use portcullis_egress::{EgressClient, SecretEscaping, SecretTemplate, Url, header};
use sha2::{Digest, Sha256};

/// The scope by which some authorization servers issue a refresh token.
const OFFLINE: &str = "offline_access";

/// Sends a request without a token, for its challenge. It has the configured headers: some servers do not even
/// refuse without.
pub(super) async fn probe(egress: &EgressClient, spec: &OAuthSpec) -> Result<Challenge, OAuthError> {
    const ASKED: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"portcullis","version":"0"}}}"#;
    let mut request = egress
        .post(spec.url.as_str())
        .header(header::ACCEPT, SecretTemplate::text("application/json, text/event-stream"))
        .body("application/json", SecretTemplate::text(ASKED), SecretEscaping::AsIs)
        .body_if(|_, _| false);
    for own in spec.headers.iter().filter(|own| own.name != header::AUTHORIZATION) {
        let value = (own.values.0)(&own.written);
        let value = value.map_err(|why| OAuthError::Store(format!("`headers.{}`: {why}", own.name)))?;
        request = request.header_same_origin(own.name.clone(), SecretTemplate::text(value));
    }
    let answer = request.send().await.map_err(OAuthError::reach("the server", spec.url.as_str()))?;
    let said =
        answer.headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let said = said.collect::<Vec<_>>().join(", ");
    Ok(if answer.status == 401 { Challenge::parse(&said) } else { Challenge::default() })
}

/// Lets a person log in. `new` are scopes besides the usual ones.
pub(super) async fn log_in(
    account: &Account,
    known: Option<Login>,
    challenge: &Challenge,
    new: Vec<String>,
    prompt: &dyn LoginPrompt,
) -> Result<Login, OAuthError> {
    let (spec, egress) = (&account.spec, &account.egress);
    // A code is valid once, and a registration is permanent: neither is used in vain.
    account.prepare().await?;
    let found = discovery::discover(egress, &spec.url, challenge.resource_metadata.as_deref()).await?;
    // A client of another issuer is useless here, and must not be disclosed.
    let known = known.filter(|login| login.about.issuer == found.server.issuer);
    let asked = wanted(spec.scope.as_deref(), challenge, &found, known.as_ref(), &new);
    let stepped = known.as_ref().map(|login| login.about.stepped.as_slice()).unwrap_or_default();
    let stepped = union(stepped, &new);
    let callback = listen(spec.callback_port, known.as_ref()).await?;
    let redirect_uri = callback.redirect_uri();
    let client = client::client(egress, spec, &found.server, &redirect_uri, known.as_ref()).await?;
    // An issuer that has forgotten it shows the person an error and does not redirect.
    let is_from_before = client.kind == super::ClientKind::Registered
        && known.as_ref().is_some_and(|login| login.about.client_id == client.id);
    let (state, verifier) = (random()?, random()?);
    let page = page(&found, &client, &redirect_uri, &state, &verifier, &asked);
    let code = {
        let waiting = callback.wait(&state);
        tokio::pin!(waiting);
        // The browser may be back before `show` returns.
        let brought = tokio::select! {
            brought = &mut waiting => brought,
            shown = prompt.show(page.as_str()) => match shown {
                Ok(()) => waiting.await,
                Err(why) => Err(OAuthError::Unfinished(why)),
            },
        };
        let brought = brought.map_err(|error| match error {
            OAuthError::Unfinished(why) if is_from_before => OAuthError::Unfinished(format!(
                "{why}; if the page does not know this client, `portcullis mcp logout {}` lets the next login register a new one",
                spec.name
            )),
            error => error,
        })?;
        check_issuer(&found.server, brought.issuer.as_deref())?;
        brought.code?
    };
    let parts = [
        ("grant_type", "authorization_code"),
        ("code", code.expose().as_str()),
        ("redirect_uri", redirect_uri.as_str()),
        ("code_verifier", verifier.as_str()),
        ("resource", found.resource.as_str()),
    ];
    let granted = tokens::request(egress, &*account.clock, &found.server.token, &client, &parts).await?;
    Ok(Login {
        about: LoginMetadata {
            issuer: found.server.issuer,
            resource: found.resource,
            token_endpoint: found.server.token,
            client: client.kind,
            client_id: client.id,
            client_gone: false,
            token_method: client.method,
            redirect_uri,
            expires_at: granted.expires_at,
            renew_at: granted.renew_at,
            since: Some(account.now()),
            asked,
            wanted: Vec::new(),
            stepped,
            granted: granted.scopes,
            rest: serde_json::Map::new(),
        },
        access_token: Some(granted.access_token),
        refresh_token: granted.refresh_token,
        client_secret: client.secret.filter(|_| client.kind == super::ClientKind::Registered),
    })
}

/// Listens on the configured port, or that of the last login, or any.
async fn listen(port: Option<u16>, known: Option<&Login>) -> Result<CallbackListener, OAuthError> {
    if port.is_some() {
        return CallbackListener::listen(port).await;
    }
    let before =
        known.and_then(|login| Url::parse(&login.about.redirect_uri).ok()).and_then(|url| url.port());
    if let Some(before) = before
        && let Ok(callback) = CallbackListener::listen(Some(before)).await
    {
        return Ok(callback);
    }
    CallbackListener::listen(None).await
}

/// Returns the scopes to request: the configured ones, or those of the challenge, or those of the metadata; and
/// those of before, because a new token replaces the old. A person who logs in again begins with the configuration,
/// and keeps what the server had wanted besides.
fn wanted(
    configured: Option<&str>,
    challenge: &Challenge,
    found: &AuthDiscovery,
    known: Option<&Login>,
    new: &[String],
) -> Vec<String> {
    let suggested = match (configured, challenge.scope.as_deref()) {
        (Some(list), _) | (None, Some(list)) => scopes(list),
        (None, None) => scopes(&found.scopes.join(" ")),
    };
    let before = known.map(|login| if new.is_empty() { &login.about.stepped } else { &login.about.asked });
    let before = before.map(Vec::as_slice).unwrap_or_default();
    let mut all = union(&union(before, &suggested), new);
    if found.server.scopes.iter().any(|scope| scope == OFFLINE) {
        all = union(&all, &[OFFLINE.to_owned()]);
    }
    all
}

/// Returns the URL of the login page.
fn page(
    found: &AuthDiscovery,
    client: &OAuthClient,
    redirect_uri: &str,
    state: &str,
    verifier: &str,
    asked: &[String],
) -> Url {
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let mut page = found.server.authorization.clone();
    let mut query = page.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", redirect_uri)
        .append_pair("state", state)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256")
        .append_pair("resource", &found.resource);
    if !asked.is_empty() {
        query.append_pair("scope", &asked.join(" "));
    }
    drop(query);
    page
}

/// Checks the issuer of the response, byte by byte (mix-up attack).
fn check_issuer(server: &AuthorizationServer, said: Option<&str>) -> Result<(), OAuthError> {
    match said {
        Some(said) if said == server.issuer => Ok(()),
        Some(said) => Err(OAuthError::Mismatch(format!(
            "the login was answered by `{}` instead of `{}`; it was discarded",
            printable(said),
            printable(&server.issuer)
        ))),
        None if server.names_itself => Err(OAuthError::Mismatch(format!(
            "the login response does not say that it is from `{}`, which it should; it was discarded",
            printable(&server.issuer)
        ))),
        None => Ok(()),
    }
}

fn random() -> Result<String, OAuthError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        OAuthError::Unfinished(format!("cannot get random bytes from the system: {error}"))
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
