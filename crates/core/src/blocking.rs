//! Blocking work (disk access, hashing, compression) off the runtime's worker threads.

#![expect(clippy::disallowed_methods, reason = "the one place that hands work to the blocking thread pool")]

use tokio::task::JoinError;

/// Runs work on the blocking thread pool and waits for it. A panic becomes an error; the panic hook has logged it.
///
/// Work that has begun goes on to its end, also if nothing waits for it any more.
pub async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<JoinError> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await?
}

/// As [`blocking`], for work without an error of its own. `None` after a panic, or at the runtime's shutdown.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Begins work that nothing waits for. It reports its errors itself.
pub fn detach_blocking(work: impl FnOnce() + Send + 'static) {
    drop(tokio::task::spawn_blocking(work));
}
