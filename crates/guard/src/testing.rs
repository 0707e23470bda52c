//! Shared test fixtures: a family that succeeds, refuses, hangs, panics and floods; a client that answers requests; a
//! stopped clock; and a text form of outcomes.

use parking_lot::Mutex;
use portcullis_core::{
    Arguments, BoxFuture, Call, CallCtx, CallLimits, Caller, Client, Clock, CompletionRef, Content, Effect,
    EffectSet, ErrorKind, Example, Family, Gate, InputRefusal, InputRequestKind, InputRequired,
    InputResponses, Json, KeyedInputRequest, Layer, LogLevel, LogMessage, Origin, Outcome, Output, OwnerId,
    Owners, Pattern, Peer, Progress, PromptDef, PromptMessage, PromptOutput, PromptSource, Reach, Registry,
    ResourceBody, ResourceContents, ResourceDef, ResourceSource, Role, Scope, SessionDigest, Target, Text,
    ToolDef, ToolError, ToolSpec,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// What the stub tools have done.
#[derive(Default)]
pub(crate) struct StubState {
    pub(crate) acted: AtomicUsize,
    /// The cancellation token of a hanging tool, as it would pass it to a spawned task.
    pub(crate) hanging: Mutex<Option<CancellationToken>>,
}

impl StubState {
    pub(crate) fn acted(&self) -> usize {
        self.acted.load(Ordering::Relaxed)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TextArgs {
    /// What to work with.
    #[serde(default)]
    text: String,
    /// How often, 1 to 100.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    #[expect(dead_code, reason = "only its schema matters")]
    limit: Option<u8>,
}

#[derive(Serialize, JsonSchema)]
struct Echo {
    text: String,
}

/// A tool with this input schema, for checks of its arguments.
pub(crate) fn tool_taking(schema: Value) -> ToolDef {
    ToolDef::new(spec("stub_taking", Effect::Read, Reach::Local), schema, None)
}

const fn spec(name: &'static str, effect: Effect, reach: Reach) -> ToolSpec {
    let limits = CallLimits { deadline_ms: 1_000, output_bytes_max: 1_000, ..CallLimits::DEFAULT };
    let example = Example { what: "a stub", arguments: "{}" };
    ToolSpec { name, title: "Stub", description: "A stub.", effect, reach, limits, example }
}

async fn act(world: Arc<StubState>, args: TextArgs, _: CallCtx) -> Result<Text, ToolError> {
    world.acted.fetch_add(1, Ordering::Relaxed);
    Ok(Text(format!("did {}", args.text)))
}

async fn echo(_: Arc<StubState>, args: TextArgs, ctx: CallCtx) -> Result<Json<Echo>, ToolError> {
    ctx.progress(1.0, None, Some(&args.text));
    ctx.log(LogLevel::Info, "stub", args.text.clone());
    Ok(Json(Echo { text: args.text }))
}

async fn refuse(_: Arc<StubState>, args: TextArgs, _: CallCtx) -> Result<Text, ToolError> {
    Err(ToolError::not_found("thing", &args.text).hint(format!("not `{}`", args.text)).caused_by("why"))
}

async fn hang(world: Arc<StubState>, _: TextArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    *world.hanging.lock() = Some(ctx.cancel.clone());
    std::future::pending().await
}

async fn fall(_: Arc<StubState>, args: TextArgs, _: CallCtx) -> Result<Text, ToolError> {
    panic!("fell over {}", args.text)
}

async fn flood(_: Arc<StubState>, _: TextArgs, _: CallCtx) -> Result<Text, ToolError> {
    Ok(Text("x".repeat(1_001)))
}

async fn question(_: Arc<StubState>, _: TextArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    ctx.ask("q", portcullis_core::InputRequest::elicit("well?", serde_json::json!({}))).await?;
    Ok(Text("answered".to_owned()))
}

struct Notes;

impl ResourceSource for Notes {
    fn owns(&self, uri: &str) -> bool {
        uri.starts_with("stub://")
    }

    fn list<'a>(&'a self, _: &'a Caller) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        let def = |uri: &str| ResourceDef {
            uri: uri.to_owned(),
            name: uri.to_owned(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            definition: None,
        };
        Box::pin(async move { Ok(vec![def("stub://a"), def("stub://b")]) })
    }

    fn read(&self, uri: String, _: CallCtx) -> BoxFuture<'_, Result<Vec<ResourceContents>, ToolError>> {
        let body = ResourceBody::Text(format!("contents of {uri}"));
        Box::pin(async move { Ok(vec![ResourceContents { uri, mime_type: None, body }]) })
    }
}

struct Greetings;

impl PromptSource for Greetings {
    fn prompts(&self) -> Vec<Arc<PromptDef>> {
        let (name, arguments) = ("stub_greet".to_owned(), Vec::new());
        vec![Arc::new(PromptDef { name, title: None, description: None, arguments, definition: None })]
    }

    fn get(
        &self,
        name: String,
        _: Map<String, Value>,
        _: CallCtx,
    ) -> BoxFuture<'_, Result<PromptOutput, ToolError>> {
        let content = Content::text(format!("hello from {name}"));
        let messages = vec![PromptMessage { role: Role::User, content }];
        Box::pin(async move { Ok(PromptOutput { description: None, messages }) })
    }
}

/// Returns a registry with the stub family, and the state of its tools.
pub(crate) fn registry() -> (Registry, Arc<StubState>) {
    let world = Arc::new(StubState::default());
    let registry = Registry::default();
    let family = Family::new("stub")
        .tool(spec("stub_read", Effect::Read, Reach::Local), &world, act)
        .tool(spec("stub_look", Effect::Read, Reach::Outside), &world, act)
        .tool(spec("stub_echo", Effect::Read, Reach::Local), &world, echo)
        .tool(spec("stub_write", Effect::Write, Reach::Local), &world, act)
        .tool(spec("stub_send", Effect::Create, Reach::Outside), &world, act)
        .tool(spec("stub_erase", Effect::Destroy, Reach::Local), &world, act)
        .tool(spec("stub_refuse", Effect::Read, Reach::Local), &world, refuse)
        .tool(spec("stub_hang", Effect::Read, Reach::Local), &world, hang)
        .tool(spec("stub_panic", Effect::Read, Reach::Local), &world, fall)
        .tool(spec("stub_flood", Effect::Read, Reach::Local), &world, flood)
        .tool(spec("stub_question", Effect::Read, Reach::Local), &world, question)
        .resources(Notes)
        .prompts(Greetings);
    registry.add(family).unwrap();
    (registry, world)
}

/// Returns a gate with the given layers in front of the stub family.
pub(crate) fn gate(layers: Vec<Box<dyn Layer>>) -> (Gate, Arc<StubState>) {
    let (registry, world) = registry();
    (Gate::new(registry, layers), world)
}

pub(crate) fn client(name: &str, scope: Scope) -> Caller {
    Caller::new(Arc::new(Client { name: name.to_owned(), scope, token: None }), Origin::Client)
}

/// The clients of a test: every client without a token is one, with an unlimited scope, unless the test says otherwise.
#[derive(Default)]
pub(crate) struct TestOwners {
    changed: Mutex<HashMap<String, Option<Arc<Client>>>>,
}

impl TestOwners {
    /// Changes a client, or removes it.
    pub(crate) fn set(&self, name: &str, client: Option<Client>) {
        self.changed.lock().insert(name.to_owned(), client.map(Arc::new));
    }
}

impl Owners for TestOwners {
    fn current(&self, owner: &OwnerId) -> Option<Arc<Client>> {
        match self.changed.lock().get(&owner.name) {
            Some(client) => client.clone().filter(|client| owner.is(client)),
            None => Some(client(&owner.name, Scope::everything()).client).filter(|client| owner.is(client)),
        }
    }
}

pub(crate) fn caller(name: &str) -> Caller {
    client(name, Scope::everything())
}

pub(crate) fn scope(allow: &[&str], effects: EffectSet) -> Scope {
    Scope { allow: Pattern::new(allow).unwrap(), effects, ..Scope::everything() }
}

/// Returns a call of client `ada`: `tool_name {"arguments": 1}`, or with `resource`, `prompt` or `completion` before it.
pub(crate) fn call(line: &str) -> Call {
    call_by(caller("ada"), line)
}

pub(crate) fn call_by(Caller { client, .. }: Caller, line: &str) -> Call {
    let (head, arguments) =
        line.split_once('{').map_or((line, "{}"), |(head, _)| (head, &line[head.len()..]));
    let target = match head.trim().split_once(' ') {
        Some(("resource", uri)) => Target::Resource(uri.to_owned()),
        Some(("prompt", name)) => Target::Prompt(name.to_owned()),
        Some(("completion", name)) => Target::Completion(CompletionRef::Prompt(name.to_owned())),
        _ => Target::Tool(head.trim().to_owned()),
    };
    let arguments = Arguments::new(serde_json::value::RawValue::from_string(arguments.to_owned()).unwrap());
    Call::new(client, target, arguments, CallCtx::detached())
}

/// Renders an outcome as a client sees it.
pub(crate) fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Ok(output) => {
            let mut texts = Vec::new();
            output.clone().visit_texts(&mut |text| texts.push(text.clone()));
            let is_error = matches!(output, Output::Tool(tool) if tool.is_error);
            format!("{}: {}", if is_error { "tool_error" } else { "ok" }, texts.join(" | "))
        }
        Err(error) => {
            let hints: String = error.hints.iter().map(|hint| format!("\nhint: {hint}")).collect();
            format!("{error}{hints}")
        }
    }
}

pub(crate) fn kind_of(outcome: &Outcome) -> Option<ErrorKind> {
    outcome.as_ref().err().map(|error| error.kind)
}

/// Noon on a summer's day, always.
pub(crate) struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_782_043_200_123)
    }
}

/// How a client responds to a request.
pub(crate) enum ClientBehavior {
    /// Always the same answer.
    Says(Value),
    /// The requests are answered in the next round.
    NextRound,
    /// Never.
    Silent,
    /// The same answer, after some time.
    SaysAfter(Duration, Value),
}

/// A client that records what it receives.
pub(crate) struct RecordingClient {
    pub(crate) mood: Option<ClientBehavior>,
    pub(crate) received: Mutex<Vec<String>>,
    pub(crate) session: Option<&'static str>,
}

impl RecordingClient {
    pub(crate) fn new(mood: Option<ClientBehavior>) -> Arc<RecordingClient> {
        Arc::new(RecordingClient { mood, received: Mutex::default(), session: None })
    }

    pub(crate) fn in_session(session: &'static str, mood: Option<ClientBehavior>) -> Arc<RecordingClient> {
        Arc::new(RecordingClient { mood, received: Mutex::default(), session: Some(session) })
    }

    pub(crate) fn received(&self) -> String {
        self.received.lock().join("\n")
    }

    fn receive(&self, what: String) {
        self.received.lock().push(what);
    }
}

impl Peer for RecordingClient {
    fn progress(&self, progress: Progress) {
        let message = progress.said.get("message").and_then(Value::as_str).unwrap_or_default();
        self.receive(format!("progress {}: {message}", progress.said["progress"]));
    }

    fn log(&self, message: LogMessage) {
        let logger = message.said["logger"].as_str().unwrap_or_default();
        self.receive(format!("{} {logger}: {}", message.level.as_str(), message.said["data"]));
    }

    fn elicitation_completed(&self, params: serde_json::Map<String, Value>) {
        self.receive(Value::Object(params).to_string());
    }

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        for question in &questions {
            let message = question.ask.params["message"].as_str().unwrap_or_default();
            self.receive(format!("{}? {message}", question.key));
        }
        Box::pin(async move {
            let answer = match &self.mood {
                None => return Err(InputRefusal::NotOffered(InputRequestKind::Elicit)),
                Some(ClientBehavior::NextRound) => {
                    return Err(InputRefusal::NextRound(InputRequired {
                        questions,
                        state: Some("state".to_owned()),
                        more: Map::new(),
                        approved: None,
                    }));
                }
                Some(ClientBehavior::Silent) => std::future::pending().await,
                Some(ClientBehavior::SaysAfter(delay, answer)) => {
                    tokio::time::sleep(*delay).await;
                    answer
                }
                Some(ClientBehavior::Says(answer)) => answer,
            };
            Ok(questions.into_iter().map(|question| (question.key, answer.clone())).collect())
        })
    }

    fn offers(&self, _: InputRequestKind) -> bool {
        self.mood.is_some()
    }

    fn session(&self) -> Option<SessionDigest> {
        self.session.map(SessionDigest::of)
    }
}
