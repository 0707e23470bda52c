//! Read throttle: backpressure on a server that sends useless input.
//!
//! A server writes as fast as it is read. One that sends noise, messages without a recipient or oversized messages
//! would take the CPU from all others; read slowly, it blocks on its pipe.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The cost of a line or event without a recipient.
pub(crate) const LINE_COST: f64 = 1.0;
/// The cost of a megabyte of an oversized line.
pub(crate) const MEGABYTE_COST: f64 = 320.0;
/// The rate at which the budget refills, and its size: many servers print a few stray lines.
const PER_SECOND: f64 = 2_000.0;
const AT_ONCE: f64 = 256.0;
/// The pause after each part of a long line, so that other tasks run.
const PAUSE: Duration = Duration::from_millis(1);
/// How much cost is gathered before a pause, so that there is no timer for every line.
const GATHERED: f64 = 20.0;

pub(crate) struct ReadThrottle {
    left: f64,
    at: Instant,
    /// Whether the budget was ever used up.
    is_tried: bool,
}

impl ReadThrottle {
    pub(crate) fn new() -> ReadThrottle {
        ReadThrottle { left: AT_ONCE, at: Instant::now(), is_tried: false }
    }

    /// Lets other tasks run.
    pub(crate) async fn yield_now() {
        sleep(PAUSE).await;
    }

    /// Charges for useless input, and returns when the next may be read. Returns whether this was the first pause.
    pub(crate) async fn charge(&mut self, cost: f64) -> bool {
        let now = Instant::now();
        self.left = (self.left + (now - self.at).as_secs_f64() * PER_SECOND).min(AT_ONCE) - cost;
        self.at = now;
        if self.left >= 0.0 {
            return false;
        }
        sleep(Duration::from_secs_f64((GATHERED - self.left) / PER_SECOND)).await;
        !std::mem::replace(&mut self.is_tried, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_lines_cost_nothing_and_many_take_their_time() {
        let (mut throttle, began) = (ReadThrottle::new(), Instant::now());
        for _ in 0..256 {
            assert!(!throttle.charge(LINE_COST).await);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(throttle.charge(LINE_COST).await, "told once");
        for _ in 0..10_000 {
            assert!(!throttle.charge(LINE_COST).await);
        }
        let took = began.elapsed().as_secs_f64();
        assert!((4.5..5.5).contains(&took), "{took}");
        // The budget refills.
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        for _ in 0..256 {
            throttle.charge(LINE_COST).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
