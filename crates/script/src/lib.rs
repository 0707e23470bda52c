//! Script execution, the hub's side: the pool of worker processes and the protocol with them.
//!
//! The limits of the Starlark interpreter do not hold against a hostile script: one builtin call can take all
//! memory, and parsing alone can crash a process. So the hub never parses a script. It starts its own binary again
//! as a worker (`portcullis-worker`), which enters a sandbox and then reads one job. A script reaches the network,
//! tools and secrets only through requests to the hub over a pipe; [`HostFunctions`] serves them. A worker runs one
//! job and exits.
//!
//! The worker is a separate crate, so that only the binary waits for the interpreter to build. This crate has no
//! policy: the caller that makes the [`ScriptJob`] decides which script may run and what it may use.

pub mod frame;
pub mod message;
mod pool;

pub use message::{HostRefusal, ScriptDiagnostic, ScriptHttpRequest, ScriptHttpResponse, TextPiece};
pub use pool::{
    HostFunctions, NoHostFunctions, PoolSettings, SandboxStrictness, ScriptFailure, ScriptJob, ScriptOutput,
    WorkerPool,
};

/// The first argument that makes the binary a worker.
pub const WORD: &str = "__script-worker";

/// The whole environment of a worker. The allocator must not reserve address space ahead, because reserved space
/// counts towards the memory limit.
pub const ENVIRONMENT: [(&str, &str); 2] =
    [("MIMALLOC_ARENA_RESERVE", "0"), ("MIMALLOC_USE_NUMA_NODES", "1")];
