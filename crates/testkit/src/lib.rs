//! Test support. Not shipped.

pub mod bombs;
pub mod boxed_hub;
pub mod canary_network;
pub mod changeable_server;
pub mod conformance;
pub mod console;
pub mod fake_github;
pub mod faulty_server;
pub mod mcp_client;
pub mod misbehaving_server;
pub mod oauth;
pub mod process;
pub mod raw_http;
pub mod scripted_server;
pub mod task_server;
pub mod transcript;
pub mod wait;

pub use boxed_hub::{BoxedHub, BoxedRules, OpenAuthenticator, taken_as_it_is};
