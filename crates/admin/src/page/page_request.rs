//! Extractors for page requests and form submissions.
//!
//! Pages reach the desk through these only, so every page needs a session and every form needs a CSRF token.

use super::PageState;
use super::form::FormFields;
use super::formatting as w;
use super::frame::{FormFeedback, NavSection, PageFrame, Theme};
use crate::RedactedDesk;
use crate::http_status::http_status;
use crate::sign_in::{AdminSession, CSRF_FIELD, Visitor};
use askama::Template;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::tz::TimeZone;
use portcullis_ops::{Actor, Problem, ProblemCode};
use std::sync::Arc;

/// The theme cookie. It identifies no one.
pub(crate) const THEME_COOKIE: &str = "portcullis-theme";

/// A page request with a valid session.
pub(crate) struct PageRequest {
    pages: Arc<PageState>,
    pub(crate) session: AdminSession,
    pub(crate) visitor: Visitor,
    headers: HeaderMap,
    theme: Theme,
    path: String,
    pub(crate) query: FormFields,
}

/// A form submission with a valid session and CSRF token.
pub(crate) struct FormSubmission {
    pub(crate) visit: PageRequest,
    pub(crate) form: FormFields,
}

impl FromRequestParts<Arc<PageState>> for PageRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, pages: &Arc<PageState>) -> Result<PageRequest, Response> {
        let path = parts.uri.path_and_query().map_or_else(|| "/admin".to_owned(), ToString::to_string);
        let Some(session) = pages.sign_in.session(&parts.headers) else {
            // An event stream gets an error instead of a redirect to the sign-in form.
            if wants_events(&parts.headers) {
                let problem =
                    Problem::new(ProblemCode::SignInNeeded, "not signed in, or the session has expired");
                return Err(plain(&problem));
            }
            let next = super::formatting::url(&path);
            return Err(see_other(&format!("/admin/sign-in?next={next}")));
        };
        let query = FormFields::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .map_err(|problem| plain(&problem))?;
        Ok(PageRequest {
            pages: pages.clone(),
            session,
            visitor: super::sign_in_pages::visitor(parts),
            headers: parts.headers.clone(),
            theme: theme_of(&parts.headers),
            path,
            query,
        })
    }
}

impl FromRequest<Arc<PageState>> for FormSubmission {
    type Rejection = Response;

    async fn from_request(request: Request, pages: &Arc<PageState>) -> Result<FormSubmission, Response> {
        let (mut parts, body) = request.into_parts();
        let Ok(visit) = PageRequest::from_request_parts(&mut parts, pages).await else {
            let problem =
                Problem::new(ProblemCode::SignInNeeded, "your session has expired, so nothing was changed")
                    .hint("sign in and submit the form again");
            return Err(super::sign_in_pages::sign_in_page(Some(problem), "/admin"));
        };
        let form = FormFields::read(body).await.map_err(|problem| plain(&problem))?;
        match visit.session.verify_csrf(&parts.headers, Some(form.get(CSRF_FIELD))) {
            Ok(()) => Ok(FormSubmission { visit, form }),
            Err(problem) => Err(visit.error_page(NavSection::Now, problem).await),
        }
    }
}

impl PageRequest {
    pub(crate) fn counter(&self) -> &RedactedDesk {
        &self.pages.counter
    }

    pub(crate) fn pages(&self) -> &Arc<PageState> {
        &self.pages
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::administrator(&self.session.admin)
    }

    /// Returns the configured time zone, in which the pages tell times.
    pub(crate) fn zone(&self) -> Arc<TimeZone> {
        self.pages.zone.load_full()
    }

    /// Returns the value of a cookie.
    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        cookie_of(&self.headers, name)
    }

    /// Returns whether the session is still valid, without extending it.
    pub(crate) fn is_signed_in(&self) -> bool {
        self.pages.sign_in.is_session_valid(&self.headers)
    }

    /// Builds the frame of a page.
    pub(crate) async fn frame(&self, place: NavSection, slip: Option<FormFeedback>) -> PageFrame {
        // Pages still work if the overview fails.
        let overview = self.counter().ask(|desk| desk.overview()).await.ok();
        let overview = overview.as_deref();
        PageFrame {
            place,
            admin: self.session.admin.clone(),
            csrf: self.session.csrf.clone(),
            theme: self.theme,
            path: self.path.clone(),
            version: overview.map(|overview| overview.version.clone()).unwrap_or_default(),
            now: overview.map(|overview| overview.now).unwrap_or_default(),
            zone: self.zone(),
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

    /// Redirects to a page that shows a flash message.
    pub(crate) fn done(&self, said: impl Into<String>, to: &str) -> Response {
        self.pages.notices.put(&self.session.id, said.into());
        see_other(to)
    }

    /// Renders an error page.
    pub(crate) async fn error_page(&self, place: NavSection, problem: Problem) -> Response {
        let status = http_status(problem.code);
        let title = if problem.code == ProblemCode::NotFound { "Not found" } else { "Error" };
        render(status, &ErrorPage { frame: self.frame(place, None).await, title, problem })
    }
}

/// Handles unknown paths below `/admin`.
pub(crate) async fn not_found_page(visit: PageRequest) -> Response {
    visit.error_page(NavSection::Now, Problem::not_found("no such page")).await
}

#[derive(Template)]
#[template(path = "not_found.html")]
struct ErrorPage {
    frame: PageFrame,
    title: &'static str,
    problem: Problem,
}

/// Returns the HTTP status of a page that shows a form again.
pub(crate) fn status_of(slip: Option<&FormFeedback>) -> StatusCode {
    let problem = slip.and_then(|slip| slip.problem.as_ref());
    problem.map_or(StatusCode::OK, |problem| http_status(problem.code))
}

pub(crate) fn render(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => {
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            (status, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            tracing::error!(target: "admin", %error, "failed to render a page");
            (StatusCode::INTERNAL_SERVER_ERROR, "The page could not be rendered. See the hub's log.\n")
                .into_response()
        }
    }
}

/// Redirects to another page.
pub(crate) fn see_other(path: &str) -> Response {
    match HeaderValue::from_str(path) {
        Ok(place) => (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response(),
        Err(_) => {
            (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static("/admin"))]).into_response()
        }
    }
}

/// Answers without a page, where there is no session to make one for.
fn plain(problem: &Problem) -> Response {
    (http_status(problem.code), format!("{}\n", problem.message)).into_response()
}

/// Returns a local path; anything else becomes `/admin`, to prevent open redirects.
pub(crate) fn local_redirect_path(path: &str) -> &str {
    let is_ours = path == "/admin" || path.starts_with("/admin/") || path.starts_with("/admin?");
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') && path.len() <= 2000;
    if is_ours && is_plain && !path.contains("//") && !path.contains("..") { path } else { "/admin" }
}

fn wants_events(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes() == b"text/event-stream")
}

fn cookie_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(own, _)| *own == name).map(|(_, value)| value)
}

fn theme_of(headers: &HeaderMap) -> Theme {
    cookie_of(headers, THEME_COOKIE).map_or(Theme::System, Theme::named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for path in ["/admin", "/admin/tools?q=a%20b", "/admin?x=1"] {
            assert_eq!(local_redirect_path(path), path);
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
            assert_eq!(local_redirect_path(path), "/admin", "{path}");
        }
    }
}
