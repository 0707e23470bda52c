//! Load generators and stress tests for the hub: benchmarks (`bench-load`), crash and fault injection (`torture`), and
//! resource-exhaustion attacks (`abuse`).
//!
//! Test doubles and clients come from `portcullis-testkit`; this crate holds what puts load on a hub and measures it. It is
//! never shipped.

pub mod abuse;
pub mod sample_rows;
pub mod torture;
