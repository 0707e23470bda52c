//! Approved calls that wait for input from their client (multi-round-trip).
//!
//! One approval covers a call over all its rounds. The token that links a round to its approval is single-use: a replayed
//! round, or one for a different call, needs a new approval.
//!
//! They are in memory, not in the database: the client returns the token in state that is sealed with a key of this process, so
//! no round outlives the hub or reaches another one, and a row could never be taken. With a key that hubs share they become
//! sealed rows, taken by a claim.

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use portcullis_store::approvals::ApprovalRequest;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Bound on waiting calls. Over it a call needs a second approval, which is a nuisance but safe.
const RESUMABLE_MAX: usize = 1_000;
/// The time a client has to respond.
const RESUMABLE_FOR: Duration = Duration::from_secs(15 * 60);

#[derive(Default)]
pub(super) struct ResumableApprovals(Mutex<HashMap<String, ResumableApproval>>);

struct ResumableApproval {
    /// Digest of the call, so that no other call can resume.
    digest: String,
    /// The approval, for the audit record.
    approval: String,
    until: Instant,
}

impl ResumableApprovals {
    /// Stores a call that ends its round with input requests. Returns the token for the next round.
    pub(super) fn remember(&self, request: &ApprovalRequest, approval: &str) -> Option<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let token = HEXLOWER.encode(&random);
        let now = Instant::now();
        let mut all = self.0.lock();
        all.retain(|_, one| one.until > now);
        if all.len() >= RESUMABLE_MAX {
            return None;
        }
        let (digest, approval) = (request.digest.clone(), approval.to_owned());
        all.insert(token.clone(), ResumableApproval { digest, approval, until: now + RESUMABLE_FOR });
        Some(token)
    }

    /// Returns the approval that a call resumes with, and consumes it.
    pub(super) fn take(&self, request: &ApprovalRequest, token: &str) -> Option<String> {
        let mut all = self.0.lock();
        let one = all.get(token)?;
        if one.digest != request.digest || one.until <= Instant::now() {
            return None;
        }
        all.remove(token).map(|one| one.approval)
    }
}
