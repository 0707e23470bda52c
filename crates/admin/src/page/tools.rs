//! What agents can call, and a try at it.

use super::frame::{Frame, Place, Slip};
use super::schema_form::{self, Input, SchemaForm};
use super::visit::{Order, Visit, shown, status_of};
use super::words as w;
use crate::Clean;
use crate::desk::{ToolShown, Tried, TryTool};
use crate::problem::Problem;
use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;

#[derive(Template)]
#[template(path = "tools.html")]
struct List {
    frame: Frame,
    query: String,
    groups: Vec<Group>,
}

/// The tools of one family or server.
struct Group {
    provider: String,
    tools: Vec<ToolShown>,
}

#[derive(Template)]
#[template(path = "tool.html")]
struct One {
    frame: Frame,
    tool: ToolShown,
    form: SchemaForm,
    tried: Option<Tried>,
}

pub(crate) async fn list(visit: Visit) -> Response {
    let query = visit.query.get("q").trim().to_owned();
    match visit.counter().ask(|desk| desk.tools()).await {
        Ok(tools) => {
            let found = tools.into_inner().tools.into_iter().filter(|tool| is_like(tool, &query));
            let groups = grouped(found);
            shown(StatusCode::OK, &List { frame: visit.frame(Place::Tools, None).await, query, groups })
        }
        Err(problem) => visit.trouble(Place::Tools, problem.into_inner()).await,
    }
}

pub(crate) async fn one(visit: Visit, Path(name): Path<String>) -> Response {
    match tool(&visit, name).await {
        Ok(tool) => show_one(&visit, tool, None, None).await,
        Err(problem) => visit.trouble(Place::Tools, problem).await,
    }
}

pub(crate) async fn try_it(Path(name): Path<String>, order: Order) -> Response {
    let Order { visit, form } = order;
    let tool = match tool(&visit, name.clone()).await {
        Ok(tool) => tool,
        Err(problem) => return visit.trouble(Place::Tools, problem).await,
    };
    let actor = visit.actor();
    let tried = match schema_form::arguments(&tool.input_schema, &form) {
        Ok(arguments) => {
            let asked = visit.counter().ask(|desk| desk.try_tool(name, TryTool { arguments }, actor)).await;
            asked.map_err(Clean::into_inner)
        }
        Err(problem) => Err(problem),
    };
    // Without going on to another page: what came of it would have to be kept for that.
    match tried {
        Ok(tried) => show_one(&visit, tool, Some(Slip::kept("try", form)), Some(tried.into_inner())).await,
        Err(problem) => show_one(&visit, tool, Some(Slip::wrong("try", problem, form)), None).await,
    }
}

async fn tool(visit: &Visit, name: String) -> Result<ToolShown, Problem> {
    let asked = visit.counter().ask(|desk| desk.tool(name)).await;
    asked.map(Clean::into_inner).map_err(Clean::into_inner)
}

async fn show_one(visit: &Visit, tool: ToolShown, slip: Option<Slip>, tried: Option<Tried>) -> Response {
    let status = status_of(slip.as_ref());
    let form = SchemaForm::of(&tool.input_schema, slip.as_ref().map(|slip| &slip.given));
    shown(status, &One { frame: visit.frame(Place::Tools, slip).await, tool, form, tried })
}

/// Returns whether every word is in the name or in what the tool says.
fn is_like(tool: &ToolShown, query: &str) -> bool {
    let text = format!("{} {} {} {}", tool.name, tool.title, tool.description, tool.provider).to_lowercase();
    query.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

fn grouped(tools: impl Iterator<Item = ToolShown>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for tool in tools {
        match groups.iter_mut().find(|group| group.provider == tool.provider) {
            Some(group) => group.tools.push(tool),
            None => groups.push(Group { provider: tool.provider.clone(), tools: vec![tool] }),
        }
    }
    groups
}
