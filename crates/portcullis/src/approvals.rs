//! Approvals: of a running hub that another process decides about, and for good, as a rule.

use crate::commands::environment;
use crate::config::{AddRuleError, AllowRule, Config, Editing, add_rule};
use crate::folder_changes::FolderChanges;
use crate::known_tools::KnownTools;
use crate::{BadUsage, compose};
use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use portcullis_core::{Caller, Client, Decision, Effect, Listing, Origin, Reach, Scope, Unruled};
use portcullis_guard::ApprovalDesk;
use portcullis_server::Hub;
use portcullis_store::approvals::{Approval, ApprovalError, Asked, Stage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long a reason may be. It is told to the agent.
pub(crate) const REASON_CHARS_MAX: usize = 500;

/// What [`default_for`](portcullis_guard::default_for) calls the decision of a server that asks.
const ASKED_BY_SERVER: &str = "server:ask";

/// Writes a rule that allows what an approval is about, unless there is one. Returns the file.
pub(crate) fn allow_always(home: &Path, approval: &Approval, now: Timestamp) -> Result<Option<String>> {
    let Asked { client, origin, kind, target, effect, reach, rule, .. } = &approval.call;
    let effect: Effect = effect.parse().map_err(|error: String| anyhow!(error))?;
    if effect == Effect::Destroy {
        let reason = ApprovalError::SingleUse(approval.id.clone());
        return Err(BadUsage(format!("{reason}; leave `--always` out, or write a rule by hand")).into());
    }
    if kind == "completion" {
        let reason = "a completion is decided about with what it completes; leave `--always` out";
        return Err(BadUsage(reason.to_owned()).into());
    }
    let state = approval.stage(now);
    if !matches!(state, Stage::Pending | Stage::Rejected) {
        return Err(ApprovalError::Decided { id: approval.id.clone(), state }.into());
    }
    let origin = Origin::ALL.into_iter().find(|known| known.as_str() == origin);
    let origin = origin.context("the origin of the call is not known any more")?;
    let reach = if reach == Reach::Outside.as_str() { Reach::Outside } else { Reach::Local };
    // Where the rule belongs is known only while nobody else changes the rules.
    let editing = Editing::of(home)?;
    let config = &Config::load(home, &environment)?.config;
    let known = KnownTools::of(config)?;
    let labels = known.labels(target);
    // A resource or a prompt does not say in its name which server it is of. Where a server's own decision asked about it,
    // that decision is taken to hold still.
    let unruled = match kind.as_str() {
        "tool" => known.unruled(target),
        _ => None,
    };
    let asked_by_server = if rule == ASKED_BY_SERVER { Unruled::Ask } else { Unruled::ByEffect };
    let unruled = unruled.unwrap_or(asked_by_server);
    let listing = Listing {
        kind: "tool",
        name: target,
        also: None,
        effect,
        reach,
        labels,
        unruled,
        in_every_scope: false,
    };
    let before = match decide_today(config, client, origin, &listing, now) {
        Decision::Allow { .. } => return Ok(None),
        // The rules changed since the call was asked about, and a person meant them to.
        Decision::Deny { rule } => {
            return Err(anyhow!(
                "`{rule}` denies this by now; nothing was approved, and no rule was written"
            ));
        }
        // A later rule would never be reached.
        Decision::Ask { rule } => rule
            .strip_prefix("policy[")
            .and_then(|rest| rest.strip_suffix(']'))
            .and_then(|number| number.parse().ok()),
    };
    let day = now.strftime("%F").to_string();
    let new = AllowRule {
        client: client.clone(),
        name: target.clone(),
        origin,
        effect,
        reach,
        comment: format!("Approved for good on {day}, as {}.", approval.id),
    };
    let path = add_rule(&editing, &environment, &new, before).map_err(|error| match error {
        AddRuleError::Glob(_) => BadUsage(error.to_string()).into(),
        other => anyhow::Error::from(other),
    });
    let path = path.context("the rule was not written, and nothing was approved")?;
    Ok(Some(path.display().to_string()))
}

/// Decides about such a call by the rules as they are now. What the client's scope leaves out it could not have asked.
fn decide_today(
    config: &Config,
    client: &str,
    origin: Origin,
    listing: &Listing<'_>,
    now: Timestamp,
) -> Decision {
    let client = Arc::new(Client { name: client.to_owned(), scope: Scope::everything(), token: None });
    compose::policy(config).decide(&Caller { client, origin }, listing, now)
}

/// Tells the desk when a file in the folder `secure` changes, and when the hub closes.
pub(crate) async fn watch(desk: ApprovalDesk, secure: PathBuf, hub: Arc<Hub>) {
    let changes = FolderChanges::of(&secure);
    loop {
        tokio::select! {
            () = hub.closed() => return desk.close(),
            () = changes.next() => desk.look_again(),
        }
    }
}
