//! The Policy page: rules, defaults, and a test of a call.

use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame};
use super::page_request::{FormSubmission, PageRequest, render, status_of};
use crate::RedactedValue;
use askama::Template;
use axum::response::Response;
use portcullis_ops::Problem;
use portcullis_ops::desk::{
    AddRule, MoveRule, PolicyExplanation, PolicyView, RemoveRule, RuleText, TestPolicy,
};

#[derive(Template)]
#[template(path = "policy.html")]
struct Page {
    frame: PageFrame,
    policy: PolicyView,
    answer: Option<PolicyExplanation>,
}

impl Page {
    /// Returns whether this rule decides the tested call.
    fn decides(&self, rule: &str) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.rule == rule)
    }
}

pub(crate) async fn show(mut visit: PageRequest) -> Response {
    let query = std::mem::take(&mut visit.query);
    if query.some("tool").is_none() && query.some("client").is_none() {
        return page(&visit, None, None).await;
    }
    let answered = match question(&query) {
        Ok(question) => {
            let asked = visit.counter().ask(|desk| desk.test_policy(question)).await;
            asked.map_err(RedactedValue::into_inner)
        }
        Err(problem) => Err(problem),
    };
    match answered {
        Ok(answer) => page(&visit, Some(FormFeedback::kept("test", query)), Some(answer.into_inner())).await,
        Err(problem) => page(&visit, Some(FormFeedback::wrong("test", problem, query)), None).await,
    }
}

pub(crate) async fn change(order: FormSubmission) -> Response {
    let FormSubmission { visit, form } = order;
    let name = if form.get("do") == "add" { "add" } else { "rules" };
    match changed(&visit, &form).await {
        Ok(said) => visit.done(said, "/admin/policy"),
        Err(problem) => page(&visit, Some(FormFeedback::wrong(name, problem, form)), None).await,
    }
}

async fn changed(visit: &PageRequest, form: &FormFields) -> Result<&'static str, Problem> {
    let (counter, by) = (visit.counter(), visit.actor());
    let version = form.get("version").to_owned();
    let at = || form.number::<usize>("at")?.ok_or_else(super::unknown_action);
    let (said, asked) = match form.get("do") {
        "add" => {
            let rule = AddRule { rule: rule(form), before: form.number("before")?, version };
            ("Added the rule.", counter.ask(|desk| desk.add_rule(rule, by)).await)
        }
        "remove" => {
            let rule = RemoveRule { at: at()?, version };
            ("Removed the rule.", counter.ask(|desk| desk.remove_rule(rule, by)).await)
        }
        direction @ ("up" | "down") => {
            let from = at()?;
            let to = if direction == "up" { from.saturating_sub(1) } else { from.saturating_add(1) };
            let rule = MoveRule { from, to, version };
            ("Moved the rule.", counter.ask(|desk| desk.move_rule(rule, by)).await)
        }
        _ => return Err(super::unknown_action()),
    };
    asked.map(|_| said).map_err(RedactedValue::into_inner)
}

fn rule(form: &FormFields) -> RuleText {
    RuleText {
        decision: form.get("decision").to_owned(),
        tools: form.words("tools"),
        clients: form.words("clients"),
        origins: form.words("origins"),
        effects: form.all("effects"),
        reach: form.some("reach"),
        hours: form.some("hours"),
        days: form.words("days"),
        until: form.some("until"),
    }
}

fn question(query: &FormFields) -> Result<TestPolicy, Problem> {
    let arguments = match query.some("arguments") {
        Some(text) => Some(portcullis_core::json::parse_strict(&text).map_err(|error| {
            Problem::invalid(format!("the arguments are not JSON: {error}"))
                .hint("write an object, like {\"path\": \"a.txt\"}")
        })?),
        None => None,
    };
    Ok(TestPolicy {
        client: query.get("client").trim().to_owned(),
        tool: query.get("tool").trim().to_owned(),
        arguments,
        origin: None,
        at: query.some("at"),
    })
}

async fn page(
    visit: &PageRequest,
    slip: Option<FormFeedback>,
    answer: Option<PolicyExplanation>,
) -> Response {
    let status = status_of(slip.as_ref());
    match visit.counter().ask(|desk| desk.policy()).await {
        Ok(policy) => {
            let frame = visit.frame(NavSection::Policy, slip).await;
            render(status, &Page { frame, policy: policy.into_inner(), answer })
        }
        Err(problem) => visit.error_page(NavSection::Policy, problem.into_inner()).await,
    }
}
