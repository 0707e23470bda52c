//! `portcullis mcp trust`: review of a server, and pinning of its definitions.

use super::McpCommandContext;
use super::probe::{left_out, probe_text};
use crate::cli::McpTrustArgs;
use crate::commands::this_user;
use crate::config::McpServerSettings;
use crate::config::secret_detection::ValueDisplay;
use crate::{BadUsage, print};
use anyhow::Result;
use jiff::Timestamp;
use portcullis_core::Reach;
use portcullis_core::json::printable;
use portcullis_guard::default_action;
use portcullis_ops::Problem;
use portcullis_ops::known_tools::tool_rules;
use portcullis_ops::servers::trust::{
    ServerReview, change_word, difference_listing, is_configured, lines, trusted_sentence,
};
use portcullis_ops::servers::{EnvRemedy, ReviewChoices, find_server, reached, runs_with};
use portcullis_store::pins::{AdvertisedHints, PinDifference, ServerSnapshot, ToolReview, TrustedServer};
use serde_json::json;
use similar::TextDiff;
use std::collections::BTreeMap;
use std::process::ExitCode;

impl McpCommandContext {
    pub(super) fn trust(&self, args: &McpTrustArgs) -> Result<ExitCode> {
        let name = args.name.as_str();
        if args.revoke {
            // Also for a server no longer configured.
            return self.revoke(name);
        }
        let choices = choices(args.policy.as_deref(), &args.effects)?;
        let server = find_server(&self.config, name)?;
        let makers = self.ops.server_factory_for(server)?;
        if makers.is_unreviewed(server) && !self.may_begin(server, args)? {
            print::line("Not started, not trusted.");
            return Ok(ExitCode::SUCCESS);
        }
        let looked = self.probe(server, &self.config, EnvRemedy::Setting)?;
        let seen = looked.connected()?;
        let review = ServerReview::of(name, &seen, makers);
        let chosen = choices.apply(review.proposed.clone(), &seen).map_err(bad_choice)?;
        let (before, different) = (&review.trusted, &review.differences);
        let is_settled = review.is_settled(&chosen);
        if !self.as_json {
            match before {
                None => print::out(probe_text(&looked, &seen)),
                Some(trusted) if different.is_empty() => {
                    print::line(format!(
                        "Server `{name}`: no changes since it was trusted, {:.0}.",
                        trusted.since
                    ));
                }
                Some(_) => print::out(summary(name, different) + &left_out(&looked)),
            }
            if !is_settled {
                print::out(choices_text(server, &seen, &chosen));
            }
            // A confirmation is preceded by the full diff.
            let is_asked = !args.yes && print::is_interactive();
            if args.diff || (is_asked && before.is_some()) {
                for one in different {
                    let text = unified_diff(one);
                    if is_configured(one.kind, &one.name) {
                        print::configured(text)
                    } else {
                        print::out(text)
                    }
                }
            } else if is_asked {
                print::note(format!(
                    "Descriptions are truncated and schemas are hidden. To see everything: portcullis mcp trust {name} --diff"
                ));
            }
        }
        let decided = is_settled || self.decides(args, seen.tools.len(), before.is_some())?;
        let policy = chosen.policy.as_str();
        let effects: BTreeMap<String, &str> =
            chosen.effects.iter().map(|(tool, chosen)| (tool.clone(), chosen.effect.as_str())).collect();
        let pinned = if decided && !is_settled {
            Some(self.ops.trust_server(server, &seen, chosen, &this_user())?)
        } else {
            None
        };
        let switched_on = pinned.is_some_and(|pinned| pinned.is_enabled_now);
        if self.as_json {
            print::configured_json(&json!({
                "server": name,
                "trusted": decided,
                "switched_on": switched_on,
                "tools": seen.tools.keys().collect::<Vec<_>>(),
                "policy": policy,
                "effects": effects,
                "prompts": seen.prompts.keys().collect::<Vec<_>>(),
                "templates": seen.templates.keys().collect::<Vec<_>>(),
                "differences": different.iter().map(|one| difference_listing(one, args.diff)).collect::<Vec<_>>(),
            }));
        } else if decided {
            print::line(trusted_sentence(name, switched_on));
        } else {
            print::line("Not trusted.");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows the command of an imported server and asks before its first start: the review has to run it, and others wrote
    /// it.
    fn may_begin(&self, server: &McpServerSettings, args: &McpTrustArgs) -> Result<bool> {
        let (name, is_local) = (&server.name, server.is_local());
        let begun = if is_local { "starts" } else { "connects to" };
        let whole = how_it_runs(server, ValueDisplay::Full);
        let shown = if args.full { whole.clone() } else { how_it_runs(server, ValueDisplay::Screen) };
        let mut text =
            format!("Server `{name}` was imported and not reviewed yet. The review {begun}:{shown}");
        if shown != whole {
            text.push_str(&format!(
                "\nLong values are truncated. To see everything: portcullis mcp trust {name} --full"
            ));
        }
        print::configured_note(text);
        match (args.yes, self.as_json || !print::is_interactive(), args.diff) {
            (true, ..) | (false, true, true) => Ok(true),
            (false, true, false) => Err(no_terminal()),
            (false, false, _) => {
                let question = if is_local { "Start it?" } else { "Connect to it?" };
                Ok(print::confirm(question)? == Some(true))
            }
        }
    }

    /// Asks for confirmation, unless `--yes` or only `--diff` was given.
    fn decides(&self, args: &McpTrustArgs, tools: usize, is_update: bool) -> Result<bool> {
        let no_terminal_here = self.as_json || !print::is_interactive();
        match (args.yes, no_terminal_here, args.diff) {
            (true, ..) => Ok(true),
            (false, true, true) => Ok(false),
            (false, true, false) => Err(no_terminal()),
            (false, false, _) => {
                let name = &args.name;
                let question = match is_update {
                    true => format!("Trust these changes to `{name}`?"),
                    false => question(name, tools),
                };
                Ok(print::confirm(&question)? == Some(true))
            }
        }
    }

    fn revoke(&self, name: &str) -> Result<ExitCode> {
        let revoked = self.ops.revoke_trust(name, &this_user())?;
        let view = json!({ "server": name, "trusted": false, "was_trusted": revoked.was_trusted });
        print::either(self.as_json, &view, revoked.sentence(name));
        if let Some(note) = revoked.note(name) {
            print::note(note);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns command or URL, working directory, environment and headers.
fn how_it_runs(server: &McpServerSettings, extent: ValueDisplay) -> String {
    let lines = std::iter::once(reached(server, extent)).chain(runs_with(server, extent));
    lines.map(|line| format!("\n  {line}")).collect()
}

/// Parses `--policy` and `--effect`.
pub(super) fn choices(policy: Option<&str>, effects: &[String]) -> Result<ReviewChoices> {
    let pairs = effects.iter().map(|text| {
        // The effect comes last: a glob may have a `=`.
        let pair = text.rsplit_once('=').filter(|(tools, _)| !tools.is_empty());
        pair.ok_or_else(|| BadUsage("`--effect` expects GLOB=EFFECT, like 'get_*=read'".to_owned()).into())
    });
    let pairs = pairs.collect::<Result<Vec<_>>>()?;
    ReviewChoices::parse(policy, pairs).map_err(bad_choice)
}

pub(super) fn bad_choice(problem: Problem) -> anyhow::Error {
    BadUsage(problem.to_string()).into()
}

/// Lists what would hold for each tool with these choices.
pub(super) fn choices_text(server: &McpServerSettings, seen: &ServerSnapshot, chosen: &ToolReview) -> String {
    if seen.tools.is_empty() {
        return String::new();
    }
    let trusted = TrustedServer {
        since: Timestamp::UNIX_EPOCH,
        by: String::new(),
        snapshot: seen.clone(),
        review: Some(chosen.clone()),
    };
    let rules = tool_rules(server, Some(&trusted));
    let mut rows = vec![["TOOL", "EFFECT", "CALLS", "ADVERTISED"].map(str::to_owned).to_vec()];
    for (own, pin) in &seen.tools {
        let effect = rules.effect(own);
        let (decision, _) = default_action(effect, Reach::Outside, rules.decision(own));
        let words = [effect.as_str(), decision.as_str()].map(str::to_owned);
        let [effect, decision] = words;
        rows.push(vec![printable(own), effect, decision, AdvertisedHints::of(pin).to_string()]);
    }
    let (name, policy) = (&server.name, chosen.policy);
    format!(
        "\n{}\nPolicy `{policy}`: {}. To choose otherwise: portcullis mcp trust {name} --policy ask-changes|allow|ask --effect 'GLOB=EFFECT'\n",
        print::table(&rows),
        policy.label(),
    )
}

/// The confirmation before a server is trusted for the first time.
pub(super) fn question(name: &str, tools: usize) -> String {
    format!("Trust `{name}` and {}?", exposing(tools))
}

/// What trust does, as part of a question.
pub(super) fn exposing(tools: usize) -> String {
    match tools {
        1 => "expose this tool".to_owned(),
        _ => format!("expose these {tools} tools"),
    }
}

fn no_terminal() -> anyhow::Error {
    BadUsage("no terminal to ask for confirmation: review with `--diff`, then pass `--yes`".to_owned()).into()
}

fn summary(name: &str, different: &[PinDifference]) -> String {
    let mut rows = vec![["KIND", "NAME", "CHANGE"].map(str::to_owned).to_vec()];
    for one in different {
        rows.push(vec![one.kind.to_owned(), printable(&one.name), change_word(one).to_owned()]);
    }
    format!("Changes in `{name}` since it was trusted:\n\n{}", print::table(&rows))
}

fn unified_diff(one: &PinDifference) -> String {
    let (before, after) = lines(one);
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let diff = TextDiff::from_lines(&before, &after);
    let place = format!("{} {}", one.kind, printable(&one.name));
    format!("\n{}", diff.unified_diff().context_radius(3).header(&place, &place))
}
