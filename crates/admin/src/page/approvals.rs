//! The Approvals page: pending calls, one call in detail, and the decision.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::{
    ApprovalBrief, ApprovalChoice, ApprovalDetail, ApprovalFilter, DecideApproval, TextChange,
};

/// How many decided or expired approvals are listed. Older ones are in the audit log.
const HISTORY_MAX: usize = 50;

#[derive(Template)]
#[template(path = "approvals.html")]
struct List {
    frame: PageFrame,
    pending: Vec<ApprovalBrief>,
    over: Vec<ApprovalBrief>,
}

#[derive(Template)]
#[template(path = "approval.html")]
struct ApprovalPage {
    frame: PageFrame,
    whole: ApprovalDetail,
}

pub(crate) async fn list(visit: PageRequest) -> Response {
    show_list(&visit, None).await
}

pub(crate) async fn one(visit: PageRequest, Path(id): Path<String>) -> Response {
    show_one(&visit, id, None).await
}

pub(crate) async fn decide(Path(id): Path<String>, order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let from_list = form.get("back") == "list";
    let decided = match decision(&form) {
        Ok(decision) => {
            let actor = visit.actor();
            let asked = visit.counter().ask(|desk| desk.decide(id.clone(), decision, actor)).await;
            asked.map_err(|problem| problem.into_inner())
        }
        Err(problem) => Err(problem),
    };
    match decided {
        Ok(decided) => visit.done(decided.said.clone(), "/admin/approvals"),
        Err(problem) if from_list => show_list(&visit, Some(FormFeedback::wrong(id, problem, form))).await,
        Err(problem) => show_one(&visit, id, Some(FormFeedback::wrong("decide", problem, form))).await,
    }
}

async fn show_list(visit: &PageRequest, slip: Option<FormFeedback>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.approvals(ApprovalFilter { all: true })).await {
        Ok(all) => {
            let all = all.into_inner().approvals;
            let (pending, mut over): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|one| one.state == "pending");
            over.truncate(HISTORY_MAX);
            // The approval may have left the list meanwhile; the error is then shown on a page of its own.
            let lost = slip.as_ref().filter(|slip| pending.iter().all(|one| one.id != slip.form));
            match lost.and_then(|slip| slip.problem.clone()) {
                Some(problem) => visit.error_page(NavSection::Approvals, problem).await,
                None => render(
                    status,
                    &List { frame: visit.frame(NavSection::Approvals, slip).await, pending, over },
                ),
            }
        }
        Err(problem) => visit.error_page(NavSection::Approvals, problem.into_inner()).await,
    }
}

async fn show_one(visit: &PageRequest, id: String, slip: Option<FormFeedback>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.approval(id)).await {
        Ok(whole) => {
            let frame = visit.frame(NavSection::Approvals, slip).await;
            let mut whole = whole.into_inner();
            if let Some(last) = &mut whole.last_time {
                let TextChange { before, after, .. } = &mut last.arguments;
                [before, after].into_iter().flatten().for_each(|text| *text = w::revealed(&*text));
            }
            render(status, &ApprovalPage { frame, whole })
        }
        Err(problem) => visit.error_page(NavSection::Approvals, problem.into_inner()).await,
    }
}

/// Parses the decision, with the digest of the call that the page showed.
fn decision(form: &FormFields) -> Result<DecideApproval, Problem> {
    Ok(DecideApproval {
        decision: verdict(form.get("decision"))?,
        reason: form.some("reason"),
        digest: form.get("digest").to_owned(),
        seen: form.parsed("seen", "a time")?,
    })
}

fn verdict(word: &str) -> Result<ApprovalChoice, Problem> {
    match word {
        "once" => Ok(ApprovalChoice::Once),
        "session" => Ok(ApprovalChoice::Session),
        "always" => Ok(ApprovalChoice::Always),
        "reject" => Ok(ApprovalChoice::Reject),
        _ => Err(super::unknown_action()),
    }
}
