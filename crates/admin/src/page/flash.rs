//! Flash messages: the outcome of a form, shown on the next page. They live in memory, not in the URL, where they could be forged.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Sessions with an unread message. At least the limit on sessions.
const NOTICES_MAX: usize = 200;

/// Unread message by session ID.
#[derive(Default)]
pub(crate) struct FlashMessages(Mutex<HashMap<String, String>>);

impl FlashMessages {
    pub(crate) fn put(&self, session: &str, said: String) {
        let mut messages = self.0.lock();
        if messages.len() >= NOTICES_MAX && !messages.contains_key(session) {
            // Messages of sessions that never loaded another page.
            messages.clear();
        }
        messages.insert(session.to_owned(), said);
    }

    /// Removes and returns the message of a session.
    pub(crate) fn take(&self, session: &str) -> Option<String> {
        self.0.lock().remove(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_for_one_session_and_said_once() {
        let notices = FlashMessages::default();
        notices.put("a", "done".to_owned());
        assert_eq!(notices.take("b"), None);
        assert_eq!(notices.take("a").as_deref(), Some("done"));
        assert_eq!(notices.take("a"), None);
        for n in 0..1000 {
            notices.put(&n.to_string(), String::new());
        }
        assert!(notices.0.lock().len() <= NOTICES_MAX);
    }
}
