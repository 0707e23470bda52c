//! `portcullis audit`: tail, search and verify the audit log.
//!
//! Reads the files directly, whether or not a hub runs.

use super::{LoadedHome, block_on, open};
use crate::cli::{AuditArgs, AuditCommand, SearchArgs};
use crate::{BadUsage, print};
use anyhow::{Context, Result};
use portcullis_core::counted;
use portcullis_guard::AuditSettings;
use portcullis_guard::audit;
use portcullis_ops::ShutdownWatch;
use portcullis_ops::audit::{AuditEntry, AuditVerdict, audit_query, verify_log};
use portcullis_ops::desk::SearchAudit;
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Maximum lines of `tail`.
const TAIL_LINES_MAX: usize = 100_000;
/// Poll interval of `tail --follow`.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);

pub(crate) fn run(home: Option<&Path>, args: AuditArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { loaded, .. } = open(home)?;
    let settings = AuditSettings::in_folder(&loaded.config.workspace.secure_dir());
    match args.command {
        AuditCommand::Tail { lines, follow } => tail(&settings, lines, follow, as_json),
        AuditCommand::Search(args) => search(&settings, args, as_json),
        AuditCommand::Verify => Ok(verify(&settings, as_json)),
    }
}

fn tail(settings: &AuditSettings, count: usize, follow: bool, as_json: bool) -> Result<ExitCode> {
    if count > TAIL_LINES_MAX {
        return Err(BadUsage(format!("`-n` is {count}, expected 0 to {TAIL_LINES_MAX}")).into());
    }
    let (lines, mut later) = audit::last_lines(settings, count).context("the audit log")?;
    let mut table = Table::new(as_json);
    for line in &lines {
        if table.row(line).is_break() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if !follow {
        return Ok(ExitCode::SUCCESS);
    }
    block_on(async move {
        let mut ending = ShutdownWatch::default().signals()?;
        loop {
            // Reads on at once while there is more.
            if later.poll(&mut |line| table.row(line)).context("the audit log")?.is_break() {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::select! {
                () = ending.received() => return Ok(ExitCode::SUCCESS),
                () = tokio::time::sleep(FOLLOW_EVERY) => {}
            }
        }
    })?
}

fn search(settings: &AuditSettings, args: SearchArgs, as_json: bool) -> Result<ExitCode> {
    let SearchArgs { tool, client, since, outcome } = args;
    let query = audit_query(SearchAudit { tool, client, since, outcome, ..SearchAudit::default() })?;
    let mut table = Table::new(as_json);
    audit::each_match(settings, &query, &mut |line| table.row(line)).context("the audit log")?;
    Ok(ExitCode::SUCCESS)
}

fn verify(settings: &AuditSettings, as_json: bool) -> ExitCode {
    let verdict = verify_log(settings);
    if as_json {
        print::json(&match &verdict {
            AuditVerdict::Intact(report) => json!({ "ok": true, "verified": report }),
            AuditVerdict::Modified(defect) => json!({ "ok": false, "first_bad": defect }),
            AuditVerdict::Unverifiable(why) => json!({ "ok": false, "error": why }),
        });
    }
    let AuditVerdict::Intact(report) = &verdict else {
        if !as_json {
            print::note(verdict.sentence());
        }
        return ExitCode::FAILURE;
    };
    if !as_json {
        print::line(verdict.sentence());
        if report.torn > 0 {
            print::line(format!(
                "{} (crash during a write), all marked.",
                counted(report.torn, "torn record")
            ));
        }
        if report.unfinished_bytes > 0 {
            print::line(format!("The last record is incomplete ({} bytes).", report.unfinished_bytes));
        }
    }
    ExitCode::SUCCESS
}

/// Prints rows as they arrive, with fixed column widths; a long cell shifts the rest.
struct Table {
    as_json: bool,
    begun: bool,
}

impl Table {
    fn new(as_json: bool) -> Table {
        Table { as_json, begun: false }
    }

    /// Prints one record. Breaks when the output is closed.
    fn row(&mut self, line: &[u8]) -> ControlFlow<()> {
        if self.as_json {
            return print::json_row(&String::from_utf8_lossy(line));
        }
        if !std::mem::replace(&mut self.begun, true) {
            set(["TIME", "SEQ", "PHASE", "CLIENT", "ORIGIN", "TOOL", "DETAILS"].map(str::to_owned))?;
        }
        let Some(entry) = AuditEntry::read(line) else {
            let text = String::from_utf8_lossy(line);
            return print::row(&format!("not a record: {}", portcullis_core::json::printable(&text)));
        };
        let (details, record) = (entry.details(), entry.record);
        let seq = record.seq.to_string();
        set([record.time, seq, record.phase, record.client, record.origin, record.target, details])
    }
}

fn set([time, seq, phase, client, origin, target, details]: [String; 7]) -> ControlFlow<()> {
    let shown = |cell: String| portcullis_core::json::visible(&cell);
    let [time, client, origin, target, details] = [time, client, origin, target, details].map(shown);
    let row = format!("{time:<24}  {seq:>8}  {phase:<5}  {client:<12}  {origin:<8}  {target:<24}  {details}");
    print::row(row.trim_end())
}
