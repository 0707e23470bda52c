//! The servers behind the hub.

use super::form::Form;
use super::frame::{Frame, Place, Slip};
use super::visit::{Order, Visit, shown, status_of};
use super::words as w;
use crate::Clean;
use crate::desk::{
    AddServer, Done, ImportFrom, ImportServers, Importable, ServerShown, ServerWhole, SignInPage,
    SwitchServer, TrustServer,
};
use crate::problem::{Code, Problem};
use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server that was just written into the configuration is waited for.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);
/// How often it is looked for meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Template)]
#[template(path = "servers.html")]
struct List {
    frame: Frame,
    servers: Vec<ServerShown>,
    importable: Option<Importable>,
}

#[derive(Template)]
#[template(path = "server.html")]
struct One {
    frame: Frame,
    whole: ServerWhole,
    /// Where somebody logs in who asked for it.
    sign_in: Option<SignInPage>,
}

pub(crate) async fn list(visit: Visit) -> Response {
    show_list(&visit, None, None).await
}

pub(crate) async fn one(visit: Visit, Path(name): Path<String>) -> Response {
    show_one(&visit, name, None, None).await
}

pub(crate) async fn add(order: Order) -> Response {
    let Order { visit, form } = order;
    let actor = visit.actor();
    let added = match new_server(&form) {
        Ok(new) => visit.counter().ask(|desk| desk.add_server(new, actor)).await.map_err(Clean::into_inner),
        Err(problem) => Err(problem),
    };
    match added {
        Ok(done) => {
            let name = form.get("name").trim();
            until_known(&visit, name).await;
            visit.done(done.said.clone(), &place_of(name))
        }
        Err(problem) => show_list(&visit, Some(Slip::wrong("add", problem, form)), None).await,
    }
}

pub(crate) async fn import(order: Order) -> Response {
    let Order { visit, form } = order;
    let text = form.some("text");
    let actor = visit.actor();
    let asked = if form.get("do") == "take" {
        let wanted = ImportServers { text, only: form.all("only") };
        visit.counter().ask_configured(|desk| desk.import_servers(wanted, actor)).await
    } else {
        visit.counter().ask_configured(|desk| desk.importable(ImportFrom { text })).await
    };
    match asked {
        Ok(found) => match &found.written_to {
            Some(file) => {
                visit.done(format!("Taken over, into {file}. Look at it, then trust it."), "/admin/servers")
            }
            None => show_list(&visit, Some(Slip::kept("import", form)), Some(found.into_inner())).await,
        },
        Err(problem) => {
            show_list(&visit, Some(Slip::wrong("import", problem.into_inner(), form)), None).await
        }
    }
}

pub(crate) async fn change(Path(name): Path<String>, order: Order) -> Response {
    let Order { visit, form } = order;
    if form.get("do") == "sign-in" {
        let actor = visit.actor();
        let asked = visit.counter().ask_showing(|desk| desk.sign_in_to_server(name.clone(), actor)).await;
        return match asked {
            Ok(page) => show_one(&visit, name, None, Some(page.into_inner())).await,
            Err(problem) => {
                show_one(&visit, name, Some(Slip::wrong("server", problem.into_inner(), form)), None).await
            }
        };
    }
    if form.get("do") == "look" {
        let actor = visit.actor();
        // Without going on to another page: what was seen is what is trusted, and it is seen here.
        return match visit.counter().ask_configured(|desk| desk.look_at_server(name.clone(), actor)).await {
            Ok(whole) => {
                let frame = visit.frame(Place::Servers, None).await;
                shown(StatusCode::OK, &One { frame, whole: whole.into_inner(), sign_in: None })
            }
            Err(problem) => {
                show_one(&visit, name, Some(Slip::wrong("server", problem.into_inner(), form)), None).await
            }
        };
    }
    match changed(&visit, &name, &form).await {
        Ok(done) if form.get("do") == "remove" => visit.done(done.said, "/admin/servers"),
        Ok(done) => visit.done(done.said, &place_of(&name)),
        Err(problem) => show_one(&visit, name, Some(Slip::wrong("server", problem, form)), None).await,
    }
}

async fn changed(visit: &Visit, name: &str, form: &Form) -> Result<Done, Problem> {
    let (name, by) = (name.to_owned(), visit.actor());
    let counter = visit.counter();
    let asked = match form.get("do") {
        "trust" => {
            let trust = TrustServer { seen: form.get("seen").to_owned() };
            counter.ask(|desk| desk.trust_server(name, trust, by)).await
        }
        "distrust" => counter.ask(|desk| desk.distrust_server(name, by)).await,
        "on" => counter.ask(|desk| desk.switch_server(name, SwitchServer { enabled: true }, by)).await,
        "off" => counter.ask(|desk| desk.switch_server(name, SwitchServer { enabled: false }, by)).await,
        "restart" => counter.ask(|desk| desk.restart_server(name, by)).await,
        "remove" => counter.ask(|desk| desk.remove_server(name, by)).await,
        _ => return Err(super::unknown_order()),
    };
    asked.map(Clean::into_inner).map_err(Clean::into_inner)
}

/// A hub follows its configuration, a moment after it was written. The next page shall know the server already.
async fn until_known(visit: &Visit, name: &str) {
    let deadline = Instant::now() + KNOWN_WITHIN;
    while Instant::now() < deadline {
        match visit.counter().ask_configured(|desk| desk.server(name.to_owned())).await {
            Err(problem) if problem.code == Code::NotFound => tokio::time::sleep(LOOK_EVERY).await,
            _ => return,
        }
    }
}

fn new_server(form: &Form) -> Result<AddServer, Problem> {
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

async fn show_list(visit: &Visit, slip: Option<Slip>, importable: Option<Importable>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask_configured(|desk| desk.servers()).await {
        Ok(servers) => {
            let frame = visit.frame(Place::Servers, slip).await;
            shown(status, &List { frame, servers: servers.into_inner().servers, importable })
        }
        Err(problem) => visit.trouble(Place::Servers, problem.into_inner()).await,
    }
}

async fn show_one(visit: &Visit, name: String, slip: Option<Slip>, sign_in: Option<SignInPage>) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask_configured(|desk| desk.server(name)).await {
        Ok(whole) => {
            let frame = visit.frame(Place::Servers, slip).await;
            shown(status, &One { frame, whole: whole.into_inner(), sign_in })
        }
        Err(problem) => visit.trouble(Place::Servers, problem.into_inner()).await,
    }
}
