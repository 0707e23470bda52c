//! Tests of core from outside: attacks by name, properties, and what must not compile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod attacks;
mod compile_fail;
mod fixture;
mod properties;
