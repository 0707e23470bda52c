//! The Tools page: tools by provider, and a call form for each.

use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use super::schema_form::{self, FieldInput, SchemaForm};
use crate::RedactedValue;
use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::{ToolDetail, TryTool, TryToolResult};

#[derive(Template)]
#[template(path = "tools.html")]
struct List {
    frame: PageFrame,
    query: String,
    groups: Vec<Group>,
}

/// The tools of one family or server.
struct Group {
    provider: String,
    tools: Vec<ToolDetail>,
}

#[derive(Template)]
#[template(path = "tool.html")]
struct ToolPage {
    frame: PageFrame,
    tool: ToolDetail,
    form: SchemaForm,
    tried: Option<TryToolResult>,
}

pub(crate) async fn list(visit: PageRequest) -> Response {
    let query = visit.query.get("q").trim().to_owned();
    match visit.counter().ask(|desk| desk.tools()).await {
        Ok(tools) => {
            let found = tools.into_inner().tools.into_iter().filter(|tool| is_like(tool, &query));
            let groups = grouped(found);
            render(StatusCode::OK, &List { frame: visit.frame(NavSection::Tools, None).await, query, groups })
        }
        Err(problem) => visit.error_page(NavSection::Tools, problem.into_inner()).await,
    }
}

pub(crate) async fn one(visit: PageRequest, Path(name): Path<String>) -> Response {
    match tool(&visit, name).await {
        Ok(tool) => show_one(&visit, tool, None, None).await,
        Err(problem) => visit.error_page(NavSection::Tools, problem).await,
    }
}

pub(crate) async fn try_it(Path(name): Path<String>, order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let tool = match tool(&visit, name.clone()).await {
        Ok(tool) => tool,
        Err(problem) => return visit.error_page(NavSection::Tools, problem).await,
    };
    let actor = visit.actor();
    let tried = match schema_form::arguments(&tool.input_schema, &form) {
        Ok(arguments) => {
            let asked = visit.counter().ask(|desk| desk.try_tool(name, TryTool { arguments }, actor)).await;
            asked.map_err(RedactedValue::into_inner)
        }
        Err(problem) => Err(problem),
    };
    // No redirect: the result would have to be stored for the next page.
    match tried {
        Ok(tried) => {
            show_one(&visit, tool, Some(FormFeedback::kept("try", form)), Some(tried.into_inner())).await
        }
        Err(problem) => show_one(&visit, tool, Some(FormFeedback::wrong("try", problem, form)), None).await,
    }
}

async fn tool(visit: &PageRequest, name: String) -> Result<ToolDetail, Problem> {
    let asked = visit.counter().ask(|desk| desk.tool(name)).await;
    asked.map(RedactedValue::into_inner).map_err(RedactedValue::into_inner)
}

async fn show_one(
    visit: &PageRequest,
    tool: ToolDetail,
    slip: Option<FormFeedback>,
    tried: Option<TryToolResult>,
) -> Response {
    let status = status_of(slip.as_ref());
    let form = SchemaForm::of(&tool.input_schema, slip.as_ref().map(|slip| &slip.given));
    render(status, &ToolPage { frame: visit.frame(NavSection::Tools, slip).await, tool, form, tried })
}

/// Returns whether the tool contains every word of the query.
fn is_like(tool: &ToolDetail, query: &str) -> bool {
    let text = format!("{} {} {} {}", tool.name, tool.title, tool.description, tool.provider).to_lowercase();
    query.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

fn grouped(tools: impl Iterator<Item = ToolDetail>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for tool in tools {
        match groups.iter_mut().find(|group| group.provider == tool.provider) {
            Some(group) => group.tools.push(tool),
            None => groups.push(Group { provider: tool.provider.clone(), tools: vec![tool] }),
        }
    }
    groups
}
