//! From a name to addresses.

use futures::future::BoxFuture;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Lookups under way. Each blocks a thread for as long as a name server likes, also after we stopped waiting.
const LOOKUPS_MAX: usize = 16;

/// Where addresses come from; a test brings its own.
pub trait Resolve: Send + Sync {
    /// Returns all addresses of a name. Asked once per hop; what it says is what is checked and used.
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The machine's own resolver.
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver { lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let lookups = self.lookups.clone();
        Box::pin(async move {
            let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
            // In a task of its own, so that the permit is given back when the thread is, not when the caller gives up.
            let lookup = tokio::spawn(async move {
                let found =
                    tokio::net::lookup_host((host, 0)).await.map(|found| found.map(|at| at.ip()).collect());
                drop(permit);
                found
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}
