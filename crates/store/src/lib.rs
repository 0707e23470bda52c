//! State that outlives a process.
//!
//! Approvals, clients and secrets, each in one file of its own that the hub and the command line share. The record of calls is
//! kept by `guard::audit`.

pub mod approvals;
pub mod clients;
mod kept;
pub mod secrets;

pub use kept::FileError;
