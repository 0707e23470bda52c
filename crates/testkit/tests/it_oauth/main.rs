//! OAuth logins to upstream servers, against an honest authorization server and a faulty one.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod callback;
mod clients;
mod lies;
mod renewal;
mod ssrf;

use portcullis_core::SystemClock;
use portcullis_egress::{EgressSettings, HostRateLimit, SystemResolver, Url};
use portcullis_testkit::oauth::{OAuthBehavior, OAuthServers, TestUser};
use portcullis_upstream::{LoginPrompt, OAuth, OAuthError, OAuthSpec, Shutdown};
use std::sync::Arc;

/// A rate that no test reaches by accident.
const UNHURRIED: HostRateLimit = HostRateLimit { per_minute: 1_000_000, burst: 1_000_000 };

fn spec(url: &str) -> OAuthSpec {
    OAuthSpec {
        name: "notes".to_owned(),
        url: Url::parse(url).unwrap(),
        headers: Vec::new(),
        client_id: None,
        client_secret: None,
        scope: None,
        callback_port: None,
        client_metadata_url: None,
    }
}

/// Whether a person is there to log in.
#[derive(Debug, Clone, Copy, PartialEq)]
enum UserPresence {
    There,
    Away,
}

/// Returns the login of the MCP server, with the authorization server on the allowlist.
fn oauth_with(world: &OAuthServers, spec: OAuthSpec, person: &Arc<TestUser>, someone: UserPresence) -> OAuth {
    let exceptions = vec![world.issuer_place().parse().unwrap()];
    let settings = EgressSettings { exceptions, per_host: UNHURRIED, ..EgressSettings::default() };
    let consent = (someone == UserPresence::There).then(|| person.clone() as Arc<dyn LoginPrompt>);
    let resolver = Arc::new(SystemResolver::default());
    OAuth::new(spec, settings, resolver, person.clone(), Arc::new(SystemClock), consent, Shutdown::default())
        .unwrap()
}

fn oauth(world: &OAuthServers, person: &Arc<TestUser>, someone: UserPresence) -> OAuth {
    oauth_with(world, spec(&world.url()), person, someone)
}

/// Makes a request as a transport does: with the current token, and once more if a new one helps. Returns the
/// last status.
async fn ask(world: &OAuthServers, oauth: &OAuth, method: &str) -> Result<u16, OAuthError> {
    let url = Url::parse(&world.url()).unwrap();
    let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap()).parse().unwrap();
    for attempt in 0.. {
        let used = oauth.header().await?;
        let body =
            serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} }).to_string();
        let mut request = portcullis_testkit::raw_http::RawHttpRequest::post("/mcp", body);
        if let Some(used) = &used {
            request = request.header("Authorization", used);
        }
        let reply = request.send(address).await;
        if !matches!(reply.status(), 401 | 403) {
            oauth.accepted();
            return Ok(reply.status());
        }
        if attempt == 1 {
            return Ok(reply.status());
        }
        let challenge = reply.head.header("www-authenticate");
        if !oauth.refused(used.as_deref(), reply.status(), challenge).await? {
            return Ok(reply.status());
        }
    }
    unreachable!("the loop returns")
}

async fn start(conduct: OAuthBehavior) -> (OAuthServers, Arc<TestUser>) {
    (OAuthServers::start(conduct).await, Arc::default())
}
