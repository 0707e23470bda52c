//! What tests need and the shipped program does not.

pub mod boxed;
pub mod conformance;

pub use boxed::{BoxedHub, Open};
