//! State that outlives a process.
//!
//! Approvals, clients, pins, scripts, secrets and what is wanted of servers, each in one file of its own that the hub and the
//! command line share. The record of calls is kept by `guard::audit`.

pub mod approvals;
pub mod clients;
mod kept;
pub mod pins;
pub mod scripts;
pub mod secrets;
pub mod servers;

pub use kept::FileError;
