//! What an administrator can do: each operation once, with typed input, typed output and a typed error.
//!
//! The command line prints the output, the JSON API serialises it and the page renders it; none of them decides anything.
//! [`desk`] has the types and the facade that the API and the page use; [`hub_desk`] implements it for a running hub.

mod actor;
pub mod admins;
pub mod always_allow;
pub mod approval_text;
pub mod approvals;
pub mod audit;
pub mod change;
pub mod clients;
pub mod config_file;
mod context;
pub mod database;
pub mod desk;
pub mod doctor;
mod effective_policy;
pub mod folder_changes;
mod function_service;
pub mod guard_settings;
pub mod home;
pub mod hub_desk;
pub mod hub_limits;
pub mod hub_readiness;
pub mod known_tools;
pub mod listing;
pub mod live_clients;
pub mod logging;
pub mod login;
pub mod mcp;
pub mod output_redaction;
pub mod passphrase;
pub mod password_prompt;
pub mod policy;
pub mod policy_test;
mod problem;
pub mod reload;
pub mod script_sandbox;
pub mod scripts;
pub mod secret_store;
pub mod secrets;
pub mod selftest;
pub mod servers;
mod service_board;
mod shutdown;
mod shutdown_watchdog;
mod status_file;
pub mod tool_families;

pub use actor::Actor;
pub use context::{CommandUser, HubControl, HubStores, LiveHub, Operations, origin_of, url_of};
pub use function_service::service;
pub use problem::{Problem, ProblemCode, with_causes};
pub use service_board::ServiceBoard;
pub use shutdown::{ShutdownSignals, ShutdownWatch};

use portcullis_config as config;
