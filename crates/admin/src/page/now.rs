//! The Now page: pending approvals, server status, what is left to set up, metrics of the last hour, live calls.

use super::formatting as w;
use super::frame::{NavSection, PageFrame};
use super::page_request::{PageRequest, render};
use super::rows::{CallRow, HourStats};
use super::setup_checklist::SetupChecklist;
use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::{ApprovalBrief, ApprovalFilter, Overview};

/// Calls on the page when it loads. The live stream adds to them.
const ROWS_MAX: usize = 40;
/// Pending approvals shown here; the Approvals page lists all.
const WAITING_MAX: usize = 4;

#[derive(Template)]
#[template(path = "now.html")]
struct Page {
    frame: PageFrame,
    overview: Overview,
    hour: HourStats,
    setup: Option<SetupChecklist>,
    waiting: Vec<ApprovalBrief>,
    rows: Vec<CallRow>,
}

pub(crate) async fn show(visit: PageRequest) -> Response {
    match page(&visit).await {
        Ok(page) => render(StatusCode::OK, &page),
        Err(problem) => visit.error_page(NavSection::Now, problem).await,
    }
}

async fn page(visit: &PageRequest) -> Result<Page, Problem> {
    let counter = visit.counter();
    let asked = |problem: crate::RedactedValue<Problem>| problem.into_inner();
    let overview = counter.ask(|desk| desk.overview()).await.map_err(asked)?.into_inner();
    let calls = counter.ask(|desk| desk.recent_calls()).await.map_err(asked)?;
    let waiting = counter.ask(|desk| desk.approvals(ApprovalFilter::default())).await.map_err(asked)?;
    let zone = visit.zone();
    Ok(Page {
        frame: visit.frame(NavSection::Now, None).await,
        hour: HourStats::of(&overview),
        setup: SetupChecklist::of(visit, &overview).await,
        rows: calls.calls.iter().take(ROWS_MAX).map(|call| CallRow::of(call, &zone)).collect(),
        waiting: waiting.into_inner().approvals.into_iter().take(WAITING_MAX).collect(),
        overview,
    })
}
