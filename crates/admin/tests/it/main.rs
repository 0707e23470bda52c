//! The pages over HTTP, with the demo desk.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]

#[path = "../../examples/demo/approvals.rs"]
mod approvals;
#[path = "../../examples/demo/calls.rs"]
mod calls;
#[path = "../../examples/demo/data.rs"]
mod data;
#[expect(dead_code, reason = "here nothing happens by itself")]
#[path = "../../examples/demo/desk.rs"]
mod desk;
#[path = "../../examples/demo/scripts.rs"]
mod scripts;
#[path = "../../examples/demo/servers.rs"]
mod servers;
#[path = "../../examples/demo/tools.rs"]
mod tools;

mod access_control;
mod calls_and_metrics;
mod forms;
mod support;
