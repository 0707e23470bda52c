//! `portcullis approvals`: list, show, approve, reject, watch.

mod watch;

pub(super) use watch::decide_in_place;

use super::{open_operations, this_user};
use crate::cli::{ApprovalsArgs, ApprovalsCommand, ApproveArgs};
use crate::print;
use anyhow::Result;
use jiff::Timestamp;
use portcullis_ops::Operations;
use portcullis_ops::approval_text::FileComparison;
use portcullis_ops::approvals::DecidedApproval;
use portcullis_ops::desk::{ApprovalChoice, ApprovalFilter, DecideApproval};
use portcullis_ops::listing::ApprovalListing;
use portcullis_store::approvals::{Approval, ApprovalRequest};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// Characters of the arguments in a list.
const LIST_CHARS_MAX: usize = 60;

pub(crate) fn run(home: Option<&Path>, args: ApprovalsArgs, as_json: bool) -> Result<ExitCode> {
    let desk = ApprovalsCommandContext { ops: open_operations(home)?, as_json };
    match args.command.unwrap_or(ApprovalsCommand::List { all: false }) {
        ApprovalsCommand::List { all } => desk.list(all),
        ApprovalsCommand::Show { id } => desk.show(&id),
        ApprovalsCommand::Approve(args) => desk.approve(&args),
        ApprovalsCommand::Reject { id, reason } => desk.reject(&id, reason),
        ApprovalsCommand::Watch => watch::run(&desk.ops, as_json),
    }
}

struct ApprovalsCommandContext {
    ops: Operations,
    as_json: bool,
}

impl ApprovalsCommandContext {
    fn now(&self) -> Timestamp {
        self.ops.approvals.approvals().now()
    }

    fn list(&self, all: bool) -> Result<ExitCode> {
        let list = self.ops.list_approvals(&ApprovalFilter { all })?;
        let now = self.now();
        if self.as_json {
            print::json(&json!(
                list.iter().map(|approval| ApprovalListing::of(approval, now)).collect::<Vec<_>>()
            ));
            return Ok(ExitCode::SUCCESS);
        }
        let heading = ["ID", "STATE", "CLIENT", "CALL", "EFFECT", "REQUESTED", "ARGUMENTS"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for approval in &list {
            let ApprovalRequest { client, kind, target, effect, arguments, .. } = &approval.call;
            let mut preview: String = arguments.chars().take(LIST_CHARS_MAX).collect();
            if preview.len() < arguments.len() || approval.call.more > 0 {
                preview.push('…');
            }
            rows.push(vec![
                approval.id.clone(),
                approval.stage(now).to_string(),
                client.clone(),
                if kind == "tool" { target.clone() } else { format!("{kind} {target}") },
                effect.clone(),
                ago(approval.asked, now),
                preview,
            ]);
        }
        print::table_out(&rows);
        if list.is_empty() {
            print::note("No pending approvals.");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, id: &str) -> Result<ExitCode> {
        let (approval, now) = (self.ops.approval(id)?, self.now());
        if self.as_json {
            print::json(&json!(ApprovalListing::of(&approval, now)));
        } else {
            print::out(details(&approval, &arguments_text(&self.ops, &approval), now));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn approve(&self, args: &ApproveArgs) -> Result<ExitCode> {
        let choice = match (args.session, args.always) {
            (true, _) => ApprovalChoice::Session,
            (false, true) => ApprovalChoice::Always,
            (false, false) => ApprovalChoice::Once,
        };
        let decided = self.decide(&args.id, choice, None)?;
        let mut view = json!(ApprovalListing::of(&decided.approval, self.now()));
        view["rule_written_to"] = json!(decided.rule_written_to);
        print::either(self.as_json, &view, decided.sentence());
        Ok(ExitCode::SUCCESS)
    }

    fn reject(&self, id: &str, reason: Option<String>) -> Result<ExitCode> {
        let decided = self.decide(id, ApprovalChoice::Reject, reason)?;
        let view = json!(ApprovalListing::of(&decided.approval, self.now()));
        print::either(self.as_json, &view, decided.sentence());
        Ok(ExitCode::SUCCESS)
    }

    /// Decides about the approval as it is now: an id names exactly one call.
    fn decide(&self, id: &str, decision: ApprovalChoice, reason: Option<String>) -> Result<DecidedApproval> {
        decide(&self.ops, self.ops.approval(id)?, decision, reason)
    }
}

/// Decides about an approval as the user of this command saw it.
fn decide(
    ops: &Operations,
    seen: Approval,
    decision: ApprovalChoice,
    reason: Option<String>,
) -> Result<DecidedApproval> {
    let Approval { id, call, decided, .. } = seen;
    let seen = decided.map(|decided| decided.at);
    let decision = DecideApproval { decision, reason, digest: call.digest, seen };
    Ok(ops.decide_approval(&id, decision, &this_user())?)
}

/// Returns the arguments for a person, with the file that the call would change compared.
fn arguments_text(ops: &Operations, approval: &Approval) -> String {
    ops.readable_arguments(approval, FileComparison::WithCurrent, &|text| print::redaction().text(text))
}

fn details(approval: &Approval, arguments: &str, now: Timestamp) -> String {
    let ApprovalRequest { client, origin, kind, target, effect, reach, rule, more, .. } = &approval.call;
    let mut text = format!(
        "{}  {}\n\nclient     {client}, origin {origin}\ncall       {kind} {target}\neffect     {effect}, {reach}\nrule       {rule}\nrequested  {:.0}, {}\n",
        approval.id,
        approval.stage(now),
        approval.asked,
        ago(approval.asked, now),
    );
    text.push_str(&format!("expires    {:.0}\n", approval.expires));
    if let Some(decided) = &approval.decided {
        let span = decided.span.map_or_else(String::new, |span| format!(", {}", span.as_str()));
        let reason = decided.reason.as_ref().map_or_else(String::new, |reason| {
            format!(", reason: {}", portcullis_core::json::visible(reason))
        });
        text.push_str(&format!("decided    {:.0} by {}{span}{reason}\n", decided.at, decided.by));
    }
    text.push_str(&format!("\n{arguments}\n"));
    if *more > 0 {
        text.push_str(&format!("… truncated: {more} more characters are not stored\n"));
    }
    text
}

fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - then.as_second();
    format!("{} ago", print::age(u64::try_from(seconds).unwrap_or_default()))
}
