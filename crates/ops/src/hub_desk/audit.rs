//! The audit log, as the page shows it.

use super::overview::micros;
use super::{approvals, now};
use crate::approval_text::FileComparison;
use crate::audit::{AuditVerdict, audit_record, call_record};
use crate::desk::{AuditPage, AuditRecord, AuditVerification, CallHistory, SearchAudit};
use crate::{Operations, Problem};
use portcullis_guard::audit::VerifyReport;
use std::time::Instant;

pub(super) fn page(ops: &Operations, search: SearchAudit) -> Result<AuditPage, Problem> {
    let began = Instant::now();
    let (records, more, searched): (Vec<AuditRecord>, bool, u64) = if search.calls {
        let found = ops.search_calls(search)?;
        (found.calls.iter().filter_map(call_record).collect(), found.more, found.searched)
    } else {
        let found = ops.search_audit(search)?;
        (found.lines.iter().filter_map(|line| audit_record(line)).collect(), found.more, found.searched)
    };
    let cursor = records.last().filter(|_| more).map(|record| record.seq.to_string());
    Ok(AuditPage { records, cursor, searched, took_us: micros(began.elapsed()) })
}

pub(super) fn history(ops: &Operations, seq: u64) -> Result<CallHistory, Problem> {
    let (records, approval) = ops.call_history(seq)?;
    let now = ops.approvals.approvals().now();
    Ok(CallHistory {
        records,
        approval: approval.map(|approval| approvals::brief(ops, &approval, FileComparison::Skipped, now)),
    })
}

pub(super) fn verification(ops: &Operations) -> AuditVerification {
    let verdict = ops.verify_audit();
    let report = match &verdict {
        AuditVerdict::Intact(report) => report.clone(),
        AuditVerdict::Modified(_) | AuditVerdict::Unverifiable(_) => VerifyReport::default(),
    };
    AuditVerification {
        intact: matches!(verdict, AuditVerdict::Intact(_)),
        state: verdict.as_str().to_owned(),
        said: verdict.sentence(),
        checked: now(),
        records: report.records,
        files: report.files,
        anchors: report.anchors,
        problem: verdict.problem(),
    }
}
