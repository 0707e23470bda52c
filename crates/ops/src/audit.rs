//! Audit log: search, history of a call, verification.

use crate::Problem;
use crate::context::Operations;
use crate::desk::{AuditRecord, SearchAudit};
use jiff::Timestamp;
use portcullis_core::json::printable;
use portcullis_core::{Clock, Pattern, SystemClock};
use portcullis_guard::AuditSettings;
use portcullis_guard::audit::{self, AuditMatches, AuditQuery, VerifyError, VerifyReport};
use portcullis_store::approvals::Approval;
use portcullis_store::clients::parse_duration;
use portcullis_store::database::wait;

/// Default and maximum page size.
const LIMIT_USUALLY: usize = 100;
const LIMIT_MAX: usize = 500;
/// Maximum length of the search text.
const TEXT_BYTES_MAX: usize = 1_000;

impl Operations {
    pub fn audit_settings(&self) -> AuditSettings {
        AuditSettings::in_folder(&self.config().workspace.secure_dir())
    }

    /// Returns a page of the records that match, newest first.
    pub fn search_audit(&self, search: SearchAudit) -> Result<AuditMatches, Problem> {
        let limit = search.limit.unwrap_or(LIMIT_USUALLY);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid(format!("`limit` is {limit}, expected 1 to {LIMIT_MAX}")));
        }
        let query = audit_query(search)?;
        self.flush_audit();
        audit::search(&self.audit_settings(), &query, limit).map_err(unreadable)
    }

    /// Returns all records of a call, by the sequence number of any of them, and the approval that allowed it.
    pub fn call_history(&self, seq: u64) -> Result<(Vec<AuditRecord>, Option<Approval>), Problem> {
        self.flush_audit();
        let lines = audit::records_of_call(&self.audit_settings(), seq).map_err(unreadable)?;
        let records: Vec<AuditRecord> = lines.iter().filter_map(|line| audit_record(line)).collect();
        if records.is_empty() {
            return Err(Problem::not_found(format!("no such record: {seq}")));
        }
        // `ID, once, by whom`.
        let named = records.iter().find_map(|record| record.approval.as_ref()?.split([',', ' ']).next());
        let approval = named.and_then(|id| self.approval(id).ok());
        Ok((records, approval))
    }

    pub fn verify_audit(&self) -> Result<VerifyReport, VerifyError> {
        self.flush_audit();
        audit::verify(&self.audit_settings())
    }

    /// Writes the latest records of a running hub, so that they are found.
    fn flush_audit(&self) {
        if let Some(live) = &self.live {
            let _ = wait(live.handles.audit.flush());
        }
    }
}

/// Checks a search. Empty fields match everything.
pub fn audit_query(search: SearchAudit) -> Result<AuditQuery, Problem> {
    let glob = |glob: Option<String>| {
        let glob = glob.filter(|glob| !glob.trim().is_empty());
        glob.map(|glob| Pattern::new(&[glob]))
            .transpose()
            .map_err(|error| Problem::invalid(error.to_string()))
    };
    let time = |name: &str, text: Option<String>| {
        let text = text.filter(|text| !text.trim().is_empty());
        text.map(|text| since(name, &text, &SystemClock)).transpose()
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

/// Parses a duration ago, or a timestamp.
fn since(name: &str, text: &str, clock: &dyn Clock) -> Result<Timestamp, Problem> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let bad = |_| {
        let text = printable(text);
        Problem::invalid(format!(
            "invalid time `{name} {text}`: expected 30m, 1h, 7d or 2026-07-28T12:00:00Z"
        ))
    };
    let ago = parse_duration(text).map_err(bad)?;
    let clock_problem = |error: jiff::Error| Problem::internal(format!("the clock: {error}"));
    let now = Timestamp::try_from(clock.now()).map_err(clock_problem)?;
    now.checked_sub(ago).map_err(clock_problem)
}

/// Reads a line of the log.
pub fn audit_record(line: &[u8]) -> Option<AuditRecord> {
    serde_json::from_slice(line).ok()
}

fn unreadable(error: std::io::Error) -> Problem {
    tracing::error!(target: "admin", %error, "audit log unreadable");
    Problem::unavailable("the audit log cannot be read").hint("see the hub's log for the cause")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProblemCode;

    #[test]
    fn a_query_that_cannot_be_read_is_refused() {
        let some = |text: &str| Some(text.to_owned());
        let none = SearchAudit::default;
        assert!(audit_query(SearchAudit { since: some("2026-07-28T14:00:00+01:00"), ..none() }).is_ok());
        for bad in [
            SearchAudit { since: some("yesterday"), ..none() },
            SearchAudit { until: some("tomorrow"), ..none() },
            SearchAudit { tool: some("["), ..none() },
            SearchAudit { cursor: some("x"), ..none() },
        ] {
            let problem = audit_query(bad.clone()).unwrap_err();
            assert_eq!(problem.code, ProblemCode::Invalid, "{bad:?}");
        }
    }
}
