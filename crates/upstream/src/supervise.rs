//! Supervision of servers: start, connection, backoff, health, leases, idle stop, instances for single clients.

mod leases;
mod live_connection;
mod per_client;
mod reachability;
pub(crate) mod roots_watcher;
mod server;
pub(crate) mod supervisor;

pub(crate) use per_client::PerClientServers;
pub(crate) use server::{ServerLease, UpstreamServer};
