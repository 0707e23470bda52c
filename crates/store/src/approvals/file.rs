//! `approvals.json`: how approvals are written down, and which of them are forgotten.

use super::{ARGUMENTS_KEPT_BYTES_MAX, Approval, ApprovalError, OVER_MAX, REJECTED_MAX, State};
use crate::kept::{Closed, KeptFile, versioned};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;

pub(super) const FILE_NAME: &str = "approvals.json";
const VERSION: u32 = 1;
/// As many as are kept, with arguments of the largest size, each character escaped.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    version: u32,
    pub(super) approvals: Vec<Approval>,
}

pub(super) fn in_folder(dir: &Path) -> KeptFile {
    // Arguments are private, and whoever could write it could approve.
    KeptFile::new(dir, FILE_NAME, FILE_BYTES_MAX, Closed::ToReading)
}

pub(super) fn parse(bytes: Option<&[u8]>) -> Result<Contents, String> {
    let Some(bytes) = bytes else { return Ok(Contents::default()) };
    let damaged = |why: String| format!("{FILE_NAME} is damaged: {why}");
    let value = versioned(FILE_NAME, VERSION, bytes)?;
    let contents = Contents::deserialize(&value).map_err(|e| damaged(e.to_string()))?;
    let mut ids = HashSet::new();
    match contents.approvals.iter().find(|approval| !ids.insert(&approval.id)) {
        Some(twice) => Err(damaged(format!("the id `{}` is given twice", twice.id))),
        None => Ok(contents),
    }
}

/// Changes the approvals. The change is on disk when this returns, or did not happen.
pub(super) fn change<T>(
    file: &KeptFile,
    now: Timestamp,
    change: impl FnOnce(&mut Vec<Approval>) -> Result<T, ApprovalError>,
) -> Result<T, ApprovalError> {
    let lock = file.lock()?;
    // A damaged file is not overwritten: a person may still be able to mend it.
    let bytes = file.read().bytes.map_err(ApprovalError::Damaged)?;
    let mut approvals = parse(bytes.as_deref()).map_err(ApprovalError::Damaged)?.approvals;
    let done = change(&mut approvals)?;
    forget(&mut approvals, now);
    for approval in approvals.iter_mut().filter(|approval| approval.state != State::Pending) {
        let kept = approval.call.arguments.floor_char_boundary(ARGUMENTS_KEPT_BYTES_MAX);
        approval.call.more += approval.call.arguments[kept..].chars().count();
        approval.call.arguments.truncate(kept);
    }
    let contents = Contents { version: VERSION, approvals };
    let text = serde_json::to_vec(&contents).map_err(|e| ApprovalError::Damaged(e.to_string()))?;
    if text.len() as u64 > file.bytes_max() {
        return Err(ApprovalError::TooLarge);
    }
    lock.replace(&text)?;
    Ok(done)
}

/// Drops the oldest of those that are over, where there are too many.
fn forget(approvals: &mut Vec<Approval>, now: Timestamp) {
    let over = |approval: &Approval| approval.state == State::Used || approval.expires <= now;
    drop_oldest(approvals, OVER_MAX, over);
    drop_oldest(approvals, REJECTED_MAX, |approval| approval.state == State::Rejected);
}

fn drop_oldest(approvals: &mut Vec<Approval>, max: usize, of: impl Fn(&Approval) -> bool) {
    let mut too_many = approvals.iter().filter(|approval| of(approval)).count().saturating_sub(max);
    approvals.retain(|approval| {
        let drop = too_many > 0 && of(approval);
        too_many -= usize::from(drop);
        !drop
    });
}
