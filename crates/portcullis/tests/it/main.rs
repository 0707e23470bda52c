//! The program itself, as a person or another program starts it.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod secrets;
