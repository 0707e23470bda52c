//! What an administrator can do: each operation once, with typed input, typed output and a typed error.
//!
//! The command line prints the output, the JSON API serialises it and the page renders it; none of them decides anything.
//! [`desk`] has the types and the facade that the API and the page use; [`hub_desk`] implements it for a running hub.

mod actor;
pub mod admins;
pub mod always_allow;
pub mod approvals;
pub mod audit;
pub mod change;
pub mod clients;
pub mod config_file;
mod context;
pub mod database;
pub mod desk;
pub mod doctor;
pub mod folder_changes;
pub mod guard_settings;
pub mod home;
pub mod hub_desk;
pub mod known_tools;
pub mod login;
pub mod mcp;
pub mod output_redaction;
pub mod policy;
pub mod policy_test;
mod problem;
pub mod script_sandbox;
pub mod scripts;
pub mod secret_store;
pub mod secrets;
pub mod servers;
pub mod tool_families;

pub use actor::Actor;
pub use context::{CommandUser, HubControl, HubStores, LiveHub, Operations, origin_of, url_of};
pub use problem::{Problem, ProblemCode, with_causes};

use portcullis_config as config;
