//! What may leave by the API and the page, and the one place where it is made.
//!
//! Both hold a [`Counter`], and what they get from it is a [`Clean`]: every text in it was looked through for secrets.
//! Neither can reach the desk itself.

use crate::desk::{Answer, Configured, Desk, Event, Listener, SHOWN_HERE, ScriptDesk, Showing};
use crate::problem::{Code, Problem};
use portcullis_core::{Scrub, Secret};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ops::Deref;
use std::sync::Arc;

/// An answer in which nothing is secret, except what a person asked to see once.
#[derive(Debug, Clone)]
pub struct Clean<T>(T);

impl<T> Clean<T> {
    /// The hub's own words, which hold nothing of anyone's.
    pub(crate) fn words(value: T) -> Clean<T> {
        Clean(value)
    }

    /// Takes the answer out. Whoever puts something else into it answers for that.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Clean<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What a question at the counter ends in.
pub type Asked<T> = Result<Clean<T>, Clean<Problem>>;

/// Where the desk is asked.
#[derive(Clone)]
pub struct Counter {
    desk: Arc<dyn Desk>,
    scrub: Arc<dyn Scrub>,
}

impl Counter {
    pub fn new(desk: Arc<dyn Desk>, scrub: Arc<dyn Scrub>) -> Counter {
        Counter { desk, scrub }
    }

    /// Puts a question to the desk, or gives it an order.
    pub async fn ask<'a, T>(&'a self, question: impl FnOnce(&'a dyn Desk) -> Answer<'a, T>) -> Asked<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let answered = question(&*self.desk).await;
        answered.and_then(|answer| self.clean(&answer, None)).map_err(|problem| self.problem(problem))
    }

    /// As [`Counter::ask`], for an answer with a value in it that is to be seen once.
    pub async fn ask_showing<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn Desk) -> Answer<'a, Showing<T>>,
    ) -> Asked<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let answered = question(&*self.desk).await;
        let clean = answered.and_then(|Showing { answer, shown }| self.clean(&answer, Some(&shown)));
        clean.map_err(|problem| self.problem(problem))
    }

    /// As [`Counter::ask`], for an answer that shows how servers are configured. A person decides by that, so it is shown as it is,
    /// whatever is registered as a secret; the desk has masked what is private in its own field.
    pub async fn ask_configured<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn Desk) -> Answer<'a, T>,
    ) -> Asked<T>
    where
        T: Serialize + DeserializeOwned + Configured,
    {
        let answer = question(&*self.desk).await.map_err(|problem| self.problem(problem))?;
        let mut clean = self.clean(&answer, None).map_err(|problem| self.problem(problem))?;
        clean.0.restore(&answer);
        Ok(clean)
    }

    /// Puts a question about scripts, where this hub has them.
    pub async fn ask_scripts<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn ScriptDesk) -> Answer<'a, T>,
    ) -> Asked<T>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.desk.scripts() {
            Some(scripts) => self.ask(|_| question(scripts)).await,
            None => Err(Clean(Problem::not_found("this hub has no scripts"))),
        }
    }

    pub fn has_scripts(&self) -> bool {
        self.desk.scripts().is_some()
    }

    /// Hears what happens from now on.
    pub fn listen(&self) -> Listening {
        Listening { events: self.desk.listen(), counter: self.clone() }
    }

    /// Takes secrets out of an answer that is not the desk's.
    pub fn cleaned<T: Serialize + DeserializeOwned>(&self, answer: T) -> Asked<T> {
        self.clean(&answer, None).map_err(Clean)
    }

    /// Takes secrets out of a problem.
    pub fn problem(&self, problem: Problem) -> Clean<Problem> {
        let Problem { code, message, suggestions } = problem;
        let scrubbed = |text: String| self.scrub.scrub(&text).into_owned();
        Clean(Problem {
            code,
            message: scrubbed(message),
            suggestions: suggestions.into_iter().map(scrubbed).collect(),
        })
    }

    fn clean<T: Serialize + DeserializeOwned>(
        &self,
        answer: &T,
        shown: Option<&Secret<String>>,
    ) -> Result<Clean<T>, Problem> {
        let withheld = |error: serde_json::Error| {
            tracing::error!(target: "admin", %error, "An answer could not be checked, so it is withheld.");
            Problem::new(Code::Internal, "the answer could not be checked for secrets, so it is withheld")
        };
        let mut value = serde_json::to_value(answer).map_err(withheld)?;
        self.scrub.scrub_value(&mut value);
        if let Some(shown) = shown {
            put(&mut value, shown.expose());
        }
        serde_json::from_value(value).map(Clean).map_err(withheld)
    }
}

/// Puts what is shown once in its places.
fn put(value: &mut Value, shown: &str) {
    match value {
        Value::String(text) if text.contains(SHOWN_HERE) => *text = text.replace(SHOWN_HERE, shown),
        Value::Array(items) => items.iter_mut().for_each(|item| put(item, shown)),
        Value::Object(fields) => fields.values_mut().for_each(|field| put(field, shown)),
        _ => {}
    }
}

/// Hears events in which nothing is secret.
pub struct Listening {
    events: Listener,
    counter: Counter,
}

impl Listening {
    /// Returns the next event; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Clean<Event>> {
        loop {
            let event = self.events.next().await?;
            if let Some(clean) = self.cleaned(&event) {
                return Some(clean);
            }
        }
    }

    /// Returns an event that has happened already, if there is one.
    pub fn ready(&mut self) -> Option<Clean<Event>> {
        loop {
            let event = self.events.ready()?;
            if let Some(clean) = self.cleaned(&event) {
                return Some(clean);
            }
        }
    }

    /// What cannot be checked is not told.
    fn cleaned(&self, event: &Event) -> Option<Clean<Event>> {
        self.counter.clean(event, None).ok()
    }
}
