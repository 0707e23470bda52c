//! Diagnostics of a connection: the last lines that a server wrote beside the protocol, as on standard error.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How many lines are kept, to be shown when a server fails.
const LINES_MAX: usize = 20;

/// How long further lines are waited for. A grandchild may hold the pipe open.
pub(super) const LAST_LINES_WITHIN: Duration = Duration::from_millis(250);

/// The last lines of a server. Every clone is the same one.
#[derive(Clone, Default)]
pub struct DiagnosticTail {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Whether more may come.
    open: Arc<watch::Sender<bool>>,
}

impl DiagnosticTail {
    /// Adds a line, sanitised and bounded by the caller.
    pub fn push(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.len() >= LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Says whether more lines may come. None may until the transport says so.
    pub fn set_open(&self, is_open: bool) {
        self.open.send_replace(is_open);
    }

    /// Returns the newest line.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.lines.lock().back().cloned()
    }

    /// Returns the last lines, once the server has written all of them.
    pub(crate) async fn last_words(&self) -> Vec<String> {
        let mut open = self.open.subscribe();
        // After the timeout, what is there is enough.
        let _ = tokio::time::timeout(LAST_LINES_WITHIN, open.wait_for(|open| !open)).await;
        self.lines.lock().iter().cloned().collect()
    }
}
