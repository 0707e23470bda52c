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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// How often the approvals are looked at. The hub is another process.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often they are looked at once the call has ended. Its approval is stored by then, if it has one.
const POLLS_AFTER_END: u32 = 2;

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

/// The call that a command makes, as its approval shows it.
struct OwnCall {
    client: String,
    tool: String,
    arguments: Value,
    /// Ids of the approvals that were pending before the call was sent.
    pending_before: HashSet<String>,
}

impl OwnCall {
    /// Returns whether this may be the approval of the call. One that was pending before may be another program's: it is
    /// the call's only if the arguments are exactly the same.
    fn is_in(&self, approval: &Approval) -> bool {
        let call = &approval.call;
        let is_same_tool = (call.client.as_str(), call.kind.as_str(), call.target.as_str())
            == (self.client.as_str(), "tool", self.tool.as_str());
        let shown = serde_json::from_str::<Value>(&call.arguments).ok().filter(|_| call.more == 0);
        is_same_tool
            && match shown {
                Some(shown) => shown == self.arguments,
                // Shortened arguments cannot be compared; the prompt shows them.
                None => !self.pending_before.contains(&approval.id),
            }
    }
}

/// The decision of the user of the terminal about the call that a command makes.
pub(in crate::commands) struct InPlaceDecision {
    ops: Arc<Operations>,
    own: OwnCall,
    call_has_ended: AtomicBool,
}

/// Prepares the decision about a call. The call is sent only afterwards: what is pending now is not it.
pub(in crate::commands) async fn decide_in_place(
    ops: Arc<Operations>,
    client: String,
    tool: String,
    arguments: Value,
) -> Result<InPlaceDecision> {
    let pending_before = pending(&ops).await?.into_iter().map(|approval| approval.id).collect();
    let own = OwnCall { client, tool, arguments, pending_before };
    Ok(InPlaceDecision { ops, own, call_has_ended: AtomicBool::new(false) })
}

async fn pending(ops: &Arc<Operations>) -> Result<Vec<Approval>> {
    let ops = ops.clone();
    let listed = move || Ok::<_, anyhow::Error>(ops.list_approvals(&ApprovalFilter::default())?);
    portcullis_core::blocking(listed).await
}

impl InPlaceDecision {
    /// Asks the user of the terminal about the call, once it waits for approval. Returns whether it may run now; `None` if
    /// the user left it pending, or if the call has ended and its approval was not found. Fails on a signal.
    pub(in crate::commands) async fn ask(&self) -> Result<Option<bool>> {
        let Some(approval) = self.find().await? else { return Ok(None) };
        // A thread of its own: nothing ends a read from the terminal, and the command may end before.
        let (sender, answered) = oneshot::channel();
        let ops = self.ops.clone();
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

    /// Notes that the call has ended: an approval that is not found soon will not be found.
    pub(in crate::commands) fn call_ended(&self) {
        self.call_has_ended.store(true, Ordering::Relaxed);
    }

    /// Waits for the approval of the call.
    async fn find(&self) -> Result<Option<Approval>> {
        let mut polls_left = POLLS_AFTER_END;
        loop {
            let has_ended = self.call_has_ended.load(Ordering::Relaxed);
            let found = pending(&self.ops).await?.into_iter().rfind(|approval| self.own.is_in(approval));
            if found.is_some() {
                return Ok(found);
            }
            if has_ended {
                polls_left -= 1;
                if polls_left == 0 {
                    return Ok(None);
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use portcullis_store::approvals::ApprovalState;

    fn approval(id: &str, client: &str, arguments: &str, more: usize) -> Approval {
        let call = json!({
            "digest": "", "client": client, "origin": "client", "kind": "tool", "target": "shop_pay",
            "effect": "write", "reach": "outside", "rule": "", "definition": "", "arguments": arguments, "more": more,
        });
        Approval {
            id: id.to_owned(),
            state: ApprovalState::Pending,
            asked: Timestamp::default(),
            expires: Timestamp::default(),
            decided: None,
            taken: false,
            call: serde_json::from_value(call).unwrap(),
        }
    }

    #[test]
    fn what_was_pending_before_the_call_is_offered_only_if_it_is_the_same() {
        let own = OwnCall {
            client: "local".to_owned(),
            tool: "shop_pay".to_owned(),
            arguments: json!({ "sum": 1 }),
            pending_before: HashSet::from(["before".to_owned()]),
        };
        for (id, client, arguments, more, expected) in [
            ("new", "local", r#"{"sum":1}"#, 0, true),
            ("new", "local", r#"{"sum":2}"#, 0, false),
            ("new", "other", r#"{"sum":1}"#, 0, false),
            ("new", "local", r#"{"sum":"#, 4, true),
            ("new", "local", r#"{"sum":"#, 0, true),
            ("before", "local", r#"{"sum":1}"#, 0, true),
            ("before", "local", r#"{"sum":1}"#, 4, false),
            ("before", "local", r#"{"sum":"#, 4, false),
            ("before", "local", r#"{"sum":"#, 0, false),
        ] {
            let seen = approval(id, client, arguments, more);
            assert_eq!(own.is_in(&seen), expected, "{id} {client} {arguments} {more}");
        }
    }

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
