//! Audit log: search, call history, verification.

use super::overview::micros;
use super::{HubDesk, approvals, blocking, now};
use crate::commands::audit::since;
use portcullis_core::{Pattern, SystemClock};
use portcullis_guard::audit::{self, AuditQuery};
use portcullis_ops::Problem;
use portcullis_ops::desk::{AuditPage, AuditRecord, AuditVerification, CallHistory, SearchAudit};
use std::time::Instant;

/// Default and maximum page size.
const LIMIT_USUALLY: usize = 100;
const LIMIT_MAX: usize = 500;
/// Maximum length of the search text.
const TEXT_BYTES_MAX: usize = 1_000;

impl HubDesk {
    pub(super) async fn search_records(&self, search: SearchAudit) -> Result<AuditPage, Problem> {
        let limit = search.limit.unwrap_or(LIMIT_USUALLY);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid(format!("`limit` is {limit}, expected 1 to {LIMIT_MAX}")));
        }
        let query = query(search)?;
        let settings = self.audit_settings();
        // Flushed, so that the latest calls are found.
        let _ = self.composed.handles.audit.flush().await;
        blocking(move || {
            let began = Instant::now();
            let found = audit::search(&settings, &query, limit).map_err(unreadable)?;
            let records: Vec<AuditRecord> = found.lines.iter().filter_map(|line| record(line)).collect();
            let last = records.last().filter(|_| found.more).map(|record| record.seq.to_string());
            Ok(AuditPage {
                records,
                cursor: last,
                searched: found.searched,
                took_us: micros(began.elapsed()),
            })
        })
        .await
    }

    pub(super) async fn tell_story(&self, seq: u64) -> Result<CallHistory, Problem> {
        let (settings, desk) = (self.audit_settings(), self.composed.handles.approvals.clone());
        let _ = self.composed.handles.audit.flush().await;
        blocking(move || {
            let lines = audit::records_of_call(&settings, seq).map_err(unreadable)?;
            let records: Vec<AuditRecord> = lines.iter().filter_map(|line| record(line)).collect();
            if records.is_empty() {
                return Err(Problem::not_found(format!("no such record: {seq}")));
            }
            // `ID, once, by whom`.
            let named = records.iter().find_map(|record| record.approval.as_ref()?.split([',', ' ']).next());
            let store = desk.approvals();
            let approval = named.and_then(|id| store.get(id).ok());
            let approval = approval.map(|approval| approvals::brief(&approval, store.now()));
            Ok(CallHistory { records, approval })
        })
        .await
    }

    pub(super) async fn verify_records(&self) -> Result<AuditVerification, Problem> {
        let settings = self.audit_settings();
        let _ = self.composed.handles.audit.flush().await;
        blocking(move || {
            Ok(match audit::verify(&settings) {
                Ok(verified) => AuditVerification {
                    intact: true,
                    checked: now(),
                    records: verified.records,
                    files: verified.files,
                    anchors: verified.anchors,
                    problem: None,
                },
                Err(error) => AuditVerification {
                    intact: false,
                    checked: now(),
                    records: 0,
                    files: 0,
                    anchors: 0,
                    problem: Some(error.to_string()),
                },
            })
        })
        .await
    }
}

fn query(search: SearchAudit) -> Result<AuditQuery, Problem> {
    let glob = |glob: Option<String>| {
        let glob = glob.filter(|glob| !glob.trim().is_empty());
        glob.map(|glob| Pattern::new(&[glob]))
            .transpose()
            .map_err(|error| Problem::invalid(error.to_string()))
    };
    let time = |name: &str, text: Option<String>| {
        let text = text.filter(|text| !text.trim().is_empty());
        text.map(|text| since(name, &text, &SystemClock)).transpose().map_err(super::explained)
    };
    let cursor = search.cursor.filter(|cursor| !cursor.is_empty());
    let before = cursor.map(|cursor| cursor.parse()).transpose();
    let text = search.text.filter(|text| !text.is_empty());
    if text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(Problem::invalid(format!("`text` is too long: the limit is {TEXT_BYTES_MAX} bytes")));
    }
    Ok(AuditQuery {
        client: glob(search.client)?,
        target: glob(search.tool)?,
        outcome: search.outcome.filter(|outcome| !outcome.is_empty()),
        since: time("since", search.since)?,
        until: time("until", search.until)?,
        text,
        call: search.call,
        before: before.map_err(|_| Problem::invalid("invalid `cursor`"))?,
    })
}

fn record(line: &[u8]) -> Option<AuditRecord> {
    serde_json::from_slice(line).ok()
}

fn unreadable(error: std::io::Error) -> Problem {
    tracing::error!(target: "admin", %error, "audit log unreadable");
    Problem::unavailable("the audit log cannot be read").hint("see the hub's log for the cause")
}
