//! The Audit page: search, one call's history, and verification of the hash chain.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use crate::RedactedValue;
use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::{AuditPage, AuditVerification, CallHistory, SearchAudit};

/// Search filters. The link to older records carries them on.
const FILTERS: [&str; 7] = ["text", "client", "tool", "outcome", "since", "until", "call"];

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    frame: PageFrame,
    page: Option<AuditPage>,
    verified: Option<AuditVerification>,
    /// Link to the next page of older records.
    older: Option<String>,
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
    let older = found.as_ref().ok().and_then(|page| page.cursor.as_ref()).map(|cursor| link(&query, cursor));
    let (page, slip) = match found {
        Ok(page) => (Some(page), FormFeedback::kept("search", query)),
        Err(problem) => (None, FormFeedback::wrong("search", problem, query)),
    };
    let status = status_of(Some(&slip));
    render(status, &Page { frame: visit.frame(NavSection::Audit, Some(slip)).await, page, verified, older })
}

fn wanted(query: &FormFields) -> Result<SearchAudit, Problem> {
    Ok(SearchAudit {
        client: query.some("client"),
        tool: query.some("tool"),
        // Outcomes may be typed as the page shows them: `Rate limited` is `rate_limited`.
        outcome: query.some("outcome").map(|word| word.to_lowercase().replace(' ', "_")),
        since: query.some("since"),
        until: query.some("until"),
        text: query.some("text"),
        call: query.number("call")?,
        limit: None,
        cursor: query.some("cursor"),
    })
}

fn link(query: &FormFields, cursor: &str) -> String {
    let mut link = format!("/admin/audit?cursor={}", w::url(cursor));
    for name in FILTERS {
        if let Some(value) = query.some(name) {
            link.push_str(&format!("&{name}={}", w::url(value)));
        }
    }
    link
}
