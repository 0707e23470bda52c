//! The wire: JSON-RPC envelopes over raw payloads, framing, and what each protocol revision allows.
//!
//! A message is parsed once, for its envelope. The payload stays the bytes that it came in until someone
//! must understand it, so unknown fields, new content types and exact numbers survive the passage. The
//! two eras of the protocol meet in [`era`] and nowhere else.

pub mod era;
pub mod frame;
pub mod header;
pub mod message;
mod method;
pub mod params;
pub mod render;
pub mod room;
pub mod rpc;
pub mod sse;
mod text;

pub use era::{Era, Revision};
pub use message::{Batch, Id, Incoming, Message, Notification, Request, Response};
pub use method::Method;
pub use rpc::RpcError;
