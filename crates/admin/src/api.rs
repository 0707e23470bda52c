//! `/api/v1`: what the page and programs use.
//!
//! One table says which routes there are, what each takes and gives, and what it does ([`table`]). The router and the
//! OpenAPI document are both made from it. Every route needs a session, unless the table says that anyone may come;
//! every route that is not a `GET` changes something, and needs the token of the session as well.

mod events;
mod openapi;
mod route;
mod sign_in;
mod table;

pub use openapi::document;

use crate::clean::Clean;
use crate::problem::{Code, Problem};
use crate::sign_in::{Sender, Visitor, came_from};
use crate::{App, body};
use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use events::Streams;
use portcullis_server::http::CameFrom;
use route::{Access, Ask, Given, Input, Route, Work};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

/// What all paths begin with.
pub const ROOT: &str = "/api/v1";

/// Who may call a route, and how, for whoever wants to check all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteInfo {
    pub method: Method,
    pub path: String,
    pub needs_session: bool,
}

/// Returns every route there is.
pub fn routes() -> Vec<RouteInfo> {
    let info = |route: Route| RouteInfo {
        method: route.method,
        path: format!("{ROOT}{}", route.path),
        needs_session: route.access == Access::Session,
    };
    table::routes().into_iter().map(info).collect()
}

pub(crate) fn router(app: App) -> Router {
    let state = Arc::new(State { app, streams: Streams::default() });
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
        refusal(
            Problem::not_found("there is nothing here")
                .hint("`GET /api/v1/openapi.json` tells what there is"),
        )
    })
}

struct State {
    app: App,
    streams: Streams,
}

async fn answer(state: &State, route: &Route, params: &RawPathParams, request: Request) -> Response {
    let (ask, body) = match admit(state, route, params, request) {
        Ok(admitted) => admitted,
        Err(problem) => return refusal(problem),
    };
    match &route.work {
        Work::Json(run) => {
            let answered = async {
                let bytes = match route.input {
                    Input::Body(_) => body::read(body).await.map_err(Clean::words)?,
                    Input::Query(_) => bytes::Bytes::new(),
                };
                let given = Given { query: &ask.query, body: &bytes };
                run(&ask, given).await
            };
            match answered.await {
                Ok(json) => with_cookie(respond(StatusCode::OK, json), &ask),
                Err(problem) => with_cookie(refusal_clean(problem), &ask),
            }
        }
        Work::Events => events::stream(&state.streams, &state.app, ask),
    }
}

/// The check before every route: who asks, and whether they may ask this.
fn admit(
    state: &State,
    route: &Route,
    params: &RawPathParams,
    request: Request,
) -> Result<(Ask, Body), Problem> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    // A page of another site or port gets nothing, not even a refusal that depends on who is signed in.
    if came_from(headers) == Sender::Elsewhere {
        return Err(Problem::new(Code::Forbidden, "this request comes from another page"));
    }
    let session = state.app.sign_in.session(headers);
    match (route.access, &session) {
        (Access::Anyone, _) => {}
        (Access::Session, None) => {
            let problem = Problem::new(Code::SignInNeeded, "nobody is signed in, or not any more");
            return Err(problem.hint("sign in at /admin; the token of a client is of no use here"));
        }
        (Access::Session, Some(_)) if route.method == Method::GET => {}
        (Access::Session, Some(session)) => session.may_change(headers, None)?,
    }
    if matches!(route.input, Input::Body(_)) && !is_json(headers) {
        return Err(Problem::invalid("the body has to be JSON").hint("send `Content-Type: application/json`"));
    }
    // Only a test without a connection has no address.
    let from = parts.extensions.get::<CameFrom>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.0);
    let ask = Ask {
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

/// A form of another site cannot say this.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn with_cookie(mut response: Response, ask: &Ask) -> Response {
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

/// An answer in the hub's own words.
pub(crate) fn refusal(problem: Problem) -> Response {
    refusal_clean(Clean::words(problem))
}

fn refusal_clean(problem: Clean<Problem>) -> Response {
    let json = route::written(&*problem).unwrap_or_default().into_bytes();
    respond(problem.code.status(), json)
}
