//! `portcullis approvals`: list, show, approve, reject.

use super::{LoadedHome, open};
use crate::cli::{ApprovalsArgs, ApprovalsCommand, ApproveArgs};
use crate::home::Home;
use crate::{BadUsage, database, print};
use anyhow::{Result, anyhow};
use jiff::Timestamp;
use portcullis_core::SystemClock;
use portcullis_ops::always_allow::{REASON_CHARS_MAX, allow_always};
use portcullis_ops::guard_settings;
use portcullis_store::approvals::{
    Approval, ApprovalError, ApprovalLifetimes, ApprovalRequest, ApprovalScope, ApprovalStore,
    ApprovalVerdict,
};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Characters of the arguments in a list.
const LIST_CHARS_MAX: usize = 60;

pub(crate) fn run(home: Option<&Path>, args: ApprovalsArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    let desk = ApprovalsCommandContext {
        approvals: ApprovalStore::open(&database::open(&loaded.config)?, Arc::new(SystemClock)),
        lifetimes: guard_settings::approval_times(&loaded.config).lifetimes,
        home,
        as_json,
    };
    match args.command.unwrap_or(ApprovalsCommand::List { all: false }) {
        ApprovalsCommand::List { all } => desk.list(all),
        ApprovalsCommand::Show { id } => desk.show(&id),
        ApprovalsCommand::Approve(args) => desk.approve(&args),
        ApprovalsCommand::Reject { id, reason } => desk.reject(&id, reason),
    }
}

/// Maps an error to bad usage or failure.
fn explained(error: ApprovalError) -> anyhow::Error {
    match error {
        ApprovalError::Ambiguous(_) => BadUsage(error.to_string()).into(),
        other => other.into(),
    }
}

struct ApprovalsCommandContext {
    approvals: ApprovalStore,
    lifetimes: ApprovalLifetimes,
    home: Home,
    as_json: bool,
}

impl ApprovalsCommandContext {
    fn list(&self, all: bool) -> Result<ExitCode> {
        let list = if all { self.approvals.list()? } else { self.approvals.pending()? };
        let now = self.approvals.now();
        if self.as_json {
            print::json(&Value::Array(list.iter().map(|approval| shown(approval, now)).collect()));
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
        print::out(print::table(&rows));
        if list.is_empty() {
            print::note("No pending approvals.");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, id: &str) -> Result<ExitCode> {
        let approval = self.approvals.get(id).map_err(explained)?;
        let now = self.approvals.now();
        if self.as_json {
            print::json(&shown(&approval, now));
        } else {
            print::out(details(&approval, now));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn approve(&self, args: &ApproveArgs) -> Result<ExitCode> {
        let approval = self.approvals.get(&args.id).map_err(explained)?;
        let span = if args.session { ApprovalScope::Session } else { ApprovalScope::Once };
        // The rule first: if it cannot be written, nothing is decided.
        let now = self.approvals.now();
        let allowed = || allow_always(&self.home, &approval, now);
        let rule_file = if args.always { allowed()? } else { None };
        let decided =
            self.approvals.decide(&approval.id, ApprovalVerdict::Approve(span), &by(), self.lifetimes);
        let approval = decided.map_err(|error| match &rule_file {
            Some(file) => anyhow!("{error}; the rule was already written to {file}"),
            None => explained(error),
        })?;
        if self.as_json {
            let mut value = shown(&approval, self.approvals.now());
            value["rule_written_to"] = json!(rule_file);
            print::json(&value);
            return Ok(ExitCode::SUCCESS);
        }
        let ApprovalRequest { client, kind, target, session, .. } = &approval.call;
        let how = match (&rule_file, span) {
            (Some(file), _) => format!("always; added a rule to {file}"),
            (None, _) if args.always => "always; a rule already allows it".to_owned(),
            (None, ApprovalScope::Once) => format!("once, until {:.0}", approval.expires),
            (None, ApprovalScope::Session) if session.is_some() => "until its session ends".to_owned(),
            (None, ApprovalScope::Session) => {
                format!("until {:.0} (the client has no session)", approval.expires)
            }
        };
        print::line(format!("Client `{client}` may run {kind} `{target}` {how}."));
        Ok(ExitCode::SUCCESS)
    }

    fn reject(&self, id: &str, reason: Option<String>) -> Result<ExitCode> {
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
            return Err(BadUsage(format!(
                "the reason is too long: the limit is {REASON_CHARS_MAX} characters"
            ))
            .into());
        }
        let decided = self.approvals.decide(id, ApprovalVerdict::Reject { reason }, &by(), self.lifetimes);
        let approval = decided.map_err(explained)?;
        if self.as_json {
            print::json(&shown(&approval, self.approvals.now()));
        } else {
            let ApprovalRequest { client, kind, target, .. } = &approval.call;
            print::line(format!("Client `{client}` may not run {kind} `{target}` with these arguments."));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns who decides, for the record.
fn by() -> String {
    format!("command line, user {}", rustix::process::getuid().as_raw())
}

fn details(approval: &Approval, now: Timestamp) -> String {
    let ApprovalRequest { client, origin, kind, target, effect, reach, rule, arguments, more, .. } =
        &approval.call;
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
    match now.as_second() - then.as_second() {
        seconds @ ..60 => format!("{}s ago", seconds.max(0)),
        seconds @ 60..3_600 => format!("{}m ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h ago", seconds / 3_600),
        seconds => format!("{}d ago", seconds / 86_400),
    }
}

fn shown(approval: &Approval, now: Timestamp) -> Value {
    let ApprovalRequest {
        digest, client, origin, kind, target, effect, reach, rule, arguments, more, ..
    } = &approval.call;
    json!({
        "id": approval.id,
        "state": approval.stage(now).as_str(),
        "client": client,
        "origin": origin,
        "kind": kind,
        "target": target,
        "effect": effect,
        "reach": reach,
        "rule": rule,
        "arguments": arguments,
        "arguments_left_out": more,
        "digest": digest,
        "asked": approval.asked.to_string(),
        "expires": approval.expires.to_string(),
        "decided": approval.decided.as_ref().map(|decided| json!({
            "at": decided.at.to_string(),
            "by": decided.by,
            "for": decided.span.map(ApprovalScope::as_str),
            "reason": decided.reason,
        })),
    })
}
