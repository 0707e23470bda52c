//! Who looks at a page, and who sends a form. Pages get at the desk through these only, so there is no page without a
//! session, and no form without its token.

use super::Pages;
use super::form::Form;
use super::frame::{Frame, Place, Slip, Theme};
use super::words as w;
use crate::Counter;
use crate::desk::Actor;
use crate::problem::{Code, Problem};
use crate::sign_in::{CSRF_FIELD, Session, Visitor};
use askama::Template;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// The cookie with the colours. It says nothing of anyone.
pub(crate) const THEME_COOKIE: &str = "portcullis-theme";

/// A person who is signed in looks at a page.
pub(crate) struct Visit {
    pages: Arc<Pages>,
    pub(crate) session: Session,
    pub(crate) visitor: Visitor,
    headers: HeaderMap,
    theme: Theme,
    path: String,
    pub(crate) query: Form,
}

/// A person who is signed in sent a form, and it came from our own page.
pub(crate) struct Order {
    pub(crate) visit: Visit,
    pub(crate) form: Form,
}

impl FromRequestParts<Arc<Pages>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, pages: &Arc<Pages>) -> Result<Visit, Response> {
        let path = parts.uri.path_and_query().map_or_else(|| "/admin".to_owned(), ToString::to_string);
        let Some(session) = pages.sign_in.session(&parts.headers) else {
            // A script that follows a stream is not led to a form.
            if wants_events(&parts.headers) {
                let problem = Problem::new(Code::SignInNeeded, "nobody is signed in, or not any more");
                return Err(plain(&problem));
            }
            let next = super::words::url(&path);
            return Err(go_to(&format!("/admin/sign-in?next={next}")));
        };
        let query = Form::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .map_err(|problem| plain(&problem))?;
        Ok(Visit {
            pages: pages.clone(),
            session,
            visitor: super::doors::visitor(parts),
            headers: parts.headers.clone(),
            theme: theme_of(&parts.headers),
            path,
            query,
        })
    }
}

impl FromRequest<Arc<Pages>> for Order {
    type Rejection = Response;

    async fn from_request(request: Request, pages: &Arc<Pages>) -> Result<Order, Response> {
        let (mut parts, body) = request.into_parts();
        let Ok(visit) = Visit::from_request_parts(&mut parts, pages).await else {
            let problem =
                Problem::new(Code::SignInNeeded, "you are not signed in any more, so nothing was done")
                    .hint("sign in, and send the form again");
            return Err(super::doors::sign_in_page(Some(problem), "/admin"));
        };
        let form = Form::read(body).await.map_err(|problem| plain(&problem))?;
        match visit.session.may_change(&parts.headers, Some(form.get(CSRF_FIELD))) {
            Ok(()) => Ok(Order { visit, form }),
            Err(problem) => Err(visit.trouble(Place::Now, problem).await),
        }
    }
}

impl Visit {
    pub(crate) fn counter(&self) -> &Counter {
        &self.pages.counter
    }

    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor { name: self.session.admin.clone() }
    }

    /// Returns whether the session is still good. Asking keeps it no longer.
    pub(crate) fn is_signed_in(&self) -> bool {
        self.pages.sign_in.still_knows(&self.headers)
    }

    /// Makes what is around a page.
    pub(crate) async fn frame(&self, place: Place, slip: Option<Slip>) -> Frame {
        // A hub that cannot say how it is still shows its pages.
        let overview = self.counter().ask(|desk| desk.overview()).await.ok();
        let overview = overview.as_deref();
        Frame {
            place,
            admin: self.session.admin.clone(),
            csrf: self.session.csrf.clone(),
            theme: self.theme,
            path: self.path.clone(),
            version: overview.map(|overview| overview.version.clone()).unwrap_or_default(),
            now: overview.map(|overview| overview.now).unwrap_or_default(),
            said: self.pages.notices.take(&self.session.id),
            approvals_waiting: overview.map_or(0, |overview| overview.approvals_waiting),
            scripts_waiting: self
                .counter()
                .has_scripts()
                .then(|| overview.and_then(|overview| overview.scripts_waiting).unwrap_or(0)),
            servers_waiting: overview
                .map_or(0, |overview| overview.servers.iter().filter(|server| server.waiting > 0).count()),
            slip,
        }
    }

    /// Answers that something was done: a page, where it is said.
    pub(crate) fn done(&self, said: impl Into<String>, to: &str) -> Response {
        self.pages.notices.put(&self.session.id, said.into());
        go_to(to)
    }

    /// Answers with a page that only says what went wrong.
    pub(crate) async fn trouble(&self, place: Place, problem: Problem) -> Response {
        let status = problem.code.status();
        let title = if problem.code == Code::NotFound { "Not here" } else { "That did not work" };
        shown(status, &Trouble { frame: self.frame(place, None).await, title, problem })
    }
}

/// Answers an address below `/admin` that is none of our pages.
pub(crate) async fn nothing_here(visit: Visit) -> Response {
    visit.trouble(Place::Now, Problem::not_found("there is no such page")).await
}

#[derive(Template)]
#[template(path = "not_found.html")]
struct Trouble {
    frame: Frame,
    title: &'static str,
    problem: Problem,
}

/// Returns the status of a page with a form that is shown again.
pub(crate) fn status_of(slip: Option<&Slip>) -> StatusCode {
    let problem = slip.and_then(|slip| slip.problem.as_ref());
    problem.map_or(StatusCode::OK, |problem| problem.code.status())
}

pub(crate) fn shown(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => {
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            (status, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            tracing::error!(target: "admin", %error, "A page could not be made.");
            (StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made.\n").into_response()
        }
    }
}

/// Answers with another page of ours.
pub(crate) fn go_to(path: &str) -> Response {
    match HeaderValue::from_str(path) {
        Ok(place) => (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response(),
        Err(_) => {
            (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static("/admin"))]).into_response()
        }
    }
}

/// Answers without a page, where there is no session to make one for.
fn plain(problem: &Problem) -> Response {
    (problem.code.status(), format!("{}\n", problem.message)).into_response()
}

/// Returns a path of ours; anything else becomes the first page, so that nobody is sent elsewhere.
pub(crate) fn own_path(path: &str) -> &str {
    let is_ours = path == "/admin" || path.starts_with("/admin/") || path.starts_with("/admin?");
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') && path.len() <= 2000;
    if is_ours && is_plain && !path.contains("//") && !path.contains("..") { path } else { "/admin" }
}

fn wants_events(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes() == b"text/event-stream")
}

fn theme_of(headers: &HeaderMap) -> Theme {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == THEME_COOKIE).map_or(Theme::System, |(_, value)| Theme::named(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for path in ["/admin", "/admin/tools?q=a%20b", "/admin?x=1"] {
            assert_eq!(own_path(path), path);
        }
        for path in [
            "",
            "//evil.example",
            "/administrator",
            "https://evil.example/admin",
            "/admin/..//x",
            "/admin/\\x",
            "/admin/\nx",
            "/mcp",
        ] {
            assert_eq!(own_path(path), "/admin", "{path}");
        }
    }
}
