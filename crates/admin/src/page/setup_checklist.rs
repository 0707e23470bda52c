//! The onboarding checklist on the Now page, while a step is missing. An administrator can dismiss it: a cookie remembers that.

use super::page_request::{FormSubmission, PageRequest, see_other};
use super::sign_in_pages::with_cookie;
use axum::http::HeaderValue;
use axum::response::Response;
use portcullis_ops::desk::Overview;

/// The cookie of a dismissed checklist. It identifies no one.
const SETUP_COOKIE: &str = "portcullis-setup";
const DISMISSED: &str = "dismissed";

pub(crate) struct SetupChecklist {
    pub(crate) steps: Vec<SetupStep>,
}

pub(crate) struct SetupStep {
    pub(crate) title: &'static str,
    pub(crate) done: bool,
    /// Where it is done on the page.
    pub(crate) href: Option<&'static str>,
    /// The same on the command line.
    pub(crate) command: Option<&'static str>,
}

impl SetupChecklist {
    /// Returns the checklist while a step is missing that the hub can see; `None` if it was dismissed.
    pub(crate) async fn of(visit: &PageRequest, overview: &Overview) -> Option<SetupChecklist> {
        if visit.cookie(SETUP_COOKIE) == Some(DISMISSED) {
            return None;
        }
        let counter = visit.counter();
        let clients = counter.ask(|desk| desk.clients()).await.ok();
        let has_called = clients.is_some_and(|list| list.clients.iter().any(|one| one.last_call.is_some()));
        let policy = counter.ask(|desk| desk.policy()).await.ok();
        SetupChecklist::with(SetupFacts {
            is_client_connected: has_called || !overview.sessions.is_empty(),
            has_server: !overview.servers.is_empty(),
            has_rule: policy.is_some_and(|policy| !policy.rules.is_empty()),
        })
    }

    fn with(facts: SetupFacts) -> Option<SetupChecklist> {
        let SetupFacts { is_client_connected, has_server, has_rule } = facts;
        if is_client_connected && has_server && has_rule {
            return None;
        }
        let step = |title, done, href, command| SetupStep { title, done, href, command };
        Some(SetupChecklist {
            steps: vec![
                step(
                    "Connect an agent",
                    is_client_connected,
                    Some("/admin/clients#add"),
                    Some("portcullis clients add editor --install cursor"),
                ),
                step(
                    "Add a server",
                    has_server,
                    Some("/admin/servers#add"),
                    Some("portcullis mcp add git -- uvx mcp-server-git"),
                ),
                step("Add a policy rule", has_rule, Some("/admin/policy#add"), None),
                // A backup is a file somewhere else, so the hub cannot tell whether there is one.
                step(
                    "Back up the database",
                    false,
                    None,
                    Some("portcullis store backup ~/portcullis-$(date +%F).db"),
                ),
            ],
        })
    }
}

/// What the hub can see of its setup.
struct SetupFacts {
    is_client_connected: bool,
    has_server: bool,
    has_rule: bool,
}

/// Dismisses the checklist.
pub(crate) async fn dismiss(_: FormSubmission) -> Response {
    let back = see_other("/admin");
    let cookie = format!("{SETUP_COOKIE}={DISMISSED}; Path=/admin; SameSite=Strict; Max-Age=31536000");
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => with_cookie(back, cookie),
        Err(_) => back,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_while_something_is_missing() {
        let with = |is_client_connected, has_server, has_rule| {
            SetupChecklist::with(SetupFacts { is_client_connected, has_server, has_rule })
                .map(|list| list.steps.iter().map(|step| step.done).collect::<Vec<_>>())
        };
        assert_eq!(with(false, false, false), Some(vec![false, false, false, false]));
        assert_eq!(with(true, true, false), Some(vec![true, true, false, false]));
        assert_eq!(with(true, true, true), None);
    }
}
