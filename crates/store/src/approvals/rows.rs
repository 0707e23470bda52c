//! Rows of approvals, and which of them are dropped.

use super::{ARGUMENTS_KEPT_BYTES_MAX, Approval, ApprovalError, ApprovalState, OVER_MAX, REJECTED_MAX};
use crate::database::{Record, RecordTable, Topic, TopicState, TopicStore};
use crate::sealed_record_table;
use jiff::Timestamp;
use serde_json::Value;

impl Record for Approval {
    const TABLE: RecordTable = sealed_record_table!("approvals");

    fn key(&self) -> &str {
        &self.id
    }
}

/// All approvals, oldest first.
pub(crate) struct ApprovalTable(pub(super) Vec<Approval>);

impl TopicState for ApprovalTable {
    type Rows = Vec<Approval>;
    const TOPIC: Topic = Topic::new("approvals");
    /// The maximum of records, with arguments of the largest size, each character escaped.
    const BYTES_MAX: usize = 16 * 1024 * 1024;

    fn of(rows: &Vec<Approval>) -> Result<ApprovalTable, String> {
        Ok(ApprovalTable(rows.clone()))
    }
}

/// Reads the file of earlier versions.
pub(crate) fn read_legacy(mut value: Value) -> Result<Vec<Approval>, String> {
    serde_json::from_value(value["approvals"].take()).map_err(|e| e.to_string())
}

/// Changes the approvals, and drops what is over or no longer needed.
pub(super) fn change<T>(
    topic: &TopicStore<ApprovalTable>,
    now: Timestamp,
    change: impl FnOnce(&mut Vec<Approval>) -> Result<T, ApprovalError>,
) -> Result<T, ApprovalError> {
    topic.change(|approvals| {
        let done = change(approvals)?;
        forget(approvals, now);
        for approval in approvals.iter_mut().filter(|approval| approval.state != ApprovalState::Pending) {
            let kept = approval.call.arguments.floor_char_boundary(ARGUMENTS_KEPT_BYTES_MAX);
            approval.call.more += approval.call.arguments[kept..].chars().count();
            approval.call.arguments.truncate(kept);
        }
        Ok(done)
    })
}

/// Drops the oldest closed approvals beyond the bound.
fn forget(approvals: &mut Vec<Approval>, now: Timestamp) {
    let over = |approval: &Approval| approval.state == ApprovalState::Used || approval.expires <= now;
    drop_oldest(approvals, OVER_MAX, over);
    drop_oldest(approvals, REJECTED_MAX, |approval| approval.state == ApprovalState::Rejected);
}

fn drop_oldest(approvals: &mut Vec<Approval>, max: usize, of: impl Fn(&Approval) -> bool) {
    let mut too_many = approvals.iter().filter(|approval| of(approval)).count().saturating_sub(max);
    approvals.retain(|approval| {
        let drop = too_many > 0 && of(approval);
        too_many -= usize::from(drop);
        !drop
    });
}
