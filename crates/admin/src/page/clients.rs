//! The Clients page: tokens and scopes of the hub's clients.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use crate::RedactedValue;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::{AddClient, ChangeClient, ClientList, CreatedClient};

#[derive(Template)]
#[template(path = "clients.html")]
struct Page {
    frame: PageFrame,
    clients: ClientList,
    /// The client just created, with its token.
    made: Option<CreatedClient>,
}

pub(crate) async fn list(visit: PageRequest) -> Response {
    show(&visit, None, None).await
}

pub(crate) async fn add(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let new = AddClient {
        name: form.get("name").trim().to_owned(),
        allow: form.lines("allow"),
        deny: Vec::new(),
        effects: effects(&form),
        tools: form.some("tools"),
        expires: form.some("expires"),
    };
    let actor = visit.actor();
    match visit.counter().ask_showing(|desk| desk.add_client(new, actor)).await {
        // No redirect: the token would have to be stored for the next page, and it is stored nowhere.
        Ok(made) => show(&visit, None, Some(made.into_inner())).await,
        Err(problem) => {
            show(&visit, Some(FormFeedback::wrong("add", problem.into_inner(), form)), None).await
        }
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    match changed(&visit, &name, &form).await {
        Ok(said) => visit.done(said, "/admin/clients"),
        Err(problem) => show(&visit, Some(FormFeedback::wrong(name, problem, form)), None).await,
    }
}

async fn changed(visit: &PageRequest, name: &str, form: &FormFields) -> Result<String, Problem> {
    let (own, by) = (name.to_owned(), visit.actor());
    match form.get("do") {
        "change" => {
            let change =
                ChangeClient { allow: form.lines("allow"), effects: form.all("effects"), tools: None };
            let asked = visit.counter().ask(|desk| desk.change_client(own, change, by)).await;
            asked
                .map(|client| format!("Updated client `{}`.", client.name))
                .map_err(RedactedValue::into_inner)
        }
        "revoke" => {
            let asked = visit.counter().ask(|desk| desk.revoke_client(own, by)).await;
            asked.map(|done| done.said.clone()).map_err(RedactedValue::into_inner)
        }
        _ => Err(super::unknown_action()),
    }
}

/// All boxes ticked means no restriction, which is an empty list.
fn effects(form: &FormFields) -> Vec<String> {
    let chosen = form.all("effects");
    if chosen.len() == w::EFFECTS.len() { Vec::new() } else { chosen }
}

async fn show(visit: &PageRequest, slip: Option<FormFeedback>, made: Option<CreatedClient>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.clients()).await {
        Ok(clients) => {
            let frame = visit.frame(NavSection::Clients, slip).await;
            render(status, &Page { frame, clients: clients.into_inner(), made })
        }
        Err(problem) => visit.error_page(NavSection::Clients, problem.into_inner()).await,
    }
}
