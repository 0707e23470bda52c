//! Discovery: from a server's refusal to the authorization server that it trusts.
//!
//! First the protected resource metadata (RFC 9728), at the URL in the refusal or at the well-known ones. Then the
//! metadata of the authorization server (RFC 8414 or OpenID Connect). Each must name the URL that led there; where
//! one does not, discovery ends without another request.

use super::address::{authorization, endpoint, is_resource_of};
use super::error::OAuthError;
use crate::sanitize::one_line;
use portcullis_core::json::printable;
use portcullis_egress::{EgressClient, SecretTemplate, Url, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// The longest metadata document. The longest in use are below 20 KB.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// How many entries of a list are read.
const ENTRIES_MAX: usize = 100;
/// The longest scope, method or issuer.
const ENTRY_BYTES_MAX: usize = 2 * 1024;

/// The result of discovery.
#[derive(Debug, Clone)]
pub(super) struct AuthDiscovery {
    /// The resource indicator, exactly as the server writes it.
    pub(super) resource: String,
    /// The scopes in the metadata of the server.
    pub(super) scopes: Vec<String>,
    pub(super) server: AuthorizationServer,
}

/// An authorization server, by its metadata.
#[derive(Debug, Clone)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorization: Url,
    pub(super) token: String,
    pub(super) registration: Option<String>,
    /// The revocation endpoint.
    pub(super) revocation: Option<String>,
    pub(super) scopes: Vec<String>,
    /// The supported client authentication methods; `None` where it does not say.
    pub(super) token_methods: Option<Vec<String>>,
    /// Whether its responses name the issuer (`iss`).
    pub(super) names_itself: bool,
    /// Whether it supports client metadata documents.
    pub(super) takes_documents: bool,
}

#[derive(Deserialize)]
struct ResourceDocument {
    resource: String,
    #[serde(default, deserialize_with = "or_null")]
    authorization_servers: Vec<String>,
    #[serde(default, deserialize_with = "or_null")]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct ServerDocument {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    #[serde(default, deserialize_with = "or_null")]
    scopes_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default, deserialize_with = "or_null")]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default, deserialize_with = "or_null")]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default, deserialize_with = "or_null")]
    client_id_metadata_document_supported: bool,
}

/// Reads `null` as an absent member, as some libraries write it.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

const RESOURCE: &str = "the server's OAuth metadata";
const SERVER: &str = "the authorization server's metadata";

/// Finds the authorization server of `server`. `named` is the metadata URL of its refusal.
pub(super) async fn discover(
    egress: &EgressClient,
    server: &Url,
    named: Option<&str>,
) -> Result<AuthDiscovery, OAuthError> {
    let places = match named {
        Some(named) => vec![named.to_owned()],
        None => resource_places(server),
    };
    let mut found = None;
    for place in &places {
        found = document::<ResourceDocument>(egress, RESOURCE, place).await?;
        if found.is_some() {
            break;
        }
    }
    let (resource, issuer, scopes) = match found {
        Some(document) => {
            if !is_resource_of(&document.resource, server) {
                return Err(OAuthError::Mismatch(format!(
                    "the server says that its tokens are for `{}`, which is not its URL; the login was not started",
                    printable(&document.resource)
                )));
            }
            let issuer = document.authorization_servers.into_iter().next();
            let issuer =
                issuer.ok_or_else(|| OAuthError::malformed(RESOURCE, "it names no authorization server"))?;
            (document.resource, issuer, document.scopes_supported)
        }
        None if named.is_some() => {
            return Err(OAuthError::malformed(RESOURCE, "it is not at the URL in the challenge"));
        }
        None => return discover_own_authorization(egress, server).await,
    };
    let server = described(egress, &issuer).await?;
    let server =
        server.ok_or_else(|| OAuthError::malformed(SERVER, "it is at none of the well-known URLs"))?;
    Ok(AuthDiscovery { resource, scopes: bounded(scopes), server })
}

/// Servers older than resource metadata are their own authorization server. One without any metadata has the default
/// endpoints of 2025-03-26.
async fn discover_own_authorization(
    egress: &EgressClient,
    server: &Url,
) -> Result<AuthDiscovery, OAuthError> {
    let issuer = server.origin().ascii_serialization();
    let own = match described(egress, &issuer).await? {
        Some(described) => described,
        None => AuthorizationServer {
            authorization: authorization(egress, &format!("{issuer}/authorize")).await?,
            token: format!("{issuer}/token"),
            registration: Some(format!("{issuer}/register")),
            issuer,
            revocation: None,
            scopes: Vec::new(),
            token_methods: None,
            names_itself: false,
            takes_documents: false,
        },
    };
    Ok(AuthDiscovery { resource: canonical(server), scopes: Vec::new(), server: own })
}

/// Returns the URL of a server as a resource: without a fragment, and without the slash that only a parser adds.
pub(super) fn canonical(server: &Url) -> String {
    let mut address = server.clone();
    address.set_fragment(None);
    let text = address.to_string();
    match address.path() {
        "/" if address.query().is_none() => text.trim_end_matches('/').to_owned(),
        _ => text,
    }
}

fn resource_places(server: &Url) -> Vec<String> {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let (origin, path) = (server.origin().ascii_serialization(), server.path().trim_end_matches('/'));
    let mut places = vec![format!("{origin}{WELL_KNOWN}{path}")];
    if !path.is_empty() {
        places.push(format!("{origin}{WELL_KNOWN}"));
    }
    places
}

fn server_places(issuer: &Url) -> Vec<String> {
    let (origin, path) = (issuer.origin().ascii_serialization(), issuer.path().trim_end_matches('/'));
    let oauth = format!("{origin}/.well-known/oauth-authorization-server{path}");
    let openid = format!("{origin}/.well-known/openid-configuration{path}");
    match path {
        "" => vec![oauth, openid],
        path => vec![oauth, openid, format!("{origin}{path}/.well-known/openid-configuration")],
    }
}

/// Reads the metadata of an authorization server; `None` where there is none.
pub(super) async fn described(
    egress: &EgressClient,
    issuer: &str,
) -> Result<Option<AuthorizationServer>, OAuthError> {
    let wrong = |why: &str| OAuthError::malformed(SERVER, why);
    if issuer.len() > ENTRY_BYTES_MAX {
        return Err(wrong("its name is too long"));
    }
    let address = Url::parse(issuer).map_err(|_| wrong("the issuer is not a URL"))?;
    if address.query().is_some() || address.fragment().is_some() {
        return Err(wrong("the issuer has a query or a fragment"));
    }
    let mut found = None;
    for place in server_places(&address) {
        found = document::<ServerDocument>(egress, SERVER, &place).await?;
        if found.is_some() {
            break;
        }
    }
    let Some(found) = found else { return Ok(None) };
    if !is_same_issuer(&found.issuer, issuer) {
        return Err(OAuthError::Mismatch(format!(
            "the authorization server `{}` says that it is `{}`; the login was not started",
            printable(issuer),
            printable(&found.issuer)
        )));
    }
    // Without PKCE a stolen code is as good as the hub's.
    if !found.code_challenge_methods_supported.iter().any(|method| method == "S256") {
        return Err(wrong("it does not support PKCE with S256, which is required"));
    }
    let authorization_at = found.authorization_endpoint.ok_or_else(|| wrong("it names no login page"))?;
    let token = found.token_endpoint.ok_or_else(|| wrong("it names no token endpoint"))?;
    let authorization = authorization(egress, &authorization_at).await?;
    endpoint(egress, "the token endpoint", &token).await?;
    if let Some(registration) = &found.registration_endpoint {
        endpoint(egress, "the registration endpoint", registration).await?;
    }
    Ok(Some(AuthorizationServer {
        issuer: found.issuer,
        authorization,
        token,
        registration: found.registration_endpoint,
        revocation: found.revocation_endpoint,
        scopes: bounded(found.scopes_supported),
        token_methods: found.token_endpoint_auth_methods_supported.map(bounded),
        names_itself: found.authorization_response_iss_parameter_supported,
        takes_documents: found.client_id_metadata_document_supported,
    }))
}

/// Returns whether two issuers are the same, byte by byte. A host alone equals the one with its slash: common
/// libraries add it on one side, and no other issuer can be meant.
fn is_same_issuer(one: &str, other: &str) -> bool {
    let bare = |text: &str| match Url::parse(text) {
        Ok(url) if url.path() == "/" && url.query().is_none() && url.fragment().is_none() => {
            text.strip_suffix('/').unwrap_or(text).to_owned()
        }
        _ => text.to_owned(),
    };
    bare(one) == bare(other)
}

fn bounded(entries: Vec<String>) -> Vec<String> {
    entries.into_iter().filter(|entry| entry.len() <= ENTRY_BYTES_MAX).take(ENTRIES_MAX).collect()
}

/// Reads a document; `None` if it is not there.
async fn document<T: DeserializeOwned>(
    egress: &EgressClient,
    what: &'static str,
    place: &str,
) -> Result<Option<T>, OAuthError> {
    let request = egress.get(place).header(header::ACCEPT, SecretTemplate::text("application/json"));
    let request = request.bytes_max(DOCUMENT_BYTES_MAX).body_if(|status, _| status == 200);
    let fetched = request.send().await.map_err(OAuthError::reach(what, place))?;
    let Some(body) = fetched.body else { return Ok(None) };
    // An HTML page, as many sites serve at any path, is not the document; that may be at the next URL.
    if serde_json::from_slice::<IgnoredAny>(&body).is_err() {
        return Ok(None);
    }
    let read = serde_json::from_slice(&body);
    // The parser's error quotes no more than a type.
    read.map(Some).map_err(|error| OAuthError::malformed(what, one_line(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_looked_for_where_the_specification_says() {
        let url = |text: &str| Url::parse(text).unwrap();
        assert_eq!(
            resource_places(&url("https://a.test/v1/mcp")),
            [
                "https://a.test/.well-known/oauth-protected-resource/v1/mcp",
                "https://a.test/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            resource_places(&url("https://a.test:8443/")),
            ["https://a.test:8443/.well-known/oauth-protected-resource"]
        );
        assert_eq!(
            server_places(&url("https://a.test/tenant/1")),
            [
                "https://a.test/.well-known/oauth-authorization-server/tenant/1",
                "https://a.test/.well-known/openid-configuration/tenant/1",
                "https://a.test/tenant/1/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            server_places(&url("https://a.test")),
            [
                "https://a.test/.well-known/oauth-authorization-server",
                "https://a.test/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn an_issuer_is_itself_letter_by_letter() {
        assert!(is_same_issuer("https://a.test", "https://a.test/"));
        assert!(is_same_issuer("https://a.test/x", "https://a.test/x"));
        for (one, other) in [
            ("https://a.test/x", "https://a.test/x/"),
            ("https://a.test", "https://b.test"),
            ("https://a.test", "http://a.test"),
            ("https://a.test", "https://A.test"),
            ("https://a.test:443", "https://a.test"),
        ] {
            assert!(!is_same_issuer(one, other), "{one} {other}");
        }
    }

    #[test]
    fn a_resource_is_written_without_what_a_parser_adds() {
        let canonical = |text: &str| canonical(&Url::parse(text).unwrap());
        assert_eq!(canonical("https://a.test"), "https://a.test");
        assert_eq!(canonical("https://A.test/mcp#x"), "https://a.test/mcp");
        assert_eq!(canonical("https://a.test/mcp/"), "https://a.test/mcp/");
    }
}
