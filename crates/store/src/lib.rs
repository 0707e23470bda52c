//! State that outlives a process.
//!
//! Administrators, approvals, clients, pins, programs, scripts, secrets, what servers offer and what is wanted of them, each in one file of its
//! own that the hub and the command line share. The record of calls is kept by `guard::audit`.

pub mod admins;
pub mod approvals;
pub mod clients;
mod kept;
pub mod offers;
pub mod pins;
pub mod programs;
pub mod scripts;
pub mod secrets;
pub mod servers;

pub use kept::{FileError, Hold};
