//! Output of scripts, as text and JSON.
//!
//! Untrusted text is printed with control and invisible characters escaped.

use crate::print;
use portcullis_core::json::visible_lines;
use portcullis_ops::scripts::{script_difference, script_state_words};
use portcullis_tools::scripts::{
    ScriptDecision, ScriptPermissions, ScriptReview, ScriptRunRecord, ScriptSummary,
};

const HASH_CHARS: usize = 12;
const DESCRIPTION_CHARS_MAX: usize = 60;

pub(super) fn short(sha256: &str) -> &str {
    &sha256[..sha256.len().min(HASH_CHARS)]
}

pub(super) fn table(list: &[ScriptSummary]) -> String {
    let heading = ["NAME", "STATE", "HASH", "PERMISSIONS", "DESCRIPTION"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for listed in list {
        let state = script_state_words(listed);
        let what: String = match &listed.problem {
            Some(problem) => problem.clone(),
            None => listed.header.description.chars().take(DESCRIPTION_CHARS_MAX).collect(),
        };
        let used = listed.granted.as_ref().unwrap_or(&listed.header.wants);
        let used =
            format!("{}{}", if listed.granted.is_none() { "requests " } else { "" }, in_one_line(used));
        rows.push(vec![listed.name.to_string(), state, short(&listed.sha256).to_owned(), used, what]);
    }
    print::table(&rows)
}

fn in_one_line(used: &ScriptPermissions) -> String {
    let all: Vec<&str> =
        used.secrets.iter().chain(&used.hosts).chain(&used.tools).map(String::as_str).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(" ") }
}

pub(super) fn capabilities(used: &ScriptPermissions) -> String {
    let names = |names: &std::collections::BTreeSet<String>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    let time = used.timeout_ms.map_or_else(|| "default".to_owned(), |ms| format!("{ms} ms"));
    format!(
        "secrets    {}\nhosts      {}\ntools      {}\ntimeout    {time}",
        names(&used.secrets),
        names(&used.hosts),
        names(&used.tools)
    )
}

pub(super) fn before(decision: &ScriptDecision) -> String {
    let what = if decision.approved { "approved" } else { "rejected" };
    format!("Previously: version {} {what} by {}, {:.0}.", short(&decision.sha256), decision.by, decision.at)
}

pub(super) fn details(looked: &ScriptReview) -> String {
    let listed = &looked.listed;
    let header = &listed.header;
    let mut text = format!("{}  {}\nhash       {}\n", listed.name, listed.state.as_str(), listed.sha256);
    for (what, said) in
        [("about", &header.description), ("author", &header.author), ("version", &header.version)]
    {
        if !said.is_empty() {
            text.push_str(&format!("{what:<10} {}\n", visible_lines(said)));
        }
    }
    text.push_str(&match &listed.granted {
        Some(granted) => format!("\nGranted:\n{}\n", capabilities(granted)),
        None => format!("\nRequested:\n{}\n", capabilities(&header.wants)),
    });
    header.problems.iter().for_each(|problem| text.push_str(&format!("warning: {problem}\n")));
    if let Some(decision) = &listed.decision {
        text.push_str(&format!("\n{}\n", decided(decision)));
    }
    text.push_str(&format!("\n{}\n", visible_lines(&looked.source)));
    if let (Some(proposal), true) = (&listed.proposal, listed.exists) {
        text.push_str(&format!(
            "\nProposed by `{}` at {:.0}: {}\n",
            proposal.client, proposal.at, proposal.sha256
        ));
        text.push_str(&script_difference(looked));
    } else if let Some((decision, _)) = &looked.approved {
        text.push_str(&format!(
            "\nChanges since version {}:\n{}",
            short(&decision.sha256),
            script_difference(looked)
        ));
    }
    text
}

fn decided(decision: &ScriptDecision) -> String {
    let what = if decision.approved { "approved" } else { "rejected" };
    let reason = decision
        .reason
        .as_ref()
        .map_or_else(String::new, |reason| format!(", reason: {}", visible_lines(reason)));
    let until = decision.expires.map_or_else(String::new, |expires| format!(", expires {expires:.0}"));
    format!(
        "{what:<10} {:.0} by {}, version {}{until}{reason}",
        decision.at,
        decision.by,
        short(&decision.sha256)
    )
}

pub(super) fn history(decisions: &[ScriptDecision], runs: &[ScriptRunRecord]) -> String {
    let mut text = String::from("Decisions, latest first:\n");
    decisions.iter().for_each(|decision| text.push_str(&format!("  {}\n", decided(decision))));
    if decisions.is_empty() {
        text.push_str("  none\n");
    }
    text.push_str("\nRuns, latest first:\n");
    for run in runs {
        text.push_str(&format!(
            "  {:.0}  {}  {:>6} ms  {:<12}  {}\n",
            run.at,
            short(&run.sha256),
            run.duration_ms,
            run.outcome,
            run.client
        ));
    }
    if runs.is_empty() {
        text.push_str("  none\n");
    }
    text
}
