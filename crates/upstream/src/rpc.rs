//! JSON-RPC with one upstream server: correlation of requests and responses, and everything that the server sends unasked.

mod cancelled_calls;
mod connection;
mod demux;
pub(crate) mod elicitation;
mod elicitations;
pub(crate) mod handshake;
mod list_changes;
mod list_kind;
mod outbound_queue;
mod pending_notifications;
mod pending_request;
mod pending_requests;
mod task_status;
mod unsolicited;

pub(crate) use connection::{Connection, RequestSpec, add};
pub(crate) use demux::Demux;
pub(crate) use list_kind::ListKind;
pub(crate) use pending_notifications::{NotificationBatch, PendingNotifications};
pub(crate) use pending_request::{
    PendingRequest, QUESTIONS_MAX, RequestEvent, RequestResult, ServerQuestion,
};
pub(crate) use pending_requests::CallOwner;
pub(crate) use task_status::{Phase, UpstreamTask};
pub(crate) use unsolicited::UnsolicitedHandler;
