//! A server that repeats the query of a request, with its secret, in a redirect to another host.

use super::UNHURRIED;
use super::site::{LoopbackSite, answer, redirect};
use crate::{EgressClient, EgressResponse, EgressSettings, Resolve, SecretSource};
use futures::future::BoxFuture;
use portcullis_core::{Secret, SystemClock, ToolError};
use portcullis_store::secrets::{SecretError, SecretRef};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const VALUE: &str = "k3y-of-the-api";
const API: &str = "api.example";
const OTHER: &str = "other.example";

/// Resolves every name to loopback.
struct Loopback;

impl Resolve for Loopback {
    fn resolve(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) })
    }
}

/// Grants one secret for the URL, at these hosts.
struct GrantedAt(&'static [&'static str]);

impl SecretSource for GrantedAt {
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        if self.0.contains(&host) && field == "url" {
            return Ok(Secret::new(VALUE.to_owned()));
        }
        let (name, host, field) = (name.to_owned(), host.to_owned(), field.to_owned());
        Err(SecretError::NotGranted { name, host, field })
    }
}

/// The outcome of a request with a secret in its URL, to a server that redirects to `to` with the query.
struct Attempt {
    outcome: Result<EgressResponse, ToolError>,
    /// Requests that the other host received.
    overheard: Vec<String>,
}

impl Attempt {
    async fn new(source: GrantedAt, wanted: &'static [&'static str], spell: fn(&str) -> String) -> Attempt {
        let other = LoopbackSite::open(|_| answer(200, &[], "ok")).await;
        let port = other.address.port();
        let api = LoopbackSite::open(move |request| {
            let query = request.split_once('?').unwrap().1.split(' ').next().unwrap();
            redirect(302, &format!("http://{OTHER}:{port}/{}", spell(query)))
        })
        .await;
        let places = [format!("{API}:{}", api.address.port()), format!("{OTHER}:{port}")];
        let settings = EgressSettings {
            exceptions: places.iter().map(|place| place.parse().unwrap()).collect(),
            per_host: UNHURRIED,
            ..EgressSettings::default()
        };
        let client = EgressClient::new(settings, Arc::new(Loopback), Arc::new(source), Arc::new(SystemClock));
        let handle: SecretRef = "secret:KEY".parse().unwrap();
        let outcome = client
            .unwrap()
            .get(&format!("http://{}/list?key=secret:KEY", places[0]))
            .secret_in_url(handle)
            .only_hosts(Arc::new(move |host| wanted.contains(&host)))
            .send()
            .await
            .map_err(ToolError::from);
        assert!(api.asked()[0].contains("key=k3y%2Dof%2Dthe%2Dapi"), "{:?}", api.asked());
        Attempt { outcome, overheard: other.asked() }
    }
}

/// Encodings of a query in a redirect. A search for the value would not find the last.
const SPELLINGS: [fn(&str) -> String; 4] = [
    |query| format!("?{query}"),
    |query| format!("?{}", query.replace("%2D", "-")),
    |query| format!("?next={}", query.replace('%', "%25")),
    |query| query.bytes().rev().map(|byte| format!("{byte:02x}")).collect(),
];

#[tokio::test]
async fn a_host_that_the_secret_is_not_granted_for_is_not_asked() {
    for spell in SPELLINGS {
        let attempt = Attempt::new(GrantedAt(&[API]), &[API, OTHER], spell).await;
        assert_eq!(attempt.overheard, [""; 0]);
        assert_eq!(
            attempt.outcome.unwrap_err().to_string(),
            "denied: `api.example` redirects to a URL that is refused: secret `KEY` is not granted for `url` at `other.example`; a person can allow it: portcullis secrets grant KEY 'other.example:url'"
        );
    }
}

/// A host that the filter excludes is refused as such: a grant of the secret would not help.
#[tokio::test]
async fn a_host_that_is_not_wanted_is_refused_first() {
    let attempt = Attempt::new(GrantedAt(&[API]), &[API], SPELLINGS[0]).await;
    assert_eq!(attempt.overheard, [""; 0]);
    assert_eq!(attempt.outcome.unwrap_err().message, "host `other.example` is not allowed");
}

/// Control: with a grant that is too wide, the redirect is followed and the value arrives.
#[tokio::test]
async fn a_weak_grant_lets_it_through() {
    for spell in SPELLINGS {
        let attempt = Attempt::new(GrantedAt(&[API, OTHER]), &[API, OTHER], spell).await;
        assert_eq!(attempt.outcome.unwrap().status, 200);
        assert_eq!(attempt.overheard.len(), 1);
    }
}
