//! From a message to a call, and from its outcome to an answer.
//!
//! A message is taken apart while its bytes are at hand ([`Exchange::prepare`]); what comes of it is a [`Job`]
//! that owns what it needs and can run anywhere.

use crate::announce::{Interest, Listeners, Listening};
use crate::clean::{Body, Reply, unchecked};
use crate::hub::Hub;
use crate::paging::page;
use crate::peer::{RoundPeer, SessionPeer};
use crate::search;
use crate::session::Session;
use crate::stream::{Outlet, Stream};
use crate::tasks;
use portcullis_core::{
    Answers, Arguments, Call, CallCtx, Caller, Client, CompletionOf, ErrorKind, ErrorStyle, Event, Listed,
    LogLevel, Origin, Outcome, Output, Passed, Peer, Target, TaskAsk, TaskSupport, ToolDef, ToolError,
    ToolView, WatchRefusal, scrub_off_worker,
};
use portcullis_wire::era::{Offers, RequestMeta, ServerFace};
use portcullis_wire::params::{Key, Params};
use portcullis_wire::rpc::Answer;
use portcullis_wire::{Era, Id, Method, Request, Revision, RpcError, era, render};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a resource address may be.
const URI_BYTES_MAX: usize = 8 * 1024;

/// One request, and who made it how.
pub(crate) struct Exchange {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: Id,
    pub(crate) client: Arc<Client>,
    pub(crate) revision: Revision,
    pub(crate) session: Option<Arc<Session>>,
    /// Where messages go that belong to this request.
    pub(crate) outlet: Arc<dyn Outlet>,
    /// The same as a stream, where the request has one of its own.
    pub(crate) stream: Option<Arc<Stream>>,
    pub(crate) meta: RequestMeta,
    pub(crate) cancel: CancellationToken,
}

/// What there is to do for a request.
pub(crate) enum Job {
    Ready(Reply),
    Resources {
        exchange: Exchange,
        cursor: Option<String>,
    },
    Call(CallJob),
    /// Hear whether the owner of a resource tells of its changes.
    Subscribe {
        exchange: Exchange,
        uri: String,
        begun: Result<(), Refused>,
    },
    /// Tell of changes until the client has had enough, or there is nobody to tell.
    Listen {
        hub: Arc<Hub>,
        revision: Revision,
        event: Event,
        listening: Result<Listening, RpcError>,
        answer: Vec<u8>,
        cancel: CancellationToken,
        over: CancellationToken,
    },
}

/// Why a subscription was refused: one word for the record, and what the client is told.
pub(crate) type Refused = (ErrorKind, RpcError);

/// A call with what its answer needs.
pub(crate) struct CallJob {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: Id,
    pub(crate) revision: Revision,
    pub(crate) call: Box<Call>,
    pub(crate) round: Option<Arc<RoundPeer>>,
}

impl Job {
    /// Does it. `None` means that the client no longer wants an answer.
    ///
    /// All but calls have their room elsewhere: those are what there is most of, and need little of it.
    pub(crate) async fn run(self) -> Option<Reply> {
        match self {
            Job::Ready(answer) => Some(answer),
            Job::Call(job) => job.run().await,
            Job::Resources { exchange, cursor } => {
                let listed = Box::pin(exchange.list_resources(cursor.as_deref())).await;
                Some(listed.map(Body::Clean))
            }
            Job::Subscribe { exchange, uri, begun } => {
                Some(unchecked(Box::pin(exchange.subscribed(&uri, begun)).await))
            }
            Job::Listen { hub, revision, event, listening, answer, cancel, over } => {
                let outcome = listening.as_ref().map(drop).map_err(|_| ErrorKind::RateLimited);
                if let Err(error) = hub.gate.record(&event, outcome).await {
                    return Some(Err(refused(revision, &error)));
                }
                let listening = match listening {
                    Ok(listening) => listening,
                    Err(refused) => return Some(Err(refused)),
                };
                let ended = tokio::select! {
                    () = cancel.cancelled() => None,
                    () = over.cancelled() => Some(Ok(Body::Clean(answer))),
                };
                drop(listening);
                ended
            }
        }
    }
}

impl CallJob {
    async fn run(self) -> Option<Reply> {
        let CallJob { hub, id, revision, call, round } = self;
        let (target, cancel) = (call.target.clone(), call.ctx.cancel.clone());
        let digest = round.as_ref().map(|_| call.digest());
        let client = call.caller.client.clone();
        let started = tracing::enabled!(target: "mcp", tracing::Level::DEBUG).then(Instant::now);
        let outcome = hub.gate.call(call).await;
        if let Some(started) = started {
            let success = outcome.as_ref().is_ok_and(|output| !is_error(output));
            let duration = format_args!("{}ms", started.elapsed().as_millis());
            tracing::debug!(target: "mcp", %id, %duration, success, "tool execution completed");
        }
        let outcome = outcome.and_then(|output| hub.name_task(&client, &target, output));
        let mut error = match outcome {
            Ok(output) => return Some(Ok(Body::Clean(render::output(revision, &target, &output)))),
            Err(error) => error,
        };
        if error.kind == ErrorKind::Cancelled && cancel.is_cancelled() {
            return None;
        }
        log_failure(&target, &error);
        if let (ErrorKind::NeedsInput, Some(input), Some(round), Some(digest)) =
            (error.kind, &error.input, &round, digest)
        {
            match hub.seal.seal(&digest, &input.questions, round.leaves(input)) {
                Ok(state) => return Some(Ok(Body::Clean(render::questions(revision, input, &state)))),
                Err(refused) => error = refused,
            }
        }
        let style = error_style(&hub, &client, &target);
        // It repeats names that the caller gave, which the gate does not hand back.
        Some(unchecked(render::failure(revision, &target, style, &error)))
    }
}

impl Hub {
    /// Has the client know a task of another server's by a name that is nobody else's.
    fn name_task(&self, client: &Client, target: &Target, output: Output) -> Outcome {
        let Output::Raw(raw) = output else { return Ok(output) };
        let task = match target {
            Target::Tool(name) => self.tasks.remember(client, name, || self.gate.server_of(name), &raw)?,
            Target::Task(_, task) => Some(task.clone()),
            Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) => None,
        };
        Ok(Output::Raw(match task {
            Some(task) => tasks::renamed(&task, raw),
            None => raw,
        }))
    }
}

fn is_error(output: &Output) -> bool {
    matches!(output, Output::Tool(tool) if tool.is_error)
}

/// Returns how a failure is told: as the tool's family does it, as far as the caller may know of the tool.
pub(crate) fn error_style(hub: &Hub, client: &Arc<Client>, target: &Target) -> ErrorStyle {
    match target {
        Target::Tool(name) => hub.gate.find_tool(&caller(client), name).map(|tool| tool.error_style),
        Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) | Target::Task(..) => None,
    }
    .unwrap_or_default()
}

/// The log learns why; the caller is told what to do.
pub(crate) fn log_failure(target: &Target, error: &ToolError) {
    let kind = target.kind();
    let code = error.kind.code();
    match (&error.source, error.kind) {
        (source, ErrorKind::Internal) => {
            let cause = source.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(target: "mcp", kind, code, cause = %cause, "A call failed in the hub.");
        }
        (Some(source), _) => tracing::info!(target: "mcp", kind, code, cause = %source, "A call failed."),
        (None, _) => tracing::debug!(target: "mcp", kind, code, "A call failed."),
    }
}

/// A client that calls for itself.
pub(crate) fn caller(client: &Arc<Client>) -> Caller {
    Caller { client: client.clone(), origin: Origin::Client }
}

impl Exchange {
    pub(crate) fn caller(&self) -> Caller {
        caller(&self.client)
    }

    fn offers(&self) -> Offers {
        self.meta.offers.or_else(|| self.session.as_ref().map(|session| session.offers())).unwrap_or_default()
    }

    /// Takes the request apart.
    pub(crate) fn prepare(self, request: &Request<'_>, params: &Params<'_>) -> Job {
        let Some(method) = Method::of(self.revision, &request.method) else {
            let refused = self.charge().err().unwrap_or_else(|| RpcError::method_not_found(&request.method));
            return Job::Ready(Err(refused));
        };
        let charged = match method {
            Method::Ping => Ok(()),
            // These are charged on their way through the gate.
            Method::CallTool
            | Method::ReadResource
            | Method::GetPrompt
            | Method::Complete
            | Method::ListTools
            | Method::ListPrompts
            | Method::ListResources
            | Method::ListTemplates => Ok(()),
            // As are those about tasks of other servers.
            Method::GetTask | Method::UpdateTask | Method::CancelTask => Ok(()),
            Method::Initialize
            | Method::Discover
            | Method::Subscribe
            | Method::Unsubscribe
            | Method::SetLogLevel
            | Method::Listen => self.charge(),
        };
        if let Err(refused) = charged {
            return Job::Ready(Err(refused));
        }
        let answer = match method {
            Method::CallTool => return self.call_tool(params),
            Method::ReadResource => return self.read_resource(params),
            Method::GetPrompt => return self.get_prompt(params),
            Method::Complete => return self.complete(request, params),
            Method::ListResources => match params.optional_text(Key::Cursor) {
                Ok(cursor) => return Job::Resources { exchange: self, cursor },
                Err(error) => Err(error),
            },
            Method::Listen => match self.listen(request, params) {
                Ok(job) => return job,
                Err(error) => Err(error),
            },
            Method::Initialize => self.initialize(params),
            Method::Discover => Ok(self.face().discover(self.revision)),
            Method::Ping => Ok(b"{}".to_vec()),
            Method::ListTools => return Job::Ready(self.list_tools(params).map(Body::Clean)),
            Method::ListPrompts => return Job::Ready(self.list_prompts(params).map(Body::Clean)),
            Method::ListTemplates => return Job::Ready(self.list_templates(params).map(Body::Clean)),
            Method::Subscribe => match bounded_uri(params) {
                Ok(uri) => {
                    let begun = self.subscribe(&uri);
                    return Job::Subscribe { exchange: self, uri, begun };
                }
                Err(error) => Err(error),
            },
            Method::Unsubscribe => self.unsubscribe(params),
            Method::SetLogLevel => self.set_log_level(params),
            Method::GetTask => return self.ask_after(TaskAsk::Get, params),
            Method::UpdateTask => return self.ask_after(TaskAsk::Update, params),
            Method::CancelTask => return self.ask_after(TaskAsk::Cancel, params),
        };
        Job::Ready(unchecked(answer))
    }

    /// Charges for a request that the gate does not see. Only `ping` is free.
    fn charge(&self) -> Result<(), RpcError> {
        self.hub.gate.admits(&self.caller()).map_err(|error| self.list_refused(&error))
    }

    fn unsubscribe(&self, params: &Params<'_>) -> Answer {
        let uri = params.text(Key::Uri)?;
        self.session()?.unsubscribe(&uri);
        Ok(b"{}".to_vec())
    }

    fn set_log_level(&self, params: &Params<'_>) -> Answer {
        let level = params.text(Key::Level)?;
        let level = LogLevel::parse(&level).ok_or_else(|| {
            let known = LogLevel::ALL.map(LogLevel::as_str).join(", ");
            RpcError::invalid_params(format_args!("`level` must be one of {known}"))
        })?;
        self.session()?.set_log_level(level);
        Ok(b"{}".to_vec())
    }

    fn session(&self) -> Result<&Arc<Session>, RpcError> {
        self.session.as_ref().ok_or_else(|| {
            RpcError::invalid_request("this needs a session; send `initialize` first, then its session id")
        })
    }

    fn initialize(&self, params: &Params<'_>) -> Answer {
        let asked = params.text(Key::ProtocolVersion)?;
        let capabilities = params.optional_object(Key::Capabilities)?.unwrap_or_default();
        let revision = Revision::negotiate(&asked);
        self.session()?.negotiate(revision, capabilities)?;
        Ok(self.face().initialize(revision))
    }

    /// Returns what this caller is told of the hub, and of the servers behind it that it sees something of.
    fn face(&self) -> ServerFace {
        self.hub.face.with_servers(&self.hub.gate.instructions(&self.caller()))
    }

    fn list_tools(&self, params: &Params<'_>) -> Answer {
        let tools = self.hub.gate.tools(&self.caller()).map_err(|e| self.list_refused(&e))?;
        let cursor = params.optional_text(Key::Cursor)?;
        let page = page(&tools, cursor.as_deref(), |tool| &tool.name, |name| self.hub.seal.mark(name))?;
        let outgoing = &self.hub.outgoing;
        // Kept from one list to the next, until other secrets must be kept out of it.
        let generation = outgoing.generation();
        let caller = self.caller();
        let clean = |tool: &ToolDef| outgoing.item(render::tool(tool));
        let within_reach = OnceCell::new();
        let listed = |tool: &Arc<ToolDef>| {
            // What can be found depends on who looks, so it is not kept.
            if search::is_own(tool)
                && let Ok(definition) = serde_json::from_str(render::tool(tool).get())
                && let within_reach =
                    within_reach.get_or_init(|| search::within_reach(&self.hub.gate, &caller))
                && let Ok(raw) = to_raw_value(&search::described(within_reach, definition))
            {
                return Arc::new(Listed::once(outgoing.item(raw)));
            }
            if let Some(definition) = render::tool_for(self.revision, tool) {
                return Arc::new(Listed::once(outgoing.item(definition)));
            }
            tool.listing_with(generation, clean)
        };
        let items: Vec<_> = page.items.iter().map(listed).collect();
        let items: Vec<&RawValue> = items.iter().map(|item| item.text()).collect();
        tracing::debug!(target: "mcp", id = %self.id, tools = items.len(), "sending response");
        Ok(render::page(self.revision, "tools", &items, page.next.as_deref()))
    }

    fn list_prompts(&self, params: &Params<'_>) -> Answer {
        let prompts = self.hub.gate.prompts(&self.caller()).map_err(|e| self.list_refused(&e))?;
        let cursor = params.optional_text(Key::Cursor)?;
        let page = page(&prompts, cursor.as_deref(), |prompt| &prompt.name, |name| self.hub.seal.mark(name))?;
        let items: Vec<_> = page.items.iter().map(|prompt| render::prompt(prompt)).collect();
        self.write_page("prompts", items, page.next.as_deref())
    }

    fn list_templates(&self, params: &Params<'_>) -> Answer {
        let templates = self.hub.gate.templates(&self.caller()).map_err(|e| self.list_refused(&e))?;
        let cursor = params.optional_text(Key::Cursor)?;
        let page = page(&templates, cursor.as_deref(), |t| &t.uri_template, |name| self.hub.seal.mark(name))?;
        let items: Vec<_> = page.items.iter().map(|template| render::template(template)).collect();
        self.write_page("resourceTemplates", items, page.next.as_deref())
    }

    async fn list_resources(&self, cursor: Option<&str>) -> Answer {
        let (resources, failed) =
            self.hub.gate.resources(&self.caller()).await.map_err(|e| self.list_refused(&e))?;
        for error in failed {
            tracing::warn!(target: "mcp", %error, "A provider could not list its resources.");
        }
        let page = page(&resources, cursor, |resource| &resource.uri, |uri| self.hub.seal.mark(uri))?;
        let items: Vec<_> = page.items.iter().map(render::resource).collect();
        self.write_page("resources", items, page.next.as_deref())
    }

    /// Writes one page, with every item looked through.
    fn write_page(&self, key: &'static str, items: Vec<Box<RawValue>>, next: Option<&str>) -> Answer {
        let bytes = items.iter().map(|item| item.get().len()).sum();
        let items: Vec<_> =
            scrub_off_worker(bytes, || items.into_iter().map(|item| self.hub.outgoing.item(item)).collect());
        let items: Vec<&RawValue> = items.iter().map(|item| &**item).collect();
        Ok(render::page(self.revision, key, &items, next))
    }

    /// A list that the gate did not admit.
    fn list_refused(&self, error: &ToolError) -> RpcError {
        refused(self.revision, error)
    }

    /// Begins to watch a resource.
    fn subscribe(&self, uri: &str) -> Result<(), Refused> {
        let session = self.session().map_err(|error| (ErrorKind::InvalidArgs, error))?;
        let mut kind = ErrorKind::RateLimited;
        let subscribed = session.subscribe(uri.to_owned(), |uri| {
            self.hub.gate.watch(&self.caller(), uri).map_err(|refusal| match refusal {
                WatchRefusal::Unknown => {
                    kind = ErrorKind::Unknown;
                    era::resource_not_found(self.revision, uri)
                }
                WatchRefusal::NeedsApproval => {
                    let error = ToolError::denied(
                        "a person has to be asked about this resource, so it cannot be watched",
                    );
                    kind = error.kind;
                    self.list_refused(&error.hint("read it instead, with `resources/read`"))
                }
            })
        });
        subscribed.map_err(|error| (kind, error))
    }

    /// Answers once it is known whether the client will be told, and that is on the record. One that will not be told is not
    /// left to wait for it.
    async fn subscribed(&self, uri: &str, begun: Result<(), Refused>) -> Answer {
        let watching = match begun {
            Ok(()) => {
                let known = self.hub.gate.watching(&self.caller(), uri).await;
                known.map_err(|error| (error.kind, self.list_refused(&error)))
            }
            Err(refused) => return self.record_refused(uri, refused).await,
        };
        let event = Event::watch(self.caller(), "subscribe", uri, json!({}));
        let outcome = watching.as_ref().copied().map_err(|(kind, _)| *kind);
        let recorded = self.hub.gate.record(&event, outcome).await;
        let watching =
            recorded.map_err(|error| self.list_refused(&error)).and(watching.map_err(|(_, error)| error));
        if let Err(refused) = watching {
            self.session()?.unsubscribe(uri);
            return Err(refused);
        }
        Ok(b"{}".to_vec())
    }

    /// Puts a subscription that was refused on the record. What the client watches already stays watched.
    async fn record_refused(&self, uri: &str, (kind, refused): Refused) -> Answer {
        let event = Event::watch(self.caller(), "subscribe", uri, json!({}));
        self.hub.gate.record(&event, Err(kind)).await.map_err(|error| self.list_refused(&error))?;
        Err(refused)
    }

    fn listen(self, request: &Request<'_>, params: &Params<'_>) -> Result<Job, RpcError> {
        let interest = Interest::of(params)?;
        let caller = self.caller();
        // Over when the connection takes no more, or when the hub does.
        let over =
            self.session.map_or_else(|| self.hub.closing.clone(), |session| session.input_over.clone());
        let answer = era::listened(self.revision, &request.id);
        let cancel = self.cancel;
        let event = Event::watch(caller.clone(), "listen", "subscriptions/listen", interest.granted());
        let listening = Listeners::add(
            &self.hub,
            caller,
            interest,
            &request.id,
            self.outlet,
            self.stream,
            cancel.clone(),
        );
        let (hub, revision) = (self.hub, self.revision);
        Ok(Job::Listen { hub, revision, event, listening, answer, cancel, over })
    }

    fn call_tool(self, params: &Params<'_>) -> Job {
        let name = match params.text(Key::Name) {
            Ok(name) => name,
            Err(error) => return Job::Ready(Err(error)),
        };
        // The tool that is named is the one that is called, on the whole road.
        let mut found = None;
        let mut name = name;
        let may_search = || self.hub.gate.find_tool(&self.caller(), search::CALL).is_some();
        if name == search::CALL && self.client.scope.view == ToolView::Search && may_search() {
            let bytes_max = |name: &str| self.hub.gate.input_bytes_max(&Target::Tool(name.to_owned()));
            if let Some((named, arguments)) = search::named(params.raw(Key::Arguments), bytes_max) {
                (name, found) = (named, Some(arguments));
            }
        }
        let may_be_task = |tool: &ToolDef| tool.tasks != TaskSupport::Never;
        let tool = match self.revision.era() {
            Era::Sessions => None,
            Era::PerRequest => self.hub.gate.find_tool_if(&self.caller(), &name, may_be_task),
        };
        let support = tool.map(|tool| tool.tasks).unwrap_or_default();
        let offers = self.offers();
        let target = Target::Tool(name);
        let job = match found {
            Some(arguments) => self.call_with(target, arguments, params),
            None => self.call(target, params),
        };
        let job = match job {
            Ok(job) => job,
            Err(error) => return Job::Ready(Err(error)),
        };
        let answered = job.round.as_ref().is_some_and(|round| !round.answers().is_empty());
        // What has begun in an earlier round goes on as what it is: as a task it would be begun once more.
        let goes_on = job.round.as_ref().is_some_and(|round| round.state().is_some());
        match (support, offers.tasks) {
            (TaskSupport::Never, _) | (TaskSupport::Optional, false) => Job::Call(job),
            (TaskSupport::Optional, true) if goes_on => Job::Call(job),
            (TaskSupport::Required | TaskSupport::RequiredAfterQuestions, false) => {
                Job::Ready(Err(era::missing_tasks()))
            }
            (TaskSupport::RequiredAfterQuestions, true) if !answered => Job::Call(job),
            (TaskSupport::Optional | TaskSupport::Required | TaskSupport::RequiredAfterQuestions, true) => {
                Job::Ready(unchecked(crate::tasks::start(job)))
            }
        }
    }

    fn read_resource(self, params: &Params<'_>) -> Job {
        let job = bounded_uri(params).and_then(|uri| self.call(Target::Resource(uri), params));
        job.map_or_else(|error| Job::Ready(Err(error)), Job::Call)
    }

    fn get_prompt(self, params: &Params<'_>) -> Job {
        let job = params.text(Key::Name).and_then(|name| self.call(Target::Prompt(name), params));
        job.map_or_else(|error| Job::Ready(Err(error)), Job::Call)
    }

    fn complete(self, request: &Request<'_>, params: &Params<'_>) -> Job {
        let job = completion_of(params).and_then(|of| {
            // The whole of `params` is the argument: what is typed, and what is settled already.
            let arguments = request.params.map(|raw| Arguments::new(raw.to_owned()));
            let arguments = arguments.unwrap_or_else(Arguments::empty);
            let mut exchange = self;
            // A round may end with a question where a tool is called, a prompt got or a resource read, and nowhere else.
            exchange.meta.offers = Some(Offers::default());
            exchange.call_with(Target::Completion(of), arguments, params)
        });
        job.map_or_else(|error| Job::Ready(Err(error)), Job::Call)
    }

    fn call(self, target: Target, params: &Params<'_>) -> Result<CallJob, RpcError> {
        let arguments = match params.raw(Key::Arguments) {
            None => Arguments::empty(),
            Some(raw) if raw.get().starts_with('{') => {
                Arguments::at_most(self.hub.gate.input_bytes_max(&target), raw)
            }
            Some(_) => return Err(RpcError::invalid_params("`arguments` must be an object")),
        };
        self.call_with(target, arguments, params)
    }

    fn call_with(
        self,
        target: Target,
        arguments: Arguments,
        params: &Params<'_>,
    ) -> Result<CallJob, RpcError> {
        let caller = self.caller();
        let cancel = self.cancel.clone();
        let others = params.others(|name| era::is_passed_on(self.revision, name))?;
        let passed = Passed { params: others, meta: self.meta.others.clone() };
        if self.revision.era() == Era::Sessions {
            let peer = Arc::new(SessionPeer::new(self.session, self.outlet, &self.meta));
            let mut call = Call::new(caller, target, arguments, CallCtx { cancel, peer });
            call.passed = passed;
            let (hub, id, revision) = (self.hub, self.id, self.revision);
            return Ok(CallJob { hub, id, revision, call: Box::new(call), round: None });
        }
        let mut earlier = match params.optional_text(Key::RequestState)? {
            Some(text) => {
                let digest = portcullis_core::digest_of(&caller, &target, &arguments);
                self.hub.seal.open(&digest, &text).map_err(RpcError::invalid_params)?
            }
            None => crate::seal::Earlier::default(),
        };
        earlier.add(input_responses(params)?);
        let round = RoundPeer::new(self.outlet, &self.meta, earlier, self.session);
        let round = Arc::new(round);
        let mut call = Call::new(caller, target, arguments, CallCtx { cancel, peer: round.clone() });
        call.passed = passed;
        let (hub, id, revision) = (self.hub, self.id, self.revision);
        Ok(CallJob { hub, id, revision, call: Box::new(call), round: Some(round) })
    }

    /// Asks after a task: its server, by the road on which its call came, or the hub itself.
    fn ask_after(self, ask: TaskAsk, params: &Params<'_>) -> Job {
        let foreign = match params.text(Key::TaskId) {
            Ok(id) if self.offers().tasks => self.hub.tasks.foreign(&self.client, &id),
            _ => None,
        };
        let Some(task) = foreign else {
            return Job::Ready(unchecked(self.charge().and_then(|()| self.task(ask, params))));
        };
        let asked = input_responses(params).and_then(|answers| {
            let mut said = serde_json::Map::new();
            said.insert("method".to_owned(), ask.method().into());
            said.insert("taskId".to_owned(), task.id.as_str().into());
            if ask == TaskAsk::Update {
                said.insert(Key::InputResponses.as_str().to_owned(), answers.into_iter().collect());
            }
            let arguments = Arguments::of(&Value::Object(said));
            self.call_with(Target::Task(ask, task), arguments, params)
        });
        asked.map_or_else(|error| Job::Ready(Err(error)), Job::Call)
    }

    /// Asks after a task that the hub runs.
    fn task(&self, ask: TaskAsk, params: &Params<'_>) -> Answer {
        if !self.offers().tasks {
            return Err(era::missing_tasks());
        }
        let id = params.text(Key::TaskId)?;
        let tasks = &self.hub.tasks;
        let answer = match ask {
            TaskAsk::Get => tasks.get(&self.client, &id)?,
            TaskAsk::Cancel => tasks.cancel(&self.client, &id)?,
            TaskAsk::Update => tasks.update(&self.client, &id, input_responses(params)?)?,
        };
        Ok(era::dress(self.revision, era::ResultKind::Plain, answer.to_string().into_bytes()))
    }
}

/// Puts why a request was not admitted into words of its revision.
fn refused(revision: Revision, error: &ToolError) -> RpcError {
    let target = Target::Prompt(String::new());
    match render::failure(revision, &target, ErrorStyle::Sentence, error) {
        Err(refused) => refused,
        Ok(_) => RpcError::new(portcullis_wire::rpc::INTERNAL_ERROR, error.message.clone()),
    }
}

fn input_responses(params: &Params<'_>) -> Result<Answers, RpcError> {
    Ok(params.exact_object(Key::InputResponses)?.unwrap_or_default().into_iter().collect())
}

fn bounded_uri(params: &Params<'_>) -> Result<String, RpcError> {
    let uri = params.text(Key::Uri)?;
    bounded(&uri)?;
    Ok(uri)
}

/// Says so where an address is too long to be one.
pub(crate) fn bounded(uri: &str) -> Result<(), RpcError> {
    if uri.len() > URI_BYTES_MAX {
        return Err(RpcError::invalid_params(format_args!("`uri` must have at most {URI_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn completion_of(params: &Params<'_>) -> Result<CompletionOf, RpcError> {
    const EXPECTED: &str =
        "`ref` must be {\"type\": \"ref/prompt\", \"name\": …} or {\"type\": \"ref/resource\", \"uri\": …}";
    let reference = params.optional_object(Key::Ref)?.unwrap_or_default();
    let text = |key: &str| reference.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("type").as_deref(), text("name"), text("uri")) {
        (Some("ref/prompt"), Some(name), _) => Ok(CompletionOf::Prompt(name)),
        (Some("ref/resource"), _, Some(uri)) => Ok(CompletionOf::Template(uri)),
        _ => Err(RpcError::invalid_params(EXPECTED)),
    }
}
