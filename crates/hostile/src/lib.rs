//! What must hold for any input, however hostile.
//!
//! Each property takes bytes and the thing that is tested, and says what is wrong. `fuzz/` feeds them with coverage
//! guidance (`cargo fuzz run frame`); the tests here feed them with the same corpus and with mutations of it, which
//! needs no other toolchain. The thing that is tested is a parameter so that a weak one can be put in its place.

pub mod config;
pub mod corpus;
pub mod frame;
pub mod mutate;
pub mod path;
pub mod redactor;

/// What is wrong with an input.
pub type Verdict = Result<(), String>;

/// Something to be fed with hostile input.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub what: &'static str,
    /// Checks the real thing.
    pub check: fn(&[u8]) -> Verdict,
    /// Words that get far into it.
    pub words: &'static [&'static str],
}

/// All of them. `fuzz/` has one program for each.
pub const TARGETS: [Target; 4] = [
    Target { name: "frame", what: "lines and messages", check: frame::check, words: frame::WORDS },
    Target { name: "redactor", what: "masking secrets", check: redactor::check, words: redactor::WORDS },
    Target { name: "path", what: "paths below a root", check: path::check, words: path::WORDS },
    Target { name: "config", what: "configuration files", check: config::check, words: config::WORDS },
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
