//! The other end of one call, in each era.

use crate::clean::Clean;
use crate::seal::{Earlier, Left};
use crate::session::Session;
use crate::stream::Outlet;
use portcullis_core::{
    Answers, Ask, AskKind, AskRefused, BoxFuture, InputRequired, LogLevel, LogMessage, OWN_KEYS, Peer,
    Progress, Question,
};
use portcullis_wire::era::{Offers, RequestMeta};
use portcullis_wire::rpc;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Writes what both eras write alike. It comes from the gate, which has taken secrets out of it.
pub(crate) fn progress_notification(token: &Value, progress: Progress) -> Clean {
    let mut params = json!({ "progressToken": token });
    if let Some(params) = params.as_object_mut() {
        params.extend(progress.said);
    }
    Clean::guarded(rpc::notification("notifications/progress", &params))
}

fn log_notification(message: LogMessage) -> Clean {
    Clean::guarded(rpc::notification("notifications/message", &Value::Object(message.said)))
}

/// A peer that can be asked while the call waits.
pub(crate) struct SessionPeer {
    /// `None` for a request that came without a session; such a client cannot be asked.
    session: Option<Arc<Session>>,
    outlet: Arc<dyn Outlet>,
    progress_token: Option<Value>,
}

impl SessionPeer {
    pub(crate) fn new(
        session: Option<Arc<Session>>,
        outlet: Arc<dyn Outlet>,
        meta: &RequestMeta,
    ) -> SessionPeer {
        SessionPeer { session, outlet, progress_token: meta.progress_token.clone() }
    }

    async fn ask_all(&self, questions: Vec<Question>) -> Result<Answers, AskRefused> {
        let not_offered = questions.iter().find(|question| !self.accepts(&question.ask));
        let (Some(session), None) = (&self.session, not_offered) else {
            return Err(AskRefused::NotOffered(not_offered.map_or(AskKind::Elicit, |q| q.ask.kind)));
        };
        let mut waiting = Vec::with_capacity(questions.len());
        for question in questions {
            let (id, answer) = session.ask(&question.ask, &*self.outlet).map_err(AskRefused::Failed)?;
            waiting.push((question.key, answer, OpenQuestion { session, outlet: &*self.outlet, id }));
        }
        let mut answers = Answers::new();
        for (key, answer, _open) in waiting {
            let gone = |why: &str| Err(AskRefused::Failed(why.to_owned()));
            let answer = tokio::select! {
                () = session.input_over.cancelled() => gone("the client has gone"),
                answer = answer => answer.unwrap_or_else(|_| gone("the session was closed")),
            };
            answers.insert(key, answer?);
        }
        Ok(answers)
    }
}

/// Returns where to say what concerns a call: its own stream may have ended with its answer.
fn outlet_of<'a>(session: &'a Session, outlet: &'a dyn Outlet) -> &'a dyn Outlet {
    if outlet.is_closed() { &*session.home } else { outlet }
}

/// A question that nobody waits for any more when this is dropped. The client takes it off the screen then.
struct OpenQuestion<'a> {
    session: &'a Session,
    outlet: &'a dyn Outlet,
    id: u64,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if !self.session.withdraw(self.id) {
            return;
        }
        let params = json!({ "requestId": self.id, "reason": "no longer needed" });
        let message = Clean::guarded(rpc::notification("notifications/cancelled", &params));
        outlet_of(self.session, self.outlet).notify(message);
    }
}

impl Peer for SessionPeer {
    fn progress(&self, progress: Progress) {
        if let Some(token) = &self.progress_token {
            self.outlet.notify(progress_notification(token, progress));
        }
    }

    fn log(&self, message: LogMessage) {
        // Without a session nobody could have asked for less, or for any.
        if self.session.as_ref().is_some_and(|session| session.wants_log(message.level)) {
            self.outlet.notify(log_notification(message));
        }
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        Box::pin(self.ask_all(questions))
    }

    fn offers(&self, kind: AskKind) -> bool {
        self.session.as_ref().is_some_and(|session| session.offers().has(kind))
    }

    fn accepts(&self, ask: &Ask) -> bool {
        self.session.as_ref().is_some_and(|session| session.offers().accepts(ask))
    }

    fn capabilities(&self) -> Value {
        self.session.as_ref().map_or_else(|| json!({}), |session| session.capabilities())
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.session.as_ref().and_then(|session| session.log_level())
    }

    fn session(&self) -> Option<&str> {
        self.session.as_ref().map(|session| session.id.as_str())
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        match &self.session {
            Some(session) => Box::pin(session.input_over.cancelled()),
            None => Box::pin(std::future::pending()),
        }
    }

    fn elicited(&self, said: Map<String, Value>) {
        let Some(session) = self.session.as_ref().filter(|session| session.offers().elicit_url) else {
            return;
        };
        let message = rpc::notification("notifications/elicitation/complete", &Value::Object(said));
        outlet_of(session, &*self.outlet).notify(Clean::guarded(message));
    }

    fn let_go(&self) {
        // Only a client that was given an id at the start of the stream can come back for the answer.
        if self.session.as_ref().is_some_and(|session| session.revision().primes_streams()) {
            self.outlet.let_go();
        }
    }
}

/// A peer that is asked by ending the round, and answers by calling again.
pub(crate) struct RoundPeer {
    outlet: Arc<dyn Outlet>,
    progress_token: Option<Value>,
    log_level: Option<LogLevel>,
    offers: Offers,
    /// The same in the client's own words.
    capabilities: Option<Box<RawValue>>,
    /// From this round, and from those before it as far as they are still needed.
    answers: Answers,
    state: Option<String>,
    approved: Option<String>,
    /// Of the connection, where it is one that lasts.
    session: Option<Arc<Session>>,
}

impl RoundPeer {
    pub(crate) fn new(
        outlet: Arc<dyn Outlet>,
        meta: &RequestMeta,
        earlier: Earlier,
        session: Option<Arc<Session>>,
    ) -> RoundPeer {
        let Left { answers, state, approved } = earlier.left;
        let offers = meta.offers.unwrap_or_default();
        let (progress_token, log_level) = (meta.progress_token.clone(), meta.log_level);
        let capabilities = meta.capabilities.clone();
        RoundPeer {
            outlet,
            progress_token,
            log_level,
            offers,
            capabilities,
            answers,
            state,
            approved,
            session,
        }
    }

    pub(crate) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Returns what the next round needs of this one.
    ///
    /// Whoever has nothing to remember has only asked: what the call remembered so far still counts, and nobody took the
    /// answers that it waits for. A call that leaves something has had them, and may ask something else under the same key.
    pub(crate) fn leaves(&self, input: &InputRequired) -> Left {
        let (mut answers, approved) = (self.answers.clone(), input.approved.clone());
        if input.state.is_none() {
            return Left { answers, state: self.state.clone(), approved };
        }
        answers.retain(|key, _| key.starts_with(OWN_KEYS));
        Left { answers, state: input.state.clone(), approved }
    }

    fn ask_now(&self, questions: Vec<Question>) -> Result<Answers, AskRefused> {
        let (mut known, mut open) = (Answers::new(), Vec::new());
        for question in questions {
            match self.answers.get(&question.key) {
                Some(answer) if question.ask.kind.is_answer(answer) => {
                    known.insert(question.key, answer.clone());
                }
                _ => open.push(question),
            }
        }
        if open.is_empty() {
            return Ok(known);
        }
        if let Some(question) = open.iter().find(|question| !self.accepts(&question.ask)) {
            return Err(AskRefused::NotOffered(question.ask.kind));
        }
        Err(AskRefused::NextRound(InputRequired {
            questions: open,
            state: None,
            more: Map::new(),
            approved: None,
        }))
    }
}

impl Peer for RoundPeer {
    fn progress(&self, progress: Progress) {
        if let Some(token) = &self.progress_token {
            self.outlet.notify(progress_notification(token, progress));
        }
    }

    fn log(&self, message: LogMessage) {
        if self.log_level.is_some_and(|wanted| message.level >= wanted) {
            self.outlet.notify(log_notification(message));
        }
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        let answer = self.ask_now(questions);
        Box::pin(async move { answer })
    }

    fn offers(&self, kind: AskKind) -> bool {
        self.offers.has(kind)
    }

    fn accepts(&self, ask: &Ask) -> bool {
        self.offers.accepts(ask)
    }

    fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    fn approved(&self) -> Option<&str> {
        self.approved.as_deref()
    }

    fn round(&self) -> Option<&Answers> {
        Some(&self.answers)
    }

    fn capabilities(&self) -> Value {
        let said = self.capabilities.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        said.unwrap_or_else(|| json!({}))
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        match &self.session {
            Some(session) => Box::pin(session.input_over.cancelled()),
            None => Box::pin(std::future::pending()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Stream;

    #[test]
    fn answers_are_kept_until_somebody_has_taken_them() {
        let said = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), json!({}))).collect::<Answers>();
        let left = |keys: &[&str], state: &str| {
            let (answers, state) = (said(keys), Some(state.to_owned()));
            Left { answers, state, approved: None }
        };
        let brought = left(&["name", "portcullis_approval_1"], "parked");
        let earlier = Earlier::of(brought.clone());
        let round = RoundPeer::new(Stream::resumable(), &RequestMeta::default(), earlier, None);
        let asks = |state: Option<&str>| InputRequired {
            questions: Vec::new(),
            state: state.map(str::to_owned),
            more: Map::new(),
            approved: None,
        };
        assert_eq!(round.leaves(&asks(None)), brought, "a layer asks before the call is reached");
        let taken = left(&["portcullis_approval_1"], "later");
        assert_eq!(round.leaves(&asks(Some("later"))), taken, "the call has had its answer");
    }
}
