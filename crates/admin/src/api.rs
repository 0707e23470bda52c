//! The JSON API at `/api/v1`.
//!
//! One table ([`table`]) lists the routes with their inputs, outputs and summaries; the router and the OpenAPI document
//! are generated from it. Every route needs a session unless the table makes it public; every route other than `GET`
//! also needs the CSRF token.

mod events;
mod openapi;
mod route;
mod sign_in;
mod table;

pub use openapi::document;

use crate::http_status::http_status;
use crate::redacted_desk::RedactedValue;
use crate::sign_in::{RequestOrigin, Visitor, request_origin};
use crate::{AdminApp, body};
use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use events::StreamSlots;
use portcullis_ops::{Problem, ProblemCode};
use portcullis_server::http::PeerAddr;
use route::{ApiRequest, InputSource, RawInput, Route, RouteAccess, RouteKind};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

/// Path prefix of the API.
pub const ROOT: &str = "/api/v1";

/// A route and its access, for tests that check all routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteInfo {
    pub method: Method,
    pub path: String,
    pub needs_session: bool,
}

/// Returns all routes.
pub fn routes() -> Vec<RouteInfo> {
    let info = |route: Route| RouteInfo {
        method: route.method,
        path: format!("{ROOT}{}", route.path),
        needs_session: route.access == RouteAccess::Session,
    };
    table::routes().into_iter().map(info).collect()
}

pub(crate) fn router(app: AdminApp) -> Router {
    let state = Arc::new(ApiState { app, streams: StreamSlots::default() });
    let mut router = Router::new();
    for route in table::routes() {
        if route.for_scripts && !state.app.counter.has_scripts() {
            continue;
        }
        let filter = if route.method == Method::GET {
            MethodFilter::GET
        } else if route.method == Method::PUT {
            MethodFilter::PUT
        } else if route.method == Method::DELETE {
            MethodFilter::DELETE
        } else {
            MethodFilter::POST
        };
        let (state, path) = (state.clone(), format!("{ROOT}{}", route.path));
        let route = Arc::new(route);
        let handler = move |params: RawPathParams, request: Request| {
            let (state, route) = (state.clone(), route.clone());
            async move { answer(&state, &route, &params, request).await }
        };
        router = router.route(&path, on(filter, handler));
    }
    router.fallback(async || {
        refusal(Problem::not_found("no such route").hint("`GET /api/v1/openapi.json` lists the routes"))
    })
}

struct ApiState {
    app: AdminApp,
    streams: StreamSlots,
}

async fn answer(state: &ApiState, route: &Route, params: &RawPathParams, request: Request) -> Response {
    let (ask, body) = match admit(state, route, params, request) {
        Ok(admitted) => admitted,
        Err(problem) => return refusal(problem),
    };
    match &route.work {
        RouteKind::Json(run) => {
            let answered = async {
                let bytes = match route.input {
                    InputSource::Body(_) => body::read(body).await.map_err(RedactedValue::trusted)?,
                    InputSource::Query(_) => bytes::Bytes::new(),
                };
                let given = RawInput { query: &ask.query, body: &bytes };
                run(&ask, given).await
            };
            match answered.await {
                Ok(json) => with_cookie(respond(StatusCode::OK, json), &ask),
                Err(problem) => with_cookie(refusal_clean(problem), &ask),
            }
        }
        RouteKind::Events => events::stream(&state.streams, &state.app, ask),
    }
}

/// Access control of every route: origin, session, CSRF token, content type.
fn admit(
    state: &ApiState,
    route: &Route,
    params: &RawPathParams,
    request: Request,
) -> Result<(ApiRequest, Body), Problem> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    // Checked first: a cross-origin response must not depend on whether a session exists.
    if request_origin(headers) == RequestOrigin::Elsewhere {
        return Err(Problem::new(ProblemCode::Forbidden, "cross-origin request refused"));
    }
    let session = state.app.sign_in.session(headers);
    match (route.access, &session) {
        (RouteAccess::Anyone, _) => {}
        (RouteAccess::Session, None) => {
            let problem =
                Problem::new(ProblemCode::SignInNeeded, "not signed in, or the session has expired");
            return Err(problem.hint("sign in at /admin; client tokens are not accepted here"));
        }
        (RouteAccess::Session, Some(_)) if route.method == Method::GET => {}
        (RouteAccess::Session, Some(session)) => session.verify_csrf(headers, None)?,
    }
    if matches!(route.input, InputSource::Body(_)) && !is_json(headers) {
        return Err(Problem::invalid("the body must be JSON").hint("send `Content-Type: application/json`"));
    }
    // Only tests without a connection have no peer address.
    let from = parts.extensions.get::<PeerAddr>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.0);
    let ask = ApiRequest {
        counter: state.app.counter.clone(),
        sign_in: state.app.sign_in.clone(),
        visitor: Visitor::new(from, headers),
        params: params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        session,
        cookie: OnceLock::new(),
        headers: parts.headers,
    };
    Ok((ask, body))
}

/// Requires `application/json`, which a cross-site form cannot send.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn with_cookie(mut response: Response, ask: &ApiRequest) -> Response {
    if let Some(cookie) = ask.cookie.get() {
        response.headers_mut().insert(header::SET_COOKIE, cookie.clone());
    }
    response
}

fn respond(status: StatusCode, json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error response with a constant message.
pub(crate) fn refusal(problem: Problem) -> Response {
    refusal_clean(RedactedValue::trusted(problem))
}

fn refusal_clean(problem: RedactedValue<Problem>) -> Response {
    let json = route::to_visible_json(&*problem).unwrap_or_default().into_bytes();
    respond(http_status(problem.code), json)
}
