//! Integration tests of core: attacks by name, properties, and compile-fail tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod attacks;
mod compile_fail;
mod fixture;
mod properties;
