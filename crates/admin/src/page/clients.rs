//! Who may call.

use super::form::Form;
use super::frame::{Frame, Place, Slip};
use super::visit::{Order, Visit, shown, status_of};
use super::words as w;
use crate::Clean;
use crate::desk::{AddClient, ChangeClient, ClientMade, Clients};
use crate::problem::Problem;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;

#[derive(Template)]
#[template(path = "clients.html")]
struct Page {
    frame: Frame,
    clients: Clients,
    /// One that was made just now, with its token.
    made: Option<ClientMade>,
}

pub(crate) async fn list(visit: Visit) -> Response {
    show(&visit, None, None).await
}

pub(crate) async fn add(order: Order) -> Response {
    let Order { visit, form } = order;
    let new = AddClient {
        name: form.get("name").trim().to_owned(),
        allow: form.lines("allow"),
        effects: effects(&form),
        tools: form.some("tools"),
        expires: form.some("expires"),
    };
    let actor = visit.actor();
    match visit.counter().ask_showing(|desk| desk.add_client(new, actor)).await {
        // Without going on to another page: the token would have to be kept for that, and it is kept nowhere.
        Ok(made) => show(&visit, None, Some(made.into_inner())).await,
        Err(problem) => show(&visit, Some(Slip::wrong("add", problem.into_inner(), form)), None).await,
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: Order) -> Response {
    let Order { visit, form } = order;
    match changed(&visit, &name, &form).await {
        Ok(said) => visit.done(said, "/admin/clients"),
        Err(problem) => show(&visit, Some(Slip::wrong(name, problem, form)), None).await,
    }
}

async fn changed(visit: &Visit, name: &str, form: &Form) -> Result<String, Problem> {
    let (own, by) = (name.to_owned(), visit.actor());
    match form.get("do") {
        "change" => {
            let change =
                ChangeClient { allow: form.lines("allow"), effects: form.all("effects"), tools: None };
            let asked = visit.counter().ask(|desk| desk.change_client(own, change, by)).await;
            asked.map(|client| format!("Client `{}` is changed.", client.name)).map_err(Clean::into_inner)
        }
        "revoke" => {
            let asked = visit.counter().ask(|desk| desk.revoke_client(own, by)).await;
            asked.map(|done| done.said.clone()).map_err(Clean::into_inner)
        }
        _ => Err(super::unknown_order()),
    }
}

/// All effects are the same as none said.
fn effects(form: &Form) -> Vec<String> {
    let chosen = form.all("effects");
    if chosen.len() == w::EFFECTS.len() { Vec::new() } else { chosen }
}

async fn show(visit: &Visit, slip: Option<Slip>, made: Option<ClientMade>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.clients()).await {
        Ok(clients) => {
            let frame = visit.frame(Place::Clients, slip).await;
            shown(status, &Page { frame, clients: clients.into_inner(), made })
        }
        Err(problem) => visit.trouble(Place::Clients, problem.into_inner()).await,
    }
}
