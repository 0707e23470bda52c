//! What a route is.

use crate::clean::{Asked, Clean, Counter};
use crate::desk::Actor;
use crate::problem::Problem;
use crate::sign_in::{Session, SignIn, Visitor};
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use portcullis_core::{BoxFuture, json};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Who may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Whoever has a session.
    Session,
    /// Anyone: this is how a session is got.
    Anyone,
}

/// What a request brings.
pub(super) struct Ask {
    pub(super) counter: Counter,
    pub(super) sign_in: Arc<SignIn>,
    pub(super) visitor: Visitor,
    pub(super) params: Vec<(String, String)>,
    pub(super) query: String,
    /// There wherever the route needs one.
    pub(super) session: Option<Session>,
    /// A cookie that goes with the answer.
    pub(super) cookie: OnceLock<HeaderValue>,
    pub(super) headers: HeaderMap,
}

impl Ask {
    /// Returns a part of the path.
    pub(super) fn param(&self, name: &str) -> String {
        self.params
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    }

    pub(super) fn by(&self) -> Actor {
        Actor { name: self.session.as_ref().map(|session| session.admin.clone()).unwrap_or_default() }
    }

    /// Returns the session. The check before the route saw it.
    pub(super) fn session(&self) -> Result<&Session, Problem> {
        self.session.as_ref().ok_or_else(|| Problem::internal("a route that needs a session has none"))
    }
}

/// What a route is given.
pub(super) struct Given<'a> {
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
}

/// Nothing is to be given.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Where what is given comes from.
pub(super) enum Input {
    Query(SchemaOf),
    Body(SchemaOf),
}

type Run =
    Box<dyn for<'a> Fn(&'a Ask, Given<'a>) -> BoxFuture<'a, Result<Vec<u8>, Clean<Problem>>> + Send + Sync>;

/// How a route answers.
pub(super) enum Work {
    Json(Run),
    /// With a stream that does not end.
    Events,
}

pub(super) struct Route {
    pub(super) method: Method,
    /// Below the root, with `{name}` for a part that is to be given.
    pub(super) path: &'static str,
    /// What it does, in a line.
    pub(super) what: &'static str,
    pub(super) access: Access,
    pub(super) for_scripts: bool,
    pub(super) input: Input,
    pub(super) output: SchemaOf,
    pub(super) work: Work,
}

/// A function that answers: it gets the request and what was given.
pub(super) type Answers<G, T> = for<'a> fn(&'a Ask, G) -> BoxFuture<'a, Asked<T>>;

impl Route {
    pub(super) fn get<G, T>(path: &'static str, what: &'static str, answers: Answers<G, T>) -> Route
    where
        G: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        Route {
            method: Method::GET,
            path,
            what,
            access: Access::Session,
            for_scripts: false,
            input: Input::Query(schema_of::<G>),
            output: schema_of::<T>,
            work: Work::Json(Box::new(move |ask, given| {
                Box::pin(async move {
                    let given = from_query(given.query).map_err(|problem| ask.counter.problem(problem))?;
                    finish(answers(ask, given).await)
                })
            })),
        }
    }

    /// A route that changes something, and takes JSON.
    pub(super) fn post<G, T>(path: &'static str, what: &'static str, answers: Answers<G, T>) -> Route
    where
        G: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        Route {
            method: Method::POST,
            path,
            what,
            access: Access::Session,
            for_scripts: false,
            input: Input::Body(schema_of::<G>),
            output: schema_of::<T>,
            work: Work::Json(Box::new(move |ask, given| {
                Box::pin(async move {
                    let given = from_body(given.body).map_err(|problem| ask.counter.problem(problem))?;
                    finish(answers(ask, given).await)
                })
            })),
        }
    }

    /// As [`Route::post`], for something that is the same if it is done twice.
    pub(super) fn put<G, T>(path: &'static str, what: &'static str, answers: Answers<G, T>) -> Route
    where
        G: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        Route { method: Method::PUT, ..Route::post(path, what, answers) }
    }

    pub(super) fn delete<T>(path: &'static str, what: &'static str, answers: Answers<Nothing, T>) -> Route
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
            access: Access::Session,
            for_scripts: false,
            input: Input::Query(schema_of::<Nothing>),
            output: schema_of::<T>,
            work: Work::Events,
        }
    }

    pub(super) fn for_anyone(self) -> Route {
        Route { access: Access::Anyone, ..self }
    }

    pub(super) fn for_scripts(self) -> Route {
        Route { for_scripts: true, ..self }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn finish<T: Serialize>(answered: Asked<T>) -> Result<Vec<u8>, Clean<Problem>> {
    let answer = answered?;
    written(&*answer)
        .map(String::into_bytes)
        .map_err(|_| Clean::words(Problem::internal("the answer could not be written down")))
}

/// Writes what leaves. Whoever prints it, or passes it on, does not get what strangers hide in it: it means the same.
pub(super) fn written<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(match json::visible_json(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(visible) => visible,
    })
}

fn from_query<G: DeserializeOwned>(query: &str) -> Result<G, Problem> {
    let bad = |why: String| Problem::invalid(format!("the query is not understood: {why}"));
    let uri = Uri::builder().path_and_query(format!("/?{query}")).build().map_err(|e| bad(e.to_string()))?;
    let given = Query::<G>::try_from_uri(&uri).map_err(|e| bad(json::printable(&e.body_text())))?;
    Ok(given.0)
}

fn from_body<G: DeserializeOwned>(body: &[u8]) -> Result<G, Problem> {
    let bad = |why: String| {
        Problem::invalid(format!("the body is not as it should be: {why}"))
            .hint("`GET /api/v1/openapi.json` has the fields of every body; a decision names what was seen")
    };
    let text = std::str::from_utf8(body).map_err(|_| bad("it is not text in UTF-8".to_owned()))?;
    // Repeated keys, which readers resolve differently, are refused.
    let value = json::parse_strict(text).map_err(|e| bad(e.to_string()))?;
    G::deserialize(value).map_err(|e| bad(json::printable(&e.to_string())))
}
