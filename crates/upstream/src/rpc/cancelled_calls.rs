//! Cancelled calls that the server may still run, and their clients.
//!
//! On a shared server, log messages do not name their call. A message of a cancelled call must not reach the client
//! whose call comes next.

use parking_lot::Mutex;
use portcullis_core::Client;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server that does not respond to a cancelled call counts as busy with it.
const BUSY_FOR: Duration = Duration::from_secs(60);
/// How many are remembered; the oldest are dropped first.
const CALLS_MAX: usize = 1_000;

struct CancelledCall {
    id: u64,
    client: Arc<Client>,
    since: Instant,
}

/// The cancelled calls of one connection, the latest last.
#[derive(Default)]
pub(crate) struct CancelledCalls(Mutex<VecDeque<CancelledCall>>);

impl CancelledCalls {
    pub(crate) fn note(&self, id: u64, client: Arc<Client>) {
        let mut calls = self.0.lock();
        if calls.len() >= CALLS_MAX {
            calls.pop_front();
        }
        calls.push_back(CancelledCall { id, client, since: Instant::now() });
    }

    /// Takes note of a late response: the server is done with the call.
    pub(crate) fn ended(&self, id: u64) {
        self.0.lock().retain(|call| call.id != id);
    }

    /// Returns whether the server may be busy with a cancelled call of another client than this one; of any client,
    /// where a message goes to all.
    pub(crate) fn may_concern_another(&self, listener: Option<&Client>) -> bool {
        let mut calls = self.0.lock();
        while calls.front().is_some_and(|call| call.since.elapsed() >= BUSY_FOR) {
            calls.pop_front();
        }
        calls.iter().any(|call| listener.is_none_or(|listener| !call.client.is(listener)))
    }
}
