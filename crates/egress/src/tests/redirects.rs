use super::site::{LoopbackSite, answer, redirect};
use super::{UNHURRIED, client};
use crate::{
    EgressClient, EgressError, EgressSettings, EgressTimeouts, NoSecrets, PlainHttp, Resolve, SecretEscaping,
    SecretTemplate, header,
};
use futures::future::BoxFuture;
use portcullis_core::{SystemClock, ToolError};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn a_page_comes_with_where_it_was_found() {
    let site = LoopbackSite::open(|request| match path(request) {
        "/a" => redirect(302, "b?x=1#there"),
        "/b?x=1" => redirect(308, "/c"),
        _ => answer(200, &[("content-type", "text/plain")], "hello"),
    })
    .await;
    let fetched = client(&[site.place()]).get(&site.url("/a#here")).send().await.unwrap();
    assert_eq!((fetched.status, fetched.body.as_deref()), (200, Some(&b"hello"[..])));
    assert_eq!(fetched.final_url.as_str(), site.url("/c"));
    let led: Vec<&str> = fetched.redirects.iter().map(|url| url.as_str()).collect();
    assert_eq!(led, [site.url("/a"), site.url("/b?x=1")]);
    assert_eq!(fetched.headers["content-type"], "text/plain");
}

#[tokio::test]
async fn five_redirects_are_followed_and_a_sixth_is_not() {
    let site = LoopbackSite::open(|request| {
        let left: u32 = path(request)[1..].parse().unwrap();
        if left == 0 { answer(200, &[], "done") } else { redirect(301, &format!("/{}", left - 1)) }
    })
    .await;
    let client = client(&[site.place()]);
    assert_eq!(client.get(&site.url("/5")).send().await.unwrap().redirects.len(), 5);
    let error = client.get(&site.url("/6")).send().await.unwrap_err();
    assert_eq!(error.to_string(), "more than 5 redirects");
    assert_eq!(site.asked().len(), 6 + 6);
}

#[tokio::test]
async fn what_identifies_the_caller_stays_at_the_first_origin() {
    let other = LoopbackSite::open(|_| answer(200, &[], "there")).await;
    let to = other.url("/x");
    let site = LoopbackSite::open(move |request| match path(request) {
        "/near" => redirect(307, "/here"),
        "/far" => redirect(307, &to),
        _ => answer(200, &[], "here"),
    })
    .await;
    let client = client(&[site.place(), other.place()]);
    let get = |path: &str| {
        let get =
            client.get(&site.url(path)).header(header::AUTHORIZATION, SecretTemplate::text("Basic abc"));
        get.header(header::COOKIE, SecretTemplate::text("a=b"))
            .header(header::ACCEPT, SecretTemplate::text("text/html"))
    };
    get("/near").send().await.unwrap();
    assert!(site.asked().iter().all(|request| request.contains("authorization: Basic abc")));
    get("/far").send().await.unwrap();
    let asked = other.asked();
    assert!(asked[0].contains("accept: text/html"), "{}", asked[0]);
    assert!(!asked[0].contains("abc") && !asked[0].contains("cookie"), "{}", asked[0]);
    // A request body is not sent to another origin.
    let post = client
        .post(&site.url("/far"))
        .body("text/plain", SecretTemplate::text("x"), SecretEscaping::AsIs)
        .send()
        .await;
    assert!(matches!(post, Err(EgressError::SentElsewhere { .. })), "{post:?}");
    assert_eq!(other.asked().len(), 1);
}

#[tokio::test]
async fn slowness_and_nonsense_end_in_words() {
    let site = LoopbackSite::open(|request| match path(request) {
        "/nonsense" => b"220 mail.example ESMTP\r\n".to_vec(),
        "/headers" => answer(200, &[("x", &"a".repeat(40_000))], ""),
        "/many" => answer(200, &vec![("x", "y"); 200], ""),
        "/short" => answer(200, &[("content-length", "100")], "short"),
        "/br" => answer(200, &[("content-encoding", "br")], "x"),
        _ => unreachable!(),
    })
    .await;
    let client = client(&[site.place()]);
    for (path, expected) in [
        ("/nonsense", "`127.0.0.1` sent an invalid HTTP response"),
        ("/headers", "`127.0.0.1` sent an invalid HTTP response"),
        ("/many", "`127.0.0.1` sent an invalid HTTP response"),
        ("/short", "`127.0.0.1` sent an invalid HTTP response"),
        ("/br", "the response has content encoding `br`, expected gzip, deflate or none"),
    ] {
        let error = client.get(&site.url(path)).send().await.unwrap_err();
        assert_eq!(error.to_string(), expected, "{path}");
        assert!(!ToolError::from(error).hints.is_empty(), "{path}: it says what to do");
    }
}

/// Accepts connections and sends nothing.
async fn silent() -> (String, tokio::net::TcpListener) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap().to_string(), listener)
}

struct Hanging;

impl Resolve for Hanging {
    fn resolve(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn every_wait_ends() {
    let (place, _listener) = silent().await;
    let short = Duration::from_millis(50);
    let with = |timeouts: EgressTimeouts| {
        let exceptions = vec![place.parse().unwrap()];
        let settings =
            EgressSettings { exceptions, per_host: UNHURRIED, timeouts, ..EgressSettings::default() };
        EgressClient::new(settings, Arc::new(Hanging), Arc::new(NoSecrets), Arc::new(SystemClock)).unwrap()
    };
    let url = format!("http://{place}/");
    let headers = with(EgressTimeouts { headers: short, ..EgressTimeouts::default() })
        .get(&url)
        .send()
        .await
        .unwrap_err();
    assert_eq!(headers.to_string(), "`127.0.0.1` took longer than 0 s to respond");
    let total = with(EgressTimeouts { total: short, ..EgressTimeouts::default() })
        .get(&url)
        .send()
        .await
        .unwrap_err();
    assert_eq!(total.to_string(), "`127.0.0.1` took longer than 0 s in all");
    let tls = with(EgressTimeouts { connect: short, ..EgressTimeouts::default() });
    let tls = tls.get(&format!("https://{place}/")).send().await.unwrap_err();
    assert_eq!(tls.to_string(), "`127.0.0.1` took longer than 0 s to connect");
    let name = with(EgressTimeouts { resolve: short, ..EgressTimeouts::default() })
        .get("https://slow.test/")
        .send()
        .await;
    assert_eq!(name.unwrap_err().to_string(), "`slow.test` has no public address");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let cancelled = with(EgressTimeouts::default()).get(&url).cancelled_by(&cancel).send().await;
    assert!(matches!(cancelled, Err(EgressError::Cancelled)));
}

#[tokio::test]
async fn a_server_that_wants_a_pause_gets_it() {
    let site = LoopbackSite::open(|_| answer(429, &[("retry-after", "120")], "")).await;
    let client = client(&[site.place()]);
    assert_eq!(client.get(&site.url("/")).send().await.unwrap().status, 429);
    let error = ToolError::from(client.get(&site.url("/")).send().await.unwrap_err());
    assert_eq!(error.to_string(), "rate_limited: too many requests to `127.0.0.1`");
    assert!(error.retry_after.unwrap() > Duration::from_secs(100));
    assert_eq!(site.asked().len(), 1);
}

#[tokio::test]
async fn an_exception_is_not_for_strangers() {
    // A public page redirects to a host on the allowlist.
    let inside = LoopbackSite::open(|_| answer(200, &[], "inside")).await;
    let to = inside.url("/admin");
    let site = LoopbackSite::open(move |_| redirect(302, &to)).await;
    let error = client(&[site.place()]).get(&site.url("/")).send().await.unwrap_err();
    assert!(matches!(error, EgressError::Redirect { .. }), "{error}");
    assert_eq!(inside.asked().len(), 0);
    // A redirect from one allowlisted host to another is followed.
    assert!(client(&[site.place(), inside.place()]).get(&site.url("/")).send().await.is_ok());
}

#[tokio::test]
async fn hosts_can_be_chosen_and_bodies_left() {
    let site = LoopbackSite::open(|_| answer(200, &[("content-type", "image/png")], "xxxx")).await;
    let client = client(&[site.place()]);
    let refused = client.get(&site.url("/")).only_hosts(Arc::new(|host| host != "127.0.0.1")).send().await;
    assert_eq!(refused.unwrap_err().to_string(), "host `127.0.0.1` is not allowed");
    let left =
        client.get(&site.url("/")).body_if(|_, headers| headers["content-type"] != "image/png").send().await;
    assert_eq!(left.unwrap().body, None);
    let large = client.get(&site.url("/")).bytes_max(3).send().await;
    assert_eq!(large.unwrap_err().to_string(), "the response has more than 3 bytes");
    let refused = client.get("http://example.com/").plain_http(PlainHttp::Refused).send().await;
    assert_eq!(refused.unwrap_err().to_string(), "http:// is not allowed, expected https://");
}

/// A name server that is away.
struct Away;

impl Resolve for Away {
    fn resolve(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Err(io::Error::other("temporary failure in name resolution")) })
    }
}

#[tokio::test]
async fn a_failed_lookup_says_so_unless_the_name_can_only_be_private() {
    let settings = EgressSettings {
        exceptions: vec!["build.corp:8080".parse().unwrap()],
        per_host: UNHURRIED,
        ..EgressSettings::default()
    };
    let client = EgressClient::new(settings, Arc::new(Away), Arc::new(NoSecrets), Arc::new(SystemClock));
    let client = client.unwrap();
    for (url, expected) in [
        ("https://example.com/", "`example.com` cannot be looked up"),
        // An administrator named it, so its name is no secret.
        ("http://build.corp:8080/", "`build.corp` cannot be looked up"),
        ("https://build.corp/", "`build.corp` has no public address"),
        ("https://intranet/", "`intranet` has no public address"),
        ("https://printer.local./", "`printer.local.` has no public address"),
    ] {
        let error = client.get(url).send().await.unwrap_err();
        assert_eq!(error.to_string(), expected, "{url}");
        assert!(!ToolError::from(error).hints.is_empty(), "{url}: it says what to do");
    }
}
