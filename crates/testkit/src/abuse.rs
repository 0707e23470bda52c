//! Abuse, at any scale, and what came of it: guessed tokens, slow connections, links that change while they are used.
//!
//! Each kind is a function that does it and returns figures. The figures know what is allowed ([`Verdict`]), so that a
//! short test, a long run and the weak variant that must fail are all judged by the same words.

mod doors;
mod guesses;
mod link_swap;
mod slow;

pub use doors::{CheckedPaths, GateDoor};
pub use guesses::{GuessFigures, Guessing, guess_tokens};
pub use link_swap::{Door, SwapFigures, Swapping, swap_links};
pub use slow::{Slow, SlowFigures, slow_connections};

use std::fmt::Display;

/// What was found, as a line of a table, and whether it is good enough.
pub trait Verdict: Display {
    /// Returns everything that should not have been.
    fn faults(&self) -> Vec<String>;
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        // Zero would stay zero.
        Dice(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap_or(0)
    }
}
