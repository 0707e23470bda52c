//! Suspended calls: the server waits for input, and the client has to come back with it in a new request.

use super::sent_request::SentRequest;
use crate::rpc::ServerQuestion;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use portcullis_core::{Limit, Peer, ToolError};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// How long a call is suspended.
const SUSPENDED_FOR: Duration = Duration::from_secs(300);
/// How many calls of one server may be suspended.
const SUSPENDED_MAX: usize = 256;
/// How many of them may be one client's, so that one that never comes back leaves room for others.
const SUSPENDED_PER_CLIENT_MAX: usize = 64;

/// A call that goes on when its client has answered.
pub(super) struct SuspendedCall {
    pub(super) sent: SentRequest,
    pub(super) open: Vec<(String, ServerQuestion)>,
    pub(super) asked: usize,
}

/// A suspended call, and the task that expires it.
struct SuspendedEntry {
    call: SuspendedCall,
    _ends: AbortOnDropHandle<()>,
}

/// The suspended calls of one server, by key.
#[derive(Default)]
pub(crate) struct SuspendedCalls(Mutex<HashMap<String, SuspendedEntry>>);

impl SuspendedCalls {
    /// Suspends a call until its client is back, has disconnected, or has taken too long.
    pub(super) fn keep(
        self: &Arc<Self>,
        call: SuspendedCall,
        peer: Arc<dyn Peer>,
    ) -> Result<String, ToolError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| ToolError::internal(error.to_string()))?;
        let key = HEXLOWER.encode(&random);
        let mut all = self.0.lock();
        let is_same = |kept: &&SuspendedEntry| kept.call.sent.client.is(&call.sent.client);
        if all.len() >= SUSPENDED_MAX || all.values().filter(is_same).count() >= SUSPENDED_PER_CLIENT_MAX {
            Limit::Questions.hit();
            return Err(ToolError::unavailable("too many calls wait for input from their clients")
                .hint("try again later"));
        }
        call.sent.slot.set_client_away(true);
        let (suspended, name): (Weak<SuspendedCalls>, String) = (Arc::downgrade(self), key.clone());
        let ends = tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(SUSPENDED_FOR) => {}
                () = peer.disconnected() => {}
            }
            // Dropping it cancels the call at the server, and refuses its open questions.
            if let Some(suspended) = suspended.upgrade() {
                let _late = suspended.0.lock().remove(&name);
            }
        });
        all.insert(key.clone(), SuspendedEntry { call, _ends: AbortOnDropHandle::new(ends) });
        Ok(key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn take(&self, key: &str) -> Option<SuspendedCall> {
        let SuspendedEntry { call, .. } = self.0.lock().remove(key)?;
        call.sent.slot.set_client_away(false);
        Some(call)
    }
}
