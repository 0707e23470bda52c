//! The MCP wire format: JSON-RPC envelopes, framing, SSE, and the differences between protocol revisions.
//!
//! A message is parsed once, for its envelope. The payload stays raw bytes until a consumer parses it, so unknown fields,
//! new content types and exact numbers survive. Version differences are in [`era`], [`server_dialect`] (the hub
//! as a server) and [`client_dialect`] (as a client).

pub mod client_dialect;
pub mod era;
#[cfg(test)]
mod era_tests;
pub mod frame;
mod json_string;
pub mod mapped_buffer;
pub mod message;
mod method;
pub mod mirrored_headers;
pub mod oversized_line;
pub mod params;
pub mod render;
pub mod rpc;
pub mod server_dialect;
pub mod sse;

pub use client_dialect::{ClientDialect, SubscriptionStyle, TaskDelivery, TaskStart};
pub use era::{Era, Revision};
pub use message::{IncomingFrame, Message, RequestId, RpcBatch, RpcNotification, RpcRequest, RpcResponse};
pub use method::RpcMethod;
pub use rpc::RpcError;
pub use server_dialect::ServerDialect;
