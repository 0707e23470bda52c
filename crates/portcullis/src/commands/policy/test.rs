//! `portcullis policy test`: explains the decision on a call.

use crate::cli::PolicyTestArgs;
use crate::commands::tools::read_arguments;
use crate::print;
use anyhow::Result;
use portcullis_core::json::printable;
use portcullis_core::{Client, Decision};
use portcullis_ops::Operations;
use portcullis_ops::desk::TestPolicy;
use portcullis_ops::listing::policy_test_listing;
use portcullis_ops::policy::{effect_names, zone_name};
use portcullis_ops::policy_test::{PolicyTestReport, TestedClient, scope_names};
use std::process::ExitCode;

const ASK: u8 = 3;
const DENY: u8 = 4;

pub(super) fn run(ops: &Operations, args: PolicyTestArgs, as_json: bool) -> Result<ExitCode> {
    let question = TestPolicy {
        client: args.client,
        tool: args.tool,
        arguments: args.arguments.as_deref().map(read_arguments).transpose()?,
        origin: Some(args.origin.as_str().to_owned()),
        at: args.at,
    };
    let code = ops.explain_policy(&question, |report| {
        if as_json {
            print::json(&policy_test_listing(report));
        } else {
            print::out(text(report));
        }
        match report.decision {
            Decision::Allow { .. } => ExitCode::SUCCESS,
            Decision::Ask { .. } => ExitCode::from(ASK),
            Decision::Deny { .. } => ExitCode::from(DENY),
        }
    })?;
    Ok(code)
}

fn text(report: &PolicyTestReport<'_>) -> String {
    let mut rows = vec![
        vec!["client".to_owned(), client_text(report)],
        vec!["tool".to_owned(), tool_text(report)],
        vec!["call".to_owned(), format!("origin {}, on {}", report.origin.as_str(), time(report))],
    ];
    if let Some(explained) = &report.explained {
        let scope = match explained.out_of_scope {
            None => "allows it".to_owned(),
            Some(part) => format!("denies it: {}", report.scope_why(part)),
        };
        rows.push(vec!["scope".to_owned(), scope]);
        for (at, rule) in report.policy.rules.iter().enumerate() {
            let met = match explained.considered.get(at) {
                None => "not evaluated".to_owned(),
                Some((_, None)) => "MATCHES".to_owned(),
                Some((rule, Some(part))) => format!("no match: {}", report.why(rule, *part)),
            };
            let place = report.place_of(at).unwrap_or_default();
            rows.push(vec![rule.name.clone(), format!("{met} [{}, {place}]", rule.decision.as_str())]);
        }
    }
    if let Some(fit) = &report.arguments {
        let fit = fit.as_ref().map_or_else(Clone::clone, |()| "match the tool's schema".to_owned());
        rows.push(vec!["arguments".to_owned(), fit]);
    }
    rows.push(vec!["decision".to_owned(), decision_text(report)]);
    rows.push(vec!["next".to_owned(), report.next().to_owned()]);
    print::table(&rows)
}

fn client_text(report: &PolicyTestReport<'_>) -> String {
    let name = printable(report.name);
    let may = |client: &Client| {
        format!("may {} {}", effect_names(client.scope.effects).join(", "), scope_names(&client.scope))
    };
    match &report.who {
        TestedClient::Local(client) => format!("`{name}`, the stdio client; {}", may(client)),
        TestedClient::Known(client) => format!("`{name}`, known; {}", may(client)),
        TestedClient::Expired(client, at) => format!("`{name}`, expired on {at}; {}", may(client)),
        TestedClient::Unknown => {
            format!("`{name}`: no such client; list them with `portcullis clients list`")
        }
    }
}

fn tool_text(report: &PolicyTestReport<'_>) -> String {
    let name = printable(report.tool_name);
    match (&report.tool, report.nearest.as_slice()) {
        (Some(tool), _) => {
            let labels: String = tool.labels.iter().map(|label| format!(", {label}")).collect();
            let (effect, reach) = (tool.effect, tool.reach.as_str());
            match &report.assumed_of {
                None => format!("`{name}`: {effect}, {reach}{labels}; its schema is unknown"),
                Some(server) => format!(
                    "`{name}`: {effect}, {reach}{labels}, from the settings of server `{server}`; it is always trusted, so only a running hub knows whether the tool exists"
                ),
            }
        }
        (None, []) => format!("`{name}`: no such tool; list them with `portcullis tools`"),
        (None, nearest) => {
            format!("`{name}`: no such tool; did you mean {}?", nearest.join(" or "))
        }
    }
}

fn time(report: &PolicyTestReport<'_>) -> String {
    let zoned = report.now.to_zoned(report.zone.clone());
    format!("{} ({})", zoned.strftime("%a %Y-%m-%d %H:%M:%S %:z"), zone_name(report.zone))
}

fn decision_text(report: &PolicyTestReport<'_>) -> String {
    let (decision, rule) = (report.decision.as_str(), report.decision.rule());
    match report.place() {
        Some(place) => format!("{decision}, by {rule} at {place}"),
        None => format!("{decision}, by {rule}"),
    }
}
