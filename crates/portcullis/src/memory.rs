//! Memory that the hub no longer needs goes back to the system.

use std::hint::black_box;
use std::time::Duration;

/// How often is looked. The allocator waits for a second before it gives anything back, in case it is wanted again.
const EVERY: Duration = Duration::from_secs(3);
/// More than the allocator takes out of what it has at hand. Nobody writes to it, so it costs nothing.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Has the allocator give back what was freed.
///
/// It does so only when it is asked for a block: a hub that had much to do, and then nothing, would keep all of it for as
/// long as nobody calls.
pub(crate) async fn give_back() {
    loop {
        tokio::time::sleep(EVERY).await;
        drop(black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}
