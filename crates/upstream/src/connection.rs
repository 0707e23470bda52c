//! One live connection to a server: requests out, answers back.

use crate::clean::words;
use crate::inbox::{Answer, Inbox, Listener};
use crate::link::{Carrier, Link, MESSAGE_BYTES_MAX, Outgoing};
use crate::slot::{News, Slot};
use bytes::Bytes;
use futures::future::OptionFuture;
use portcullis_core::text::shown;
use portcullis_core::{
    Answers, AskKind, AskRefused, BoxFuture, ErrorKind, ForeignError, Peer, Question, ToolError,
};
use portcullis_wire::{Era, Revision, rpc};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What whoever called has to know before they call again.
const NOT_KNOWN: &str = "whether the call was carried out is not known";

/// Why a request has no result. In words it is one line, whatever the server said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the server answered with error {}: {}", .0.code, shown(&.0.message))]
    Refused(ForeignError),
    #[error("the server gave no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the connection to the server ended")]
    Closed,
    /// There was one, but of so many bytes, or more where it did not end there.
    #[error("the answer has {}{bytes} bytes, at most {MESSAGE_BYTES_MAX} are taken", if *.ended { "" } else { "more than " })]
    TooLong { bytes: u64, ended: bool },
    /// The transport could not carry it, for a reason that a person can do something about.
    #[error("{}", shown(&.0.to_string()))]
    Link(LinkError),
}

/// What went wrong on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkError {
    /// The server wants to know who we are.
    NeedsAuth(String),
    NeedsRegistration(String),
    /// Who we are cannot be shown for the moment. Nothing was sent, and nothing is wrong with the connection.
    NoCredentials(String),
    /// The server does not know our session any more.
    SessionLost,
    /// The server was reached, and answered in HTTP, but with nothing of MCP.
    Unsuitable {
        status: u16,
        why: String,
    },
    /// What else there is. `sent` says whether the server may have acted on the message.
    Failed {
        why: String,
        sent: bool,
    },
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkError::NeedsAuth(why) | LinkError::NeedsRegistration(why) | LinkError::NoCredentials(why) => {
                f.write_str(why)
            }
            LinkError::SessionLost => f.write_str("the server does not know the session any more"),
            LinkError::Unsuitable { why, .. } | LinkError::Failed { why, .. } => f.write_str(why),
        }
    }
}

/// The connection. When the last one who holds it lets go, the transport ends.
pub(crate) struct Connection {
    link: Arc<dyn Link>,
    pub(crate) inbox: Arc<Inbox>,
    next_id: AtomicU64,
    agreed: OnceLock<Agreed>,
    /// Whether the server is being asked if it still answers.
    is_doubted: AtomicBool,
}

/// What the server said when it introduced itself, as far as calls go by it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    pub(crate) revision: Revision,
    /// Whether calls of tools may ask to run as tasks. Not said by servers of the newer era, which decide themselves.
    pub(crate) runs_tasks: bool,
}

/// What a request says, and how it is made.
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    /// The inside of the object `params`, without `_meta`, in so many parts.
    pub(crate) params: [&'a str; 3],
    /// The inside of the object `_meta` that came with the call, without what the hub itself puts there.
    pub(crate) meta: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) caller: Option<Listener>,
    /// How long the server may take to the first sign of life.
    pub(crate) timeout: Duration,
    /// How long from one to the next.
    pub(crate) silence: Duration,
}

impl Connection {
    pub(crate) fn new(link: Arc<dyn Link>, inbox: Arc<Inbox>) -> Connection {
        inbox.asides.go_by(&link);
        let (next_id, agreed, is_doubted) = (AtomicU64::new(1), OnceLock::new(), AtomicBool::new(false));
        Connection { link, inbox, next_id, agreed, is_doubted }
    }

    pub(crate) fn agree(&self, agreed: Agreed) {
        let _ = self.agreed.set(agreed);
        self.link.speaks(agreed.revision);
    }

    pub(crate) fn revision(&self) -> Option<Revision> {
        self.agreed.get().map(|agreed| agreed.revision)
    }

    /// Returns whether a call of a tool may ask to run as a task.
    pub(crate) fn runs_tasks(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.runs_tasks)
    }

    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.inbox.closed
    }

    pub(crate) fn carrier(&self) -> Carrier {
        self.link.carrier()
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.era() == Era::PerRequest
    }

    /// Returns in which era's words it is spoken. Until that is agreed on, in those of the older.
    pub(crate) fn era(&self) -> Era {
        self.revision().map_or(Era::Sessions, Revision::era)
    }

    /// Makes a request of the hub's own.
    pub(crate) async fn own(&self, method: &str, params: String, timeout: Duration) -> Answer {
        let (params, meta, headers) = ([&*params, "", ""], "", &[]);
        let ask = Ask { method, params, meta, name: None, headers, caller: None, timeout, silence: timeout };
        self.request(ask).await
    }

    /// Asks after a task. `more` is what stands in `params` besides its id.
    pub(crate) async fn about_task(&self, method: &str, id: &str, more: &str, timeout: Duration) -> Answer {
        let named = format!(r#""taskId":{}"#, Value::from(id));
        let (params, name, headers) = ([&*named, more, ""], Some(id), &[]);
        let ask = Ask { method, params, meta: "", name, headers, caller: None, timeout, silence: timeout };
        match self.is_modern() {
            // Only a client that understands tasks ever has one.
            true => self.request_as(self.next_id(), ask, Some(&TaskClient)).await,
            false => self.request(ask).await,
        }
    }

    /// Makes a request and waits for its answer. The time is counted from the last sign of life.
    pub(crate) fn request<'a>(&'a self, ask: Ask<'a>) -> impl Future<Output = Answer> + 'a {
        self.request_by(self.next_id(), ask)
    }

    /// Makes a request whose id somebody has to know.
    pub(crate) fn request_by<'a>(&'a self, id: u64, ask: Ask<'a>) -> impl Future<Output = Answer> + 'a {
        self.request_as(id, ask, None)
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a request for `peer`, or for whoever listens to the answer.
    ///
    /// It is on its way when this returns; only the wait is a future, which would otherwise carry all of the request.
    fn request_as<'a>(
        &'a self,
        id: u64,
        ask: Ask<'a>,
        peer: Option<&dyn Peer>,
    ) -> impl Future<Output = Answer> + 'a {
        let (timeout, silence) = (ask.timeout, ask.silence);
        let sent = self.send(id, ask, peer);
        async move {
            let Waiting { slot, mut sending, _open } = sent?;
            let deadline = tokio::time::sleep(timeout);
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    biased;
                    news = poll_fn(|context| slot.poll_news(context)) => match news {
                        News::Answer(answer) => break answer,
                        News::Alive => deadline.as_mut().reset(tokio::time::Instant::now() + silence),
                    },
                    Some(done) = OptionFuture::from(sending.as_mut()) => {
                        done?;
                        sending = None;
                    }
                    // The time that a client takes to answer is not the server's.
                    () = &mut deadline => match slot.is_asking() {
                        true => deadline.as_mut().reset(tokio::time::Instant::now() + silence),
                        false => break Err(RequestError::Timeout(silence)),
                    },
                }
            }
        }
    }

    fn send<'a>(
        &'a self,
        id: u64,
        ask: Ask<'a>,
        peer: Option<&dyn Peer>,
    ) -> Result<Waiting<'a>, RequestError> {
        let peer = peer.or_else(|| ask.caller.as_ref().map(|caller| &*caller.peer));
        let bytes = self.written(id, &ask, peer);
        let slot = ask.caller.as_ref().map_or_else(Arc::default, |caller| caller.slot.clone());
        self.inbox.expect(id, slot.clone(), ask.caller);
        // However this ends, nobody waits for it any more; a server that still works on it is told.
        let open = Open { connection: self, id };
        let outgoing =
            Outgoing { bytes, id: Some(id), method: Some(ask.method), name: ask.name, headers: ask.headers };
        // As nearly always on a line, and then nobody has to wait.
        let sending = self.link.take(outgoing)?.map(|outgoing| self.link.send(outgoing));
        Ok(Waiting { slot, sending, _open: open })
    }

    fn written(&self, id: u64, ask: &Ask<'_>, peer: Option<&dyn Peer>) -> Bytes {
        let length: usize = ask.params.iter().map(|part| part.len()).sum();
        let mut out = String::with_capacity(length + ask.meta.len() + 384);
        // Writing into memory does not fail.
        let _ = write!(out, r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":{{"#, ask.method);
        for part in ask.params {
            add(&mut out, part);
        }
        if !ask.meta.is_empty() || peer.is_some() || self.is_modern() {
            add(&mut out, r#""_meta":{"#);
            add(&mut out, ask.meta);
            if peer.is_some() {
                add(&mut out, r#""progressToken":"#);
                let _ = write!(out, "{id}");
            }
            if self.is_modern() {
                add(&mut out, &modern_meta(peer));
            }
            out.push('}');
        }
        out.push_str("}}");
        out.into()
    }

    /// Says something that needs no answer, and waits until the server has it.
    pub(crate) async fn tell(&self, method: &'static str, params: &Value) -> Result<(), RequestError> {
        self.link.send(Outgoing::aside(Some(method), rpc::notification(method, params))).await
    }

    /// Says something that needs no answer, some time soon.
    pub(crate) fn notify(&self, method: &'static str, params: &Value) {
        // One that takes nothing more would not hear this either.
        let _ = self.inbox.asides.say(Some(method), rpc::notification(method, params));
    }

    /// Asks whether the server still answers at all, unless that is being asked already, and gives the connection up where it
    /// does not. Whoever gets an answer meanwhile has found out too.
    pub(crate) async fn is_asked_after(&self, within: Duration) {
        if self.is_doubted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.inbox.doubt();
        let method = if self.is_modern() { "server/discover" } else { "ping" };
        let asked = self.own(method, String::new(), within).await;
        let is_silent = matches!(asked, Err(RequestError::Timeout(_)));
        if self.inbox.is_silent() && is_silent {
            self.inbox.retire_for("it does not answer");
        }
        self.is_doubted.store(false, Ordering::Release);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.inbox.asides.leave();
    }
}

/// Adds members to an object that is being written.
pub(crate) fn add(out: &mut String, members: &str) {
    if !members.is_empty() {
        if !out.is_empty() && !out.ends_with('{') {
            out.push(',');
        }
        out.push_str(members);
    }
}

/// Who asks after a task, as far as the server has to know.
struct TaskClient;

impl Peer for TaskClient {
    fn progress(&self, _: portcullis_core::Progress) {}

    fn log(&self, _: portcullis_core::LogMessage) {}

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        portcullis_core::NoPeer.ask(questions)
    }

    fn offers(&self, _: AskKind) -> bool {
        false
    }

    fn capabilities(&self) -> Value {
        json!({ "extensions": { portcullis_wire::era::TASKS: {} } })
    }
}

/// What every request of the newer era says of the one who makes it.
pub(crate) fn modern_meta(peer: Option<&dyn Peer>) -> String {
    let capabilities = peer.map_or_else(|| "{}".to_owned(), |peer| peer.capabilities().to_string());
    let mut meta = format!(
        concat!(
            r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{},"#,
            r#""io.modelcontextprotocol/clientInfo":{{"name":"portcullis","version":"{}"}}"#,
        ),
        capabilities,
        env!("CARGO_PKG_VERSION"),
    );
    if let Some(level) = peer.and_then(Peer::log_level) {
        let _ = write!(meta, r#","io.modelcontextprotocol/logLevel":"{}""#, level.as_str());
    }
    meta
}

/// A request on its way.
struct Waiting<'a> {
    slot: Arc<Slot>,
    /// Where the transport could not take it at once.
    sending: Option<BoxFuture<'a, Result<(), RequestError>>>,
    _open: Open<'a>,
}

struct Open<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let given_up = self.connection.inbox.forget(self.id);
        if given_up && !self.connection.inbox.closed.is_cancelled() && !self.connection.link.hears_giving_up()
        {
            // Not in the client's words: what a client says reaches a server by way of the gate, and is on record.
            let params = json!({ "requestId": self.id, "reason": "no longer needed" });
            self.connection.notify("notifications/cancelled", &params);
        }
    }
}

/// Reads an error of the protocol; `None` if it is something else.
pub(crate) fn in_protocol(error: &RawValue) -> Option<ForeignError> {
    rpc::said(error).map(|said| ForeignError { message: words(&said.message), ..said })
}

impl RequestError {
    /// Reads what a server says instead of a result. What is no error of the protocol is told as it was said.
    pub(crate) fn refused(error: &RawValue) -> RequestError {
        RequestError::Refused(in_protocol(error).unwrap_or_else(|| {
            let said = serde_json::from_str::<Value>(error.get()).unwrap_or_default();
            let message = match (&said, &said["message"]) {
                (Value::String(message), _) | (_, Value::String(message)) => message.clone(),
                (Value::Null, _) => String::new(),
                (other, _) => other.to_string(),
            };
            let message = if message.is_empty() { "an error without a reason".to_owned() } else { message };
            ForeignError { code: i64::from(rpc::INTERNAL_ERROR), message: words(&message), data: None }
        }))
    }

    /// Tells it to whoever called the server `name`.
    pub(crate) fn told(self, name: &str) -> ToolError {
        match self {
            RequestError::Refused(error) => ToolError::foreign(name, error),
            RequestError::Timeout(after) => ToolError::timeout(after)
                .hint(format!(
                    "`mcp.{name}.timeout_ms` says how long a call may take without a sign of progress"
                ))
                .hint(NOT_KNOWN),
            RequestError::Closed => {
                ToolError::unavailable(format!("server `{name}` ended while the call was under way"))
                    .hint(format!("it is started again; {NOT_KNOWN}"))
            }
            error @ RequestError::TooLong { .. } => {
                ToolError::new(ErrorKind::TooLarge, format!("server `{name}`: {error}"))
                    .hint("ask for less at a time; the call may have been carried out")
            }
            RequestError::Link(error) => {
                let told = ToolError::new(ErrorKind::Unavailable, format!("server `{name}`: {error}"));
                match &error {
                    // A login that is not good any more says itself what to do.
                    LinkError::NeedsAuth(why) if why.contains("`portcullis mcp auth") => told,
                    LinkError::NeedsAuth(_) => told.hint(format!("run `portcullis mcp auth {name}`")),
                    LinkError::NeedsRegistration(_) => {
                        told.hint(format!("set `mcp.{name}.oauth.client_id` in the configuration"))
                    }
                    LinkError::SessionLost => told.hint("try again: a new session is opened"),
                    LinkError::Unsuitable { status: 429 | 503, .. } => told.hint("try again later"),
                    // A refusal, which comes before anything is done.
                    LinkError::Unsuitable { status: 400..=499, .. } => {
                        told.hint("`portcullis mcp status` says how it stands")
                    }
                    LinkError::Unsuitable { .. } => {
                        told.hint("`portcullis mcp status` says how it stands").hint(NOT_KNOWN)
                    }
                    LinkError::Failed { sent: true, .. } => told.hint(NOT_KNOWN),
                    LinkError::Failed { sent: false, .. } | LinkError::NoCredentials(_) => {
                        told.hint("try again later")
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    struct Nowhere;

    impl Link for Nowhere {
        fn send<'a>(&'a self, _: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            Box::pin(async { Ok(()) })
        }
    }

    /// How long a request waits of which little time is left, after so many signs of life within that.
    async fn waits(signs: usize) -> Duration {
        let inbox = Inbox::new().0;
        let (connection, began) = (Connection::new(Arc::new(Nowhere), inbox.clone()), Instant::now());
        let (left, silence) = (Duration::from_secs(2), Duration::from_secs(20));
        let ask = Ask {
            method: "tools/call",
            params: ["", "", ""],
            meta: "",
            name: None,
            headers: &[],
            caller: None,
            timeout: left,
            silence,
        };
        let lives = async {
            for _ in 0..signs {
                tokio::time::sleep(left / 2).await;
                let sign = json!({ "progressToken": 1, "progress": 1 });
                inbox.receive(&rpc::notification("notifications/progress", &sign), None);
            }
        };
        let (answer, ()) = tokio::join!(connection.request_by(1, ask), lives);
        assert!(matches!(answer, Err(RequestError::Timeout(_))));
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_a_sign_of_life_has_all_of_the_time_again() {
        assert_eq!(waits(0).await, Duration::from_secs(2));
        assert_eq!(waits(1).await, Duration::from_secs(21));
        assert_eq!(waits(3).await, Duration::from_secs(23));
    }

    #[test]
    fn what_was_said_is_told_whatever_its_form() {
        for (error, expected) in [
            (r#"{"code":-32000,"message":"no"}"#, "error -32000: no"),
            (r#""invalid_session""#, "error -32603: invalid_session"),
            (r#"{"message":"boom"}"#, "error -32603: boom"),
            (r#"{"code":"E1","reason":"boom"}"#, r#"error -32603: {"code":"E1","reason":"boom"}"#),
            ("null", "error -32603: an error without a reason"),
            (r#""""#, "error -32603: an error without a reason"),
        ] {
            let raw = RawValue::from_string(error.to_owned()).unwrap();
            let told = RequestError::refused(&raw).to_string();
            assert_eq!(told, format!("the server answered with {expected}"), "{error}");
        }
    }

    #[test]
    fn whoever_calls_again_knows_whether_it_may_have_been_carried_out() {
        let why = || "why".to_owned();
        let unsuitable = |status| RequestError::Link(LinkError::Unsuitable { status, why: why() });
        for (error, words, is_in_doubt) in [
            (RequestError::Timeout(Duration::from_secs(1)), "`mcp.shop.timeout_ms`", true),
            (RequestError::Closed, "it is started again", true),
            (unsuitable(200), "`portcullis mcp status`", true),
            (unsuitable(302), "`portcullis mcp status`", true),
            (unsuitable(500), "`portcullis mcp status`", true),
            (unsuitable(502), "`portcullis mcp status`", true),
            (unsuitable(504), "`portcullis mcp status`", true),
            (unsuitable(503), "try again later", false),
            (unsuitable(429), "try again later", false),
            (unsuitable(403), "`portcullis mcp status`", false),
            (RequestError::Link(LinkError::Failed { why: why(), sent: true }), "", true),
            (RequestError::Link(LinkError::Failed { why: why(), sent: false }), "try again later", false),
        ] {
            let of = error.to_string();
            let hints = error.told("shop").hints.join("; ");
            assert_eq!(
                (hints.contains(words), hints.contains(NOT_KNOWN)),
                (true, is_in_doubt),
                "{of}: {hints}"
            );
        }
    }

    #[test]
    fn whoever_called_gets_the_words_as_they_were_and_how_it_stands_is_one_line() {
        let said = format!("[\n\t{{ می\u{200c}خواهم }}\n]{}", " more".repeat(100));
        let raw = json!({ "code": -32000, "message": format!("{said}\u{202e}\u{1b}") });
        let error = RequestError::refused(&RawValue::from_string(raw.to_string()).unwrap());
        let line = said.replace('\n', "\\u{a}").replace('\t', "\\u{9}");
        assert_eq!(error.to_string(), format!("the server answered with error -32000: {line}"));
        let told = error.told("shop");
        assert_eq!(told.foreign.unwrap().message, said);
        let link = LinkError::Unsuitable { status: 500, why: "a\nb".to_owned() };
        assert_eq!(RequestError::Link(link.clone()).to_string(), "a\\u{a}b");
        assert_eq!(RequestError::Link(link).told("shop").message, "server `shop`: a\nb");
    }
}
