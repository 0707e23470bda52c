//! The configuration in force, who is signed in, and one's own password.

use super::doors::password;
use super::frame::{Frame, Place, Slip};
use super::visit::{Order, Visit, go_to, shown, status_of};
use super::words as w;
use crate::Clean;
use crate::desk::Settings;
use crate::problem::Problem;
use crate::sign_in::SessionShown;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;

#[derive(Template)]
#[template(path = "settings.html")]
struct Page {
    frame: Frame,
    settings: Settings,
    sessions: Vec<SessionShown>,
}

pub(crate) async fn list(visit: Visit) -> Response {
    show(&visit, None).await
}

pub(crate) async fn change_password(order: Order) -> Response {
    let Order { visit, form } = order;
    if form.get("new") != form.get("again") {
        let problem = Problem::invalid("the two new passwords are not the same").hint("type both again");
        return show(&visit, Some(Slip::wrong("password", problem, form))).await;
    }
    let (old, new) = (password(&form, "old"), password(&form, "new"));
    match visit.pages().sign_in.change_password(&visit.visitor, &visit.session, old, new).await {
        Ok(()) => visit.done("The password is changed. Your other sessions are ended.", "/admin/settings"),
        Err(problem) => show(&visit, Some(Slip::wrong("password", problem, form))).await,
    }
}

pub(crate) async fn end_session(Path(id): Path<String>, order: Order) -> Response {
    let Order { visit, form } = order;
    match visit.pages().sign_in.end_session(&id).await {
        Ok(()) => visit.done("The session is ended.", "/admin/settings"),
        Err(problem) => show(&visit, Some(Slip::wrong("sessions", problem, form))).await,
    }
}

pub(crate) async fn end_all(order: Order) -> Response {
    let Order { visit, form } = order;
    match visit.pages().sign_in.sign_out_everywhere().await {
        Ok(_) => go_to("/admin/sign-in"),
        Err(problem) => show(&visit, Some(Slip::wrong("sessions", problem, form))).await,
    }
}

async fn show(visit: &Visit, slip: Option<Slip>) -> Response {
    let status = status_of(slip.as_ref());
    let slip = slip.map(|slip| Slip {
        problem: slip.problem.map(|problem| visit.counter().problem(problem).into_inner()),
        ..slip
    });
    let settings = match visit.counter().ask(|desk| desk.settings()).await {
        Ok(settings) => settings.into_inner(),
        Err(problem) => return visit.trouble(Place::Settings, problem.into_inner()).await,
    };
    // What a browser says of itself is a stranger's text.
    let sessions = visit.pages().sign_in.sessions(&visit.session);
    let sessions = sessions.and_then(|found| visit.counter().cleaned(found).map_err(Clean::into_inner));
    match sessions {
        Ok(sessions) => {
            let frame = visit.frame(Place::Settings, slip).await;
            shown(status, &Page { frame, settings, sessions: sessions.into_inner() })
        }
        Err(problem) => visit.trouble(Place::Settings, problem).await,
    }
}
