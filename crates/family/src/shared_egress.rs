//! The HTTP client that the families share.

use crate::BoxError;
use portcullis_egress::EgressClient;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The HTTP client of all families, so that rate limits and bounds apply to all together. Made at its first use.
#[derive(Clone)]
pub struct SharedEgress(Arc<LazyEgress>);

struct LazyEgress {
    made: OnceLock<Arc<EgressClient>>,
    make: Box<dyn Fn() -> Result<EgressClient, BoxError> + Send + Sync>,
}

impl SharedEgress {
    pub fn new(make: impl Fn() -> Result<EgressClient, BoxError> + Send + Sync + 'static) -> SharedEgress {
        SharedEgress(Arc::new(LazyEgress { made: OnceLock::new(), make: Box::new(make) }))
    }

    /// Returns the client. A failure is tried again at the next use.
    pub fn client(&self) -> Result<Arc<EgressClient>, BoxError> {
        if let Some(made) = self.0.made.get() {
            return Ok(made.clone());
        }
        let new = Arc::new((self.0.make)()?);
        // Another thread may have been faster; all must share one.
        Ok(self.0.made.get_or_init(|| new).clone())
    }
}

impl fmt::Debug for SharedEgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEgress").field("made", &self.0.made.get().is_some()).finish_non_exhaustive()
    }
}
