//! What tests need and the shipped program does not.

pub mod abuse;
pub mod bombs;
pub mod boxed;
pub mod changeable;
pub mod conformance;
pub mod fault;
pub mod github;
pub mod http;
pub mod mcp_client;
pub mod misbehaving;
pub mod oauth;
pub mod process;
pub mod talker;
pub mod tasked;
pub mod torture;
pub mod transcript;
pub mod wait;
pub mod world;

pub use boxed::{BoxedHub, BoxedRules, Open, taken_as_it_is};
