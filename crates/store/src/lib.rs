//! State that outlives a process.
//!
//! Clients and secrets, each in one file of its own that the hub and the command line share. The record of calls is
//! kept by `guard::audit`.

pub mod clients;
mod kept;
pub mod secrets;

pub use kept::FileError;
