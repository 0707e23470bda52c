//! The Settings page: sessions, password, the configuration in force.

use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, see_other, status_of};
use super::sign_in_pages::password;
use crate::RedactedValue;
use crate::sign_in::SessionView;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::SettingsView;

#[derive(Template)]
#[template(path = "settings.html")]
struct Page {
    frame: PageFrame,
    settings: SettingsView,
    sessions: Vec<SessionView>,
}

pub(crate) async fn list(visit: PageRequest) -> Response {
    show(&visit, None).await
}

pub(crate) async fn change_password(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    if form.get("new") != form.get("again") {
        let problem = Problem::invalid("the new passwords do not match").hint("enter both again");
        return show(&visit, Some(FormFeedback::wrong("password", problem, form))).await;
    }
    let (old, new) = (password(&form, "old"), password(&form, "new"));
    match visit.pages().sign_in.change_password(&visit.visitor, &visit.session, old, new).await {
        Ok(changed) => visit.done(changed.sentence(), "/admin/settings"),
        Err(problem) => show(&visit, Some(FormFeedback::wrong("password", problem, form))).await,
    }
}

pub(crate) async fn end_session(Path(id): Path<String>, order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    match visit.pages().sign_in.end_session(&id, visit.actor()).await {
        Ok(ended) => visit.done(ended.sentence(), "/admin/settings"),
        Err(problem) => show(&visit, Some(FormFeedback::wrong("sessions", problem, form))).await,
    }
}

pub(crate) async fn end_all(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    match visit.pages().sign_in.sign_out_everywhere(visit.actor()).await {
        Ok(_) => see_other("/admin/sign-in"),
        Err(problem) => show(&visit, Some(FormFeedback::wrong("sessions", problem, form))).await,
    }
}

async fn show(visit: &PageRequest, slip: Option<FormFeedback>) -> Response {
    let status = status_of(slip.as_ref());
    let slip = slip.map(|slip| FormFeedback {
        problem: slip.problem.map(|problem| visit.counter().problem(problem).into_inner()),
        ..slip
    });
    let settings = match visit.counter().ask(|desk| desk.settings()).await {
        Ok(settings) => settings.into_inner(),
        Err(problem) => return visit.error_page(NavSection::Settings, problem.into_inner()).await,
    };
    // The user agent is untrusted text.
    let sessions = visit.pages().sign_in.sessions(&visit.session);
    let sessions =
        sessions.and_then(|found| visit.counter().redact(found).map_err(RedactedValue::into_inner));
    match sessions {
        Ok(sessions) => {
            let frame = visit.frame(NavSection::Settings, slip).await;
            render(status, &Page { frame, settings, sessions: sessions.into_inner() })
        }
        Err(problem) => visit.error_page(NavSection::Settings, problem).await,
    }
}
