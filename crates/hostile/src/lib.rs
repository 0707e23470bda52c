//! Fuzzing properties: what must hold for any input.
//!
//! Each property takes bytes and the system under test, and returns the violation. `fuzz/` runs them with
//! coverage guidance (`cargo fuzz run frame`). The tests here run the same corpus and mutations of it, which
//! needs no other toolchain. The system under test is a parameter, so that a weak one shows that the property
//! can fail.

pub mod config;
pub mod corpus;
pub mod frame;
pub mod mutate;
pub mod path;
pub mod redactor;

/// The violation of a property by an input, if any.
pub type PropertyResult = Result<(), String>;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    pub name: &'static str,
    pub what: &'static str,
    /// Checks the real implementation.
    pub check: fn(&[u8]) -> PropertyResult,
    /// Dictionary words that get past the first checks.
    pub words: &'static [&'static str],
}

/// All targets. `fuzz/` has one program for each.
pub const TARGETS: [FuzzTarget; 4] = [
    FuzzTarget { name: "frame", what: "lines and messages", check: frame::check, words: frame::WORDS },
    FuzzTarget { name: "redactor", what: "masking secrets", check: redactor::check, words: redactor::WORDS },
    FuzzTarget { name: "path", what: "paths below a root", check: path::check, words: path::WORDS },
    FuzzTarget { name: "config", what: "configuration files", check: config::check, words: config::WORDS },
];

/// Fails if the condition does not hold.
#[macro_export]
macro_rules! hold {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}
