//! Status files: what a hub tells `mcp status` and `doctor`.

use jiff::Timestamp;
use portcullis_core::{Clock, run_blocking};
use portcullis_store::servers::{ServersError, StatusBoard};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Writes a status file on the blocking pool.
pub(crate) struct StatusFile(Arc<StatusBoard>);

impl StatusFile {
    pub(crate) fn new(board: StatusBoard) -> StatusFile {
        StatusFile(Arc::new(board))
    }

    /// Returns whether a hub has written one.
    pub(crate) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Replaces the whole status. `None` at shutdown, or after a panic, which the hook has logged.
    pub(crate) async fn write(
        &self,
        entries: Map<String, Value>,
        clock: &dyn Clock,
    ) -> Option<Result<(), ServersError>> {
        let at = Timestamp::try_from(clock.now()).unwrap_or_default().to_string();
        let board = self.0.clone();
        run_blocking(move || board.write(&Value::Object(entries), &at, std::process::id())).await
    }
}
