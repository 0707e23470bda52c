//! Tells clients when the time changes what they may see.

use crate::authorize::Authorize;
use portcullis_core::{Change, Changes};
use std::time::Duration;

/// How long the clock is trusted to go on as it did: it may be set, and a machine may sleep.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Announces that lists may have changed whenever the time makes a rule begin or cease to hold. Does not end.
///
/// Decisions do not wait for this: they look at the clock themselves.
pub async fn announce_windows(policy: Authorize, changes: Changes) {
    let mut in_force = policy.in_force();
    loop {
        let wait = policy.until_change().map_or(LOOK_EVERY, |wait| wait.min(LOOK_EVERY));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // Whoever replaces the policy announces that; only the wait is another now.
            () = policy.replaced() => {
                in_force = policy.in_force();
                continue;
            }
        }
        let now = policy.in_force();
        if now != in_force {
            in_force = now;
            tracing::debug!(target: "policy", "a rule began or ceased to hold");
            for change in [Change::Tools, Change::Prompts, Change::Resources] {
                changes.announce(change);
            }
        }
    }
}
