//! Administrators and their sessions, as `--json` prints them.

use jiff::Timestamp;
use portcullis_store::admins::{AdminInfo, SessionInfo};
use serde::Serialize;

#[derive(Serialize)]
pub struct AdminListing<'a> {
    name: &'a str,
    created: Timestamp,
    password_set: Timestamp,
}

impl AdminListing<'_> {
    pub fn of(admin: &AdminInfo) -> AdminListing<'_> {
        AdminListing { name: &admin.name, created: admin.created, password_set: admin.changed }
    }
}

#[derive(Serialize)]
pub struct SessionListing<'a> {
    id: &'a str,
    admin: &'a str,
    created: Timestamp,
    seen: Timestamp,
    expires: Timestamp,
    from: &'a str,
    browser: &'a str,
}

impl SessionListing<'_> {
    pub fn of(session: &SessionInfo) -> SessionListing<'_> {
        let SessionInfo { id, admin, created, seen, expires, from, browser } = session;
        SessionListing { id, admin, created: *created, seen: *seen, expires: *expires, from, browser }
    }
}
