//! "Always" approvals, as allow rules in the configuration.

use crate::config::{AddRuleError, AllowRule, Config, ConfigEditLock, add_rule};
use crate::config_file;
use crate::home::{Home, environment};
use crate::known_tools::KnownTools;
use crate::mcp::ServerFactory;
use crate::{Problem, guard_settings};
use jiff::Timestamp;
use portcullis_core::{
    Caller, Client, Decision, DefaultDecision, Effect, Origin, OriginSet, PolicySubject, Reach, Scope,
};
use portcullis_store::approvals::{Approval, ApprovalError, ApprovalRequest, ApprovalStage};
use std::sync::Arc;

/// Length limit of a reason, which is sent to the agent.
pub const REASON_CHARS_MAX: usize = 500;

/// Name of a server's `ask` decision in [`default_for`](portcullis_guard::default_for).
const ASKED_BY_SERVER: &str = "server:ask";

/// Writes an allow rule for an approval, unless one exists. Returns the file.
pub fn allow_always(
    home: &Home,
    approval: &Approval,
    factory: Option<&ServerFactory>,
    now: Timestamp,
) -> Result<Option<String>, Problem> {
    let ApprovalRequest { client, origin, ancestors, kind, target, effect, reach, rule, .. } = &approval.call;
    let effect: Effect = effect.parse().map_err(|error: String| Problem::internal(error))?;
    if effect == Effect::Destroy {
        let reason = ApprovalError::SingleUse(approval.id.clone());
        return Err(Problem::invalid(reason.to_string()).hint("omit `--always`, or write a rule yourself"));
    }
    if kind == "completion" {
        let reason = "a completion follows the decision on its prompt or resource";
        return Err(Problem::invalid(reason).hint("omit `--always`"));
    }
    let state = approval.stage(now);
    if !matches!(state, ApprovalStage::Pending | ApprovalStage::Rejected) {
        let decided = ApprovalError::Decided { id: approval.id.clone(), state };
        return Err(Problem::conflict(decided.to_string()));
    }
    let origin = Origin::parse(origin);
    let origin = origin.ok_or_else(|| Problem::internal("the origin of the call is unknown"))?;
    let ancestors =
        ancestors.iter().filter_map(|name| Origin::parse(name)).fold(OriginSet::NONE, OriginSet::with);
    if ancestors.iter().any(|ancestor| ancestor != Origin::Client) {
        let reason = "a rule would allow this call from everywhere, not only within what made it";
        return Err(Problem::invalid(reason).hint("omit `--always`"));
    }
    let reach = if reach == Reach::Outside.as_str() { Reach::Outside } else { Reach::Local };
    // Locked: the position of the rule depends on the others.
    let editing = ConfigEditLock::of(home.path()).map_err(config_file::edit_problem)?;
    let config = &config_file::load(home)?.config;
    let known = KnownTools::of(config, factory)?;
    let labels = known.labels(target);
    // The name of a resource or prompt does not identify its server. If the server's `decision` required approval, it is
    // assumed unchanged.
    let default_decision = match kind.as_str() {
        "tool" => known.default_decision(target),
        _ => None,
    };
    let asked_by_server =
        if rule == ASKED_BY_SERVER { DefaultDecision::Ask } else { DefaultDecision::ByEffect };
    let default_decision = default_decision.unwrap_or(asked_by_server);
    let listing = PolicySubject {
        kind: "tool",
        name: target,
        also: None,
        effect,
        reach,
        labels,
        default_decision,
        in_every_scope: false,
    };
    let before = match decide_today(config, client, origin, ancestors, &listing, now) {
        Decision::Allow { .. } => return Ok(None),
        // The rules changed since the call was made, on purpose.
        Decision::Deny { rule } => {
            let reason = format!("`{rule}` now denies this; nothing was approved, and no rule was written");
            return Err(Problem::conflict(reason));
        }
        // A later rule would never match.
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
        comment: format!("Always allowed on {day}, approval {}.", approval.id),
    };
    let path = add_rule(&editing, &environment, &new, before).map_err(|error| {
        let invalid = matches!(error, AddRuleError::Glob(_));
        let problem = Problem::from(
            anyhow::Error::from(error).context("failed to write the rule; nothing was approved"),
        );
        if invalid { Problem::invalid(problem.message) } else { problem }
    })?;
    Ok(Some(path.display().to_string()))
}

/// Evaluates the current rules for the call. Its client's scope allowed it.
fn decide_today(
    config: &Config,
    client: &str,
    origin: Origin,
    ancestors: OriginSet,
    listing: &PolicySubject<'_>,
    now: Timestamp,
) -> Decision {
    let client = Arc::new(Client { name: client.to_owned(), scope: Scope::everything(), token: None });
    guard_settings::policy(config).decide(&Caller { ancestors, ..Caller::new(client, origin) }, listing, now)
}
