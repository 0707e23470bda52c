//! What happens now: calls, the last hour, and what waits.

use super::frame::{Frame, Place};
use super::rows::{Hour, Row};
use super::visit::{Visit, shown};
use super::words as w;
use crate::desk::{ApprovalBrief, Overview, WantedApprovals};
use crate::problem::Problem;
use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

/// How many calls the page has from the start. The stream adds to them.
const ROWS_MAX: usize = 40;
/// How many questions are shown here; all are on the page of approvals.
const WAITING_MAX: usize = 4;

#[derive(Template)]
#[template(path = "now.html")]
struct Page {
    frame: Frame,
    overview: Overview,
    hour: Hour,
    waiting: Vec<ApprovalBrief>,
    rows: Vec<Row>,
}

pub(crate) async fn show(visit: Visit) -> Response {
    match page(&visit).await {
        Ok(page) => shown(StatusCode::OK, &page),
        Err(problem) => visit.trouble(Place::Now, problem).await,
    }
}

async fn page(visit: &Visit) -> Result<Page, Problem> {
    let counter = visit.counter();
    let asked = |problem: crate::Clean<Problem>| problem.into_inner();
    let overview = counter.ask(|desk| desk.overview()).await.map_err(asked)?.into_inner();
    let calls = counter.ask(|desk| desk.recent_calls()).await.map_err(asked)?;
    let waiting = counter.ask(|desk| desk.approvals(WantedApprovals::default())).await.map_err(asked)?;
    Ok(Page {
        frame: visit.frame(Place::Now, None).await,
        hour: Hour::of(&overview),
        rows: calls.calls.iter().take(ROWS_MAX).map(Row::of).collect(),
        waiting: waiting.into_inner().approvals.into_iter().take(WAITING_MAX).collect(),
        overview,
    })
}
