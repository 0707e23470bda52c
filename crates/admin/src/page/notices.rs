//! What just happened, said on the next page. It is kept here and not in the address, where anyone could make it up.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How many sessions may have something to be told. There are never more sessions.
const NOTICES_MAX: usize = 200;

/// What to say, by the session it is for.
#[derive(Default)]
pub(crate) struct Notices(Mutex<HashMap<String, String>>);

impl Notices {
    pub(crate) fn put(&self, session: &str, said: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= NOTICES_MAX && !kept.contains_key(session) {
            // Those who never came to hear it.
            kept.clear();
        }
        kept.insert(session.to_owned(), said);
    }

    /// Returns what is to be said, once.
    pub(crate) fn take(&self, session: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_for_one_session_and_said_once() {
        let notices = Notices::default();
        notices.put("a", "done".to_owned());
        assert_eq!(notices.take("b"), None);
        assert_eq!(notices.take("a").as_deref(), Some("done"));
        assert_eq!(notices.take("a"), None);
        for n in 0..1000 {
            notices.put(&n.to_string(), String::new());
        }
        assert!(notices.0.lock().unwrap().len() <= NOTICES_MAX);
    }
}
