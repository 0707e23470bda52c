//! How fast a server is listened to that says nothing of use.
//!
//! Every server writes as fast as it is read. One that says what is no message, what nobody waits for, or more than a message
//! may have, would take the processors from all others; read slowly, it waits like anybody who speaks to somebody slow.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What one line or event costs that is no message, or one that nobody needed.
pub(crate) const A_LINE: f64 = 1.0;
/// What a megabyte costs of a line that is too long.
pub(crate) const A_MEGABYTE: f64 = 320.0;
/// What is forgiven per second, and what is forgiven at once: many print a few lines where they should not.
const PER_SECOND: f64 = 2_000.0;
const AT_ONCE: f64 = 256.0;
/// How long a server that says something long is left alone after each part of it: others have to do meanwhile.
const BREATH: Duration = Duration::from_millis(1);
/// How much is gathered before it is listened to again, so that nobody wakes up for every line.
const GATHERED: f64 = 20.0;

pub(crate) struct Patience {
    left: f64,
    at: Instant,
    /// Whether it was used up before.
    is_tried: bool,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { left: AT_ONCE, at: Instant::now(), is_tried: false }
    }

    /// Lets others do something.
    pub(crate) async fn breathe() {
        sleep(BREATH).await;
    }

    /// Takes note of something useless, and returns when the next may be read. Says whether this is the first time that
    /// it had to wait.
    pub(crate) async fn spend(&mut self, cost: f64) -> bool {
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
        let (mut patience, began) = (Patience::new(), Instant::now());
        for _ in 0..256 {
            assert!(!patience.spend(A_LINE).await);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(patience.spend(A_LINE).await, "told once");
        for _ in 0..10_000 {
            assert!(!patience.spend(A_LINE).await);
        }
        let took = began.elapsed().as_secs_f64();
        assert!((4.5..5.5).contains(&took), "{took}");
        // And all is forgiven after a while.
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        for _ in 0..256 {
            patience.spend(A_LINE).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
