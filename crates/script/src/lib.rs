//! Scripts, seen from the hub: the processes that run them, and what is said to those.
//!
//! The language's own limits do not hold against a hostile script: one call of a builtin takes all memory, and parsing alone
//! can bring a process down. So the hub never parses one. It starts its own binary again as a worker (`portcullis-worker`),
//! which gives up every right that it does not need and then reads one job. Whatever a script wants from the world it asks
//! the hub for, over a pipe; the hub's side of that is a [`Host`]. A worker runs one job and ends.
//!
//! The worker is a crate of its own, so that only the binary waits for the language to be built. This one has no policy:
//! which script may run and what it may use is decided by whoever makes the [`Job`].

pub mod frame;
pub mod message;
mod pool;

pub use message::{Fault, HttpAnswer, HttpAsk, Piece, Refusal};
pub use pool::{Done, Failure, Host, Job, NoHost, Pool, PoolSettings, Strictness};

/// The first argument that makes the binary a worker.
pub const WORD: &str = "__script-worker";

/// All that is in the environment of a worker. The allocator takes what it needs and reserves nothing, because what is
/// reserved counts as taken.
pub const ENVIRONMENT: [(&str, &str); 2] =
    [("MIMALLOC_ARENA_RESERVE", "0"), ("MIMALLOC_USE_NUMA_NODES", "1")];
