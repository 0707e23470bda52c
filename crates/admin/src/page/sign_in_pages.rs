//! Sign-in, first password, sign-out and theme.

use super::form::FormFields;
use super::frame::Theme;
use super::page_request::{FormSubmission, THEME_COOKIE, local_redirect_path, render, see_other};
use super::{PageState, formatting as w};
use crate::http_status::http_status;
use crate::sign_in::{NewSession, Password, RequestOrigin, Visitor, request_origin};
use askama::Template;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use portcullis_core::Secret;
use portcullis_ops::{Problem, ProblemCode};
use portcullis_server::http::PeerAddr;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use zeroize::Zeroizing;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    problem: Option<Problem>,
    next: &'a str,
    name: &'a str,
}

#[derive(Template)]
#[template(path = "welcome.html")]
struct WelcomePage<'a> {
    problem: Option<Problem>,
    name: &'a str,
    link: &'a str,
}

pub(crate) async fn sign_in(State(pages): State<Arc<PageState>>, request: Request) -> Response {
    let query = FormFields::parse(request.uri().query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let next = local_redirect_path(query.get("next"));
    if pages.sign_in.session(request.headers()).is_some() {
        return see_other(next);
    }
    sign_in_page(None, next)
}

/// Renders the sign-in page, with the reason if there is one.
pub(crate) fn sign_in_page(problem: Option<Problem>, next: &str) -> Response {
    let status = problem.as_ref().map_or(StatusCode::OK, |problem| http_status(problem.code));
    render(status, &SignInPage { problem, next, name: "" })
}

pub(crate) async fn take_sign_in(State(pages): State<Arc<PageState>>, request: Request) -> Response {
    let (visitor, form) = match unauthenticated_form(request).await {
        Ok(came) => came,
        Err(problem) => return sign_in_page(Some(problem), "/admin"),
    };
    let next = local_redirect_path(form.get("next"));
    let name = form.get("name").trim();
    match pages.sign_in.sign_in(&visitor, name, password(&form, "password")).await {
        Ok(opened) => redirect_signed_in(opened, next),
        Err(problem) => {
            let problem = pages.counter.problem(problem).into_inner();
            render(http_status(problem.code), &SignInPage { problem: Some(problem), next, name })
        }
    }
}

/// The secret of the link is in the URL fragment, which browsers do not send, so the page is the same for every link.
pub(crate) async fn welcome() -> Response {
    render(StatusCode::OK, &WelcomePage { problem: None, name: "admin", link: "" })
}

pub(crate) async fn take_welcome(State(pages): State<Arc<PageState>>, request: Request) -> Response {
    let refused = |problem: Problem, name: &str, link: &str| {
        render(http_status(problem.code), &WelcomePage { problem: Some(problem), name, link })
    };
    let (visitor, form) = match unauthenticated_form(request).await {
        Ok(came) => came,
        Err(problem) => return refused(problem, "admin", ""),
    };
    let (name, link) = (form.get("name").trim(), secret_of(form.get("link")));
    if form.get("password") != form.get("again") {
        let problem = Problem::invalid("the passwords do not match").hint("enter both again");
        return refused(problem, name, link);
    }
    match pages.sign_in.redeem_link(&visitor, link, name, password(&form, "password")).await {
        Ok(opened) => redirect_signed_in(opened, "/admin"),
        Err(problem) => refused(pages.counter.problem(problem).into_inner(), name, link),
    }
}

pub(crate) async fn sign_out(order: FormSubmission) -> Response {
    let FormSubmission { visit, .. } = order;
    match visit.pages().sign_in.sign_out(&visit.session).await {
        Ok(cookie) => with_cookie(see_other("/admin/sign-in"), cookie),
        Err(problem) => visit.error_page(super::frame::NavSection::Settings, problem).await,
    }
}

pub(crate) async fn theme(order: FormSubmission) -> Response {
    let theme = Theme::named(order.form.get("theme")).name();
    let back = see_other(local_redirect_path(order.form.get("back")));
    let cookie = format!("{THEME_COOKIE}={theme}; Path=/admin; SameSite=Strict; Max-Age=31536000");
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => with_cookie(back, cookie),
        Err(_) => back,
    }
}

/// Reads a form sent without a session. There is no CSRF token yet, so the `Origin` is checked instead.
async fn unauthenticated_form(request: Request) -> Result<(Visitor, FormFields), Problem> {
    let (parts, body) = request.into_parts();
    if request_origin(&parts.headers) == RequestOrigin::Elsewhere {
        return Err(Problem::new(ProblemCode::Forbidden, "the form was sent from another site")
            .hint("submit it on this page"));
    }
    Ok((visitor(&parts), FormFields::read(body).await?))
}

pub(crate) fn visitor(parts: &Parts) -> Visitor {
    // Only tests without a connection have no peer address.
    let from = parts.extensions.get::<PeerAddr>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.0);
    Visitor::new(from, &parts.headers)
}

pub(crate) fn password(form: &FormFields, name: &str) -> Password {
    Secret::new(Zeroizing::new(form.get(name).to_owned()))
}

/// Returns the secret of a link: the fragment, if the whole link was entered.
fn secret_of(link: &str) -> &str {
    link.trim().rsplit('#').next().unwrap_or_default()
}

fn redirect_signed_in(opened: NewSession, next: &str) -> Response {
    with_cookie(see_other(next), opened.cookie)
}

pub(crate) fn with_cookie(mut response: Response, cookie: HeaderValue) -> Response {
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}
