//! Scripts: what may run, with which capabilities, and what did.

use super::form::Form;
use super::frame::{Frame, Place, Slip};
use super::visit::{Order, Visit, shown, status_of};
use super::words as w;
use crate::Clean;
use crate::desk::{
    ApproveScript, Capabilities, DryRan, DryRun, RejectScript, RestoreScript, SaveScript, ScriptBrief,
    ScriptText, ScriptWhole, TextChange,
};
use crate::problem::Problem;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;

#[derive(Template)]
#[template(path = "scripts.html")]
struct List {
    frame: Frame,
    scripts: Vec<ScriptBrief>,
    ran: Option<DryRan>,
}

#[derive(Template)]
#[template(path = "script.html")]
struct One {
    frame: Frame,
    whole: ScriptWhole,
    ran: Option<DryRan>,
    /// An older version that somebody wants to compare.
    older: Option<ScriptText>,
    older_change: TextChange,
}

pub(crate) async fn list(visit: Visit) -> Response {
    show_list(&visit, None, None).await
}

pub(crate) async fn one(visit: Visit, Path(name): Path<String>) -> Response {
    show_one(&visit, name, None, None).await
}

pub(crate) async fn add(order: Order) -> Response {
    let Order { visit, form } = order;
    if form.get("do") == "run" {
        return match dry_run(&visit, &form).await {
            Ok(ran) => show_list(&visit, Some(Slip::kept("add", form)), Some(ran)).await,
            Err(problem) => show_list(&visit, Some(Slip::wrong("add", problem, form)), None).await,
        };
    }
    let name = form.get("name").trim().to_owned();
    let text = SaveScript { text: form.get("text").to_owned(), was: None };
    let actor = visit.actor();
    match visit.counter().ask_scripts(|desk| desk.save(name, text, actor)).await {
        Ok(saved) => visit.done(
            format!("Script `{}` is saved. It waits for approval.", saved.name),
            &place_of(&saved.name),
        ),
        Err(problem) => show_list(&visit, Some(Slip::wrong("add", problem.into_inner(), form)), None).await,
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: Order) -> Response {
    let Order { visit, form } = order;
    let what = form.get("do").to_owned();
    if what == "run" {
        return match dry_run(&visit, &form).await {
            Ok(ran) => show_one(&visit, name, Some(Slip::kept("edit", form)), Some(ran)).await,
            Err(problem) => show_one(&visit, name, Some(Slip::wrong("edit", problem, form)), None).await,
        };
    }
    match changed(&visit, &name, &form).await {
        Ok(said) if what == "remove" => visit.done(said, "/admin/scripts"),
        Ok(said) => visit.done(said, &place_of(&name)),
        Err(problem) => {
            let place = if what == "save" { "edit" } else { "script" };
            show_one(&visit, name, Some(Slip::wrong(place, problem, form)), None).await
        }
    }
}

async fn changed(visit: &Visit, name: &str, form: &Form) -> Result<String, Problem> {
    let (own, by) = (name.to_owned(), visit.actor());
    let counter = visit.counter();
    let sha256 = form.get("sha256").to_owned();
    // Every form that decides has it; one that was made up is told so.
    let seen = || {
        let seen = form.get("seen").parse();
        seen.map_err(|_| {
            Problem::invalid("the form does not say what was seen").hint("look again, then decide")
        })
    };
    let (said, asked) = match form.get("do") {
        "approve" => {
            let grant = Capabilities {
                secrets: form.all("secrets"),
                hosts: form.all("hosts"),
                tools: form.all("tools"),
            };
            let approval = ApproveScript { sha256, grant, expires: form.some("expires"), seen: seen()? };
            (
                "is approved: exactly these bytes, and nothing else",
                counter.ask_scripts(|desk| desk.approve(own, approval, by)).await,
            )
        }
        "reject" => {
            let rejection = RejectScript { sha256, reason: form.some("reason"), seen: seen()? };
            ("is rejected", counter.ask_scripts(|desk| desk.reject(own, rejection, by)).await)
        }
        "save" => {
            let text = SaveScript { text: form.get("text").to_owned(), was: form.some("was") };
            ("is saved and waits for approval", counter.ask_scripts(|desk| desk.save(own, text, by)).await)
        }
        "restore" => {
            let version = RestoreScript { sha256, was: form.some("was"), seen: seen()? };
            (
                "is as it was then, and may run",
                counter.ask_scripts(|desk| desk.restore(own, version, by)).await,
            )
        }
        "remove" => {
            let asked = counter.ask_scripts(|desk| desk.remove(own, by)).await;
            return asked.map(|done| done.said.clone()).map_err(Clean::into_inner);
        }
        _ => return Err(super::unknown_order()),
    };
    asked.map(|script| format!("Script `{}` {said}.", script.name)).map_err(Clean::into_inner)
}

async fn dry_run(visit: &Visit, form: &Form) -> Result<DryRan, Problem> {
    let run = DryRun { text: form.get("text").to_owned(), function: None, args: Vec::new() };
    let actor = visit.actor();
    let asked = visit.counter().ask_scripts(|desk| desk.dry_run(run, actor)).await;
    asked.map(Clean::into_inner).map_err(Clean::into_inner)
}

fn place_of(name: &str) -> String {
    format!("/admin/scripts/{}", w::url(name))
}

async fn show_list(visit: &Visit, slip: Option<Slip>, ran: Option<DryRan>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask_scripts(|desk| desk.list()).await {
        Ok(scripts) => {
            let frame = visit.frame(Place::Scripts, slip).await;
            shown(status, &List { frame, scripts: scripts.into_inner().scripts, ran })
        }
        Err(problem) => visit.trouble(Place::Scripts, problem.into_inner()).await,
    }
}

async fn show_one(visit: &Visit, name: String, slip: Option<Slip>, ran: Option<DryRan>) -> Response {
    let status = status_of(slip.as_ref());
    let whole = match visit.counter().ask_scripts(|desk| desk.whole(name.clone())).await {
        Ok(whole) => whole.into_inner(),
        Err(problem) => return visit.trouble(Place::Scripts, problem.into_inner()).await,
    };
    let older = match visit.query.some("version") {
        Some(sha256) => match visit.counter().ask_scripts(|desk| desk.version(name, sha256)).await {
            Ok(text) => Some(text.into_inner()),
            Err(problem) => return visit.trouble(Place::Scripts, problem.into_inner()).await,
        },
        None => None,
    };
    let older_change = TextChange {
        before: older.as_ref().map(|older| older.text.clone()),
        after: Some(whole.text.clone()),
        lines: Vec::new(),
    };
    let frame = visit.frame(Place::Scripts, slip).await;
    shown(status, &One { frame, whole, ran, older, older_change })
}
