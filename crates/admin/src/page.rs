//! The admin page at `/admin`: server-rendered HTML.
//!
//! Templates are in `templates/`, the stylesheet and scripts in `assets/`. One module here is one section: its queries
//! to the desk, its form handlers, its template. Everything works without JavaScript. An error is shown next to the form
//! that caused it.

mod approvals;
mod assets;
mod audit;
mod chart;
mod clients;
mod difference;
mod flash;
mod form;
mod formatting;
mod frame;
mod html_escaper;
mod live;
mod metrics;
mod now;
mod page_request;
mod policy;
mod rows;
mod schema_form;
mod scripts;
mod secrets;
mod servers;
mod settings;
mod setup_checklist;
mod sign_in_pages;
mod tools;

pub use html_escaper::HtmlEscaper;

use crate::sign_in::SignIn;
use crate::{AdminApp, RedactedDesk};
use axum::Router;
use axum::routing::{get, post};
use flash::FlashMessages;
use portcullis_ops::Problem;
use portcullis_ops::tool_families::LiveZone;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Concurrent live streams.
const STREAMS_MAX: usize = 64;

/// State shared by all pages.
pub(crate) struct PageState {
    counter: RedactedDesk,
    sign_in: Arc<SignIn>,
    notices: FlashMessages,
    streams: Arc<Semaphore>,
    closing: CancellationToken,
    zone: LiveZone,
}

pub(crate) fn router(app: AdminApp) -> Router {
    let AdminApp { counter, sign_in, closing, zone } = app;
    let streams = Arc::new(Semaphore::new(STREAMS_MAX));
    let has_scripts = counter.has_scripts();
    let notices = FlashMessages::default();
    let pages = Arc::new(PageState { counter, sign_in, notices, streams, closing, zone });
    let mut router = Router::new()
        .route("/", get(async || page_request::see_other("/admin")))
        .route("/admin", get(now::show))
        .route("/admin/", get(now::show))
        .route("/admin/live", get(live::stream))
        .route("/admin/sign-in", get(sign_in_pages::sign_in).post(sign_in_pages::take_sign_in))
        .route("/admin/welcome", get(sign_in_pages::welcome).post(sign_in_pages::take_welcome))
        .route("/admin/sign-out", post(sign_in_pages::sign_out))
        .route("/admin/setup", post(setup_checklist::dismiss))
        .route("/admin/metrics", get(metrics::show))
        .route("/admin/theme", post(sign_in_pages::theme))
        .route("/admin/approvals", get(approvals::list))
        .route("/admin/approvals/{id}", get(approvals::one).post(approvals::decide))
        .route("/admin/servers", get(servers::list).post(servers::add))
        .route("/admin/servers/import", post(servers::import))
        .route("/admin/servers/{name}", get(servers::one).post(servers::change))
        .route("/admin/tools", get(tools::list))
        .route("/admin/tools/{name}", get(tools::one).post(tools::try_it))
        .route("/admin/clients", get(clients::list).post(clients::add))
        .route("/admin/clients/{name}", post(clients::change))
        .route("/admin/secrets", get(secrets::list).post(secrets::add))
        .route("/admin/secrets/{name}", post(secrets::change))
        .route("/admin/policy", get(policy::show))
        .route("/admin/policy/rules", post(policy::change))
        .route("/admin/audit", get(audit::search))
        .route("/admin/audit/verify", post(audit::verify))
        .route("/admin/audit/{seq}", get(audit::story))
        .route("/admin/audit/call/{call}", get(audit::of_call))
        .route("/admin/settings", get(settings::list))
        .route("/admin/settings/password", post(settings::change_password))
        .route("/admin/settings/sessions", post(settings::end_all))
        .route("/admin/settings/sessions/{id}", post(settings::end_session))
        .route("/admin/assets/{file}", get(assets::serve))
        .route("/admin/{*elsewhere}", get(page_request::not_found_page));
    if has_scripts {
        router = router
            .route("/admin/scripts", get(scripts::list).post(scripts::add))
            .route("/admin/scripts/{name}", get(scripts::one).post(scripts::change));
    }
    router.with_state(pages)
}

/// The error for a form action that no page has.
fn unknown_action() -> Problem {
    Problem::invalid("unknown form action").hint("reload the page and use its buttons")
}
