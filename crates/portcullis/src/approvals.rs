//! Approvals of a running hub that another process decides about.

use crate::folder_changes::FolderChanges;
use portcullis_guard::ApprovalDesk;
use portcullis_server::Hub;
use std::path::PathBuf;
use std::sync::Arc;

/// Tells the desk when a file in the folder `secure` changes, and when the hub closes.
pub(crate) async fn watch(desk: ApprovalDesk, secure: PathBuf, hub: Arc<Hub>) {
    let changes = FolderChanges::of(&secure);
    loop {
        tokio::select! {
            () = hub.closed() => return desk.close(),
            () = changes.next() => desk.look_again(),
        }
    }
}
