//! An MCP server that requires a login, and its OAuth authorization server: real HTTP, on two local ports.
//!
//! Every fault or lie of the two is a field of [`OAuthBehavior`]. Their requests are recorded.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod test_user;

pub use test_user::TestUser;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use url::form_urlencoded;

/// How the two behave. The default is correct.
#[derive(Debug, Clone)]
pub struct OAuthBehavior {
    /// Whether the 401 names the protected resource metadata.
    pub names_document: bool,
    /// Whether there is such metadata.
    pub has_document: bool,
    /// A false `resource` in the metadata.
    pub resource: Option<String>,
    /// A false authorization server in the metadata.
    pub authorization_server: Option<String>,
    /// Overrides for the authorization server's metadata; null removes a member.
    pub about: Value,
    /// The path of the issuer.
    pub tenant: &'static str,
    /// Where its metadata is, below the issuer's host; the first well-known path if empty.
    pub document_at: &'static str,
    pub iss: IssParameter,
    /// The error of the login page instead of a code.
    pub login_error: Option<&'static str>,
    pub expires_in: Option<u64>,
    /// Whether refresh tokens are rotated (valid for one use).
    pub rotates: bool,
    pub gives_refresh: bool,
    /// Latency of the token endpoint.
    pub token_takes: Duration,
    /// Response of the token endpoint instead of tokens: a status, and a body.
    pub token_answers: Option<(u16, &'static str)>,
    /// Whether the client is unknown when it renews its tokens.
    pub forgets_clients: bool,
    /// Status of the revocation endpoint.
    pub revoke_answers: u16,
    /// Scope that a call requires.
    pub call_scope: Option<&'static str>,
    /// The most that is granted of the requested scopes.
    pub grants: Option<&'static str>,
    /// Whether both serve an HTML page at every unknown path.
    pub shows_pages: bool,
    /// A `WWW-Authenticate` challenge that replaces the usual one.
    pub challenge: Option<String>,
    /// Whether the MCP server is its own authorization server, as in 2025-03-26, without saying so.
    pub lets_in_by_itself: bool,
}

/// The `iss` of the authorization response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssParameter {
    Right,
    Wrong,
    Missing,
    WithSlash,
}

impl Default for OAuthBehavior {
    fn default() -> OAuthBehavior {
        OAuthBehavior {
            names_document: true,
            has_document: true,
            resource: None,
            authorization_server: None,
            about: json!({}),
            tenant: "",
            document_at: "",
            iss: IssParameter::Right,
            login_error: None,
            expires_in: Some(3600),
            rotates: true,
            gives_refresh: true,
            token_takes: Duration::ZERO,
            token_answers: None,
            forgets_clients: false,
            revoke_answers: 200,
            call_scope: None,
            grants: None,
            shows_pages: false,
            challenge: None,
            lets_in_by_itself: false,
        }
    }
}

/// One received request, in the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuthRequest {
    /// `mcp` or `as`.
    pub whom: &'static str,
    pub path: String,
    /// Parameters of the query or the form.
    pub parts: HashMap<String, String>,
    pub authorization: Option<String>,
    /// The header `X-Tenant`, which a person may have configured.
    pub tenant: Option<String>,
}

#[derive(Default)]
struct OAuthMemory {
    asked: Vec<OAuthRequest>,
    /// Codes, with the parameters they were issued for.
    codes: HashMap<String, HashMap<String, String>>,
    /// Access tokens with their scopes.
    tokens: HashMap<String, String>,
    refresh: HashMap<String, String>,
    made: u32,
}

struct OAuthState {
    conduct: Mutex<OAuthBehavior>,
    memory: Mutex<OAuthMemory>,
    mcp: SocketAddr,
    issuer: SocketAddr,
}

/// The two servers. They end when this is dropped.
pub struct OAuthServers {
    world: Arc<OAuthState>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for OAuthServers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl OAuthServers {
    pub async fn start(conduct: OAuthBehavior) -> OAuthServers {
        let bind = async || tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (mcp, issuer) = (bind().await, bind().await);
        let world = Arc::new(OAuthState {
            conduct: Mutex::new(conduct),
            memory: Mutex::default(),
            mcp: mcp.local_addr().unwrap(),
            issuer: issuer.local_addr().unwrap(),
        });
        let guarded = Router::new().fallback(at_mcp).with_state(world.clone());
        let letting_in = Router::new().fallback(at_issuer).with_state(world.clone());
        let serve = |listener, router: Router| {
            tokio::spawn(async move { axum::serve(listener, router).await.unwrap_or_default() })
        };
        OAuthServers { tasks: vec![serve(mcp, guarded), serve(issuer, letting_in)], world }
    }

    /// Returns the URL of the MCP server.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.world.mcp)
    }

    pub fn issuer(&self) -> String {
        self.world.issuer()
    }

    /// Returns host and port of the authorization server, for an allowlist.
    pub fn issuer_place(&self) -> String {
        self.world.issuer.to_string()
    }

    pub fn behave(&self, change: impl FnOnce(&mut OAuthBehavior)) {
        change(&mut self.world.conduct.lock());
    }

    /// Invalidates all access tokens; refresh tokens stay valid.
    pub fn revoke(&self) {
        self.world.memory.lock().tokens.clear();
    }

    /// Invalidates refresh tokens, too.
    pub fn revoke_all(&self) {
        self.revoke();
        self.world.memory.lock().refresh.clear();
    }

    /// Returns the requests to paths with this ending.
    pub fn asked(&self, whom: &str, ending: &str) -> Vec<OAuthRequest> {
        let memory = self.world.memory.lock();
        memory
            .asked
            .iter()
            .filter(|asked| asked.whom == whom && asked.path.ends_with(ending))
            .cloned()
            .collect()
    }

    /// Returns how many tokens were issued for a grant type.
    pub fn grants(&self, kind: &str) -> usize {
        self.asked("as", "/token").iter().filter(|asked| asked.parts["grant_type"] == kind).count()
    }
}

impl OAuthState {
    fn issuer(&self) -> String {
        format!("http://{}{}", self.issuer, self.conduct.lock().tenant)
    }

    fn conduct(&self) -> OAuthBehavior {
        self.conduct.lock().clone()
    }

    fn note(
        &self,
        whom: &'static str,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
    ) -> HashMap<String, String> {
        let form =
            headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/x-www-form-urlencoded");
        let said = if form { body } else { uri.query().unwrap_or_default().as_bytes() };
        let parts: HashMap<String, String> = form_urlencoded::parse(said).into_owned().collect();
        let authorization =
            headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        let path = uri.path().to_owned();
        let mut memory = self.memory.lock();
        let tenant = headers.get("x-tenant").map(|value| value.to_str().unwrap().to_owned());
        memory.asked.push(OAuthRequest { whom, path, parts: parts.clone(), authorization, tenant });
        parts
    }
}

fn reply(status: u16, value: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// The response at an unknown path.
fn nothing(conduct: &OAuthBehavior) -> Response {
    if !conduct.shows_pages {
        return reply(404, &json!({}));
    }
    ([(header::CONTENT_TYPE, "text/html")], "<html>Welcome!</html>").into_response()
}

/// The MCP server that requires a login.
async fn at_mcp(
    State(world): State<Arc<OAuthState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let lets_in = world.conduct().lets_in_by_itself;
    if lets_in && ["/authorize", "/token", "/register"].contains(&uri.path()) {
        return at_issuer(State(world), uri, headers, body).await;
    }
    world.note("mcp", &uri, &headers, &body);
    let (conduct, own) = (world.conduct(), format!("http://{}", world.mcp));
    const DOCUMENT: &str = "/.well-known/oauth-protected-resource/mcp";
    if uri.path() == DOCUMENT && conduct.has_document {
        let resource = conduct.resource.unwrap_or_else(|| format!("{own}/mcp"));
        let issuer = conduct.authorization_server.unwrap_or_else(|| world.issuer());
        return reply(
            200,
            &json!({ "resource": resource, "authorization_servers": [issuer], "scopes_supported": ["basic"] }),
        );
    }
    if uri.path() != "/mcp" || method != Method::POST {
        return nothing(&conduct);
    }
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let token =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let scopes = token.and_then(|token| world.memory.lock().tokens.get(token).cloned());
    let refuse = |status: u16, what: &str| {
        let document = if conduct.names_document {
            format!(", resource_metadata=\"{own}{DOCUMENT}\"")
        } else {
            String::new()
        };
        let challenge = conduct.challenge.clone().unwrap_or_else(|| format!("Bearer {what}{document}"));
        let mut refused = reply(status, &json!({}));
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
        refused
    };
    let Some(scopes) = scopes else { return refuse(401, "error=\"invalid_token\"") };
    if let Some(needed) = conduct.call_scope.filter(|_| message["method"] == "tools/call")
        && !scopes.split(' ').any(|scope| scope == needed)
    {
        return refuse(403, &format!("error=\"insufficient_scope\", scope=\"{needed}\""));
    }
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "guarded", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [{ "name": "open", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": "open" }] }),
        _ => {
            return reply(
                200,
                &json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "unknown" } }),
            );
        }
    };
    reply(200, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// The authorization server.
async fn at_issuer(
    State(world): State<Arc<OAuthState>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let parts = world.note("as", &uri, &headers, &body);
    let conduct = world.conduct();
    let usual = format!("/.well-known/oauth-authorization-server{}", conduct.tenant);
    let document_at = if conduct.document_at.is_empty() { &usual } else { conduct.document_at };
    let path = uri.path();
    if path == document_at {
        return about(&world, &conduct);
    }
    match path.strip_prefix(conduct.tenant).unwrap_or(path) {
        "/register" => {
            let client = format!("client-{}", next(&world));
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            let mut made = json!({ "client_id": client, "redirect_uris": asked["redirect_uris"] });
            if asked["token_endpoint_auth_method"] != "none" {
                made["client_secret"] = format!("secret-of-{client}").into();
            }
            reply(201, &made)
        }
        "/authorize" => login(&world, &conduct, parts),
        "/token" => {
            // The refresh token is consumed from now on, whether the response arrives or not.
            let answer = token(&world, &conduct, &parts);
            tokio::time::sleep(conduct.token_takes).await;
            answer
        }
        "/revoke" => {
            let token = parts.get("token").map(String::as_str).unwrap_or_default();
            let mut memory = world.memory.lock();
            memory.tokens.remove(token);
            memory.refresh.remove(token);
            reply(conduct.revoke_answers, &json!({}))
        }
        _ => nothing(&conduct),
    }
}

fn next(world: &OAuthState) -> u32 {
    let mut memory = world.memory.lock();
    memory.made += 1;
    memory.made
}

fn about(world: &OAuthState, conduct: &OAuthBehavior) -> Response {
    let issuer = world.issuer();
    let mut about = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "registration_endpoint": format!("{issuer}/register"),
        "revocation_endpoint": format!("{issuer}/revoke"),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "authorization_response_iss_parameter_supported": true,
    });
    for (key, value) in conduct.about.as_object().unwrap() {
        match value {
            Value::Null => drop(about.as_object_mut().unwrap().remove(key)),
            value => about[key] = value.clone(),
        }
    }
    reply(200, &about)
}

/// Authorizes every request at once.
fn login(world: &OAuthState, conduct: &OAuthBehavior, parts: HashMap<String, String>) -> Response {
    let code = format!("code-number-{}", next(world));
    let mut back = url::Url::parse(&parts["redirect_uri"]).unwrap();
    {
        let mut query = back.query_pairs_mut();
        query.append_pair("state", &parts["state"]);
        match conduct.login_error {
            Some(error) => {
                query.append_pair("error", error).append_pair("error_description", "the person said no")
            }
            None => query.append_pair("code", &code),
        };
        match conduct.iss {
            IssParameter::Right => drop(query.append_pair("iss", &world.issuer())),
            IssParameter::Wrong => drop(query.append_pair("iss", "https://evil.example.com")),
            IssParameter::WithSlash => drop(query.append_pair("iss", &format!("{}/", world.issuer()))),
            IssParameter::Missing => {}
        }
    }
    world.memory.lock().codes.insert(code, parts);
    (StatusCode::FOUND, [(header::LOCATION, back.to_string())]).into_response()
}

fn token(world: &OAuthState, conduct: &OAuthBehavior, parts: &HashMap<String, String>) -> Response {
    use sha2::{Digest, Sha256};
    let part = |name: &str| parts.get(name).map(String::as_str).unwrap_or_default();
    let refuse = |error: &str| reply(400, &json!({ "error": error, "error_description": "no" }));
    if let Some((status, body)) = conduct.token_answers {
        return (StatusCode::from_u16(status).unwrap(), body).into_response();
    }
    if part("resource").is_empty() {
        return refuse("invalid_target");
    }
    if conduct.forgets_clients && part("grant_type") == "refresh_token" {
        return refuse("invalid_client");
    }
    let scope = match part("grant_type") {
        "authorization_code" => {
            let Some(given) = world.memory.lock().codes.remove(part("code")) else {
                return refuse("invalid_grant");
            };
            let digest = Sha256::digest(part("code_verifier"));
            let challenge = base64_url(&digest);
            let same = |name: &str| given.get(name).map(String::as_str) == Some(part(name));
            if given.get("code_challenge") != Some(&challenge) || !same("redirect_uri") || !same("resource") {
                return refuse("invalid_grant");
            }
            given.get("scope").cloned().unwrap_or_default()
        }
        "refresh_token" => {
            let mut memory = world.memory.lock();
            let known = memory.refresh.get(part("refresh_token")).cloned();
            if conduct.rotates {
                memory.refresh.remove(part("refresh_token"));
            }
            match known {
                Some(scope) => scope,
                None => return refuse("invalid_grant"),
            }
        }
        _ => return refuse("unsupported_grant_type"),
    };
    let is_granted =
        |scope: &&str| conduct.grants.is_none_or(|most| most.split(' ').any(|one| one == *scope));
    let scope = scope.split(' ').filter(is_granted).collect::<Vec<_>>().join(" ");
    let number = next(world);
    let (access, refresh) = (format!("access-token-{number}"), format!("refresh-token-{number}"));
    let mut memory = world.memory.lock();
    memory.tokens.insert(access.clone(), scope.clone());
    let mut answer = json!({ "access_token": access, "token_type": "Bearer", "scope": scope });
    if let Some(expires_in) = conduct.expires_in {
        answer["expires_in"] = expires_in.into();
    }
    if conduct.gives_refresh && (conduct.rotates || part("grant_type") != "refresh_token") {
        memory.refresh.insert(refresh.clone(), scope);
        answer["refresh_token"] = refresh.into();
    }
    reply(200, &answer)
}

fn base64_url(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}
