//! Values that agents may use and nobody may read.

use super::form::Form;
use super::frame::{Frame, Place, Slip};
use super::visit::{Order, Visit, shown, status_of};
use super::words as w;
use crate::Clean;
use crate::desk::{GrantSecret, SecretShown, SecretValue, SetSecret};
use crate::problem::Problem;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use portcullis_core::Secret;
use zeroize::Zeroizing;

#[derive(Template)]
#[template(path = "secrets.html")]
struct Page {
    frame: Frame,
    secrets: Vec<SecretShown>,
}

pub(crate) async fn list(visit: Visit) -> Response {
    show(&visit, None).await
}

pub(crate) async fn add(order: Order) -> Response {
    let Order { visit, form } = order;
    let name = form.get("name").trim().to_owned();
    match changed(&visit, &name, "add", &form).await {
        Ok(said) => visit.done(said, "/admin/secrets"),
        Err(problem) => show(&visit, Some(Slip::wrong("add", problem, form))).await,
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: Order) -> Response {
    let Order { visit, form } = order;
    match changed(&visit, &name, form.get("do"), &form).await {
        Ok(said) => visit.done(said, "/admin/secrets"),
        Err(problem) => show(&visit, Some(Slip::wrong(name, problem, form))).await,
    }
}

async fn changed(visit: &Visit, name: &str, what: &str, form: &Form) -> Result<String, Problem> {
    let (own, by) = (name.to_owned(), visit.actor());
    let counter = visit.counter();
    match what {
        "add" | "set" => {
            // A new name without a place is one that only the configuration uses; an old one keeps its places.
            let grants = (what == "add").then(|| form.lines("grants"));
            let new = SetSecret { value: value(form), grants, weak: form.get("weak") == "yes" };
            let asked = counter.ask(|desk| desk.set_secret(own, new, by)).await;
            asked.map(|secret| format!("Secret `{}` is set.", secret.name)).map_err(Clean::into_inner)
        }
        "grant" => {
            let grants = GrantSecret { grants: form.lines("grants") };
            let asked = counter.ask(|desk| desk.grant_secret(own, grants, by)).await;
            asked
                .map(|secret| format!("Where secret `{}` may be sent is changed.", secret.name))
                .map_err(Clean::into_inner)
        }
        "remove" => {
            let asked = counter.ask(|desk| desk.remove_secret(own, by)).await;
            asked.map(|done| done.said.clone()).map_err(Clean::into_inner)
        }
        _ => Err(super::unknown_order()),
    }
}

fn value(form: &Form) -> SecretValue {
    SecretValue(Secret::new(Zeroizing::new(form.get("value").to_owned())))
}

async fn show(visit: &Visit, slip: Option<Slip>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.secrets()).await {
        Ok(secrets) => {
            let frame = visit.frame(Place::Secrets, slip).await;
            shown(status, &Page { frame, secrets: secrets.into_inner().secrets })
        }
        Err(problem) => visit.trouble(Place::Secrets, problem.into_inner()).await,
    }
}
