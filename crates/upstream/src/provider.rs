//! A server as a provider: what it offers now, and the road of a call to it.

use crate::catalog::{OwnTool, Shown};
use crate::connection::{Connection, LinkError, RequestError};
use crate::drive::{Failure, Parked, Request, drive};
use crate::link::{Carrier, Credentials};
use crate::spec::{ServerSpec, TransportSpec};
use crate::status::{Status, StatusKind};
use crate::supervise;
use arc_swap::{ArcSwap, ArcSwapOption};
use portcullis_core::{
    BoxFuture, Call, Catalog, Changes, CompletionOf, Effect, ErrorKind, Outcome, Output, Permit, Provider,
    ResourceDef, Target, ToolError, Unruled,
};
use portcullis_wire::Era;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How long a call waits for a server that is just being started or reached again.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// How often a call is made again that the server has certainly not acted on.
const ATTEMPTS_MAX: usize = 3;

/// One configured server. Cheap to clone; every clone is the same server.
#[derive(Clone)]
pub struct Upstream {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) spec: ServerSpec,
    pub(crate) shown: ArcSwap<Shown>,
    pub(crate) connection: ArcSwapOption<Connection>,
    pub(crate) status: watch::Sender<Status>,
    parked: Arc<Parked>,
    known: Mutex<Option<Known>>,
    /// What shows the server who we are.
    pub(crate) credentials: Option<Arc<dyn Credentials>>,
    watched: Mutex<BTreeSet<String>>,
    pub(crate) watch_changed: Notify,
    /// Told when the server is to be tried again now.
    pub(crate) again: Notify,
    /// Cancelled when the server is no longer wanted.
    pub(crate) stop: CancellationToken,
}

/// What a server speaks, and how it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) era: Era,
    pub(crate) carrier: Carrier,
}

impl Upstream {
    /// Starts to connect and returns at once. Needs a runtime.
    pub fn start(spec: ServerSpec, changes: Changes) -> Upstream {
        let credentials = match &spec.transport {
            TransportSpec::Stdio(_) => None,
            TransportSpec::Http(http) => http.oauth.clone().map(|oauth| oauth as Arc<dyn Credentials>),
        };
        let inner = Arc::new(Inner {
            spec,
            shown: ArcSwap::default(),
            connection: ArcSwapOption::empty(),
            status: watch::Sender::new(Status::of(StatusKind::Starting)),
            parked: Arc::default(),
            known: Mutex::default(),
            credentials,
            watched: Mutex::default(),
            watch_changed: Notify::new(),
            again: Notify::new(),
            stop: CancellationToken::new(),
        });
        tokio::spawn(supervise::run(inner.clone(), changes));
        Upstream { inner }
    }

    pub fn status(&self) -> Status {
        self.inner.status.borrow().clone()
    }

    /// Returns what changes whenever the status does.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.inner.status.subscribe()
    }

    /// Connects anew, now.
    pub fn again(&self) {
        self.inner.again.notify_one();
    }

    /// Ends the server. Its process gets a moment to end by itself.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// What is known from the last connection, so that the next one need not find it out.
    pub(crate) fn known(&self) -> Option<Known> {
        *lock(&self.known)
    }

    pub(crate) fn remember(&self, known: Option<Known>) {
        *lock(&self.known) = known;
    }

    pub(crate) fn watched(&self) -> BTreeSet<String> {
        lock(&self.watched).clone()
    }

    async fn call(&self, call: &Call) -> Outcome {
        let request = self.request(call)?;
        let mut attempts = 1;
        loop {
            let connection = self.connected(&call.ctx.cancel).await?;
            let error = match drive(&connection, &self.parked, call, &request).await {
                Ok(result) if result.get().starts_with('{') => return Ok(Output::Raw(result)),
                Ok(_) => {
                    let message = format!("server `{}` answered with what is no result", self.spec.name);
                    return Err(ToolError::new(ErrorKind::Upstream, message));
                }
                Err(Failure::Told(error)) => return Err(error),
                Err(Failure::Request(error)) => error,
            };
            // Made again only where the server has not acted on it, or where acting twice does no harm.
            let again = match &error {
                RequestError::Link(LinkError::SessionLost | LinkError::Failed { sent: false, .. }) => true,
                RequestError::Closed | RequestError::Link(LinkError::Failed { sent: true, .. }) => {
                    call.effect() == Effect::Read
                }
                _ => false,
            };
            if !again || attempts >= ATTEMPTS_MAX {
                return Err(error.told(&self.spec.name));
            }
            attempts += 1;
            // Whoever finds out first that it is over says so.
            if self.connection.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
                self.connection.store(None);
                self.again.notify_one();
            }
        }
    }

    /// Returns the connection, or says why there is none.
    async fn connected(&self, cancel: &CancellationToken) -> Result<Arc<Connection>, ToolError> {
        if let Some(connection) = self.connection.load_full() {
            return Ok(connection);
        }
        let mut status = self.status.subscribe();
        let waited = tokio::time::timeout(CONNECTED_WITHIN, async {
            loop {
                if let Some(connection) = self.connection.load_full() {
                    return Some(connection);
                }
                // Nothing will come of waiting: a person has to log in first.
                let kind = self.status.borrow().kind;
                if matches!(kind, StatusKind::NeedsAuth | StatusKind::NeedsClientRegistration) {
                    return None;
                }
                tokio::select! {
                    changed = status.changed() => if changed.is_err() { return None },
                    () = cancel.cancelled() => return None,
                    () = self.stop.cancelled() => return None,
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                }
            }
        });
        if let Ok(Some(connection)) = waited.await {
            return Ok(connection);
        }
        let sentence = self.status.borrow().sentence();
        Err(ToolError::unavailable(format!("server `{}` is {sentence}", self.spec.name))
            .hint("it is tried again by itself; `portcullis mcp status` says more"))
    }

    /// Says the call in the server's own names.
    fn request(&self, call: &Call) -> Result<Request, ToolError> {
        let shown = self.shown.load();
        let unknown = || ToolError::unknown(call.target.kind(), call.target.name());
        let arguments = call.arguments.raw().get();
        let text = |text: &str| Value::from(text).to_string();
        let (method, params, name, headers) = match &call.target {
            Target::Tool(name) => {
                let own = shown.tool_names.get(name).ok_or_else(unknown)?;
                let params = format!(r#""name":{},"arguments":{arguments}"#, text(&own.name));
                ("tools/call", params, Some(own.name.clone()), mirrored(own, call))
            }
            Target::Prompt(name) => {
                let own = shown.prompt_names.get(name).ok_or_else(unknown)?;
                let params = format!(r#""name":{},"arguments":{arguments}"#, text(own));
                ("prompts/get", params, Some(own.clone()), Vec::new())
            }
            Target::Resource(uri) => {
                ("resources/read", format!(r#""uri":{}"#, text(uri)), Some(uri.clone()), Vec::new())
            }
            Target::Completion(of) => {
                let mut params = call.arguments.value().map_err(ToolError::invalid_args)?.clone();
                if let CompletionOf::Prompt(name) = of {
                    let own = shown.prompt_names.get(name).ok_or_else(unknown)?;
                    params["ref"]["name"] = own.as_str().into();
                }
                let members = params.as_object_mut().ok_or_else(unknown)?;
                members.remove("_meta");
                let inside = params.to_string();
                ("completion/complete", inside[1..inside.len() - 1].to_owned(), None, Vec::new())
            }
        };
        Ok(Request { method, params, name, headers, timeout: self.spec.timeout })
    }
}

/// Returns the headers that the tool wants some of its arguments in.
fn mirrored(own: &OwnTool, call: &Call) -> Vec<(String, String)> {
    if own.headers.is_empty() {
        return Vec::new();
    }
    let Ok(arguments) = call.arguments.value() else { return Vec::new() };
    let simple = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let headers = own.headers.iter().filter_map(|(argument, header)| {
        let value = arguments.get(argument).and_then(simple)?;
        Some((format!("Mcp-Param-{header}"), value))
    });
    headers.collect()
}

impl Provider for Upstream {
    fn name(&self) -> &str {
        &self.inner.spec.name
    }

    fn catalog(&self) -> Catalog {
        let shown = self.inner.shown.load();
        Catalog {
            tools: shown.tools.clone(),
            prompts: shown.prompts.clone(),
            templates: shown.templates.clone(),
        }
    }

    fn owns_resource(&self, uri: &str) -> bool {
        self.inner.shown.load().owns(uri)
    }

    fn unruled(&self) -> Unruled {
        self.inner.spec.decision
    }

    fn watch(&self, uri: &str, wanted: bool) {
        let mut watched = lock(&self.inner.watched);
        let changed = if wanted { watched.insert(uri.to_owned()) } else { watched.remove(uri) };
        if changed {
            self.inner.watch_changed.notify_one();
        }
    }

    fn resources(&self, _: Permit) -> BoxFuture<'_, Result<Vec<ResourceDef>, ToolError>> {
        let resources = self.inner.shown.load().resources.clone();
        Box::pin(async move { Ok(resources) })
    }

    fn call(&self, _: Permit, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move { self.inner.call(&call).await })
    }
}
