//! Dispatch: from a JSON-RPC request to a call through the gate, and from its outcome to a response.
//!
//! [`Exchange::prepare`] parses the parameters while the message buffer is borrowed. The resulting [`RequestJob`] owns
//! what it needs and can run in any task.

use crate::announce::{ChangeFilter, ChangeListeners, ListenerGuard};
use crate::egress_filter::{ReplyBody, RpcReply, unchecked};
use crate::hub::Hub;
use crate::paging::page;
use crate::peer::{RoundPeer, SessionPeer};
use crate::search;
use crate::session::McpSession;
use crate::stream::{ClientStream, MessageSink};
use crate::tasks;
use portcullis_core::{
    Arguments, Call, CallCtx, Caller, Client, CompletionRef, ErrorKind, ErrorStyle, Event, InputResponses,
    LogLevel, Origin, Outcome, Output, PassthroughParams, Peer, RenderedDefinition, Target, TaskOperation,
    TaskSupport, ToolDef, ToolError, ToolView, WatchRefusal, scrub_off_worker,
};
use portcullis_wire::era::{ClientCapabilities, RequestMeta, ServerProfile};
use portcullis_wire::params::{ParamKey, Params};
use portcullis_wire::rpc::RpcOutcome;
use portcullis_wire::{RequestId, Revision, RpcError, RpcMethod, RpcRequest, era, render};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Length of a resource URI.
const URI_BYTES_MAX: usize = 8 * 1024;

/// One request with its client, session and transport.
pub(crate) struct Exchange {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: RequestId,
    pub(crate) client: Arc<Client>,
    pub(crate) revision: Revision,
    pub(crate) session: Option<Arc<McpSession>>,
    /// Receives the messages that belong to this request.
    pub(crate) sink: Arc<dyn MessageSink>,
    /// The same as a stream, if the request has its own.
    pub(crate) stream: Option<Arc<ClientStream>>,
    pub(crate) meta: RequestMeta,
    pub(crate) cancel: CancellationToken,
}

/// The work of a request.
pub(crate) enum RequestJob {
    Ready(RpcReply),
    Resources {
        exchange: Exchange,
        cursor: Option<String>,
    },
    Call(CallJob),
    /// Wait until the resource's owner confirms the subscription.
    Subscribe {
        exchange: Exchange,
        uri: String,
        begun: Result<(), Refused>,
    },
    /// Send notifications until the client cancels or disconnects.
    Listen {
        hub: Arc<Hub>,
        revision: Revision,
        event: Event,
        listening: Result<ListenerGuard, RpcError>,
        answer: Vec<u8>,
        cancel: CancellationToken,
        over: CancellationToken,
    },
}

/// Why a subscription was refused: the kind for the audit record, and the error for the client.
pub(crate) type Refused = (ErrorKind, RpcError);

/// A call, with what rendering its response needs.
pub(crate) struct CallJob {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: RequestId,
    pub(crate) revision: Revision,
    pub(crate) call: Box<Call>,
    pub(crate) round: Option<Arc<RoundPeer>>,
}

impl RequestJob {
    /// Runs the job. `None` means that the client cancelled and gets no response.
    ///
    /// Everything but calls is boxed, which keeps this future small for calls, the most frequent kind.
    pub(crate) async fn run(self) -> Option<RpcReply> {
        match self {
            RequestJob::Ready(answer) => Some(answer),
            RequestJob::Call(job) => job.run().await,
            RequestJob::Resources { exchange, cursor } => {
                let listed = Box::pin(exchange.list_resources(cursor.as_deref())).await;
                Some(listed.map(ReplyBody::Clean))
            }
            RequestJob::Subscribe { exchange, uri, begun } => {
                Some(unchecked(Box::pin(exchange.subscribed(&uri, begun)).await))
            }
            RequestJob::Listen { hub, revision, event, listening, answer, cancel, over } => {
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
                    () = over.cancelled() => Some(Ok(ReplyBody::Clean(answer))),
                };
                drop(listening);
                ended
            }
        }
    }
}

impl CallJob {
    async fn run(self) -> Option<RpcReply> {
        let CallJob { hub, id, revision, call, round } = self;
        let (target, cancel) = (call.target.clone(), call.ctx.cancel.clone());
        let digest = round.as_ref().map(|_| call.digest());
        let client = call.caller().client.clone();
        let started = tracing::enabled!(target: "mcp", tracing::Level::DEBUG).then(Instant::now);
        let outcome = hub.gate.call(call).await;
        if let Some(started) = started {
            let success = outcome.as_ref().is_ok_and(|output| !is_error(output));
            let duration = format_args!("{}ms", started.elapsed().as_millis());
            tracing::debug!(target: "mcp", %id, %duration, success, "tool execution completed");
        }
        let outcome = outcome.and_then(|output| hub.name_task(&client, &target, output));
        let mut error = match outcome {
            Ok(output) => return Some(Ok(ReplyBody::Clean(render::output(revision, &target, &output)))),
            Err(error) => error,
        };
        if error.kind == ErrorKind::Cancelled && cancel.is_cancelled() {
            return None;
        }
        log_failure(&target, &error);
        if let (ErrorKind::Unknown, Target::Tool(name)) = (error.kind, &target) {
            error = with_near_names(&hub, &client, name, error);
        }
        if let (ErrorKind::NeedsInput, Some(input), Some(round), Some(digest)) =
            (error.kind, &error.input, &round, digest)
        {
            match hub.seal.seal(&digest, &input.questions, round.leaves(input)) {
                Ok(state) => return Some(Ok(ReplyBody::Clean(render::questions(revision, input, &state)))),
                Err(refused) => error = refused,
            }
        }
        let style = error_style(&hub, &client, &target);
        // The message may repeat names that the caller sent, which the gate's redaction did not see.
        Some(unchecked(render::failure(revision, &target, style, &error)))
    }
}

impl Hub {
    /// Replaces the upstream's task id with one that is unique in the hub.
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

/// Adds the names that were probably meant, of the tools that are listed for the caller: for a hidden name the answer is the
/// same as for one that nothing has.
fn with_near_names(hub: &Hub, client: &Arc<Client>, name: &str, error: ToolError) -> ToolError {
    let Ok(tools) = hub.gate.tools(&caller(client)) else { return error };
    let near = portcullis_text::nearest_names(name, tools.iter().map(|tool| tool.name.as_str()));
    if near.is_empty() {
        return error;
    }
    let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    error.hint(format!("did you mean {}?", near.join(" or ")))
}

/// Returns the error style of the tool's family, if the caller may see the tool.
pub(crate) fn error_style(hub: &Hub, client: &Arc<Client>, target: &Target) -> ErrorStyle {
    match target {
        Target::Tool(name) => hub.gate.find_tool(&caller(client), name).map(|tool| tool.error_style),
        Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) | Target::Task(..) => None,
    }
    .unwrap_or_default()
}

/// Logs the cause; the caller gets the message and hints.
pub(crate) fn log_failure(target: &Target, error: &ToolError) {
    let kind = target.kind();
    let code = error.kind.code();
    match (&error.source, error.kind) {
        (source, ErrorKind::Internal) => {
            let cause = source.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(target: "mcp", kind, code, cause = %cause, "call failed in the hub");
        }
        (Some(source), _) => tracing::info!(target: "mcp", kind, code, cause = %source, "call failed"),
        (None, _) => tracing::debug!(target: "mcp", kind, code, "call failed"),
    }
}

/// Returns the caller for a direct call by a client.
pub(crate) fn caller(client: &Arc<Client>) -> Caller {
    Caller::new(client.clone(), Origin::Client)
}

impl Exchange {
    pub(crate) fn caller(&self) -> Caller {
        caller(&self.client)
    }

    fn offers(&self) -> ClientCapabilities {
        self.meta.offers.or_else(|| self.session.as_ref().map(|session| session.offers())).unwrap_or_default()
    }

    /// Turns the request into a job.
    pub(crate) fn prepare(self, request: &RpcRequest<'_>, params: &Params<'_>) -> RequestJob {
        let Some(method) = RpcMethod::of(self.revision, &request.method) else {
            let refused = self.charge().err().unwrap_or_else(|| RpcError::method_not_found(&request.method));
            return RequestJob::Ready(Err(refused));
        };
        let charged = match method {
            RpcMethod::Ping => Ok(()),
            // The gate charges these.
            RpcMethod::CallTool
            | RpcMethod::ReadResource
            | RpcMethod::GetPrompt
            | RpcMethod::Complete
            | RpcMethod::ListTools
            | RpcMethod::ListPrompts
            | RpcMethod::ListResources
            | RpcMethod::ListTemplates => Ok(()),
            // The gate charges these too, if the task is an upstream's.
            RpcMethod::GetTask | RpcMethod::UpdateTask | RpcMethod::CancelTask => Ok(()),
            RpcMethod::Initialize
            | RpcMethod::Discover
            | RpcMethod::Subscribe
            | RpcMethod::Unsubscribe
            | RpcMethod::SetLogLevel
            | RpcMethod::Listen => self.charge(),
        };
        if let Err(refused) = charged {
            return RequestJob::Ready(Err(refused));
        }
        let answer = match method {
            RpcMethod::CallTool => return self.call_tool(params),
            RpcMethod::ReadResource => return self.read_resource(params),
            RpcMethod::GetPrompt => return self.get_prompt(params),
            RpcMethod::Complete => return self.complete(request, params),
            RpcMethod::ListResources => match params.optional_text(ParamKey::Cursor) {
                Ok(cursor) => return RequestJob::Resources { exchange: self, cursor },
                Err(error) => Err(error),
            },
            RpcMethod::Listen => match self.listen(request, params) {
                Ok(job) => return job,
                Err(error) => Err(error),
            },
            RpcMethod::Initialize => self.initialize(params),
            RpcMethod::Discover => Ok(self.face().discover(self.revision)),
            RpcMethod::Ping => Ok(b"{}".to_vec()),
            RpcMethod::ListTools => return RequestJob::Ready(self.list_tools(params).map(ReplyBody::Clean)),
            RpcMethod::ListPrompts => {
                return RequestJob::Ready(self.list_prompts(params).map(ReplyBody::Clean));
            }
            RpcMethod::ListTemplates => {
                return RequestJob::Ready(self.list_templates(params).map(ReplyBody::Clean));
            }
            RpcMethod::Subscribe => match bounded_uri(params) {
                Ok(uri) => {
                    let begun = self.subscribe(&uri);
                    return RequestJob::Subscribe { exchange: self, uri, begun };
                }
                Err(error) => Err(error),
            },
            RpcMethod::Unsubscribe => self.unsubscribe(params),
            RpcMethod::SetLogLevel => self.set_log_level(params),
            RpcMethod::GetTask => return self.ask_after(TaskOperation::Get, params),
            RpcMethod::UpdateTask => return self.ask_after(TaskOperation::Update, params),
            RpcMethod::CancelTask => return self.ask_after(TaskOperation::Cancel, params),
        };
        RequestJob::Ready(unchecked(answer))
    }

    /// Charges the rate limit for a request that does not pass the gate. Only `ping` is free.
    fn charge(&self) -> Result<(), RpcError> {
        self.hub.gate.admits(&self.caller()).map_err(|error| self.list_refused(&error))
    }

    fn unsubscribe(&self, params: &Params<'_>) -> RpcOutcome {
        let uri = params.text(ParamKey::Uri)?;
        self.session()?.unsubscribe(&uri);
        Ok(b"{}".to_vec())
    }

    fn set_log_level(&self, params: &Params<'_>) -> RpcOutcome {
        let level = params.text(ParamKey::Level)?;
        let level = LogLevel::parse(&level).ok_or_else(|| {
            let known = LogLevel::ALL.map(LogLevel::as_str).join(", ");
            RpcError::invalid_params(format_args!("`level` must be one of {known}"))
        })?;
        self.session()?.set_log_level(level);
        Ok(b"{}".to_vec())
    }

    fn session(&self) -> Result<&Arc<McpSession>, RpcError> {
        self.session.as_ref().ok_or_else(|| {
            RpcError::invalid_request("this needs a session; send `initialize` first, then its session id")
        })
    }

    fn initialize(&self, params: &Params<'_>) -> RpcOutcome {
        let asked = params.text(ParamKey::ProtocolVersion)?;
        let capabilities = params.optional_object(ParamKey::Capabilities)?.unwrap_or_default();
        let revision = Revision::negotiate(&asked);
        self.session()?.negotiate(revision, capabilities)?;
        Ok(self.face().initialize(revision))
    }

    /// Returns the server profile, with the instructions of the upstreams that this caller can see.
    fn face(&self) -> ServerProfile {
        self.hub.face.with_servers(&self.hub.gate.instructions(&self.caller()))
    }

    fn list_tools(&self, params: &Params<'_>) -> RpcOutcome {
        let tools = self.hub.gate.tools(&self.caller()).map_err(|e| self.list_refused(&e))?;
        let cursor = params.optional_text(ParamKey::Cursor)?;
        let page = page(&tools, cursor.as_deref(), |tool| &tool.name, |name| self.hub.seal.mark(name))?;
        let outgoing = &self.hub.outgoing;
        // Rendered definitions are cached until the set of secrets changes.
        let generation = outgoing.generation();
        let caller = self.caller();
        let clean = |tool: &ToolDef| outgoing.item(render::tool(tool));
        let within_reach = OnceCell::new();
        let listed = |tool: &Arc<ToolDef>| {
            // The search tools' descriptions depend on the caller, so they are not cached.
            if search::is_own(tool)
                && let Ok(definition) = serde_json::from_str(render::tool(tool).get())
                && let within_reach =
                    within_reach.get_or_init(|| search::within_reach(&self.hub.gate, &caller))
                && let Ok(raw) = to_raw_value(&search::described(within_reach, definition))
            {
                return Arc::new(RenderedDefinition::once(outgoing.item(raw)));
            }
            if let Some(definition) = render::tool_for(self.revision, tool) {
                return Arc::new(RenderedDefinition::once(outgoing.item(definition)));
            }
            tool.listing_with(generation, clean)
        };
        let items: Vec<_> = page.items.iter().map(listed).collect();
        let items: Vec<&RawValue> = items.iter().map(|item| item.text()).collect();
        tracing::debug!(target: "mcp", id = %self.id, tools = items.len(), "sending response");
        Ok(render::page(self.revision, "tools", &items, page.next.as_deref()))
    }

    fn list_prompts(&self, params: &Params<'_>) -> RpcOutcome {
        let prompts = self.hub.gate.prompts(&self.caller()).map_err(|e| self.list_refused(&e))?;
        let cursor = params.optional_text(ParamKey::Cursor)?;
        let page = page(&prompts, cursor.as_deref(), |prompt| &prompt.name, |name| self.hub.seal.mark(name))?;
        let items: Vec<_> = page.items.iter().map(|prompt| render::prompt(prompt)).collect();
        self.write_page("prompts", items, page.next.as_deref())
    }

    fn list_templates(&self, params: &Params<'_>) -> RpcOutcome {
        let templates = self.hub.gate.templates(&self.caller()).map_err(|e| self.list_refused(&e))?;
        let cursor = params.optional_text(ParamKey::Cursor)?;
        let page = page(&templates, cursor.as_deref(), |t| &t.uri_template, |name| self.hub.seal.mark(name))?;
        let items: Vec<_> = page.items.iter().map(|template| render::template(template)).collect();
        self.write_page("resourceTemplates", items, page.next.as_deref())
    }

    async fn list_resources(&self, cursor: Option<&str>) -> RpcOutcome {
        let (resources, failed) =
            self.hub.gate.resources(&self.caller()).await.map_err(|e| self.list_refused(&e))?;
        for error in failed {
            tracing::warn!(target: "mcp", %error, "provider could not list its resources");
        }
        let page = page(&resources, cursor, |resource| &resource.uri, |uri| self.hub.seal.mark(uri))?;
        let items: Vec<_> = page.items.iter().map(render::resource).collect();
        self.write_page("resources", items, page.next.as_deref())
    }

    /// Renders one page, with every item redacted.
    fn write_page(&self, key: &'static str, items: Vec<Box<RawValue>>, next: Option<&str>) -> RpcOutcome {
        let bytes = items.iter().map(|item| item.get().len()).sum();
        let items: Vec<_> =
            scrub_off_worker(bytes, || items.into_iter().map(|item| self.hub.outgoing.item(item)).collect());
        let items: Vec<&RawValue> = items.iter().map(|item| &**item).collect();
        Ok(render::page(self.revision, key, &items, next))
    }

    /// Returns the error for a list that the gate refused.
    fn list_refused(&self, error: &ToolError) -> RpcError {
        refused(self.revision, error)
    }

    /// Subscribes to a resource.
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
                        "this resource requires approval by a person, so it cannot be subscribed to",
                    );
                    kind = error.kind;
                    self.list_refused(&error.hint("read it instead, with `resources/read`"))
                }
            })
        });
        subscribed.map_err(|error| (kind, error))
    }

    /// Responds once the owner has confirmed the subscription and the audit record is written. A client that would
    /// never be notified gets an error.
    async fn subscribed(&self, uri: &str, begun: Result<(), Refused>) -> RpcOutcome {
        let watching = match begun {
            Ok(()) => {
                let known = self.hub.gate.check_subscription(&self.caller(), uri).await;
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

    /// Records a refused subscription in the audit log. Existing subscriptions stay.
    async fn record_refused(&self, uri: &str, (kind, refused): Refused) -> RpcOutcome {
        let event = Event::watch(self.caller(), "subscribe", uri, json!({}));
        self.hub.gate.record(&event, Err(kind)).await.map_err(|error| self.list_refused(&error))?;
        Err(refused)
    }

    fn listen(self, request: &RpcRequest<'_>, params: &Params<'_>) -> Result<RequestJob, RpcError> {
        let interest = ChangeFilter::of(params)?;
        let caller = self.caller();
        // Ends when the connection's input or the hub closes.
        let over =
            self.session.map_or_else(|| self.hub.closing.clone(), |session| session.input_over.clone());
        let answer = era::listened(self.revision, &request.id);
        let cancel = self.cancel;
        let event = Event::watch(caller.clone(), "listen", "subscriptions/listen", interest.granted());
        let listening = ChangeListeners::add(
            &self.hub,
            caller,
            interest,
            &request.id,
            self.sink,
            self.stream,
            cancel.clone(),
        );
        let (hub, revision) = (self.hub, self.revision);
        Ok(RequestJob::Listen { hub, revision, event, listening, answer, cancel, over })
    }

    fn call_tool(self, params: &Params<'_>) -> RequestJob {
        let name = match params.text(ParamKey::Name) {
            Ok(name) => name,
            Err(error) => return RequestJob::Ready(Err(error)),
        };
        // With `call_tool`, all layers see the tool that the arguments name.
        let mut found = None;
        let mut name = name;
        let may_search = || self.hub.gate.find_tool(&self.caller(), search::CALL).is_some();
        if name == search::CALL && self.client.scope.view == ToolView::Search && may_search() {
            let bytes_max = |name: &str| self.hub.gate.input_bytes_max(&Target::Tool(name.to_owned()));
            if let Some((named, arguments)) = search::named(params.raw(ParamKey::Arguments), bytes_max) {
                (name, found) = (named, Some(arguments));
            }
        }
        let may_be_task = |tool: &ToolDef| tool.tasks != TaskSupport::Never;
        let tool = match self.revision.server().offers_tasks() {
            true => self.hub.gate.find_tool_if(&self.caller(), &name, may_be_task),
            false => None,
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
            Err(error) => return RequestJob::Ready(Err(error)),
        };
        let answered = job.round.as_ref().is_some_and(|round| !round.answers().is_empty());
        // A call that began in an earlier round continues as a call: as a task it would run twice.
        let goes_on = job.round.as_ref().is_some_and(|round| round.state().is_some());
        match (support, offers.tasks) {
            (TaskSupport::Never, _) | (TaskSupport::Optional, false) => RequestJob::Call(job),
            (TaskSupport::Optional, true) if goes_on => RequestJob::Call(job),
            (TaskSupport::Required | TaskSupport::RequiredAfterQuestions, false) => {
                RequestJob::Ready(Err(era::missing_tasks()))
            }
            (TaskSupport::RequiredAfterQuestions, true) if !answered => RequestJob::Call(job),
            (TaskSupport::Optional | TaskSupport::Required | TaskSupport::RequiredAfterQuestions, true) => {
                RequestJob::Ready(unchecked(crate::tasks::start(job)))
            }
        }
    }

    fn read_resource(self, params: &Params<'_>) -> RequestJob {
        let job = bounded_uri(params).and_then(|uri| self.call(Target::Resource(uri), params));
        job.map_or_else(|error| RequestJob::Ready(Err(error)), RequestJob::Call)
    }

    fn get_prompt(self, params: &Params<'_>) -> RequestJob {
        let job = params.text(ParamKey::Name).and_then(|name| self.call(Target::Prompt(name), params));
        job.map_or_else(|error| RequestJob::Ready(Err(error)), RequestJob::Call)
    }

    fn complete(self, request: &RpcRequest<'_>, params: &Params<'_>) -> RequestJob {
        let job = completion_of(params).and_then(|of| {
            // All of `params` is the argument: the typed value and the context.
            let arguments = request.params.map(|raw| Arguments::new(raw.to_owned()));
            let arguments = arguments.unwrap_or_else(Arguments::empty);
            let mut exchange = self;
            // MCP allows input requests only for tool calls, prompts and resource reads.
            exchange.meta.offers = Some(ClientCapabilities::default());
            exchange.call_with(Target::Completion(of), arguments, params)
        });
        job.map_or_else(|error| RequestJob::Ready(Err(error)), RequestJob::Call)
    }

    fn call(self, target: Target, params: &Params<'_>) -> Result<CallJob, RpcError> {
        let arguments = match params.raw(ParamKey::Arguments) {
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
        let (client, cancel) = (self.client.clone(), self.cancel.clone());
        let others = params.others(|name| self.revision.server().forwards_param(name))?;
        let passed = PassthroughParams { params: others, meta: self.meta.others.clone() };
        if self.revision.server().asks_by_request() {
            let peer = Arc::new(SessionPeer::new(self.session, self.sink, &self.meta));
            let mut call = Call::new(client, target, arguments, CallCtx::new(cancel, peer));
            call.passed = passed;
            let (hub, id, revision) = (self.hub, self.id, self.revision);
            return Ok(CallJob { hub, id, revision, call: Box::new(call), round: None });
        }
        let mut earlier = match params.optional_text(ParamKey::RequestState)? {
            Some(text) => {
                let digest = portcullis_core::digest_of(&caller(&client), &target, &arguments);
                self.hub.seal.open(&digest, &text).map_err(RpcError::invalid_params)?
            }
            None => crate::request_state::PreviousRounds::default(),
        };
        earlier.add(input_responses(params)?);
        let round = RoundPeer::new(self.sink, &self.meta, earlier, self.session);
        let round = Arc::new(round);
        let mut call = Call::new(client, target, arguments, CallCtx::new(cancel, round.clone()));
        call.passed = passed;
        let (hub, id, revision) = (self.hub, self.id, self.revision);
        Ok(CallJob { hub, id, revision, call: Box::new(call), round: Some(round) })
    }

    /// Handles a task request: forwards it to the task's upstream through the gate, or serves a task of the hub.
    fn ask_after(self, ask: TaskOperation, params: &Params<'_>) -> RequestJob {
        let foreign = match params.text(ParamKey::TaskId) {
            Ok(id) if self.offers().tasks => self.hub.tasks.foreign(&self.client, &id),
            _ => None,
        };
        let Some(task) = foreign else {
            return RequestJob::Ready(unchecked(self.charge().and_then(|()| self.task(ask, params))));
        };
        let asked = input_responses(params).and_then(|answers| {
            let mut said = serde_json::Map::new();
            said.insert("method".to_owned(), ask.method().into());
            said.insert("taskId".to_owned(), task.id.as_str().into());
            if ask == TaskOperation::Update {
                said.insert(ParamKey::InputResponses.as_str().to_owned(), answers.into_iter().collect());
            }
            let arguments = Arguments::of(&Value::Object(said));
            self.call_with(Target::Task(ask, task), arguments, params)
        });
        asked.map_or_else(|error| RequestJob::Ready(Err(error)), RequestJob::Call)
    }

    /// Handles a task request for a task of the hub.
    fn task(&self, ask: TaskOperation, params: &Params<'_>) -> RpcOutcome {
        if !self.offers().tasks {
            return Err(era::missing_tasks());
        }
        let id = params.text(ParamKey::TaskId)?;
        let tasks = &self.hub.tasks;
        let answer = match ask {
            TaskOperation::Get => tasks.get(&self.client, &id)?,
            TaskOperation::Cancel => tasks.cancel(&self.client, &id)?,
            TaskOperation::Update => tasks.update(&self.client, &id, input_responses(params)?)?,
        };
        Ok(era::wrap_result(self.revision, era::ResultKind::Plain, answer.to_string().into_bytes()))
    }
}

/// Renders a refusal by the gate for a protocol revision.
fn refused(revision: Revision, error: &ToolError) -> RpcError {
    let target = Target::Prompt(String::new());
    match render::failure(revision, &target, ErrorStyle::Sentence, error) {
        Err(refused) => refused,
        Ok(_) => RpcError::new(portcullis_wire::rpc::INTERNAL_ERROR, error.message.clone()),
    }
}

fn input_responses(params: &Params<'_>) -> Result<InputResponses, RpcError> {
    Ok(params.exact_object(ParamKey::InputResponses)?.unwrap_or_default().into_iter().collect())
}

fn bounded_uri(params: &Params<'_>) -> Result<String, RpcError> {
    let uri = params.text(ParamKey::Uri)?;
    bounded(&uri)?;
    Ok(uri)
}

/// Fails if a URI is too long.
pub(crate) fn bounded(uri: &str) -> Result<(), RpcError> {
    if uri.len() > URI_BYTES_MAX {
        return Err(RpcError::invalid_params(format_args!("`uri` must have at most {URI_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn completion_of(params: &Params<'_>) -> Result<CompletionRef, RpcError> {
    const EXPECTED: &str =
        "`ref` must be {\"type\": \"ref/prompt\", \"name\": …} or {\"type\": \"ref/resource\", \"uri\": …}";
    let reference = params.optional_object(ParamKey::Ref)?.unwrap_or_default();
    let text = |key: &str| reference.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("type").as_deref(), text("name"), text("uri")) {
        (Some("ref/prompt"), Some(name), _) => Ok(CompletionRef::Prompt(name)),
        (Some("ref/resource"), _, Some(uri)) => Ok(CompletionRef::Template(uri)),
        _ => Err(RpcError::invalid_params(EXPECTED)),
    }
}
