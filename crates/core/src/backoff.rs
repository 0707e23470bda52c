//! Jitter for exponential backoff.

use std::time::Duration;

/// Spreads a delay by a quarter in both directions, so that what failed for one reason does not come back at one moment.
pub fn jittered(delay: Duration) -> Duration {
    let mut random = [0; 2];
    // Without random numbers there is no jitter, which is harmless.
    let _ = getrandom::fill(&mut random);
    delay.mul_f64(0.75 + f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX) / 2.0)
}
