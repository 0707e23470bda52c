//! Route definitions: method, path, access, input and output types, handler.

use crate::redacted_desk::{DeskResult, RedactedDesk, RedactedValue};
use crate::sign_in::{AdminSession, SignIn, Visitor};
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use portcullis_core::{BoxFuture, json};
use portcullis_ops::{Actor, Problem};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Access to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteAccess {
    /// Needs a session.
    Session,
    /// Public: used to obtain a session.
    Anyone,
}

/// An admitted request.
pub(super) struct ApiRequest {
    pub(super) counter: RedactedDesk,
    pub(super) sign_in: Arc<SignIn>,
    pub(super) visitor: Visitor,
    pub(super) params: Vec<(String, String)>,
    pub(super) query: String,
    /// Present if the route needs one.
    pub(super) session: Option<AdminSession>,
    /// A cookie to set in the response.
    pub(super) cookie: OnceLock<HeaderValue>,
    pub(super) headers: HeaderMap,
}

impl ApiRequest {
    /// Returns a path parameter.
    pub(super) fn param(&self, name: &str) -> String {
        self.params
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    }

    pub(super) fn actor(&self) -> Actor {
        Actor::administrator(self.session.as_ref().map(|session| session.admin.as_str()).unwrap_or_default())
    }

    /// Returns the session, which access control has verified.
    pub(super) fn session(&self) -> Result<&AdminSession, Problem> {
        self.session.as_ref().ok_or_else(|| Problem::internal("the route has no session"))
    }
}

/// The raw query and body.
pub(super) struct RawInput<'a> {
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
}

/// Input of a route without parameters.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoInput {}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Where the input is read from.
pub(super) enum InputSource {
    Query(SchemaOf),
    Body(SchemaOf),
}

type RouteHandler = Box<
    dyn for<'a> Fn(&'a ApiRequest, RawInput<'a>) -> BoxFuture<'a, Result<Vec<u8>, RedactedValue<Problem>>>
        + Send
        + Sync,
>;

/// The handler of a route.
pub(super) enum RouteKind {
    Json(RouteHandler),
    /// Server-sent events.
    Events,
}

pub(super) struct Route {
    pub(super) method: Method,
    /// Path below the root, with `{name}` parameters.
    pub(super) path: &'static str,
    /// One-line summary.
    pub(super) what: &'static str,
    pub(super) access: RouteAccess,
    pub(super) for_scripts: bool,
    pub(super) input: InputSource,
    pub(super) output: SchemaOf,
    pub(super) work: RouteKind,
}

/// A handler of a request and its parsed input.
pub(super) type HandlerFn<G, T> = for<'a> fn(&'a ApiRequest, G) -> BoxFuture<'a, DeskResult<T>>;

impl Route {
    pub(super) fn get<G, T>(path: &'static str, what: &'static str, answers: HandlerFn<G, T>) -> Route
    where
        G: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        Route {
            method: Method::GET,
            path,
            what,
            access: RouteAccess::Session,
            for_scripts: false,
            input: InputSource::Query(schema_of::<G>),
            output: schema_of::<T>,
            work: RouteKind::Json(Box::new(move |ask, given| {
                Box::pin(async move {
                    let given = from_query(given.query).map_err(|problem| ask.counter.problem(problem))?;
                    finish(answers(ask, given).await)
                })
            })),
        }
    }

    /// A route that changes state and takes a JSON body.
    pub(super) fn post<G, T>(path: &'static str, what: &'static str, answers: HandlerFn<G, T>) -> Route
    where
        G: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        Route {
            method: Method::POST,
            path,
            what,
            access: RouteAccess::Session,
            for_scripts: false,
            input: InputSource::Body(schema_of::<G>),
            output: schema_of::<T>,
            work: RouteKind::Json(Box::new(move |ask, given| {
                Box::pin(async move {
                    let given = from_body(given.body).map_err(|problem| ask.counter.problem(problem))?;
                    finish(answers(ask, given).await)
                })
            })),
        }
    }

    /// As [`Route::post`], for an idempotent change.
    pub(super) fn put<G, T>(path: &'static str, what: &'static str, answers: HandlerFn<G, T>) -> Route
    where
        G: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        Route { method: Method::PUT, ..Route::post(path, what, answers) }
    }

    pub(super) fn delete<T>(path: &'static str, what: &'static str, answers: HandlerFn<NoInput, T>) -> Route
    where
        T: Serialize + JsonSchema + Send + 'static,
    {
        Route { method: Method::DELETE, ..Route::get(path, what, answers) }
    }

    pub(super) fn events<T: JsonSchema>(path: &'static str, what: &'static str) -> Route {
        Route {
            method: Method::GET,
            path,
            what,
            access: RouteAccess::Session,
            for_scripts: false,
            input: InputSource::Query(schema_of::<NoInput>),
            output: schema_of::<T>,
            work: RouteKind::Events,
        }
    }

    pub(super) fn for_anyone(self) -> Route {
        Route { access: RouteAccess::Anyone, ..self }
    }

    pub(super) fn for_scripts(self) -> Route {
        Route { for_scripts: true, ..self }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn finish<T: Serialize>(answered: DeskResult<T>) -> Result<Vec<u8>, RedactedValue<Problem>> {
    let answer = answered?;
    to_visible_json(&*answer)
        .map(String::into_bytes)
        .map_err(|_| RedactedValue::trusted(Problem::internal("the response could not be serialized")))
}

/// Serializes JSON with invisible characters escaped, so that printing it is safe. It decodes to the same value.
pub(super) fn to_visible_json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(match json::visible_json(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(visible) => visible,
    })
}

fn from_query<G: DeserializeOwned>(query: &str) -> Result<G, Problem> {
    let bad = |why: String| Problem::invalid(format!("invalid query: {why}"));
    let uri = Uri::builder().path_and_query(format!("/?{query}")).build().map_err(|e| bad(e.to_string()))?;
    let given = Query::<G>::try_from_uri(&uri).map_err(|e| bad(json::printable(&e.body_text())))?;
    Ok(given.0)
}

fn from_body<G: DeserializeOwned>(body: &[u8]) -> Result<G, Problem> {
    let bad = |why: String| {
        Problem::invalid(format!("invalid body: {why}")).hint(
            "`GET /api/v1/openapi.json` describes every body; a decision repeats the state that was reviewed",
        )
    };
    let text = std::str::from_utf8(body).map_err(|_| bad("it is not UTF-8".to_owned()))?;
    // Rejects duplicate keys, which parsers resolve differently.
    let value = json::parse_strict(text).map_err(|e| bad(e.to_string()))?;
    G::deserialize(value).map_err(|e| bad(json::printable(&e.to_string())))
}
