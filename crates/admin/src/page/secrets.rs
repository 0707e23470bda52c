//! The Secrets page: names, allowed hosts, write-only values.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use crate::RedactedValue;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use portcullis_core::Secret;
use portcullis_ops::Problem;
use portcullis_ops::desk::{GrantSecret, SecretValue, SecretView, SetSecret};
use zeroize::Zeroizing;

#[derive(Template)]
#[template(path = "secrets.html")]
struct Page {
    frame: PageFrame,
    secrets: Vec<SecretView>,
}

pub(crate) async fn list(visit: PageRequest) -> Response {
    show(&visit, None).await
}

pub(crate) async fn add(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let name = form.get("name").trim().to_owned();
    match changed(&visit, &name, "add", &form).await {
        Ok(said) => visit.done(said, "/admin/secrets"),
        Err(problem) => show(&visit, Some(FormFeedback::wrong("add", problem, form))).await,
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    match changed(&visit, &name, form.get("do"), &form).await {
        Ok(said) => visit.done(said, "/admin/secrets"),
        Err(problem) => show(&visit, Some(FormFeedback::wrong(name, problem, form))).await,
    }
}

async fn changed(visit: &PageRequest, name: &str, what: &str, form: &FormFields) -> Result<String, Problem> {
    let (own, by) = (name.to_owned(), visit.actor());
    let counter = visit.counter();
    match what {
        "add" | "set" => {
            // A new secret without hosts is used by the configuration only; replacing a value keeps its hosts.
            let grants = (what == "add").then(|| form.lines("grants"));
            let new = SetSecret { value: value(form), grants, weak: form.get("weak") == "yes" };
            let asked = counter.ask(|desk| desk.set_secret(own, new, by)).await;
            asked.map(|saved| saved.said.clone()).map_err(RedactedValue::into_inner)
        }
        "grant" => {
            let grants = GrantSecret { grants: form.lines("grants") };
            let asked = counter.ask(|desk| desk.grant_secret(own, grants, by)).await;
            asked.map(|granted| granted.said.clone()).map_err(RedactedValue::into_inner)
        }
        "remove" => {
            let asked = counter.ask(|desk| desk.remove_secret(own, by)).await;
            asked.map(|done| done.said.clone()).map_err(RedactedValue::into_inner)
        }
        _ => Err(super::unknown_action()),
    }
}

fn value(form: &FormFields) -> SecretValue {
    SecretValue(Secret::new(Zeroizing::new(form.get("value").to_owned())))
}

async fn show(visit: &PageRequest, slip: Option<FormFeedback>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.secrets()).await {
        Ok(secrets) => {
            let frame = visit.frame(NavSection::Secrets, slip).await;
            render(status, &Page { frame, secrets: secrets.into_inner().secrets })
        }
        Err(problem) => visit.error_page(NavSection::Secrets, problem.into_inner()).await,
    }
}
