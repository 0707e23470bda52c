//! `portcullis mcp trust`: a person looks at what a server offers, and lets that in.

use super::look::{look, needs_secrets};
use super::{Desk, reached};
use crate::cli::McpTrustArgs;
use crate::config::McpServer;
use crate::mcp::Makers;
use crate::private::{Extent, shortened};
use crate::{BadUsage, print, private};
use anyhow::Result;
use portcullis_core::json::printable;
use portcullis_store::pins::{Difference, Snapshot, differences};
use serde_json::{Value, json};
use similar::TextDiff;
use std::process::ExitCode;

impl Desk {
    pub(super) fn trust(&self, args: &McpTrustArgs) -> Result<ExitCode> {
        let name = args.name.as_str();
        if args.revoke {
            // Also for one that is not configured any more.
            return self.revoke(name);
        }
        let server = self.server(name)?;
        let makers = self.makers(needs_secrets(server))?;
        if makers.is_unseen(server) && !self.may_begin(server, args)? {
            print::line("Nothing was started, and nothing was let in.");
            return Ok(ExitCode::SUCCESS);
        }
        let looked = look(server, &self.config, &makers)?;
        let seen = looked.connected(name)?;
        let before = makers.pins.of(name);
        let nothing = Snapshot::default();
        let known = before.as_ref().map_or(&nothing, |trusted| &trusted.as_it_was);
        let different = differences(known, &seen);
        if !self.as_json {
            match &before {
                None => print::out(looked.text(name, &seen)),
                Some(trusted) if different.is_empty() => {
                    print::line(format!(
                        "Server `{name}` is as it was when it was trusted, {:.0}.",
                        trusted.since
                    ));
                }
                Some(_) => print::out(summary(name, &different) + &looked.left_out()),
            }
            // Whoever is asked about a change sees all of it.
            let is_asked = !args.yes && !print::nobody_to_ask();
            if args.diff || (is_asked && before.is_some()) {
                for one in &different {
                    let told = word_for_word(one);
                    if is_configured(one) { print::configured(told) } else { print::out(told) }
                }
            } else if is_asked {
                print::note(format!(
                    "Descriptions are cut, and schemas are not shown. To read every word first: portcullis mcp trust {name} --diff"
                ));
            }
        }
        let is_known = before.is_some() && different.is_empty();
        let decided = is_known || self.decides(args)?;
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
            let on = if switched_on { ", and switched on" } else { "" };
            print::line(format!(
                "Server `{name}` is trusted as it is{on}. What changes waits until you look again."
            ));
        } else {
            print::line("Nothing was let in.");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows how a server is reached that came from elsewhere, and asks before that is done for the first time: others wrote
    /// it, and to look at what it offers it has to run.
    fn may_begin(&self, server: &McpServer, args: &McpTrustArgs) -> Result<bool> {
        let (name, is_local) = (&server.name, server.place.is_none());
        let begun = if is_local { "is started" } else { "is connected to" };
        let whole = how_it_runs(server, Extent::Full);
        let shown = if args.full { whole.clone() } else { how_it_runs(server, Extent::Screen) };
        let mut text = format!(
            "Server `{name}` came from elsewhere, and nobody has looked at it yet. To be looked at it {begun}:{shown}"
        );
        if shown != whole {
            text.push_str(&format!(
                "\nLong values are cut in the middle. To read every word first: portcullis mcp trust {name} --full"
            ));
        }
        print::configured_note(text);
        match (args.yes, self.as_json || print::nobody_to_ask(), args.diff) {
            (true, ..) | (false, true, true) => Ok(true),
            (false, true, false) => Err(nobody_asked()),
            (false, false, _) => {
                let question = if is_local { "Start it?" } else { "Connect to it?" };
                Ok(print::confirm(question)? == Some(true))
            }
        }
    }

    /// Asks the person, unless they said so already or only wanted to look.
    fn decides(&self, args: &McpTrustArgs) -> Result<bool> {
        let nobody = self.as_json || print::nobody_to_ask();
        match (args.yes, nobody, args.diff) {
            (true, ..) => Ok(true),
            (false, true, true) => Ok(false),
            (false, true, false) => Err(nobody_asked()),
            (false, false, _) => {
                let question = format!("Let all of this in, as it is now, for `{}`?", args.name);
                Ok(print::confirm(&question)? == Some(true))
            }
        }
    }

    fn revoke(&self, name: &str) -> Result<ExitCode> {
        let was_trusted = self.makers(false)?.pins.revoke(name)?;
        if !was_trusted && self.config.mcp.iter().all(|server| server.name != name) {
            return Err(super::explained(crate::config::EditError::Unknown(name.to_owned())));
        }
        if self.as_json {
            print::json(&json!({ "server": name, "trusted": false, "was_trusted": was_trusted }));
        } else if was_trusted {
            print::line(format!("Server `{name}` is not trusted any more; nothing of it is let in."));
        } else {
            print::line(format!("Server `{name}` was not trusted."));
        }
        if self.config.mcp.iter().any(|server| server.name == name && server.always_trusted) {
            print::note(format!(
                "The configuration trusts it in any case: `mcp.{name}.trust` is \"always\"."
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the command line or address, the folder, the variables and the headers.
fn how_it_runs(server: &McpServer, extent: Extent) -> String {
    let lines = std::iter::once(reached(server, extent)).chain(runs_with(server, extent));
    lines.map(|line| format!("\n  {line}")).collect()
}

/// Returns the folder, and every variable and header with its value: some are put in by the hub, and some make a program run
/// another.
pub(crate) fn runs_with(server: &McpServer, extent: Extent) -> Vec<String> {
    let folder = server.cwd.iter().map(|cwd| format!("in {}", shortened(&cwd.display().to_string(), extent)));
    let headers = server.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let with: Vec<(String, String)> = server.env.iter().cloned().chain(headers).collect();
    let shown = private::shown_pairs(&with).into_iter();
    let shown = shown
        .map(|(name, value)| format!("with {} = {}", shortened(&name, extent), shortened(&value, extent)));
    folder.chain(shown).collect()
}

fn nobody_asked() -> anyhow::Error {
    BadUsage("nobody can be asked here; look with `--diff`, then say `--yes`".to_owned()).into()
}

/// Switches a server on that was only waiting to be looked at. Returns whether it was one.
pub(crate) fn switch_on(makers: &Makers, name: &str) -> Result<bool> {
    let toggle = makers.toggles.of(name);
    // What a person has switched off stays off.
    if !toggle.unseen {
        return Ok(false);
    }
    makers.toggles.seen(name)?;
    Ok(toggle.enabled == Some(false))
}

/// Who decides, for whoever reads it later.
pub(super) fn by() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "command line".to_owned())
}

pub(crate) fn change(one: &Difference) -> &'static str {
    match (&one.before, &one.after) {
        (None, _) => "new",
        (_, None) => "gone",
        _ => "changed",
    }
}

fn summary(name: &str, different: &[Difference]) -> String {
    let mut rows = vec![["WHAT", "NAME", "HOW"].map(str::to_owned).to_vec()];
    for one in different {
        rows.push(vec![one.kind.to_owned(), printable(&one.name), change(one).to_owned()]);
    }
    format!("Server `{name}` is not as it was when it was trusted:\n\n{}", print::table(&rows))
}

/// Returns a definition over lines, so that a difference in it is a line.
fn pretty(text: &str) -> String {
    let lines = match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => format!("{value:#}"),
        _ => text.to_owned(),
    };
    format!("{lines}\n")
}

/// The kind of a difference in how a server is reached.
const IDENTITY: &str = "identity";
/// Said where both sides look the same.
const HIDDEN_DIFFERS: &str = "different in what is hidden";

/// Returns both sides of a difference as they may be shown: how a server is reached may hold what is nobody's business.
fn sides(one: &Difference) -> (Option<String>, Option<String>) {
    let args = |text: &str| {
        let args: Vec<String> = serde_json::from_str(text).unwrap_or_default();
        json!(private::shown_args(&args)).to_string()
    };
    let shown = |text: &Option<String>| match (one.kind, one.name.as_str(), text) {
        (IDENTITY, "args", Some(text)) => Some(args(text)),
        (IDENTITY, "url", Some(text)) => Some(private::shown_url(text)),
        (_, _, text) => text.clone(),
    };
    (shown(&one.before), shown(&one.after))
}

/// The same over lines, so that a difference is a line.
pub(crate) fn lines(one: &Difference) -> (Option<String>, Option<String>) {
    let (before, after) = sides(one);
    let is_hidden = before == after;
    let pretty = |side: Option<String>| side.map(|text| pretty(&text));
    let (before, mut after) = (pretty(before), pretty(after));
    if let Some(after) = after.as_mut().filter(|_| is_hidden) {
        after.push_str(&format!("({HIDDEN_DIFFERS})\n"));
    }
    (before, after)
}

/// Returns whether a difference is in how the server is reached, and not in what it says.
fn is_configured(one: &Difference) -> bool {
    one.kind == IDENTITY && ["command", "args", "url"].contains(&one.name.as_str())
}

fn word_for_word(one: &Difference) -> String {
    let (before, after) = lines(one);
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let diff = TextDiff::from_lines(&before, &after);
    let place = format!("{} {}", one.kind, printable(&one.name));
    format!("\n{}", diff.unified_diff().context_radius(3).header(&place, &place))
}

fn shown(one: &Difference, whole: bool) -> Value {
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
