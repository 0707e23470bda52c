//! Coming in and going out: signing in, the first password, signing out, and which colours somebody likes.

use super::form::Form;
use super::frame::Theme;
use super::visit::{Order, THEME_COOKIE, go_to, own_path, shown};
use super::{Pages, words as w};
use crate::problem::{Code, Problem};
use crate::sign_in::{Opened, Password, Sender, Visitor, came_from};
use askama::Template;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use portcullis_core::Secret;
use portcullis_server::http::CameFrom;
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

pub(crate) async fn sign_in(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    let query = Form::parse(request.uri().query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let next = own_path(query.get("next"));
    if pages.sign_in.session(request.headers()).is_some() {
        return go_to(next);
    }
    sign_in_page(None, next)
}

/// Answers with the page where one signs in, and why one has to.
pub(crate) fn sign_in_page(problem: Option<Problem>, next: &str) -> Response {
    let status = problem.as_ref().map_or(StatusCode::OK, |problem| problem.code.status());
    shown(status, &SignInPage { problem, next, name: "" })
}

pub(crate) async fn take_sign_in(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    let (visitor, form) = match stranger(request).await {
        Ok(came) => came,
        Err(problem) => return sign_in_page(Some(problem), "/admin"),
    };
    let next = own_path(form.get("next"));
    let name = form.get("name").trim();
    match pages.sign_in.sign_in(&visitor, name, password(&form, "password")).await {
        Ok(opened) => let_in(opened, next),
        Err(problem) => {
            let problem = pages.counter.problem(problem).into_inner();
            shown(problem.code.status(), &SignInPage { problem: Some(problem), next, name })
        }
    }
}

/// The link has its secret after a `#`, which browsers do not send; so the page is the same for everyone.
pub(crate) async fn welcome() -> Response {
    shown(StatusCode::OK, &WelcomePage { problem: None, name: "admin", link: "" })
}

pub(crate) async fn take_welcome(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    let refused = |problem: Problem, name: &str, link: &str| {
        shown(problem.code.status(), &WelcomePage { problem: Some(problem), name, link })
    };
    let (visitor, form) = match stranger(request).await {
        Ok(came) => came,
        Err(problem) => return refused(problem, "admin", ""),
    };
    let (name, link) = (form.get("name").trim(), secret_of(form.get("link")));
    if form.get("password") != form.get("again") {
        let problem = Problem::invalid("the two passwords are not the same").hint("type both again");
        return refused(problem, name, link);
    }
    match pages.sign_in.welcome(&visitor, link, name, password(&form, "password")).await {
        Ok(opened) => let_in(opened, "/admin"),
        Err(problem) => refused(pages.counter.problem(problem).into_inner(), name, link),
    }
}

pub(crate) async fn sign_out(order: Order) -> Response {
    let Order { visit, .. } = order;
    match visit.pages().sign_in.sign_out(&visit.session).await {
        Ok(cookie) => with_cookie(go_to("/admin/sign-in"), cookie),
        Err(problem) => visit.trouble(super::frame::Place::Settings, problem).await,
    }
}

pub(crate) async fn theme(order: Order) -> Response {
    let theme = Theme::named(order.form.get("theme")).name();
    let back = go_to(own_path(order.form.get("back")));
    let cookie = format!("{THEME_COOKIE}={theme}; Path=/admin; SameSite=Strict; Max-Age=31536000");
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => with_cookie(back, cookie),
        Err(_) => back,
    }
}

/// Someone without a session sends a form. There is no token yet, so where it comes from is what counts.
async fn stranger(request: Request) -> Result<(Visitor, Form), Problem> {
    let (parts, body) = request.into_parts();
    if came_from(&parts.headers) == Sender::Elsewhere {
        return Err(Problem::new(Code::Forbidden, "this form comes from another page").hint("use this one"));
    }
    Ok((visitor(&parts), Form::read(body).await?))
}

pub(crate) fn visitor(parts: &Parts) -> Visitor {
    // Only a test without a connection has no address.
    let from = parts.extensions.get::<CameFrom>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.0);
    Visitor::new(from, &parts.headers)
}

pub(crate) fn password(form: &Form, name: &str) -> Password {
    Secret::new(Zeroizing::new(form.get(name).to_owned()))
}

/// Returns what is after the `#`, if somebody put in the whole link.
fn secret_of(link: &str) -> &str {
    link.trim().rsplit('#').next().unwrap_or_default()
}

fn let_in(opened: Opened, next: &str) -> Response {
    with_cookie(go_to(next), opened.cookie)
}

fn with_cookie(mut response: Response, cookie: HeaderValue) -> Response {
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}
