//! Notifies clients when a schedule changes what they may see.

use crate::authorize::ActivePolicy;
use portcullis_core::{CatalogChange, ChangeNotifier};
use std::time::Duration;

/// Maximum sleep: the clock may be set, and the machine may suspend.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Announces list changes whenever a schedule puts a rule in or out of force. Never returns.
///
/// Decisions do not depend on this: they read the clock.
pub async fn announce_windows(policy: ActivePolicy, changes: ChangeNotifier) {
    let mut in_force = policy.in_force();
    loop {
        let wait = policy.until_change().map_or(SLEEP_MAX, |wait| wait.min(SLEEP_MAX));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // The code that replaces the policy announces it; here only the next change differs.
            () = policy.replaced() => {
                in_force = policy.in_force();
                continue;
            }
        }
        let now = policy.in_force();
        if now != in_force {
            in_force = now;
            tracing::debug!(target: "policy", "schedule changed which rules are in force");
            for change in [CatalogChange::Tools, CatalogChange::Prompts, CatalogChange::Resources] {
                changes.announce(change);
            }
        }
    }
}
