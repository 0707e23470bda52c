//! DNS lookups.

use futures::future::BoxFuture;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Lookups in flight. Each blocks a thread until the name server responds, also after the caller timed out.
const LOOKUPS_MAX: usize = 16;

/// Resolves host names; tests bring their own.
pub trait Resolve: Send + Sync {
    /// Returns all addresses of a name. Called once per hop: the same addresses are checked and connected to.
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
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
            // In its own task, so that the permit is released with the thread, not when the caller gives up.
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
