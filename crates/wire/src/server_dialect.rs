//! How the hub, as a server, speaks to a client of each era: every difference is one method.
//!
//! Each request knows its revision, and with it the dialect. Code that differs by era asks it, and does not compare eras.

use crate::era::{Era, Revision};
use crate::method::RpcMethod;
use crate::rpc::{self, RpcError, RpcErrorSource};
use std::fmt;

pub trait ServerDialect: fmt::Debug + Send + Sync {
    /// Returns whether a client has a session: what it negotiated, its subscriptions and its streams outlive a request.
    fn keeps_session(&self) -> bool;

    /// Returns whether requests about a session come by GET and DELETE over HTTP.
    fn accepts_get(&self) -> bool;

    /// Returns whether closing the HTTP exchange cancels the call. Otherwise the work goes on, and its response waits in the
    /// stream.
    fn cancels_on_disconnect(&self) -> bool;

    /// Returns whether the hub asks a client by a request of its own during the call. Otherwise the questions are the result
    /// of the call, which the client makes again with its answers.
    fn asks_by_request(&self) -> bool;

    /// Returns whether a client may be given a task for a call. Otherwise the hub waits for it.
    fn offers_tasks(&self) -> bool;

    fn has_method(&self, method: RpcMethod) -> bool;

    /// Returns whether a parameter unknown to the hub is forwarded upstream.
    fn forwards_param(&self, name: &str) -> bool;

    /// Returns whether structured results, and the schemas that describe them, may be anything but objects.
    fn structures_any_value(&self) -> bool;

    /// Returns whether a result carries its type, its cache lifetime and the server's name.
    fn describes_results(&self) -> bool;

    /// Returns whether a capability that the client lacks is an error of the protocol. Otherwise it is one of the call.
    fn refuses_missing_capability(&self) -> bool;

    /// Returns the code for a resource that does not exist.
    fn resource_not_found(&self) -> i32;

    /// Returns the HTTP status for an error of a request.
    fn http_status(&self, error: &RpcError) -> u16;
}

impl Era {
    /// Returns how the hub speaks to a client of this era.
    pub fn server(self) -> &'static dyn ServerDialect {
        match self {
            Era::Sessions => &SessionServer,
            Era::PerRequest => &PerRequestServer,
        }
    }
}

impl Revision {
    /// Returns how the hub speaks to a client of this revision.
    pub fn server(self) -> &'static dyn ServerDialect {
        self.era().server()
    }
}

/// Revisions up to 2025-11-25.
#[derive(Debug)]
struct SessionServer;

/// Revisions from 2026-07-28 on.
#[derive(Debug)]
struct PerRequestServer;

/// Returns the HTTP status that both eras have for an error of the hub's own; the error of another server is a successful
/// exchange.
fn common_status(error: &RpcError) -> u16 {
    match error.code {
        _ if error.said_by == RpcErrorSource::Other => 200,
        rpc::PARSE_ERROR | rpc::INVALID_REQUEST | rpc::HEADER_MISMATCH | rpc::UNSUPPORTED_VERSION => 400,
        _ => 200,
    }
}

impl ServerDialect for SessionServer {
    fn keeps_session(&self) -> bool {
        true
    }

    fn accepts_get(&self) -> bool {
        true
    }

    fn cancels_on_disconnect(&self) -> bool {
        false
    }

    fn asks_by_request(&self) -> bool {
        true
    }

    fn offers_tasks(&self) -> bool {
        false
    }

    fn has_method(&self, method: RpcMethod) -> bool {
        match method {
            RpcMethod::Initialize
            | RpcMethod::Ping
            | RpcMethod::ListTools
            | RpcMethod::CallTool
            | RpcMethod::ListPrompts
            | RpcMethod::GetPrompt
            | RpcMethod::ListResources
            | RpcMethod::ListTemplates
            | RpcMethod::ReadResource
            | RpcMethod::Subscribe
            | RpcMethod::Unsubscribe
            | RpcMethod::Complete
            | RpcMethod::SetLogLevel => true,
            RpcMethod::Discover
            | RpcMethod::Listen
            | RpcMethod::GetTask
            | RpcMethod::UpdateTask
            | RpcMethod::CancelTask => false,
        }
    }

    fn forwards_param(&self, name: &str) -> bool {
        // The hub does not offer tasks here, so the client could not poll the task.
        name != "task"
    }

    fn structures_any_value(&self) -> bool {
        false
    }

    fn describes_results(&self) -> bool {
        false
    }

    fn refuses_missing_capability(&self) -> bool {
        false
    }

    fn resource_not_found(&self) -> i32 {
        rpc::RESOURCE_NOT_FOUND
    }

    fn http_status(&self, error: &RpcError) -> u16 {
        common_status(error)
    }
}

impl ServerDialect for PerRequestServer {
    fn keeps_session(&self) -> bool {
        false
    }

    fn accepts_get(&self) -> bool {
        false
    }

    fn cancels_on_disconnect(&self) -> bool {
        true
    }

    fn asks_by_request(&self) -> bool {
        false
    }

    fn offers_tasks(&self) -> bool {
        true
    }

    fn has_method(&self, method: RpcMethod) -> bool {
        match method {
            RpcMethod::Discover
            | RpcMethod::ListTools
            | RpcMethod::CallTool
            | RpcMethod::ListPrompts
            | RpcMethod::GetPrompt
            | RpcMethod::ListResources
            | RpcMethod::ListTemplates
            | RpcMethod::ReadResource
            | RpcMethod::Complete
            | RpcMethod::Listen
            | RpcMethod::GetTask
            | RpcMethod::UpdateTask
            | RpcMethod::CancelTask => true,
            RpcMethod::Initialize
            | RpcMethod::Ping
            | RpcMethod::SetLogLevel
            | RpcMethod::Subscribe
            | RpcMethod::Unsubscribe => false,
        }
    }

    fn forwards_param(&self, _: &str) -> bool {
        true
    }

    fn structures_any_value(&self) -> bool {
        true
    }

    fn describes_results(&self) -> bool {
        true
    }

    fn refuses_missing_capability(&self) -> bool {
        true
    }

    fn resource_not_found(&self) -> i32 {
        rpc::INVALID_PARAMS
    }

    fn http_status(&self, error: &RpcError) -> u16 {
        match error.code {
            // The request to the hub lacks the capability too, so this counts as the hub's own error if an upstream server
            // reports it.
            rpc::MISSING_CAPABILITY => 400,
            rpc::METHOD_NOT_FOUND if error.said_by != RpcErrorSource::Other => 404,
            _ => common_status(error),
        }
    }
}
