//! Following pending approvals, and deciding about them at the terminal.

use super::{arguments_text, decide, details};
use crate::print;
use anyhow::{Context, Result};
use portcullis_ops::desk::{ApprovalChoice, ApprovalFilter};
use portcullis_ops::listing::ApprovalListing;
use portcullis_ops::{Operations, ShutdownWatch};
use portcullis_store::approvals::Approval;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often the approvals are looked at. The hub is another process.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What a person answers about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromptAnswer {
    Approve,
    Reject,
    /// Not now: the call stays pending.
    Later,
}

impl PromptAnswer {
    fn parse(answer: &str) -> PromptAnswer {
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => PromptAnswer::Approve,
            "n" | "no" => PromptAnswer::Reject,
            _ => PromptAnswer::Later,
        }
    }
}

/// Shows each pending approval once, the oldest first, until a signal.
pub(super) fn run(ops: &Operations, as_json: bool) -> Result<ExitCode> {
    let prompts = !as_json && print::is_interactive();
    if prompts {
        print::note("Waiting for calls that need approval. Ctrl-C ends this.");
    }
    let mut seen = HashSet::new();
    loop {
        let pending = ops.list_approvals(&ApprovalFilter::default())?;
        // Decided ones do not come back.
        seen.retain(|id| pending.iter().any(|approval| approval.id == *id));
        for approval in pending {
            if !seen.insert(approval.id.clone()) {
                continue;
            }
            if prompts {
                prompt(ops, approval)?;
            } else if show(ops, &approval, as_json).is_break() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !pause()? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Returns whether to go on: a signal ends it.
fn pause() -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let mut ending = ShutdownWatch::default().signals().context("cannot install signal handlers")?;
        Ok(tokio::select! {
            () = ending.received() => false,
            () = tokio::time::sleep(POLL_INTERVAL) => true,
        })
    })
}

fn show(ops: &Operations, approval: &Approval, as_json: bool) -> std::ops::ControlFlow<()> {
    let now = ops.approvals.approvals().now();
    match as_json {
        true => print::row(&json!(ApprovalListing::of(approval, now)).to_string()),
        false => print::row(&portcullis_ops::approval_text::announcement(approval)),
    }
}

/// Shows a call and asks about it. Returns the answer that counts: `None` if another decision came first.
fn prompt(ops: &Operations, approval: Approval) -> Result<Option<PromptAnswer>> {
    let now = ops.approvals.approvals().now();
    print::note(format!("\n{}", details(&approval, &arguments_text(ops, &approval), now)));
    let answer = print::ask("Approve this call, once? [y/n, Enter leaves it pending]")?;
    let answer = answer.map_or(PromptAnswer::Later, |answer| PromptAnswer::parse(&answer));
    let choice = match answer {
        PromptAnswer::Approve => ApprovalChoice::Once,
        PromptAnswer::Reject => ApprovalChoice::Reject,
        PromptAnswer::Later => {
            print::note(format!(
                "It stays pending; `portcullis approvals approve {}` approves it.",
                approval.id
            ));
            return Ok(Some(answer));
        }
    };
    match decide(ops, approval, choice, None) {
        Ok(decided) => {
            print::note(decided.sentence());
            Ok(Some(answer))
        }
        Err(error) => {
            print::note(format!("Error: {error:#}"));
            Ok(None)
        }
    }
}

/// Asks the user of the terminal about the call that this command makes, once it waits for approval. Returns whether it may
/// run now; `None` if the user left it pending. Fails on a signal.
pub(in crate::commands) async fn decide_in_place(
    ops: Arc<Operations>,
    client: String,
    tool: String,
    arguments: Value,
) -> Result<Option<bool>> {
    let approval = loop {
        let known = ops.clone();
        let pending = portcullis_core::blocking(move || {
            Ok::<_, anyhow::Error>(known.list_approvals(&ApprovalFilter::default())?)
        });
        let is_ours = |approval: &Approval| {
            let call = &approval.call;
            // Shortened arguments cannot be compared; the prompt shows them.
            let same = serde_json::from_str::<Value>(&call.arguments)
                .map_or(true, |shown| call.more > 0 || shown == arguments);
            (call.client.as_str(), call.kind.as_str(), call.target.as_str())
                == (client.as_str(), "tool", tool.as_str())
                && same
        };
        match pending.await?.into_iter().rfind(is_ours) {
            Some(approval) => break approval,
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    };
    // A thread of its own: nothing ends a read from the terminal, and the command may end before.
    let (sender, answered) = oneshot::channel();
    std::thread::spawn(move || {
        // No one waits for the answer if the call has ended.
        let _ = sender.send(prompt(&ops, approval));
    });
    Ok(match answered.await.context("the prompt failed")?? {
        // Decided elsewhere: the call says how.
        Some(PromptAnswer::Approve) | None => Some(true),
        Some(PromptAnswer::Reject) => Some(false),
        Some(PromptAnswer::Later) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_decides() {
        for (answer, expected) in [
            ("y\n", PromptAnswer::Approve),
            ("Yes", PromptAnswer::Approve),
            (" n ", PromptAnswer::Reject),
            ("NO\n", PromptAnswer::Reject),
            ("\n", PromptAnswer::Later),
            ("yess", PromptAnswer::Later),
            ("", PromptAnswer::Later),
        ] {
            assert_eq!(PromptAnswer::parse(answer), expected, "{answer:?}");
        }
    }
}
