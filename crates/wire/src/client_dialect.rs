//! How the hub, as a client, speaks to a server of each era: every difference is one method.
//!
//! The dialect is chosen once, at the handshake. Code that differs by era asks it; only the handshake, which finds the era
//! out, compares eras.

use crate::era::{Era, META_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_VERSION, Revision};
use portcullis_core::{LogLevel, Peer};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt::{self, Write};

/// What makes a task of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStart {
    /// The request asks for it, where the tool's definition allows it. The hub polls the task for the client.
    OnRequest,
    /// The server decides, where the client declares the extension. Such a client polls its own tasks.
    ByServer,
}

/// How a client learns the result of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskDelivery {
    /// By `tasks/result`, before which the server sends its questions.
    OnRequest,
    /// The result and the questions are part of the status.
    InStatus,
}

/// How a client subscribes to resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionStyle {
    /// `resources/subscribe` for each; the server may refuse one.
    PerResource,
    /// One long `subscriptions/listen` request for all.
    OneStream,
}

pub trait ClientDialect: fmt::Debug + Send + Sync {
    /// Returns the members of `_meta` by which a request describes its sender; `None` where the handshake has done so.
    fn sender_meta(&self, sender: Option<&dyn Peer>) -> Option<String>;

    /// Returns whether each request declares the capabilities of its sender.
    fn declares_capabilities(&self) -> bool;

    /// Returns a method that every server answers without effect, to see whether it is alive.
    fn liveness_method(&self) -> &'static str;

    /// Returns the task that a server answers a call with instead of a result. What the other era calls so is a result.
    fn begun_task<'a>(&self, result: &'a RawValue) -> Option<&'a RawValue>;

    fn task_start(&self) -> TaskStart;

    fn task_delivery(&self) -> TaskDelivery;

    fn subscription_style(&self) -> SubscriptionStyle;

    /// Returns whether the log level is set for the connection, and not in each request.
    fn sets_log_level(&self) -> bool;

    /// Returns whether the server is notified of changed roots. Otherwise it asks when it needs them.
    fn notifies_of_roots(&self) -> bool;

    /// Returns whether a server refuses a call with the URLs that a person has to open first.
    fn elicits_by_error(&self) -> bool;

    /// Returns whether closing the HTTP exchange cancels the request.
    fn cancels_on_disconnect(&self) -> bool;

    /// Returns whether a broken HTTP stream can be resumed.
    fn resumes_streams(&self) -> bool;

    /// Returns whether HTTP headers repeat the method, the name and some of the arguments.
    fn mirrors_in_headers(&self) -> bool;
}

impl Era {
    /// Returns how the hub speaks to a server of this era.
    pub fn client(self) -> &'static dyn ClientDialect {
        match self {
            Era::Sessions => &SessionClient,
            Era::PerRequest => &PerRequestClient,
        }
    }
}

impl Revision {
    /// Returns how the hub speaks to a server of this revision.
    pub fn client(self) -> &'static dyn ClientDialect {
        self.era().client()
    }
}

/// Returns the members of `_meta` by which a request of the newer era describes its sender.
pub fn sender_members(capabilities: &Value, log_level: Option<LogLevel>) -> String {
    let (revision, version) = (Revision::NEWEST.as_str(), env!("CARGO_PKG_VERSION"));
    let mut meta = format!(
        r#""{META_VERSION}":"{revision}","{META_CAPABILITIES}":{capabilities},"{META_CLIENT_INFO}":{{"name":"portcullis","version":"{version}"}}"#,
    );
    if let Some(level) = log_level {
        // Writing into memory does not fail.
        let _ = write!(meta, r#","{META_LOG_LEVEL}":"{}""#, level.as_str());
    }
    meta
}

/// Revisions up to 2025-11-25.
#[derive(Debug)]
struct SessionClient;

/// Revisions from 2026-07-28 on.
#[derive(Debug)]
struct PerRequestClient;

/// Nearly all results are only passed on, and need not be parsed to see that they begin no task.
fn may_begin_task(result: &RawValue) -> bool {
    result.get().contains("\"taskId\"")
}

impl ClientDialect for SessionClient {
    fn sender_meta(&self, _: Option<&dyn Peer>) -> Option<String> {
        None
    }

    fn declares_capabilities(&self) -> bool {
        false
    }

    fn liveness_method(&self) -> &'static str {
        "ping"
    }

    fn begun_task<'a>(&self, result: &'a RawValue) -> Option<&'a RawValue> {
        #[derive(Deserialize)]
        struct CreateTaskResult<'a> {
            #[serde(borrow)]
            task: &'a RawValue,
        }
        if !may_begin_task(result) {
            return None;
        }
        serde_json::from_str::<CreateTaskResult<'a>>(result.get()).ok().map(|created| created.task)
    }

    fn task_start(&self) -> TaskStart {
        TaskStart::OnRequest
    }

    fn task_delivery(&self) -> TaskDelivery {
        TaskDelivery::OnRequest
    }

    fn subscription_style(&self) -> SubscriptionStyle {
        SubscriptionStyle::PerResource
    }

    fn sets_log_level(&self) -> bool {
        true
    }

    fn notifies_of_roots(&self) -> bool {
        true
    }

    fn elicits_by_error(&self) -> bool {
        true
    }

    fn cancels_on_disconnect(&self) -> bool {
        false
    }

    fn resumes_streams(&self) -> bool {
        true
    }

    fn mirrors_in_headers(&self) -> bool {
        false
    }
}

impl ClientDialect for PerRequestClient {
    fn sender_meta(&self, sender: Option<&dyn Peer>) -> Option<String> {
        let capabilities = sender.map_or_else(|| Value::Object(Map::new()), Peer::capabilities);
        Some(sender_members(&capabilities, sender.and_then(Peer::log_level)))
    }

    fn declares_capabilities(&self) -> bool {
        true
    }

    fn liveness_method(&self) -> &'static str {
        "server/discover"
    }

    fn begun_task<'a>(&self, result: &'a RawValue) -> Option<&'a RawValue> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct TypedResult {
            result_type: String,
        }
        if !may_begin_task(result) {
            return None;
        }
        let typed: TypedResult = serde_json::from_str(result.get()).ok()?;
        (typed.result_type == "task").then_some(result)
    }

    fn task_start(&self) -> TaskStart {
        TaskStart::ByServer
    }

    fn task_delivery(&self) -> TaskDelivery {
        TaskDelivery::InStatus
    }

    fn subscription_style(&self) -> SubscriptionStyle {
        SubscriptionStyle::OneStream
    }

    fn sets_log_level(&self) -> bool {
        false
    }

    fn notifies_of_roots(&self) -> bool {
        false
    }

    fn elicits_by_error(&self) -> bool {
        false
    }

    fn cancels_on_disconnect(&self) -> bool {
        true
    }

    fn resumes_streams(&self) -> bool {
        false
    }

    fn mirrors_in_headers(&self) -> bool {
        true
    }
}
