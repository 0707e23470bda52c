//! Administrators: accounts, one-time links, sessions, passwords.
//!
//! Every change is recorded, except authentication: signing in, signing out and redeeming a link work while nothing can be
//! recorded, so that an administrator can find the cause.

use crate::change::ChangeRecorder;
use crate::{Actor, Problem, ProblemCode};
use portcullis_core::{Secret, counted};
use portcullis_store::admins::{AdminError, AdminInfo, AdminStore, NewPassword, SessionInfo};
use serde_json::json;
use std::sync::Arc;

/// The administrators of a hub, in the hub or in the process of a command.
pub struct Administrators {
    store: Arc<AdminStore>,
    changes: ChangeRecorder,
}

/// Sessions that were ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedSessions {
    One,
    All { count: usize },
}

/// An administrator who was removed.
#[derive(Debug)]
pub struct RemovedAdmin(pub AdminInfo);

/// A password that was changed.
#[derive(Debug)]
pub struct ChangedPassword(pub AdminInfo);

impl EndedSessions {
    pub fn count(self) -> usize {
        match self {
            EndedSessions::One => 1,
            EndedSessions::All { count } => count,
        }
    }

    /// Returns what was done, in one sentence.
    pub fn sentence(self) -> String {
        match self {
            EndedSessions::One => "Ended the session.".to_owned(),
            EndedSessions::All { count } => format!("Ended {}.", counted(count, "session")),
        }
    }
}

impl RemovedAdmin {
    /// Returns what was done, in one sentence.
    pub fn sentence(&self) -> String {
        format!("Removed administrator `{}`.", self.0.name)
    }
}

impl ChangedPassword {
    /// Returns what was done, in one sentence.
    pub fn sentence(&self) -> String {
        "Changed the password; your other sessions are signed out.".to_owned()
    }
}

impl Administrators {
    pub fn new(store: Arc<AdminStore>, changes: ChangeRecorder) -> Administrators {
        Administrators { store, changes }
    }

    /// Returns the store, for authentication.
    pub fn store(&self) -> &Arc<AdminStore> {
        &self.store
    }

    /// The user of a command, who may see everything, is told what is wrong with the database.
    fn problem(&self, error: AdminError) -> Problem {
        match (&self.changes, &error) {
            (ChangeRecorder::Spool { .. }, AdminError::Damaged(_) | AdminError::Database(_)) => {
                Problem::unavailable(error.to_string()).hint("`portcullis store check` says more")
            }
            _ => admin_problem(error),
        }
    }

    /// Returns the administrators, oldest account first.
    pub fn list(&self) -> Result<Vec<AdminInfo>, Problem> {
        self.store.list().map_err(|error| self.problem(error))
    }

    /// Returns the valid sessions, oldest first.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, Problem> {
        self.store.sessions().map_err(|error| self.problem(error))
    }

    /// Makes a one-time link to set a password.
    pub fn make_link(&self, by: &Actor) -> Result<Secret<String>, Problem> {
        self.changes.record(by, "admin.link", json!({}), || {
            self.store.make_link().map_err(|error| self.problem(error))
        })
    }

    /// Removes an administrator and ends their sessions.
    pub fn remove(&self, name: &str, by: &Actor) -> Result<RemovedAdmin, Problem> {
        self.changes.record(by, "admin.remove", json!({ "name": name }), || {
            self.store.remove(name).map(RemovedAdmin).map_err(|error| self.problem(error))
        })
    }

    /// Ends one session of any administrator.
    pub fn end_session(&self, id: &str, by: &Actor) -> Result<EndedSessions, Problem> {
        self.changes.record(by, "admin.sign_out", json!({ "id": id, "all": false }), || {
            self.store.end_session(id).map(|()| EndedSessions::One).map_err(|error| self.problem(error))
        })
    }

    /// Ends all sessions of all administrators.
    pub fn end_all_sessions(&self, by: &Actor) -> Result<EndedSessions, Problem> {
        self.changes.record(by, "admin.sign_out", json!({ "id": null, "all": true }), || {
            let count = self.store.end_sessions(None).map_err(|error| self.problem(error))?;
            Ok(EndedSessions::All { count })
        })
    }

    /// Changes the password of an administrator who has proved to know the old one. Ends their sessions except `keep`.
    pub fn change_password(
        &self,
        name: &str,
        password: NewPassword,
        keep: &str,
    ) -> Result<ChangedPassword, Problem> {
        self.changes.record(&Actor::administrator(name), "admin.password", json!({ "name": name }), || {
            self.store
                .change_password(name, password, keep)
                .map(ChangedPassword)
                .map_err(|error| self.problem(error))
        })
    }
}

/// Maps store errors to problems; details of a database error go to the log only.
pub fn admin_problem(error: AdminError) -> Problem {
    let code = match &error {
        AdminError::Name(_) | AdminError::ShortPassword(_) | AdminError::LongPassword => ProblemCode::Invalid,
        AdminError::Link => ProblemCode::Forbidden,
        AdminError::Unknown(_) | AdminError::UnknownSession(_) => ProblemCode::NotFound,
        AdminError::Full => ProblemCode::Conflict,
        AdminError::Damaged(_) | AdminError::Database(_) => {
            tracing::error!(target: "admin", %error, "administrators unusable");
            return Problem::unavailable(
                "the administrators cannot be read or written, so no administrator can sign in",
            )
            .hint("see the hub's log for the cause, or run `portcullis doctor`");
        }
        AdminError::Hash(_) | AdminError::Random(_) | AdminError::Panicked(_) => ProblemCode::Internal,
    };
    Problem::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::SystemClock;
    use portcullis_guard::AuditSettings;
    use serde_json::Value;

    /// Returns the actions in the spool, each with its outcome.
    fn spooled(folder: &std::path::Path) -> Vec<(String, String)> {
        let files = std::fs::read_dir(folder.join("audit")).into_iter().flatten().flatten();
        let text: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let word = |value: &Value| value.as_str().map(str::to_owned);
        lines.filter_map(|line| Some((word(&line["action"])?, word(&line["outcome"])?))).collect()
    }

    #[test]
    fn every_change_but_authentication_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let database = portcullis_store::open(folder.path(), &[]).unwrap();
        let store = Arc::new(AdminStore::open(&database, Arc::new(SystemClock)));
        let settings = AuditSettings::in_folder(folder.path());
        let changes = ChangeRecorder::Spool { settings, warn: |_| {} };
        let (admins, by) = (Administrators::new(store, changes), Actor::LocalUser { uid: 7 });

        let link = admins.make_link(&by).unwrap();
        let password = || NewPassword::new(&Secret::new("correct horse battery".to_owned().into())).unwrap();
        admins.store().redeem_link(link.expose(), "ann", password()).unwrap();
        let open = || admins.store().open_session("ann", &Default::default()).unwrap().1;
        let (first, second) = (open(), open());
        let changed = admins.change_password("ann", password(), &first.id).unwrap();
        assert_eq!(changed.sentence(), "Changed the password; your other sessions are signed out.");
        // The other session is gone.
        assert_eq!(admins.end_session(&second.id, &by).unwrap_err().code, ProblemCode::NotFound);
        assert_eq!(admins.end_session(&first.id, &by).unwrap().sentence(), "Ended the session.");
        open();
        assert_eq!(admins.end_all_sessions(&by).unwrap().sentence(), "Ended 1 session.");
        assert_eq!(admins.remove("ann", &by).unwrap().sentence(), "Removed administrator `ann`.");

        let expected = [
            ("admin.link", "ok"),
            ("admin.password", "ok"),
            ("admin.sign_out", "not_found"),
            ("admin.sign_out", "ok"),
            ("admin.sign_out", "ok"),
            ("admin.remove", "ok"),
        ];
        let expected = expected.map(|(action, outcome)| (action.to_owned(), outcome.to_owned()));
        assert_eq!(spooled(folder.path()), expected);
    }
}
