//! State that outlives a process.
//!
//! So far that is the secret store. Clients are kept by `server::identity`, the record of calls by `guard::audit`.

pub mod secrets;
