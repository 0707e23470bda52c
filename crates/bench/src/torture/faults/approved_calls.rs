//! Calls that a person has to approve: the hub changes the database when it opens a request, and when a call consumes its
//! approval. An approval is for one call, whatever fails.

use crate::torture::session::{CallReply, StdioSession, TortureHome};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The tool that needs approval. The other calls of the hub's work do without.
const TOOL: &str = "script_reload";
pub(super) const CONFIG: &str =
    "[approvals]\nwait_secs = 0\n[[policy]]\ntools = [\"script_reload\"]\ndecision = \"ask\"\n";
/// After these calls of the hub's work one is asked for, approved and made.
pub(super) const AT: [u64; 3] = [20, 60, 100];
/// Ids of these calls, so that no other call has them.
const FIRST_ID: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct ApprovedCalls {
    calls: u64,
    /// Whether the last approval was consumed by a call that ran.
    consumed: bool,
    /// Whether an approval is left that no call has consumed: a call whose change of the database fails is refused and does not
    /// consume it.
    unused: bool,
    /// How many were consumed.
    pub(super) count: u64,
}

impl ApprovedCalls {
    fn call(&mut self, session: &mut StdioSession) -> CallReply {
        self.calls += 1;
        session.call(FIRST_ID + self.calls, TOOL, &json!({}))
    }

    /// Asks for a call, approves it with a command that has no failures, and makes it twice.
    pub(super) fn one(&mut self, lab: &TortureHome, session: &mut StdioSession) -> Result<()> {
        let unapproved = self.call(session) == CallReply::Done;
        ensure!(!unapproved || self.unused, "a call ran that no administrator had approved");
        self.unused = false;
        let pending: Value = serde_json::from_str(&lab.succeeds(&["approvals", "--json"])?)?;
        for id in pending.as_array().into_iter().flatten().filter_map(|one| one["id"].as_str()) {
            lab.succeeds(&["approvals", "approve", id]).context("an approval")?;
            self.unused = true;
        }
        self.consumed = self.call(session) == CallReply::Done;
        self.count += u64::from(self.consumed);
        self.unused &= !self.consumed;
        let again = self.consumed && self.call(session) == CallReply::Done;
        ensure!(!again, "an approval was used twice");
        Ok(())
    }

    /// No approval is in force again after another start.
    pub(super) fn check(&mut self, session: &mut StdioSession) -> Result<()> {
        let again = self.consumed && self.call(session) == CallReply::Done;
        ensure!(!again, "an approval was used again after another start");
        Ok(())
    }
}
