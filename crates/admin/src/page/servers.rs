//! The Servers page: upstream servers, their review and trust, adding and importing.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use crate::RedactedValue;
use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use portcullis_ops::desk::{
    ActionReceipt, AddServer, ImportPreview, ImportServers, ImportSource, ServerDetail, ServerLoginUrl,
    ServerView, SwitchServer, TrustServer,
};
use portcullis_ops::{Problem, ProblemCode};
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait until the hub has loaded a server just written to the configuration.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);
/// Poll interval meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Template)]
#[template(path = "servers.html")]
struct List {
    frame: PageFrame,
    servers: Vec<ServerView>,
    importable: Option<ImportPreview>,
}

#[derive(Template)]
#[template(path = "server.html")]
struct ServerPage {
    frame: PageFrame,
    whole: ServerDetail,
    /// The login URL, after a login was requested.
    sign_in: Option<ServerLoginUrl>,
}

pub(crate) async fn list(visit: PageRequest) -> Response {
    show_list(&visit, None, None).await
}

pub(crate) async fn one(visit: PageRequest, Path(name): Path<String>) -> Response {
    show_one(&visit, name, None, None).await
}

pub(crate) async fn add(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let actor = visit.actor();
    let added = match new_server(&form) {
        Ok(new) => {
            visit.counter().ask(|desk| desk.add_server(new, actor)).await.map_err(RedactedValue::into_inner)
        }
        Err(problem) => Err(problem),
    };
    match added {
        Ok(done) => {
            let name = form.get("name").trim();
            wait_until_loaded(&visit, name).await;
            visit.done(done.said.clone(), &place_of(name))
        }
        Err(problem) => show_list(&visit, Some(FormFeedback::wrong("add", problem, form)), None).await,
    }
}

pub(crate) async fn import(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let text = form.some("text");
    let actor = visit.actor();
    let asked = if form.get("do") == "take" {
        let wanted = ImportServers { text, only: form.all("only") };
        visit.counter().ask_configured(|desk| desk.import_servers(wanted, actor)).await
    } else {
        visit.counter().ask_configured(|desk| desk.importable(ImportSource { text })).await
    };
    match asked {
        Ok(found) => match &found.said {
            Some(said) => visit.done(said, "/admin/servers"),
            None => {
                show_list(&visit, Some(FormFeedback::kept("import", form)), Some(found.into_inner())).await
            }
        },
        Err(problem) => {
            show_list(&visit, Some(FormFeedback::wrong("import", problem.into_inner(), form)), None).await
        }
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    if form.get("do") == "sign-in" {
        let actor = visit.actor();
        let asked = visit.counter().ask_showing(|desk| desk.sign_in_to_server(name.clone(), actor)).await;
        return match asked {
            Ok(page) => show_one(&visit, name, None, Some(page.into_inner())).await,
            Err(problem) => {
                show_one(&visit, name, Some(FormFeedback::wrong("server", problem.into_inner(), form)), None)
                    .await
            }
        };
    }
    if form.get("do") == "look" {
        let actor = visit.actor();
        // No redirect: what this page shows is exactly what will be trusted.
        return match visit.counter().ask_configured(|desk| desk.probe_server(name.clone(), actor)).await {
            Ok(whole) => {
                let frame = visit.frame(NavSection::Servers, None).await;
                render(StatusCode::OK, &ServerPage { frame, whole: whole.into_inner(), sign_in: None })
            }
            Err(problem) => {
                show_one(&visit, name, Some(FormFeedback::wrong("server", problem.into_inner(), form)), None)
                    .await
            }
        };
    }
    match changed(&visit, &name, &form).await {
        Ok(done) if form.get("do") == "remove" => visit.done(done.said, "/admin/servers"),
        Ok(done) => visit.done(done.said, &place_of(&name)),
        Err(problem) => {
            show_one(&visit, name, Some(FormFeedback::wrong("server", problem, form)), None).await
        }
    }
}

/// Returns the choices of the review form: a field `effect NAME` for each tool.
fn trust_choices(form: &FormFields) -> TrustServer {
    let effects = form.with_prefix("effect ").collect();
    TrustServer { seen: form.get("seen").to_owned(), policy: form.some("policy"), effects }
}

async fn changed(visit: &PageRequest, name: &str, form: &FormFields) -> Result<ActionReceipt, Problem> {
    let (name, by) = (name.to_owned(), visit.actor());
    let counter = visit.counter();
    let asked = match form.get("do") {
        "trust" => {
            let trust = trust_choices(form);
            counter.ask(|desk| desk.trust_server(name, trust, by)).await
        }
        "distrust" => counter.ask(|desk| desk.distrust_server(name, by)).await,
        "on" => counter.ask(|desk| desk.switch_server(name, SwitchServer { enabled: true }, by)).await,
        "off" => counter.ask(|desk| desk.switch_server(name, SwitchServer { enabled: false }, by)).await,
        "restart" => counter.ask(|desk| desk.restart_server(name, by)).await,
        "remove" => counter.ask(|desk| desk.remove_server(name, by)).await,
        _ => return Err(super::unknown_action()),
    };
    asked.map(RedactedValue::into_inner).map_err(RedactedValue::into_inner)
}

/// Waits until the hub has reloaded its configuration, so that the next page finds the server.
async fn wait_until_loaded(visit: &PageRequest, name: &str) {
    let deadline = Instant::now() + KNOWN_WITHIN;
    while Instant::now() < deadline {
        match visit.counter().ask_configured(|desk| desk.server(name.to_owned())).await {
            Err(problem) if problem.code == ProblemCode::NotFound => tokio::time::sleep(LOOK_EVERY).await,
            _ => return,
        }
    }
}

fn new_server(form: &FormFields) -> Result<AddServer, Problem> {
    Ok(AddServer {
        name: form.get("name").trim().to_owned(),
        command: form.some("command"),
        args: form.lines("args"),
        cwd: form.some("cwd"),
        url: form.some("url"),
        env: form.pairs("env", '=')?,
        headers: form.pairs("headers", ':')?,
    })
}

fn place_of(name: &str) -> String {
    format!("/admin/servers/{}", w::url(name))
}

async fn show_list(
    visit: &PageRequest,
    slip: Option<FormFeedback>,
    importable: Option<ImportPreview>,
) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask_configured(|desk| desk.servers()).await {
        Ok(servers) => {
            let frame = visit.frame(NavSection::Servers, slip).await;
            render(status, &List { frame, servers: servers.into_inner().servers, importable })
        }
        Err(problem) => visit.error_page(NavSection::Servers, problem.into_inner()).await,
    }
}

async fn show_one(
    visit: &PageRequest,
    name: String,
    slip: Option<FormFeedback>,
    sign_in: Option<ServerLoginUrl>,
) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask_configured(|desk| desk.server(name)).await {
        Ok(whole) => {
            let frame = visit.frame(NavSection::Servers, slip).await;
            render(status, &ServerPage { frame, whole: whole.into_inner(), sign_in })
        }
        Err(problem) => visit.error_page(NavSection::Servers, problem.into_inner()).await,
    }
}
