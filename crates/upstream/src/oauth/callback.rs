//! Redirect URI: a listener on loopback for one login, where the browser brings the code.

use super::error::OAuthError;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use portcullis_core::Secret;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use url::form_urlencoded;

/// The pause after `accept` failed: the system is short of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a person may take. `state` is valid as long, and once.
pub(super) const LOGIN_WITHIN: Duration = Duration::from_secs(10 * 60);
/// The timeout of one connection. Browsers open some ahead of time and send nothing.
const VISIT_WITHIN: Duration = Duration::from_secs(10);
/// Concurrent connections. Any process on this machine can connect.
const VISITORS_MAX: usize = 16;
/// The longest request head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The longest parameter.
const PART_BYTES_MAX: usize = 4 * 1024;
pub(super) const PATH: &str = "/callback";
/// The port that browsers omit.
const USUAL_PORT: u16 = 80;

const DONE: &str = "Login complete. You can close this page.";
const NOT_DONE: &str = "The login did not succeed. The terminal says why; you can close this page.";
const STRANGE: &str = "No login is waiting for this page.";

/// The parameters of the redirect.
#[derive(Debug)]
pub(super) struct CallbackParams {
    pub(super) code: Result<Secret<String>, OAuthError>,
    /// The issuer, if it is named.
    pub(super) issuer: Option<String>,
}

/// A listener on loopback only.
pub(super) struct CallbackListener {
    listener: TcpListener,
    port: u16,
}

impl CallbackListener {
    /// Listens on `port`, or on a free one.
    pub(super) async fn listen(port: Option<u16>) -> Result<CallbackListener, OAuthError> {
        let failed = |error: std::io::Error| {
            let at = port.map_or_else(|| "any port".to_owned(), |port| format!("port {port}"));
            OAuthError::Unfinished(format!("cannot listen on {at} of 127.0.0.1: {error}"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(CallbackListener { listener, port })
    }

    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the request with this `state`. Others are rejected, and change nothing.
    pub(super) async fn wait(self, state: &str) -> Result<CallbackParams, OAuthError> {
        let expected = Arc::new(ExpectedCallback { state: state.to_owned(), port: self.port });
        let (bring, mut brought) = mpsc::channel::<CallbackParams>(1);
        let visitors = Arc::new(Semaphore::new(VISITORS_MAX));
        // Dropped with this function, with all its connections.
        let mut visits = JoinSet::new();
        let accepting = async {
            loop {
                let Ok(place) = visitors.clone().acquire_owned().await else { return };
                while visits.try_join_next().is_some() {}
                let Ok((stream, _)) = self.listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let (expected, bring) = (expected.clone(), bring.clone());
                visits.spawn(async move {
                    let service = service_fn(|request| answer(request, expected.clone(), bring.clone()));
                    let visit = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(VISIT_WITHIN)
                        .max_buf_size(HEAD_BYTES_MAX)
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), service);
                    // However it ends, the next connection is served.
                    let _ = tokio::time::timeout(VISIT_WITHIN, visit).await;
                    drop(place);
                });
            }
        };
        let late = || OAuthError::Unfinished("no login within 10 minutes; run it again".to_owned());
        let found = tokio::select! {
            found = brought.recv() => found.ok_or_else(late),
            () = accepting => Err(late()),
            () = tokio::time::sleep(LOGIN_WITHIN) => Err(late()),
        };
        if found.is_ok() {
            // The page is being sent; a slow browser is not waited for.
            let _ = tokio::time::timeout(Duration::from_secs(1), async {
                while visits.join_next().await.is_some() {}
            })
            .await;
        }
        found
    }
}

struct ExpectedCallback {
    state: String,
    port: u16,
}

async fn answer(
    request: Request<Incoming>,
    expected: Arc<ExpectedCallback>,
    bring: mpsc::Sender<CallbackParams>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !is_here(host, expected.port) || request.method() != Method::GET || request.uri().path() != PATH {
        return Ok(page(StatusCode::NOT_FOUND, STRANGE));
    }
    let query = request.uri().query().unwrap_or_default();
    let part = |name: &str| {
        let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
        let value = found.next().map(|(_, value)| value.into_owned());
        // A repeated parameter counts as none.
        value.filter(|value| found.next().is_none() && value.len() <= PART_BYTES_MAX)
    };
    let is_ours = part("state").is_some_and(|state| is_equal(&state, &expected.state));
    if !is_ours {
        return Ok(page(StatusCode::BAD_REQUEST, STRANGE));
    }
    let code = match (part("error"), part("code")) {
        (Some(error), _) => {
            Err(OAuthError::refused("the login", &error, part("error_description").as_deref()))
        }
        (None, Some(code)) => Ok(Secret::new(code)),
        (None, None) => Err(OAuthError::malformed("the login response", "it has no code")),
    };
    let (status, text) = if code.is_ok() { (StatusCode::OK, DONE) } else { (StatusCode::OK, NOT_DONE) };
    let issuer = part("iss").map(|issuer| if issuer.is_empty() { "(empty)".to_owned() } else { issuer });
    // Only the first one counts.
    match bring.try_send(CallbackParams { code, issuer }) {
        Ok(()) => Ok(page(status, text)),
        Err(_) => Ok(page(StatusCode::BAD_REQUEST, STRANGE)),
    }
}

/// Returns whether the `Host` is this machine (DNS rebinding).
fn is_here(host: &str, port: u16) -> bool {
    let is = |name: &str| host == format!("{name}:{port}") || (port == USUAL_PORT && host == name);
    is("127.0.0.1") || is("localhost")
}

/// Compares in constant time.
fn is_equal(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// A page with nothing of the request in it.
fn page(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let html = format!("<!doctype html><meta charset=utf-8><title>Portcullis</title><p>{text}</p>\n");
    let mut response = Response::new(Full::new(html.into()));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (CONNECTION, "close"),
    ] {
        response.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_left_out_only_where_browsers_do_so() {
        for (host, port, expected) in [
            ("127.0.0.1:80", 80, true),
            ("127.0.0.1", 80, true),
            ("localhost", 80, true),
            ("localhost:8080", 8080, true),
            ("localhost", 8080, false),
            ("localhost:80", 8080, false),
            ("evil.example", 80, false),
            ("", 80, false),
        ] {
            assert_eq!(is_here(host, port), expected, "{host} {port}");
        }
    }
}
