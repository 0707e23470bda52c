//! A server as a provider: what it offers now, and the road of a call to it.

use crate::catalog::Tools;
use crate::connection::Connection;
use crate::spec::ServerSpec;
use crate::supervise::{self, Status};
use arc_swap::{ArcSwap, ArcSwapOption};
use portcullis_core::{
    BoxFuture, Call, Catalog, Changes, Outcome, Output, Permit, Provider, Target, ToolError,
};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One configured server. Cheap to clone; every clone is the same server.
#[derive(Clone)]
pub struct Upstream {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) spec: ServerSpec,
    pub(crate) tools: ArcSwap<Tools>,
    pub(crate) connection: ArcSwapOption<Connection>,
    pub(crate) status: watch::Sender<Status>,
    /// Cancelled when the server is no longer wanted.
    pub(crate) stop: CancellationToken,
}

impl Upstream {
    /// Starts to connect and returns at once. Needs a runtime.
    pub fn start(spec: ServerSpec, changes: Changes) -> Upstream {
        let inner = Arc::new(Inner {
            spec,
            tools: ArcSwap::default(),
            connection: ArcSwapOption::empty(),
            status: watch::Sender::new(Status::starting()),
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

    /// Ends the server. Its process gets a moment to end by itself.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }
}

impl Inner {
    async fn call_tool(&self, name: &str, call: &Call) -> Outcome {
        let server = &self.spec.name;
        let tools = self.tools.load_full();
        let Some(own) = tools.own_names.get(name) else {
            return Err(ToolError::unknown("tool", name));
        };
        let Some(connection) = self.connection.load_full() else {
            let status = self.status.borrow().clone();
            return Err(ToolError::unavailable(format!("server `{server}` is {}", status.sentence()))
                .hint("it is tried again by itself; `portcullis mcp status` says more"));
        };
        let mut params = String::with_capacity(call.arguments.raw().get().len() + own.len() + 32);
        params.push_str(r#""name":"#);
        params.push_str(&Value::from(own.as_str()).to_string());
        params.push_str(r#","arguments":"#);
        params.push_str(call.arguments.raw().get());
        let peer = Some(call.ctx.peer.clone());
        let answer = connection
            .request("tools/call", &params, peer, &call.ctx.cancel, self.spec.timeout)
            .await
            .map_err(|error| error.told(server))?;
        if !answer.get().starts_with('{') {
            return Err(ToolError::new(
                portcullis_core::ErrorKind::Upstream,
                format!("server `{server}` answered with what is no result"),
            ));
        }
        Ok(Output::Raw(answer))
    }
}

impl Provider for Upstream {
    fn name(&self) -> &str {
        &self.inner.spec.name
    }

    fn catalog(&self) -> Catalog {
        Catalog { tools: self.inner.tools.load().defs.clone(), ..Catalog::default() }
    }

    fn call(&self, _: Permit, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            match &call.target {
                Target::Tool(name) => self.inner.call_tool(name, &call).await,
                other => Err(ToolError::unknown(other.kind(), other.name())),
            }
        })
    }
}
