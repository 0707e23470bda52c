//! `portcullis mcp trust`: review of a server, and pinning of its definitions.

use super::probe::{needs_secrets, probe};
use super::{McpCommandContext, reached};
use crate::cli::McpTrustArgs;
use crate::commands::this_user;
use crate::config::McpServerSettings;
use crate::mcp::ServerFactory;
use crate::secret_detection::{Extent, shortened};
use crate::{BadUsage, print, secret_detection};
use anyhow::Result;
use portcullis_core::json::printable;
use portcullis_store::pins::{PinDifference, ServerSnapshot, differences};
use serde_json::{Value, json};
use similar::TextDiff;
use std::process::ExitCode;

impl McpCommandContext {
    pub(super) fn trust(&self, args: &McpTrustArgs) -> Result<ExitCode> {
        let name = args.name.as_str();
        if args.revoke {
            // Also for a server no longer configured.
            return self.revoke(name);
        }
        let server = self.server(name)?;
        let makers = self.makers(needs_secrets(server))?;
        if makers.is_unreviewed(server) && !self.may_begin(server, args)? {
            print::line("Not started, not trusted.");
            return Ok(ExitCode::SUCCESS);
        }
        let looked = probe(server, &self.config, &makers)?;
        let seen = looked.connected(name)?;
        let before = makers.pins.of(name);
        let nothing = ServerSnapshot::default();
        let known = before.as_ref().map_or(&nothing, |trusted| &trusted.as_it_was);
        let different = differences(known, &seen);
        if !self.as_json {
            match &before {
                None => print::out(looked.text(name, &seen)),
                Some(trusted) if different.is_empty() => {
                    print::line(format!(
                        "Server `{name}`: no changes since it was trusted, {:.0}.",
                        trusted.since
                    ));
                }
                Some(_) => print::out(summary(name, &different) + &looked.left_out()),
            }
            // A confirmation is preceded by the full diff.
            let is_asked = !args.yes && !print::nobody_to_ask();
            if args.diff || (is_asked && before.is_some()) {
                for one in &different {
                    let text = unified_diff(one);
                    if is_configured(one) { print::configured(text) } else { print::out(text) }
                }
            } else if is_asked {
                print::note(format!(
                    "Descriptions are truncated and schemas are hidden. To see everything: portcullis mcp trust {name} --diff"
                ));
            }
        }
        let is_known = before.is_some() && different.is_empty();
        let decided = is_known || self.decides(args, seen.tools.len(), before.is_some())?;
        if decided && !is_known {
            makers.activate_secrets(server)?;
            makers.pins.trust(name, (*seen).clone(), &by())?;
        }
        let switched_on = decided && before.is_none() && switch_on(&makers, name)?;
        if self.as_json {
            print::configured_json(&json!({
                "server": name,
                "trusted": decided,
                "switched_on": switched_on,
                "tools": seen.tools.keys().collect::<Vec<_>>(),
                "prompts": seen.prompts.keys().collect::<Vec<_>>(),
                "templates": seen.templates.keys().collect::<Vec<_>>(),
                "differences": different.iter().map(|one| shown(one, args.diff)).collect::<Vec<_>>(),
            }));
        } else if decided {
            let on = if switched_on { " and enabled" } else { "" };
            print::line(format!("Server `{name}` is trusted{on}. Later changes need review."));
        } else {
            print::line("Not trusted.");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows the command of an imported server and asks before its first start: the review has to run it, and others wrote
    /// it.
    fn may_begin(&self, server: &McpServerSettings, args: &McpTrustArgs) -> Result<bool> {
        let (name, is_local) = (&server.name, server.place.is_none());
        let begun = if is_local { "starts" } else { "connects to" };
        let whole = how_it_runs(server, Extent::Full);
        let shown = if args.full { whole.clone() } else { how_it_runs(server, Extent::Screen) };
        let mut text =
            format!("Server `{name}` was imported and not reviewed yet. The review {begun}:{shown}");
        if shown != whole {
            text.push_str(&format!(
                "\nLong values are truncated. To see everything: portcullis mcp trust {name} --full"
            ));
        }
        print::configured_note(text);
        match (args.yes, self.as_json || print::nobody_to_ask(), args.diff) {
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
        let no_terminal_here = self.as_json || print::nobody_to_ask();
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
        let revoked = self.operations()?.revoke_trust(name, &this_user())?;
        if self.as_json {
            print::json(&json!({ "server": name, "trusted": false, "was_trusted": revoked.was_trusted }));
        } else {
            print::line(revoked.sentence(name));
        }
        if let Some(note) = revoked.note(name) {
            print::note(note);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns command or URL, working directory, environment and headers.
fn how_it_runs(server: &McpServerSettings, extent: Extent) -> String {
    let lines = std::iter::once(reached(server, extent)).chain(runs_with(server, extent));
    lines.map(|line| format!("\n  {line}")).collect()
}

/// Returns the working directory, and every variable and header with its value: a variable can make a program run another
/// one.
pub(crate) fn runs_with(server: &McpServerSettings, extent: Extent) -> Vec<String> {
    let folder = server.cwd.iter().map(|cwd| format!("in {}", shortened(&cwd.display().to_string(), extent)));
    let headers = server.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let with: Vec<(String, String)> = server.env.iter().cloned().chain(headers).collect();
    let shown = secret_detection::shown_pairs(&with).into_iter();
    let shown = shown
        .map(|(name, value)| format!("with {} = {}", shortened(&name, extent), shortened(&value, extent)));
    folder.chain(shown).collect()
}

/// The confirmation before a server is trusted for the first time.
pub(super) fn question(name: &str, tools: usize) -> String {
    match tools {
        1 => format!("Trust `{name}` and expose this tool?"),
        _ => format!("Trust `{name}` and expose these {tools} tools?"),
    }
}

fn no_terminal() -> anyhow::Error {
    BadUsage("no terminal to ask for confirmation: review with `--diff`, then pass `--yes`".to_owned()).into()
}

/// Enables a server that was disabled only until its review. Returns whether it was.
pub(crate) fn switch_on(makers: &ServerFactory, name: &str) -> Result<bool> {
    let toggle = makers.toggles.of(name);
    // A server disabled by a person stays disabled.
    if !toggle.unseen {
        return Ok(false);
    }
    makers.toggles.mark_reviewed(name)?;
    Ok(toggle.enabled == Some(false))
}

/// Returns who trusts, for the record.
pub(super) fn by() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "command line".to_owned())
}

pub(crate) fn change(one: &PinDifference) -> &'static str {
    match (&one.before, &one.after) {
        (None, _) => "new",
        (_, None) => "gone",
        _ => "changed",
    }
}

fn summary(name: &str, different: &[PinDifference]) -> String {
    let mut rows = vec![["KIND", "NAME", "CHANGE"].map(str::to_owned).to_vec()];
    for one in different {
        rows.push(vec![one.kind.to_owned(), printable(&one.name), change(one).to_owned()]);
    }
    format!("Changes in `{name}` since it was trusted:\n\n{}", print::table(&rows))
}

/// Returns a definition as indented JSON, so that a change is a line of the diff.
fn pretty(text: &str) -> String {
    let lines = match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => format!("{value:#}"),
        _ => text.to_owned(),
    };
    format!("{lines}\n")
}

/// The kind of a change in command or URL.
const IDENTITY: &str = "identity";
/// Shown if both sides look alike.
const HIDDEN_DIFFERS: &str = "changed in a redacted part";

/// Returns both sides of a change, redacted: a command or URL may contain secrets.
fn sides(one: &PinDifference) -> (Option<String>, Option<String>) {
    let args = |text: &str| {
        let args: Vec<String> = serde_json::from_str(text).unwrap_or_default();
        json!(secret_detection::shown_args(&args)).to_string()
    };
    let shown = |text: &Option<String>| match (one.kind, one.name.as_str(), text) {
        (IDENTITY, "args", Some(text)) => Some(args(text)),
        (IDENTITY, "url", Some(text)) => Some(secret_detection::shown_url(text)),
        (_, _, text) => text.clone(),
    };
    (shown(&one.before), shown(&one.after))
}

/// As [`sides`], as indented JSON.
pub(crate) fn lines(one: &PinDifference) -> (Option<String>, Option<String>) {
    let (before, after) = sides(one);
    let is_hidden = before == after;
    let pretty = |side: Option<String>| side.map(|text| pretty(&text));
    let (before, mut after) = (pretty(before), pretty(after));
    if let Some(after) = after.as_mut().filter(|_| is_hidden) {
        after.push_str(&format!("({HIDDEN_DIFFERS})\n"));
    }
    (before, after)
}

/// Returns whether a change is in the command or URL, not in a definition.
fn is_configured(one: &PinDifference) -> bool {
    one.kind == IDENTITY && ["command", "args", "url"].contains(&one.name.as_str())
}

fn unified_diff(one: &PinDifference) -> String {
    let (before, after) = lines(one);
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let diff = TextDiff::from_lines(&before, &after);
    let place = format!("{} {}", one.kind, printable(&one.name));
    format!("\n{}", diff.unified_diff().context_radius(3).header(&place, &place))
}

fn shown(one: &PinDifference, whole: bool) -> Value {
    let mut value = json!({ "kind": one.kind, "name": one.name, "change": change(one) });
    if whole {
        let (before, after) = sides(one);
        if before == after {
            value["note"] = HIDDEN_DIFFERS.into();
        }
        value["before"] = json!(before);
        value["after"] = json!(after);
    }
    value
}
