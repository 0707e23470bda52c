//! The Scripts page: versions, approval with grants, dry runs, past runs.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use crate::RedactedValue;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::{
    ApproveScript, DryRun, DryRunResult, RejectScript, RestoreScript, SaveScript, ScriptBrief, ScriptDetail,
    ScriptGrants, ScriptText, TextChange,
};

#[derive(Template)]
#[template(path = "scripts.html")]
struct List {
    frame: PageFrame,
    scripts: Vec<ScriptBrief>,
    ran: Option<DryRunResult>,
}

#[derive(Template)]
#[template(path = "script.html")]
struct ScriptPage {
    frame: PageFrame,
    whole: ScriptDetail,
    ran: Option<DryRunResult>,
    /// An older version to compare with.
    older: Option<ScriptText>,
    older_change: TextChange,
}

pub(crate) async fn list(visit: PageRequest) -> Response {
    show_list(&visit, None, None).await
}

pub(crate) async fn one(visit: PageRequest, Path(name): Path<String>) -> Response {
    show_one(&visit, name, None, None).await
}

pub(crate) async fn add(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    if form.get("do") == "run" {
        return match dry_run(&visit, &form).await {
            Ok(ran) => show_list(&visit, Some(FormFeedback::kept("add", form)), Some(ran)).await,
            Err(problem) => show_list(&visit, Some(FormFeedback::wrong("add", problem, form)), None).await,
        };
    }
    let name = form.get("name").trim().to_owned();
    let text = SaveScript { text: form.get("text").to_owned(), was: None };
    let actor = visit.actor();
    match visit.counter().ask_scripts(|desk| desk.save(name, text, actor)).await {
        Ok(saved) => visit.done(
            format!("Saved script `{}`. It needs approval before it can run.", saved.name),
            &place_of(&saved.name),
        ),
        Err(problem) => {
            show_list(&visit, Some(FormFeedback::wrong("add", problem.into_inner(), form)), None).await
        }
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let what = form.get("do").to_owned();
    if what == "run" {
        return match dry_run(&visit, &form).await {
            Ok(ran) => show_one(&visit, name, Some(FormFeedback::kept("edit", form)), Some(ran)).await,
            Err(problem) => {
                show_one(&visit, name, Some(FormFeedback::wrong("edit", problem, form)), None).await
            }
        };
    }
    match changed(&visit, &name, &form).await {
        Ok(said) if what == "remove" => visit.done(said, "/admin/scripts"),
        Ok(said) => visit.done(said, &place_of(&name)),
        Err(problem) => {
            let place = if what == "save" { "edit" } else { "script" };
            show_one(&visit, name, Some(FormFeedback::wrong(place, problem, form)), None).await
        }
    }
}

async fn changed(visit: &PageRequest, name: &str, form: &FormFields) -> Result<String, Problem> {
    let (own, by) = (name.to_owned(), visit.actor());
    let counter = visit.counter();
    let sha256 = form.get("sha256").to_owned();
    // Every decision form has it; a forged one gets an error.
    let seen = || {
        let seen = form.get("seen").parse();
        seen.map_err(|_| {
            Problem::invalid("the form lacks `seen`, the state that was shown")
                .hint("reload the page, then decide")
        })
    };
    let (said, asked) = match form.get("do") {
        "approve" => {
            let grant = ScriptGrants {
                secrets: form.all("secrets"),
                hosts: form.all("hosts"),
                tools: form.all("tools"),
            };
            let approval = ApproveScript {
                sha256,
                grant,
                expires: form.some("expires"),
                seen: seen()?,
                beyond_requested: false,
            };
            (
                "is approved in exactly this version",
                counter.ask_scripts(|desk| desk.approve(own, approval, by)).await,
            )
        }
        "reject" => {
            let rejection = RejectScript { sha256, reason: form.some("reason"), seen: seen()? };
            ("is rejected", counter.ask_scripts(|desk| desk.reject(own, rejection, by)).await)
        }
        "save" => {
            let text = SaveScript { text: form.get("text").to_owned(), was: form.some("was") };
            ("is saved and needs approval", counter.ask_scripts(|desk| desk.save(own, text, by)).await)
        }
        "restore" => {
            let version = RestoreScript { sha256, was: form.some("was"), seen: seen()? };
            (
                "is restored to the approved version",
                counter.ask_scripts(|desk| desk.restore(own, version, by)).await,
            )
        }
        "remove" => {
            let asked = counter.ask_scripts(|desk| desk.remove(own, by)).await;
            return asked.map(|done| done.said.clone()).map_err(RedactedValue::into_inner);
        }
        _ => return Err(super::unknown_action()),
    };
    asked.map(|script| format!("Script `{}` {said}.", script.name)).map_err(RedactedValue::into_inner)
}

async fn dry_run(visit: &PageRequest, form: &FormFields) -> Result<DryRunResult, Problem> {
    let run = DryRun { text: form.get("text").to_owned(), function: None, args: Vec::new() };
    let actor = visit.actor();
    let asked = visit.counter().ask_scripts(|desk| desk.dry_run(run, actor)).await;
    asked.map(RedactedValue::into_inner).map_err(RedactedValue::into_inner)
}

fn place_of(name: &str) -> String {
    format!("/admin/scripts/{}", w::url(name))
}

async fn show_list(visit: &PageRequest, slip: Option<FormFeedback>, ran: Option<DryRunResult>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask_scripts(|desk| desk.list()).await {
        Ok(scripts) => {
            let frame = visit.frame(NavSection::Scripts, slip).await;
            render(status, &List { frame, scripts: scripts.into_inner().scripts, ran })
        }
        Err(problem) => visit.error_page(NavSection::Scripts, problem.into_inner()).await,
    }
}

async fn show_one(
    visit: &PageRequest,
    name: String,
    slip: Option<FormFeedback>,
    ran: Option<DryRunResult>,
) -> Response {
    let status = status_of(slip.as_ref());
    let whole = match visit.counter().ask_scripts(|desk| desk.detail(name.clone())).await {
        Ok(whole) => whole.into_inner(),
        Err(problem) => return visit.error_page(NavSection::Scripts, problem.into_inner()).await,
    };
    let older = match visit.query.some("version") {
        Some(sha256) => match visit.counter().ask_scripts(|desk| desk.version(name, sha256)).await {
            Ok(text) => Some(text.into_inner()),
            Err(problem) => return visit.error_page(NavSection::Scripts, problem.into_inner()).await,
        },
        None => None,
    };
    let older_change = TextChange {
        before: older.as_ref().map(|older| older.text.clone()),
        after: Some(whole.text.clone()),
        lines: Vec::new(),
    };
    let frame = visit.frame(NavSection::Scripts, slip).await;
    render(status, &ScriptPage { frame, whole, ran, older, older_change })
}
