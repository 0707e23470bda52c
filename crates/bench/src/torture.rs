//! The long, hard tests: what holds when the program is killed, when its disk fails, when its input is hostile, and
//! when the servers behind it misbehave.
//!
//! Each is a function that takes how often and a seed, so that a test runs a short form and `cargo xtask torture` the
//! long one. A function returns what it saw; the caller decides what is a failure.

pub mod durable;
pub mod faults;
pub mod figure;
pub mod full_disk;
pub mod kill;
pub mod kill_database;
pub mod kill_import;
pub mod random;
pub mod servers;
pub mod session;
pub mod trace;

pub use figure::{TIMES, TortureFigure};
pub use random::SplitMix64;
