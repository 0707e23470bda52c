//! Audit log: search, history of a call, verification.

use crate::Problem;
use crate::context::Operations;
use crate::desk::{AuditRecord, SearchAudit};
use jiff::Timestamp;
use portcullis_core::json::printable;
use portcullis_core::{Clock, Pattern, SystemClock, ToolDef, counted};
use portcullis_guard::AuditSettings;
use portcullis_guard::audit::{
    self, AuditMatches, AuditQuery, CallMatches, LogDefect, RecordedCall, VerifyError, VerifyReport,
};
pub use portcullis_guard::outcome_names;
use portcullis_store::approvals::Approval;
use portcullis_store::clients::parse_duration;
use portcullis_store::database::wait;
use serde::Deserialize;
use std::sync::Arc;

/// Default and maximum page size.
const LIMIT_USUALLY: usize = 100;
const LIMIT_MAX: usize = 500;
/// Tools of a server whose names do not begin with its name, in a search for its calls.
const SERVER_TOOLS_MAX: usize = 100;
/// Maximum length of the search text.
const TEXT_BYTES_MAX: usize = 1_000;

/// Result of verifying the log. A log that cannot be read is not one that was modified.
#[derive(Debug)]
pub enum AuditVerdict {
    Intact(VerifyReport),
    /// The first record that was changed, removed or added.
    Modified(LogDefect),
    /// Why it cannot be read, or has no key.
    Unverifiable(String),
}

impl AuditVerdict {
    pub fn as_str(&self) -> &'static str {
        match self {
            AuditVerdict::Intact(_) => "intact",
            AuditVerdict::Modified(_) => "modified",
            AuditVerdict::Unverifiable(_) => "unverifiable",
        }
    }

    /// Returns the defect, or why there is no result.
    pub fn problem(&self) -> Option<String> {
        match self {
            AuditVerdict::Intact(_) => None,
            AuditVerdict::Modified(defect) => Some(defect.to_string()),
            AuditVerdict::Unverifiable(why) => Some(why.clone()),
        }
    }

    /// Returns the result, in one sentence.
    pub fn sentence(&self) -> String {
        match self {
            AuditVerdict::Intact(VerifyReport { records, files, anchors, .. }) => format!(
                "The audit log is intact: {} in {}, checked against {}.",
                counted(*records, "record"),
                counted(*files, "file"),
                counted(*anchors, "anchor"),
            ),
            AuditVerdict::Modified(defect) => format!("The audit log was modified: {defect}."),
            AuditVerdict::Unverifiable(why) => format!("The audit log cannot be verified: {why}."),
        }
    }
}

/// Verifies the log, whether or not a hub runs.
pub fn verify_log(settings: &AuditSettings) -> AuditVerdict {
    match audit::verify(settings) {
        Ok(report) => AuditVerdict::Intact(report),
        Err(VerifyError::Fault(defect)) => AuditVerdict::Modified(defect),
        Err(error @ (VerifyError::Key(_) | VerifyError::Io { .. })) => {
            AuditVerdict::Unverifiable(error.to_string())
        }
    }
}

impl Operations {
    pub fn audit_settings(&self) -> AuditSettings {
        AuditSettings::in_folder(&self.config().workspace.secure_dir())
    }

    /// Returns a page of the records that match, newest first.
    pub fn search_audit(&self, search: SearchAudit) -> Result<AuditMatches, Problem> {
        let (query, limit) = self.checked_query(search)?;
        self.flush_audit();
        audit::search(&self.audit_settings(), &query, limit).map_err(unreadable)
    }

    /// Returns a page of the calls that match, the last begun first, and whether there are more.
    pub fn search_calls(&self, search: SearchAudit) -> Result<CallMatches, Problem> {
        let (query, limit) = self.checked_query(search)?;
        self.flush_audit();
        audit::search_calls(&self.audit_settings(), &query, limit).map_err(unreadable)
    }

    fn checked_query(&self, search: SearchAudit) -> Result<(AuditQuery, usize), Problem> {
        let limit = search.limit.unwrap_or(LIMIT_USUALLY);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid(format!("`limit` is {limit}, expected 1 to {LIMIT_MAX}")));
        }
        let server = search.server.clone().filter(|server| !server.is_empty());
        let mut query = audit_query(search)?;
        if let (Some(server), Some(live)) = (server, &self.live) {
            query.server = Some(pattern(&tool_globs(&server, &live.registry.tools()))?);
        }
        Ok((query, limit))
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

    /// As [`verify_log`], with the latest records of a running hub.
    pub fn verify_audit(&self) -> AuditVerdict {
        self.flush_audit();
        verify_log(&self.audit_settings())
    }

    /// Writes the latest records of a running hub, so that they are found.
    fn flush_audit(&self) {
        if let Some(live) = &self.live {
            let _ = wait(live.handles.audit.flush());
        }
    }
}

fn pattern(globs: &[String]) -> Result<Pattern, Problem> {
    Pattern::new(globs).map_err(|error| Problem::invalid(error.to_string()))
}

/// Returns globs over the names of a server's tools: those that begin with its name, and of the rest as many as a filter holds.
fn tool_globs(server: &str, tools: &[Arc<ToolDef>]) -> Vec<String> {
    let prefix = format!("{server}_");
    let own = tools.iter().filter(|tool| tool.provider() == server && !tool.name.starts_with(&prefix));
    let own: Vec<String> = own.map(|tool| tool.name.clone()).take(SERVER_TOOLS_MAX).collect();
    std::iter::once(format!("{prefix}*")).chain(own).collect()
}

/// Checks a search. Empty fields match everything.
pub fn audit_query(search: SearchAudit) -> Result<AuditQuery, Problem> {
    let glob = |glob: Option<String>| {
        let glob = glob.filter(|glob| !glob.trim().is_empty());
        glob.map(|glob| pattern(&[glob])).transpose()
    };
    let server = search.server.filter(|server| !server.is_empty()).map(|server| tool_globs(&server, &[]));
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
        server: server.map(|globs| pattern(&globs)).transpose()?,
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

/// Reads both records of a call as one: the begin record, with the decision and outcome of the end.
pub fn call_record(call: &RecordedCall) -> Option<AuditRecord> {
    let begin = audit_record(&call.begin)?;
    let end = call.end.as_deref().and_then(audit_record).unwrap_or_default();
    Some(AuditRecord {
        phase: "call".to_owned(),
        decision: end.decision,
        rule: end.rule,
        approval: end.approval,
        outcome: end.outcome,
        bytes: end.bytes,
        duration_us: end.duration_us,
        ..begin
    })
}

/// A record, with what the log says about itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditEntry {
    #[serde(flatten)]
    pub record: AuditRecord,
    lost: Option<u64>,
    previous: Option<String>,
    torn_bytes: Option<u64>,
}

impl AuditEntry {
    pub fn read(line: &[u8]) -> Option<AuditEntry> {
        serde_json::from_slice(line).ok()
    }

    /// Returns what happened, on one line.
    pub fn details(&self) -> String {
        let (record, mut parts) = (&self.record, Vec::new());
        if let Some(outcome) = &record.outcome {
            let milliseconds = record.duration_us.unwrap_or_default() as f64 / 1000.0;
            parts.push(format!("{outcome} {} bytes {milliseconds:.1} ms", record.bytes.unwrap_or_default()));
        }
        if let (Some(decision), Some(rule)) = (&record.decision, &record.rule) {
            let approval = record.approval.as_ref().map(|approval| format!(", approved as {approval}"));
            parts.push(format!("({decision} by {rule}{})", approval.unwrap_or_default()));
        }
        parts.extend(record.args.clone());
        parts.extend(self.lost.map(|lost| format!("{} lost", counted(lost, "record"))));
        parts.extend(self.previous.as_ref().map(|previous| format!("continues {previous}")));
        parts.extend(self.torn_bytes.map(|bytes| format!("torn record before this: {bytes} bytes")));
        parts.join(" ")
    }
}

fn unreadable(error: std::io::Error) -> Problem {
    tracing::error!(target: "admin", %error, "audit log unreadable");
    Problem::unavailable("the audit log cannot be read").hint("see the hub's log for the cause")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProblemCode;

    fn entry(line: &str) -> AuditEntry {
        AuditEntry::read(line.as_bytes()).unwrap()
    }

    #[test]
    fn details_say_what_happened() {
        for (line, expected) in [
            (r#"{"phase":"begin","args":"{\"path\":\"a\"}"}"#, r#"{"path":"a"}"#),
            (
                r#"{"phase":"end","outcome":"ok","bytes":4,"duration_us":1500,"decision":"allow","rule":"default:read"}"#,
                "ok 4 bytes 1.5 ms (allow by default:read)",
            ),
            (r#"{"phase":"gap","lost":3}"#, "3 records lost"),
            (r#"{"phase":"file","previous":"audit.000001.jsonl"}"#, "continues audit.000001.jsonl"),
            (r#"{"phase":"torn","torn_bytes":9}"#, "torn record before this: 9 bytes"),
        ] {
            assert_eq!(entry(line).details(), expected);
        }
    }

    #[test]
    fn a_call_is_its_begin_with_how_it_ended() {
        let begin =
            br#"{"seq":7,"time":"t","phase":"begin","client":"a","target":"b_c","args":"{}"}"#.to_vec();
        let end = br#"{"seq":9,"time":"u","phase":"end","client":"a","target":"b_c","begin":7,"outcome":"ok","bytes":4,"duration_us":3,"decision":"allow","rule":"r"}"#.to_vec();
        let open = AuditRecord {
            seq: 7,
            time: "t".to_owned(),
            phase: "call".to_owned(),
            client: "a".to_owned(),
            target: "b_c".to_owned(),
            args: Some("{}".to_owned()),
            ..AuditRecord::default()
        };
        assert_eq!(call_record(&RecordedCall { begin: begin.clone(), end: None }), Some(open.clone()));
        let ended = AuditRecord {
            decision: Some("allow".to_owned()),
            rule: Some("r".to_owned()),
            outcome: Some("ok".to_owned()),
            bytes: Some(4),
            duration_us: Some(3),
            ..open
        };
        assert_eq!(call_record(&RecordedCall { begin, end: Some(end) }), Some(ended));
    }

    #[test]
    fn a_log_that_cannot_be_read_was_not_modified() {
        let folder = tempfile::tempdir().unwrap();
        let settings = AuditSettings::in_folder(folder.path());
        assert_eq!(verify_log(&settings).as_str(), "intact");
        std::fs::create_dir_all(&settings.dir).unwrap();
        std::fs::write(settings.dir.join("audit.jsonl"), "{}\n").unwrap();
        let without_key = verify_log(&settings);
        assert_eq!(without_key.as_str(), "unverifiable", "{without_key:?}");
        std::fs::remove_dir_all(&settings.dir).unwrap();
        std::fs::write(&settings.dir, "in the way").unwrap();
        let unreadable = verify_log(&settings);
        assert_eq!(unreadable.as_str(), "unverifiable", "{unreadable:?}");
        let said = unreadable.sentence();
        assert!(said.starts_with("The audit log cannot be verified: "), "{said}");
        let defect =
            LogDefect { file: "a.jsonl".to_owned(), line: 3, seq: None, problem: "wrong".to_owned() };
        let modified = AuditVerdict::Modified(defect);
        assert_eq!(modified.sentence(), "The audit log was modified: a.jsonl, line 3: wrong.");
    }

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
