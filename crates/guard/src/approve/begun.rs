//! Calls that a person let run, and that wait for answers of their client now.
//!
//! One yes covers a call to its end, in however many rounds it comes there. What shows that a call goes on counts once: a
//! round that is sent again, or one for another call, is asked about like any other.

use portcullis_store::approvals::Asked;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How many calls may wait so. Who has more is asked again, which is a nuisance and no danger.
const BEGUN_MAX: usize = 1_000;
/// As long as a client may take to answer.
const BEGUN_FOR: Duration = Duration::from_secs(15 * 60);

#[derive(Default)]
pub(super) struct Begun(Mutex<HashMap<String, One>>);

struct One {
    /// Of the whole call, so that nothing else goes on with it.
    digest: String,
    /// Whose yes it was, for the record.
    approval: String,
    until: Instant,
}

impl Begun {
    /// Remembers a call that ends its round with questions. Returns what shows that it goes on.
    pub(super) fn remember(&self, asked: &Asked, approval: &str) -> Option<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let mark = super::asked::hex(&random);
        let now = Instant::now();
        let mut all = self.lock();
        all.retain(|_, one| one.until > now);
        if all.len() >= BEGUN_MAX {
            return None;
        }
        let (digest, approval) = (asked.digest.clone(), approval.to_owned());
        all.insert(mark.clone(), One { digest, approval, until: now + BEGUN_FOR });
        Some(mark)
    }

    /// Returns whose yes a call goes on with, if it does. That can be done once.
    pub(super) fn take(&self, asked: &Asked, mark: &str) -> Option<String> {
        let mut all = self.lock();
        let one = all.get(mark)?;
        if one.digest != asked.digest || one.until <= Instant::now() {
            return None;
        }
        all.remove(mark).map(|one| one.approval)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, One>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
