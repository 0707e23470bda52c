//! The client side of one call: progress, logs and input requests, in each protocol era.

use crate::egress_filter::RedactedMessage;
use crate::request_state::{PreviousRounds, RoundMemory};
use crate::session::McpSession;
use crate::stream::MessageSink;
use portcullis_core::{
    BoxFuture, InputRefusal, InputRequest, InputRequestKind, InputRequired, InputResponses,
    KeyedInputRequest, LogLevel, LogMessage, OWN_KEYS, Peer, Progress, SessionDigest,
};
use portcullis_wire::era::{ClientCapabilities, RequestMeta};
use portcullis_wire::rpc;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Serializes a progress notification. Its content passed the gate's redaction.
pub(crate) fn progress_notification(token: &Value, progress: Progress) -> RedactedMessage {
    let mut params = json!({ "progressToken": token });
    if let Some(params) = params.as_object_mut() {
        params.extend(progress.said);
    }
    RedactedMessage::already_redacted(rpc::notification("notifications/progress", &params))
}

fn log_notification(message: LogMessage) -> RedactedMessage {
    RedactedMessage::already_redacted(rpc::notification(
        "notifications/message",
        &Value::Object(message.said),
    ))
}

/// A client that can be asked while the call waits (elicitation, sampling, roots).
pub(crate) struct SessionPeer {
    /// `None` for a request without a session; such a client cannot be asked.
    session: Option<Arc<McpSession>>,
    sink: Arc<dyn MessageSink>,
    progress_token: Option<Value>,
}

impl SessionPeer {
    pub(crate) fn new(
        session: Option<Arc<McpSession>>,
        sink: Arc<dyn MessageSink>,
        meta: &RequestMeta,
    ) -> SessionPeer {
        SessionPeer { session, sink, progress_token: meta.progress_token.clone() }
    }

    async fn ask_all(&self, questions: Vec<KeyedInputRequest>) -> Result<InputResponses, InputRefusal> {
        let not_offered = questions.iter().find(|question| !self.accepts(&question.ask));
        let (Some(session), None) = (&self.session, not_offered) else {
            return Err(InputRefusal::NotOffered(
                not_offered.map_or(InputRequestKind::Elicit, |q| q.ask.kind),
            ));
        };
        let mut waiting = Vec::with_capacity(questions.len());
        for question in questions {
            let (id, answer) = session.ask(&question.ask, &*self.sink).map_err(InputRefusal::Failed)?;
            waiting.push((question.key, answer, OpenQuestion { session, sink: &*self.sink, id }));
        }
        let mut answers = InputResponses::new();
        for (key, answer, _open) in waiting {
            let gone = |why: &str| Err(InputRefusal::Failed(why.to_owned()));
            let answer = tokio::select! {
                () = session.input_over.cancelled() => gone("the client has gone"),
                answer = answer => answer.unwrap_or_else(|_| gone("the session was closed")),
            };
            answers.insert(key, answer?);
        }
        Ok(answers)
    }
}

/// Returns the sink for messages of a call: its own stream may have ended with its response.
fn sink_of<'a>(session: &'a McpSession, sink: &'a dyn MessageSink) -> &'a dyn MessageSink {
    if sink.is_closed() { &*session.home } else { sink }
}

/// A pending input request. When this is dropped, the client is told to cancel it.
struct OpenQuestion<'a> {
    session: &'a McpSession,
    sink: &'a dyn MessageSink,
    id: u64,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if !self.session.withdraw(self.id) {
            return;
        }
        let params = json!({ "requestId": self.id, "reason": "no longer needed" });
        let message =
            RedactedMessage::already_redacted(rpc::notification("notifications/cancelled", &params));
        sink_of(self.session, self.sink).notify(message);
    }
}

impl Peer for SessionPeer {
    fn progress(&self, progress: Progress) {
        if let Some(token) = &self.progress_token {
            self.sink.notify(progress_notification(token, progress));
        }
    }

    fn log(&self, message: LogMessage) {
        // Without a session, no log level can be set.
        if self.session.as_ref().is_some_and(|session| session.wants_log(message.level)) {
            self.sink.notify(log_notification(message));
        }
    }

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        Box::pin(self.ask_all(questions))
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.session.as_ref().is_some_and(|session| session.offers().has(kind))
    }

    fn accepts(&self, ask: &InputRequest) -> bool {
        self.session.as_ref().is_some_and(|session| session.offers().accepts(ask))
    }

    fn capabilities(&self) -> Value {
        self.session.as_ref().map_or_else(|| json!({}), |session| session.capabilities())
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.session.as_ref().and_then(|session| session.log_level())
    }

    fn session(&self) -> Option<SessionDigest> {
        self.session.as_ref().map(|session| session.digest)
    }

    fn disconnected(&self) -> BoxFuture<'_, ()> {
        match &self.session {
            Some(session) => Box::pin(session.input_over.cancelled()),
            None => Box::pin(std::future::pending()),
        }
    }

    fn elicitation_completed(&self, said: Map<String, Value>) {
        let Some(session) = self.session.as_ref().filter(|session| session.offers().elicit_url) else {
            return;
        };
        let message = rpc::notification("notifications/elicitation/complete", &Value::Object(said));
        sink_of(session, &*self.sink).notify(RedactedMessage::already_redacted(message));
    }

    fn close_connection(&self) {
        // Only a client that got an event id at the start of the stream can resume it.
        if self.session.as_ref().is_some_and(|session| session.revision().primes_streams()) {
            self.sink.let_go();
        }
    }
}

/// A client that is asked by ending the round with `input_required`, and answers by calling again.
pub(crate) struct RoundPeer {
    sink: Arc<dyn MessageSink>,
    progress_token: Option<Value>,
    log_level: Option<LogLevel>,
    offers: ClientCapabilities,
    /// The same as raw JSON.
    capabilities: Option<Box<RawValue>>,
    /// From this round, and from earlier ones as far as still needed.
    answers: InputResponses,
    state: Option<String>,
    approved: Option<String>,
    /// The session of the connection, if it has one.
    session: Option<Arc<McpSession>>,
}

impl RoundPeer {
    pub(crate) fn new(
        sink: Arc<dyn MessageSink>,
        meta: &RequestMeta,
        earlier: PreviousRounds,
        session: Option<Arc<McpSession>>,
    ) -> RoundPeer {
        let RoundMemory { answers, state, approved } = earlier.left;
        let offers = meta.offers.unwrap_or_default();
        let (progress_token, log_level) = (meta.progress_token.clone(), meta.log_level);
        let capabilities = meta.capabilities.clone();
        RoundPeer { sink, progress_token, log_level, offers, capabilities, answers, state, approved, session }
    }

    pub(crate) fn answers(&self) -> &InputResponses {
        &self.answers
    }

    /// Returns the state that the next round needs.
    ///
    /// If the call stores no new state, only a layer has asked: the earlier state still counts, and its pending
    /// answers were not consumed. A call that stores state has consumed its answers, and may ask something else
    /// under the same key.
    pub(crate) fn leaves(&self, input: &InputRequired) -> RoundMemory {
        let (mut answers, approved) = (self.answers.clone(), input.approved.clone());
        if input.state.is_none() {
            return RoundMemory { answers, state: self.state.clone(), approved };
        }
        answers.retain(|key, _| key.starts_with(OWN_KEYS));
        RoundMemory { answers, state: input.state.clone(), approved }
    }

    fn ask_now(&self, questions: Vec<KeyedInputRequest>) -> Result<InputResponses, InputRefusal> {
        let (mut known, mut open) = (InputResponses::new(), Vec::new());
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
            return Err(InputRefusal::NotOffered(question.ask.kind));
        }
        Err(InputRefusal::NextRound(InputRequired {
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
            self.sink.notify(progress_notification(token, progress));
        }
    }

    fn log(&self, message: LogMessage) {
        if self.log_level.is_some_and(|wanted| message.level >= wanted) {
            self.sink.notify(log_notification(message));
        }
    }

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        let answer = self.ask_now(questions);
        Box::pin(async move { answer })
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.offers.has(kind)
    }

    fn accepts(&self, ask: &InputRequest) -> bool {
        self.offers.accepts(ask)
    }

    fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    fn approved(&self) -> Option<&str> {
        self.approved.as_deref()
    }

    fn round(&self) -> Option<&InputResponses> {
        Some(&self.answers)
    }

    fn capabilities(&self) -> Value {
        let said = self.capabilities.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        said.unwrap_or_else(|| json!({}))
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    fn disconnected(&self) -> BoxFuture<'_, ()> {
        match &self.session {
            Some(session) => Box::pin(session.input_over.cancelled()),
            None => Box::pin(std::future::pending()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::ClientStream;

    #[test]
    fn answers_are_kept_until_somebody_has_taken_them() {
        let said =
            |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), json!({}))).collect::<InputResponses>();
        let left = |keys: &[&str], state: &str| {
            let (answers, state) = (said(keys), Some(state.to_owned()));
            RoundMemory { answers, state, approved: None }
        };
        let brought = left(&["name", "portcullis_approval_1"], "parked");
        let earlier = PreviousRounds::of(brought.clone());
        let round = RoundPeer::new(ClientStream::resumable(), &RequestMeta::default(), earlier, None);
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
