//! Calls that were cancelled, and that their server may go on with: whose they were.
//!
//! On a shared server, log messages do not say which call they belong to. One of a cancelled call must not reach the client
//! whose call comes next.

use portcullis_core::Client;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a server that does not answer a cancelled call is taken to be busy with it.
const BUSY_FOR: Duration = Duration::from_secs(60);
/// How many of them are remembered; the oldest are forgotten first.
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
        let mut calls = self.lock();
        if calls.len() >= CALLS_MAX {
            calls.pop_front();
        }
        calls.push_back(CancelledCall { id, client, since: Instant::now() });
    }

    /// The server has answered it after all, and is done with it.
    pub(crate) fn ended(&self, id: u64) {
        self.lock().retain(|call| call.id != id);
    }

    /// Returns whether the server may be busy with a cancelled call of another client than this; of any, where it is told to
    /// all.
    pub(crate) fn may_concern_another(&self, listener: Option<&Client>) -> bool {
        let mut calls = self.lock();
        while calls.front().is_some_and(|call| call.since.elapsed() >= BUSY_FOR) {
            calls.pop_front();
        }
        calls.iter().any(|call| listener.is_none_or(|listener| !call.client.is(listener)))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CancelledCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
