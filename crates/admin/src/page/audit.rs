//! What happened.

use super::form::Form;
use super::frame::{Frame, Place, Slip};
use super::visit::{Order, Visit, shown, status_of};
use super::words as w;
use crate::Clean;
use crate::desk::{AuditPage, AuditVerified, SearchAudit, Story};
use crate::problem::Problem;
use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;

/// What a search can be narrowed by; also what leads from one part of the answer to the next.
const FILTERS: [&str; 7] = ["text", "client", "tool", "outcome", "since", "until", "call"];

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    frame: Frame,
    page: Option<AuditPage>,
    verified: Option<AuditVerified>,
    /// Where the older records are.
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "story.html")]
struct StoryPage {
    frame: Frame,
    story: Story,
}

pub(crate) async fn search(mut visit: Visit) -> Response {
    let query = std::mem::take(&mut visit.query);
    show(&visit, query, None).await
}

pub(crate) async fn story(visit: Visit, Path(seq): Path<String>) -> Response {
    let asked = match seq.parse() {
        Ok(seq) => visit.counter().ask(|desk| desk.story(seq)).await.map_err(Clean::into_inner),
        Err(_) => Err(Problem::not_found("a record has a number")),
    };
    match asked {
        Ok(story) => {
            let frame = visit.frame(Place::Audit, None).await;
            shown(StatusCode::OK, &StoryPage { frame, story: story.into_inner() })
        }
        Err(problem) => visit.trouble(Place::Audit, problem).await,
    }
}

pub(crate) async fn verify(order: Order) -> Response {
    let Order { visit, .. } = order;
    match visit.counter().ask(|desk| desk.verify_audit()).await {
        Ok(verified) => show(&visit, Form::default(), Some(verified.into_inner())).await,
        Err(problem) => visit.trouble(Place::Audit, problem.into_inner()).await,
    }
}

async fn show(visit: &Visit, query: Form, verified: Option<AuditVerified>) -> Response {
    let found = match wanted(&query) {
        Ok(search) => {
            let asked = visit.counter().ask(|desk| desk.search_audit(search)).await;
            asked.map(Clean::into_inner).map_err(Clean::into_inner)
        }
        Err(problem) => Err(problem),
    };
    let older = found.as_ref().ok().and_then(|page| page.cursor.as_ref()).map(|cursor| link(&query, cursor));
    let (page, slip) = match found {
        Ok(page) => (Some(page), Slip::kept("search", query)),
        Err(problem) => (None, Slip::wrong("search", problem, query)),
    };
    let status = status_of(Some(&slip));
    shown(status, &Page { frame: visit.frame(Place::Audit, Some(slip)).await, page, verified, older })
}

fn wanted(query: &Form) -> Result<SearchAudit, Problem> {
    Ok(SearchAudit {
        client: query.some("client"),
        tool: query.some("tool"),
        outcome: query.some("outcome"),
        since: query.some("since"),
        until: query.some("until"),
        text: query.some("text"),
        call: query.number("call")?,
        limit: None,
        cursor: query.some("cursor"),
    })
}

fn link(query: &Form, cursor: &str) -> String {
    let mut link = format!("/admin/audit?cursor={}", w::url(cursor));
    for name in FILTERS {
        if let Some(value) = query.some(name) {
            link.push_str(&format!("&{name}={}", w::url(value)));
        }
    }
    link
}
