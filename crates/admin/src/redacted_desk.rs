//! Redaction of everything that leaves by the API and the page.
//!
//! Both hold a [`RedactedDesk`], which returns [`RedactedValue`]s: every string in them is redacted. Neither can reach
//! the desk itself.

use portcullis_core::{Scrub, Secret};
use portcullis_ops::desk::{
    AdminEvent, AdminEventStream, Configured, Desk, DeskFuture, OneTimeReveal, SHOWN_HERE, ScriptDesk,
};
use portcullis_ops::{Problem, ProblemCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ops::Deref;
use std::sync::Arc;

/// A value without secrets, except one that is revealed once ([`OneTimeReveal`]).
#[derive(Debug, Clone)]
pub struct RedactedValue<T>(T);

impl<T> RedactedValue<T> {
    /// Wraps a constant of the hub, which contains no user data.
    pub(crate) fn trusted(value: T) -> RedactedValue<T> {
        RedactedValue(value)
    }

    /// Unwraps the value. The caller must not add unredacted data to it.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for RedactedValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The redacted result of a query or command.
pub type DeskResult<T> = Result<RedactedValue<T>, RedactedValue<Problem>>;

/// A desk whose responses are redacted.
#[derive(Clone)]
pub struct RedactedDesk {
    desk: Arc<dyn Desk>,
    scrub: Arc<dyn Scrub>,
}

impl RedactedDesk {
    pub fn new(desk: Arc<dyn Desk>, scrub: Arc<dyn Scrub>) -> RedactedDesk {
        RedactedDesk { desk, scrub }
    }

    /// Runs a query or command and redacts its result.
    pub async fn ask<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn Desk) -> DeskFuture<'a, T>,
    ) -> DeskResult<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let answered = question(&*self.desk).await;
        answered
            .and_then(|answer| self.redact_revealing(&answer, None))
            .map_err(|problem| self.problem(problem))
    }

    /// As [`RedactedDesk::ask`], for a response with a value that is revealed once.
    pub async fn ask_showing<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn Desk) -> DeskFuture<'a, OneTimeReveal<T>>,
    ) -> DeskResult<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let answered = question(&*self.desk).await;
        let clean =
            answered.and_then(|OneTimeReveal { answer, shown }| self.redact_revealing(&answer, Some(&shown)));
        clean.map_err(|problem| self.problem(problem))
    }

    /// As [`RedactedDesk::ask`], for a response with configured values. An administrator decides by them, so they are
    /// shown unredacted even if one equals a secret; the desk has masked private fields already.
    pub async fn ask_configured<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn Desk) -> DeskFuture<'a, T>,
    ) -> DeskResult<T>
    where
        T: Serialize + DeserializeOwned + Configured,
    {
        let answer = question(&*self.desk).await.map_err(|problem| self.problem(problem))?;
        let mut clean = self.redact_revealing(&answer, None).map_err(|problem| self.problem(problem))?;
        clean.0.restore(&answer);
        Ok(clean)
    }

    /// As [`RedactedDesk::ask`], for the script service.
    pub async fn ask_scripts<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn ScriptDesk) -> DeskFuture<'a, T>,
    ) -> DeskResult<T>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.desk.scripts() {
            Some(scripts) => self.ask(|_| question(scripts)).await,
            None => Err(RedactedValue(Problem::not_found("this hub has no scripts"))),
        }
    }

    pub fn has_scripts(&self) -> bool {
        self.desk.scripts().is_some()
    }

    /// Subscribes to redacted events.
    pub fn listen(&self) -> RedactedEventStream {
        RedactedEventStream { events: self.desk.listen(), counter: self.clone() }
    }

    /// Redacts a response that is not the desk's.
    pub fn redact<T: Serialize + DeserializeOwned>(&self, answer: T) -> DeskResult<T> {
        self.redact_revealing(&answer, None).map_err(RedactedValue)
    }

    /// Redacts an error.
    pub fn problem(&self, problem: Problem) -> RedactedValue<Problem> {
        let Problem { code, message, suggestions } = problem;
        let scrubbed = |text: String| self.scrub.scrub(&text).into_owned();
        RedactedValue(Problem {
            code,
            message: scrubbed(message),
            suggestions: suggestions.into_iter().map(scrubbed).collect(),
        })
    }

    fn redact_revealing<T: Serialize + DeserializeOwned>(
        &self,
        answer: &T,
        shown: Option<&Secret<String>>,
    ) -> Result<RedactedValue<T>, Problem> {
        let withheld = |error: serde_json::Error| {
            tracing::error!(target: "admin", %error, "response withheld: redaction failed");
            Problem::new(ProblemCode::Internal, "the response was withheld because it could not be redacted")
        };
        let mut value = serde_json::to_value(answer).map_err(withheld)?;
        self.scrub.scrub_value(&mut value);
        if let Some(shown) = shown {
            insert_revealed(&mut value, shown.expose());
        }
        serde_json::from_value(value).map(RedactedValue).map_err(withheld)
    }
}

/// Replaces the placeholder by the revealed value.
fn insert_revealed(value: &mut Value, shown: &str) {
    match value {
        Value::String(text) if text.contains(SHOWN_HERE) => *text = text.replace(SHOWN_HERE, shown),
        Value::Array(items) => items.iter_mut().for_each(|item| insert_revealed(item, shown)),
        Value::Object(fields) => fields.values_mut().for_each(|field| insert_revealed(field, shown)),
        _ => {}
    }
}

/// A subscription to redacted events.
pub struct RedactedEventStream {
    events: AdminEventStream,
    counter: RedactedDesk,
}

impl RedactedEventStream {
    /// Returns the next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<RedactedValue<AdminEvent>> {
        loop {
            let event = self.events.next().await?;
            if let Some(clean) = self.cleaned(&event) {
                return Some(clean);
            }
        }
    }

    /// Returns a buffered event, if there is one.
    pub fn ready(&mut self) -> Option<RedactedValue<AdminEvent>> {
        loop {
            let event = self.events.ready()?;
            if let Some(clean) = self.cleaned(&event) {
                return Some(clean);
            }
        }
    }

    /// An event that cannot be redacted is dropped.
    fn cleaned(&self, event: &AdminEvent) -> Option<RedactedValue<AdminEvent>> {
        self.counter.redact_revealing(event, None).ok()
    }
}
