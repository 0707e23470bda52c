//! The page at `/admin`.
//!
//! Templates that the server fills (`templates/`), one stylesheet and a little script of our own (`assets/`). One file
//! here is one page: what it asks the desk, what its forms do, which template shows it. Everything works without the
//! script: a form is sent, and the answer is a page. Errors are shown where the form is.

mod approvals;
mod assets;
mod audit;
mod clients;
mod difference;
mod doors;
mod form;
mod frame;
mod live;
mod notices;
mod now;
mod plot;
mod policy;
mod rows;
mod schema_form;
mod scripts;
mod secrets;
mod servers;
mod settings;
mod tools;
mod visible;
mod visit;
mod words;

pub use visible::Visible;

use crate::problem::Problem;
use crate::sign_in::SignIn;
use crate::{App, Counter};
use axum::Router;
use axum::routing::{get, post};
use notices::Notices;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How many pages may watch at once.
const STREAMS_MAX: usize = 64;

/// What all pages have.
pub(crate) struct Pages {
    counter: Counter,
    sign_in: Arc<SignIn>,
    notices: Notices,
    streams: Arc<Semaphore>,
    closing: CancellationToken,
}

pub(crate) fn router(app: App) -> Router {
    let App { counter, sign_in, closing } = app;
    let streams = Arc::new(Semaphore::new(STREAMS_MAX));
    let has_scripts = counter.has_scripts();
    let pages = Arc::new(Pages { counter, sign_in, notices: Notices::default(), streams, closing });
    let mut router = Router::new()
        .route("/admin", get(now::show))
        .route("/admin/", get(now::show))
        .route("/admin/live", get(live::stream))
        .route("/admin/sign-in", get(doors::sign_in).post(doors::take_sign_in))
        .route("/admin/welcome", get(doors::welcome).post(doors::take_welcome))
        .route("/admin/sign-out", post(doors::sign_out))
        .route("/admin/theme", post(doors::theme))
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
        .route("/admin/settings", get(settings::list))
        .route("/admin/settings/password", post(settings::change_password))
        .route("/admin/settings/sessions", post(settings::end_all))
        .route("/admin/settings/sessions/{id}", post(settings::end_session))
        .route("/admin/assets/{file}", get(assets::serve))
        .route("/admin/{*elsewhere}", get(visit::nothing_here));
    if has_scripts {
        router = router
            .route("/admin/scripts", get(scripts::list).post(scripts::add))
            .route("/admin/scripts/{name}", get(scripts::one).post(scripts::change));
    }
    router.with_state(pages)
}

/// A button that no page of ours has.
fn unknown_order() -> Problem {
    Problem::invalid("the form does not say what to do").hint("load the page again, and use its buttons")
}
