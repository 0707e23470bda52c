//! Returns freed memory of an idle hub to the system.

use std::hint::black_box;
use std::time::Duration;

/// Interval. The allocator waits a second before it purges freed memory.
const EVERY: Duration = Duration::from_secs(3);
/// Larger than the allocator's cached blocks. It is never written to, so it costs nothing.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Makes the allocator purge freed memory.
///
/// It purges only on allocation: a hub that goes idle after a busy phase would keep all of it until the next call.
pub(crate) async fn give_back() {
    loop {
        tokio::time::sleep(EVERY).await;
        drop(black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}
