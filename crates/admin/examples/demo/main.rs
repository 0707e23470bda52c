//! The admin page with demo data, for page development: `cargo run -p portcullis-admin --example demo`.
//!
//! It prints the link with which to begin. `DEMO_PORT` chooses the port, `DEMO_CALLS_PER_SECOND` how much happens, and
//! `DEMO_FRESH=1` shows a hub after its first start. Browser tests use it for what a real hub cannot be made to show at will.

#![expect(clippy::print_stdout, reason = "a person reads where to look")]

mod approvals;
mod calls;
mod data;
mod desk;
mod scripts;
mod servers;
mod tools;

use arc_swap::ArcSwap;
use desk::DemoDesk;
use jiff::tz::TimeZone;
use portcullis_admin::sign_in::SignIn;
use portcullis_admin::{AdminApp, RedactedDesk, routes};
use portcullis_core::{Scrub, SystemClock};
use portcullis_guard::AuditSettings;
use portcullis_ops::admins::Administrators;
use portcullis_ops::change::ChangeRecorder;
use portcullis_store::admins::AdminStore;
use serde_json::Value;
use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Nothing here is secret.
struct NothingToHide;

impl Scrub for NothingToHide {
    fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }

    fn scrub_value(&self, _: &mut Value) {}

    fn generation(&self) -> u64 {
        0
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let admins =
        Arc::new(AdminStore::open(&portcullis_store::open(folder.path(), &[])?, Arc::new(SystemClock)));
    let link = admins.make_link()?;
    let listener = TcpListener::bind(("127.0.0.1", u16::try_from(number("DEMO_PORT", 0))?)).await?;
    let is_fresh = number("DEMO_FRESH", 0) == 1;
    let desk = Arc::new(if is_fresh { DemoDesk::fresh() } else { DemoDesk::new() });
    tokio::spawn(desk.clone().live(number("DEMO_CALLS_PER_SECOND", 2)));
    let settings = AuditSettings::in_folder(folder.path());
    let changes = ChangeRecorder::Spool { settings, warn: |warning| println!("{warning}") };
    let app = AdminApp {
        counter: RedactedDesk::new(desk, Arc::new(NothingToHide)),
        sign_in: Arc::new(SignIn::new(Arc::new(Administrators::new(admins, changes)), Arc::new(SystemClock))),
        zone: Arc::new(ArcSwap::from_pointee(TimeZone::system())),
        closing: CancellationToken::new(),
    };
    println!("http://{}/admin/welcome#{}", listener.local_addr()?, link.expose());
    axum::serve(listener, routes(app)).await?;
    Ok(())
}
