//! The audit log, as the page shows it.

use super::overview::micros;
use super::{approvals, now};
use crate::audit::audit_record;
use crate::desk::{AuditPage, AuditRecord, AuditVerification, CallHistory, SearchAudit};
use crate::{Operations, Problem};
use std::time::Instant;

pub(super) fn page(ops: &Operations, search: SearchAudit) -> Result<AuditPage, Problem> {
    let began = Instant::now();
    let found = ops.search_audit(search)?;
    let records: Vec<AuditRecord> = found.lines.iter().filter_map(|line| audit_record(line)).collect();
    let cursor = records.last().filter(|_| found.more).map(|record| record.seq.to_string());
    Ok(AuditPage { records, cursor, searched: found.searched, took_us: micros(began.elapsed()) })
}

pub(super) fn history(ops: &Operations, seq: u64) -> Result<CallHistory, Problem> {
    let (records, approval) = ops.call_history(seq)?;
    let now = ops.approvals.approvals().now();
    Ok(CallHistory { records, approval: approval.map(|approval| approvals::brief(&approval, now)) })
}

pub(super) fn verification(ops: &Operations) -> AuditVerification {
    let (verified, problem) = match ops.verify_audit() {
        Ok(verified) => (verified, None),
        Err(error) => (Default::default(), Some(error.to_string())),
    };
    AuditVerification {
        intact: problem.is_none(),
        checked: now(),
        records: verified.records,
        files: verified.files,
        anchors: verified.anchors,
        problem,
    }
}
