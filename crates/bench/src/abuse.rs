//! Abuse scenarios at any scale: token guessing, slow connections, link swaps (TOCTOU).
//!
//! Each kind is a function that returns figures. The figures know their limits ([`AbuseReport`]), so that a
//! short test, a long run and the weak variant that must fail are judged alike.

mod file_access;
mod link_swap;
mod slow_connections;
mod token_guessing;

pub use file_access::{GatedFileAccess, RacyFileAccess};
pub use link_swap::{FileAccess, LinkSwapPlan, SwapFigures, swap_links};
pub use slow_connections::{SlowConnectionPlan, SlowFigures, slow_connections};
pub use token_guessing::{GuessFigures, TokenGuessPlan, guess_tokens};

use std::fmt::Display;

/// Figures of a run, as a line of a table, with their verdict.
pub trait AbuseReport: Display {
    /// Returns all violations.
    fn faults(&self) -> Vec<String>;
}

/// Deterministic pseudo-random numbers from a seed.
#[derive(Debug, Clone)]
pub struct SeededDice(u64);

impl SeededDice {
    pub fn new(seed: u64) -> SeededDice {
        // Zero would stay zero.
        SeededDice(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap_or(0)
    }
}
