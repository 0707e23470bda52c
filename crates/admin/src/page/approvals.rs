//! What waits for a decision, and the decision.

use super::form::Form;
use super::frame::{Frame, Place, Slip};
use super::visit::{Order, Visit, shown, status_of};
use super::words as w;
use crate::desk::{ApprovalBrief, ApprovalWhole, Decide, TextChange, Verdict, WantedApprovals};
use crate::problem::Problem;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;

/// How many that are over are listed. The others are in the audit log.
const OVER_MAX: usize = 50;

#[derive(Template)]
#[template(path = "approvals.html")]
struct List {
    frame: Frame,
    pending: Vec<ApprovalBrief>,
    over: Vec<ApprovalBrief>,
}

#[derive(Template)]
#[template(path = "approval.html")]
struct One {
    frame: Frame,
    whole: ApprovalWhole,
}

pub(crate) async fn list(visit: Visit) -> Response {
    show_list(&visit, None).await
}

pub(crate) async fn one(visit: Visit, Path(id): Path<String>) -> Response {
    show_one(&visit, id, None).await
}

pub(crate) async fn decide(Path(id): Path<String>, order: Order) -> Response {
    let Order { visit, form } = order;
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
        Err(problem) if from_list => show_list(&visit, Some(Slip::wrong(id, problem, form))).await,
        Err(problem) => show_one(&visit, id, Some(Slip::wrong("decide", problem, form))).await,
    }
}

async fn show_list(visit: &Visit, slip: Option<Slip>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.approvals(WantedApprovals { all: true })).await {
        Ok(all) => {
            let all = all.into_inner().approvals;
            let (pending, mut over): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|one| one.state == "pending");
            over.truncate(OVER_MAX);
            // What somebody decided about has left the list, but why it could not be done has to be said.
            let lost = slip.as_ref().filter(|slip| pending.iter().all(|one| one.id != slip.form));
            match lost.and_then(|slip| slip.problem.clone()) {
                Some(problem) => visit.trouble(Place::Approvals, problem).await,
                None => {
                    shown(status, &List { frame: visit.frame(Place::Approvals, slip).await, pending, over })
                }
            }
        }
        Err(problem) => visit.trouble(Place::Approvals, problem.into_inner()).await,
    }
}

async fn show_one(visit: &Visit, id: String, slip: Option<Slip>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.approval(id)).await {
        Ok(whole) => {
            let frame = visit.frame(Place::Approvals, slip).await;
            let mut whole = whole.into_inner();
            if let Some(last) = &mut whole.last_time {
                let TextChange { before, after, .. } = &mut last.arguments;
                [before, after].into_iter().flatten().for_each(|text| *text = w::revealed(&*text));
            }
            shown(status, &One { frame, whole })
        }
        Err(problem) => visit.trouble(Place::Approvals, problem.into_inner()).await,
    }
}

/// Returns what a form decides, about what was on the page.
fn decision(form: &Form) -> Result<Decide, Problem> {
    Ok(Decide {
        decision: verdict(form.get("decision"))?,
        reason: form.some("reason"),
        digest: form.get("digest").to_owned(),
        seen: form.parsed("seen", "a time")?,
    })
}

fn verdict(word: &str) -> Result<Verdict, Problem> {
    match word {
        "once" => Ok(Verdict::Once),
        "session" => Ok(Verdict::Session),
        "always" => Ok(Verdict::Always),
        "reject" => Ok(Verdict::Reject),
        _ => Err(super::unknown_order()),
    }
}
