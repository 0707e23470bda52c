//! The Audit page: calls or all records, one call's history, and verification of the hash chain.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, see_other, status_of};
use crate::RedactedValue;
use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::audit::outcome_names;
use portcullis_ops::desk::{
    AuditPage, AuditVerification, CallHistory, CallSeries, SearchAudit, Statistics, StatisticsQuery,
};
use std::collections::BTreeMap;

/// Search filters. The link to older records carries them on.
const FILTERS: [&str; 9] = ["text", "client", "server", "tool", "outcome", "since", "until", "call", "view"];
/// The view of all records; without it, each call is one row.
const RECORDS: &str = "records";

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    frame: PageFrame,
    page: Option<AuditPage>,
    verified: Option<AuditVerification>,
    /// Link to the next page of older records.
    older: Option<String>,
    choices: FilterChoices,
    /// Whether the rows are records instead of calls.
    has_records: bool,
    /// Link to the other view, with the same filters.
    other_view: String,
}

/// The known values of a filter, with how many calls each has had in the last week, if that is counted.
struct FilterChoices {
    clients: Vec<FilterChoice>,
    servers: Vec<FilterChoice>,
    outcomes: Vec<FilterChoice>,
}

struct FilterChoice {
    value: String,
    label: String,
    chosen: bool,
}

impl FilterChoices {
    async fn of(visit: &PageRequest, query: &FormFields) -> FilterChoices {
        let counter = visit.counter();
        let week = StatisticsQuery { range: Some("week".to_owned()) };
        let stats = counter.ask(|desk| desk.statistics(week)).await.ok();
        let calls = |of: fn(&Statistics) -> &[CallSeries]| -> BTreeMap<String, u64> {
            let series = stats.as_deref().map(of).unwrap_or_default();
            series.iter().map(|one| (one.name.clone(), one.total.calls)).collect()
        };
        let (mut clients, mut servers) = (calls(|stats| &stats.clients), calls(|stats| &stats.servers));
        if let Ok(list) = counter.ask(|desk| desk.clients()).await {
            for one in &list.clients {
                clients.entry(one.name.clone()).or_default();
            }
        }
        for server in stats.iter().flat_map(|stats| &stats.known_servers) {
            servers.entry(server.clone()).or_default();
        }
        let counted = |known: BTreeMap<String, u64>, filter: &str| {
            let label = |(name, calls): (String, u64)| {
                let label = if calls > 0 { format!("{name} ({calls})") } else { name.clone() };
                (name, label)
            };
            choices(known.into_iter().map(label), query.get(filter))
        };
        let named = |name: &'static str| (name.to_owned(), w::label(name));
        FilterChoices {
            clients: counted(clients, "client"),
            servers: counted(servers, "server"),
            outcomes: choices(outcome_names().map(named), &outcome(query).unwrap_or_default()),
        }
    }
}

/// Returns the choices of a filter. A value that was given by a link is one of them, also if it is a glob or no longer known.
fn choices(known: impl Iterator<Item = (String, String)>, given: &str) -> Vec<FilterChoice> {
    let choice = |(value, label): (String, String)| FilterChoice { chosen: value == given, value, label };
    let mut choices: Vec<FilterChoice> = known.map(choice).collect();
    if !given.is_empty() && !choices.iter().any(|one| one.chosen) {
        choices.push(FilterChoice { value: given.to_owned(), label: given.to_owned(), chosen: true });
    }
    choices
}

/// Outcomes may be typed as the page shows them: `Rate limited` is `rate_limited`.
fn outcome(query: &FormFields) -> Option<String> {
    query.some("outcome").map(|word| word.to_lowercase().replace(' ', "_"))
}

#[derive(Template)]
#[template(path = "call_history.html")]
struct CallHistoryPage {
    frame: PageFrame,
    story: CallHistory,
}

pub(crate) async fn search(mut visit: PageRequest) -> Response {
    let query = std::mem::take(&mut visit.query);
    show(&visit, query, None).await
}

pub(crate) async fn story(visit: PageRequest, Path(seq): Path<String>) -> Response {
    let asked = match seq.parse() {
        Ok(seq) => {
            visit.counter().ask(|desk| desk.call_history(seq)).await.map_err(RedactedValue::into_inner)
        }
        Err(_) => Err(Problem::not_found("no such record: a record ID is a number")),
    };
    match asked {
        Ok(story) => {
            let frame = visit.frame(NavSection::Audit, None).await;
            render(StatusCode::OK, &CallHistoryPage { frame, story: story.into_inner() })
        }
        Err(problem) => visit.error_page(NavSection::Audit, problem).await,
    }
}

/// Leads to the history of a call by its ID. IDs are unique within a run of the hub, so it is the last call with that ID.
pub(crate) async fn of_call(visit: PageRequest, Path(call): Path<String>) -> Response {
    let asked = match call.parse() {
        Ok(call) => {
            let search = SearchAudit { call: Some(call), limit: Some(1), ..SearchAudit::default() };
            visit.counter().ask(|desk| desk.search_audit(search)).await.map_err(RedactedValue::into_inner)
        }
        Err(_) => Err(Problem::not_found("no such call: a call ID is a number")),
    };
    let found = asked.map(|page| page.records.first().map(|record| record.seq));
    match found {
        Ok(Some(seq)) => see_other(&format!("/admin/audit/{seq}")),
        Ok(None) => visit.error_page(NavSection::Audit, Problem::not_found("no such call")).await,
        Err(problem) => visit.error_page(NavSection::Audit, problem).await,
    }
}

pub(crate) async fn verify(order: FormSubmission) -> Response {
    let FormSubmission { visit, .. } = order;
    match visit.counter().ask(|desk| desk.verify_audit()).await {
        Ok(verified) => show(&visit, FormFields::default(), Some(verified.into_inner())).await,
        Err(problem) => visit.error_page(NavSection::Audit, problem.into_inner()).await,
    }
}

async fn show(visit: &PageRequest, query: FormFields, verified: Option<AuditVerification>) -> Response {
    let found = match wanted(&query) {
        Ok(search) => {
            let asked = visit.counter().ask(|desk| desk.search_audit(search)).await;
            asked.map(RedactedValue::into_inner).map_err(RedactedValue::into_inner)
        }
        Err(problem) => Err(problem),
    };
    let older = found.as_ref().ok().and_then(|page| page.cursor.as_deref());
    let older = older.map(|cursor| link(&query, &FILTERS, &[("cursor", cursor)]));
    let choices = FilterChoices::of(visit, &query).await;
    let has_records = has_records(&query);
    let view: &[(&str, &str)] = if has_records { &[] } else { &[("view", RECORDS)] };
    let other_view = link(&query, &FILTERS[..FILTERS.len() - 1], view);
    let (page, slip) = match found {
        Ok(page) => (Some(page), FormFeedback::kept("search", query)),
        Err(problem) => (None, FormFeedback::wrong("search", problem, query)),
    };
    let status = status_of(Some(&slip));
    let frame = visit.frame(NavSection::Audit, Some(slip)).await;
    render(status, &Page { frame, page, verified, older, choices, has_records, other_view })
}

fn wanted(query: &FormFields) -> Result<SearchAudit, Problem> {
    Ok(SearchAudit {
        client: query.some("client"),
        tool: query.some("tool"),
        server: query.some("server"),
        outcome: outcome(query),
        since: query.some("since"),
        until: query.some("until"),
        text: query.some("text"),
        call: query.number("call")?,
        limit: None,
        cursor: query.some("cursor"),
        calls: !has_records(query),
    })
}

fn has_records(query: &FormFields) -> bool {
    query.get("view") == RECORDS
}

/// Returns a link to this page that carries on some filters.
fn link(query: &FormFields, carried: &[&str], more: &[(&str, &str)]) -> String {
    let carried = carried.iter().filter_map(|name| query.some(name).map(|value| (*name, value)));
    let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let pairs: Vec<String> =
        carried.chain(more).map(|(name, value)| format!("{name}={}", w::url(value))).collect();
    if pairs.is_empty() { "/admin/audit".to_owned() } else { format!("/admin/audit?{}", pairs.join("&")) }
}
