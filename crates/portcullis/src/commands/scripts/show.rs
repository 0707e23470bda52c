//! Output of scripts, as text and JSON.
//!
//! Untrusted text is printed with control and invisible characters escaped.

use crate::print;
use portcullis_core::json::visible_lines;
use portcullis_tools::scripts::{
    ScriptDecision, ScriptHeader, ScriptPermissions, ScriptReview, ScriptRunRecord, ScriptSummary,
};
use serde_json::{Value, json};
use similar::TextDiff;

const HASH_CHARS: usize = 12;
const DESCRIPTION_CHARS_MAX: usize = 60;

pub(super) fn short(sha256: &str) -> &str {
    &sha256[..sha256.len().min(HASH_CHARS)]
}

pub(super) fn table(list: &[ScriptSummary]) -> String {
    let heading = ["NAME", "STATE", "HASH", "PERMISSIONS", "DESCRIPTION"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for listed in list {
        let mut state = listed.state.as_str().to_owned();
        match (listed.exists, &listed.proposal) {
            (false, _) => state = "proposed".to_owned(),
            (true, Some(_)) => state += ", change proposed",
            (true, None) => {}
        }
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
        text.push_str(&difference(looked));
    } else if let Some((decision, _)) = &looked.approved {
        text.push_str(&format!(
            "\nChanges since version {}:\n{}",
            short(&decision.sha256),
            difference(looked)
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

/// The diff: grants first, then the source.
pub(super) fn difference(looked: &ScriptReview) -> String {
    let (old_name, old, old_used, new) = match (&looked.proposed, &looked.approved) {
        (Some(proposed), _) if looked.listed.exists => {
            let used = looked.listed.granted.clone().unwrap_or_else(|| looked.listed.header.wants.clone());
            ("the file", looked.source.as_str(), used, proposed.as_str())
        }
        (_, Some((decision, approved))) => {
            ("approved", approved.as_str(), decision.granted.clone(), looked.source.as_str())
        }
        _ => return "No earlier version to compare with.\n".to_owned(),
    };
    let mut text = String::new();
    for line in old_used.differences(&ScriptHeader::of(new).wants) {
        text.push_str(&format!("{line}\n"));
    }
    let (old, new) = (visible_lines(old), visible_lines(new));
    let diff = TextDiff::from_lines(&old, &new);
    text.push_str(&diff.unified_diff().context_radius(3).header(old_name, "now").to_string());
    text
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

fn capabilities_json(used: &ScriptPermissions) -> Value {
    json!({ "secrets": used.secrets, "hosts": used.hosts, "tools": used.tools, "timeout_ms": used.timeout_ms })
}

pub(super) fn decision_json(decision: &ScriptDecision) -> Value {
    json!({
        "sha256": decision.sha256,
        "approved": decision.approved,
        "granted": capabilities_json(&decision.granted),
        "by": decision.by,
        "at": decision.at.to_string(),
        "expires": decision.expires.map(|expires| expires.to_string()),
        "reason": decision.reason,
    })
}

pub(super) fn listed_json(listed: &ScriptSummary) -> Value {
    json!({
        "name": listed.name.as_str(),
        "state": listed.state.as_str(),
        "sha256": listed.sha256,
        "bytes": listed.bytes,
        "description": listed.header.description,
        "author": listed.header.author,
        "version": listed.header.version,
        "wants": capabilities_json(&listed.header.wants),
        "granted": listed.granted.as_ref().map(capabilities_json),
        "decision": listed.decision.as_ref().map(decision_json),
        "proposal": listed.proposal.as_ref().map(|proposal| json!({
            "sha256": proposal.sha256,
            "client": proposal.client,
            "at": proposal.at.to_string(),
        })),
        "exists": listed.exists,
        "problem": listed.problem,
    })
}

pub(super) fn looked_json(looked: &ScriptReview) -> Value {
    let mut value = listed_json(&looked.listed);
    value["source"] = json!(looked.source);
    value["proposed_source"] = json!(looked.proposed);
    value["approved_source"] = json!(looked.approved.as_ref().map(|(_, source)| source));
    value["difference"] = match (&looked.proposed, &looked.approved) {
        (None, None) => Value::Null,
        _ => json!(difference(looked)),
    };
    value
}
