//! What a server has said by itself and nobody has looked at yet.
//!
//! Kept is what differs, not what was said: a storm of the same words is one of them, and no other word is lost for it.

use crate::lists::Listed;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How much room the addresses of changed resources may take. Whoever watches so many looks at them all sooner than that.
const UPDATED_BYTES_MAX: usize = 1024 * 1024;
/// What one costs besides its letters.
const UPDATED_BYTES_EACH: usize = 64;
/// So often between two looks it may be said that a list changed before nobody needs to hear it again.
const OFTEN_MAX: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The lists that changed.
    pub(crate) lists: BTreeSet<Listed>,
    /// How often that was said.
    pub(crate) often: usize,
    /// The resources that changed, by their addresses.
    pub(crate) updated: BTreeSet<String>,
    updated_bytes: usize,
    /// Whether it could not be heard for a while, so that any list may have changed.
    pub(crate) missed: bool,
}

impl Heard {
    fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.updated.is_empty() && !self.missed
    }
}

/// Where it is kept until it is taken, by one.
#[derive(Default)]
pub(crate) struct Ear {
    kept: Mutex<Heard>,
    news: Notify,
}

impl Ear {
    /// Hears that a list changed. Returns whether that is of any use.
    pub(crate) fn changed(&self, list: Listed) -> bool {
        let mut kept = self.lock();
        let is_news = kept.lists.insert(list);
        kept.often = kept.often.saturating_add(1);
        let is_needed = is_news || kept.often <= OFTEN_MAX;
        drop(kept);
        self.news.notify_one();
        is_needed
    }

    /// Hears that a resource changed. Returns whether that is of any use.
    pub(crate) fn updated(&self, uri: String) -> bool {
        let mut kept = self.lock();
        let bytes = kept.updated_bytes + uri.len() + UPDATED_BYTES_EACH;
        if kept.updated.contains(&uri) {
            return false;
        }
        if bytes > UPDATED_BYTES_MAX {
            tracing::debug!(target: "upstream", "a server changes more resources than can be told of");
            return false;
        }
        kept.updated_bytes = bytes;
        kept.updated.insert(uri);
        drop(kept);
        self.news.notify_one();
        true
    }

    /// Hears that the server is heard again, and was not for a while.
    pub(crate) fn missed(&self) {
        self.lock().missed = true;
        self.news.notify_one();
    }

    /// Returns whether there is something to take that lists have to be read for.
    pub(crate) fn waits_for_lists(&self) -> bool {
        let kept = self.lock();
        !kept.lists.is_empty() || kept.missed
    }

    /// Waits until there is something to take.
    pub(crate) async fn news(&self) {
        while self.lock().is_empty() {
            self.news.notified().await;
        }
    }

    /// Takes all that there is.
    pub(crate) fn take(&self) -> Heard {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_storm_hides_nothing_that_differs() {
        let ear = Ear::default();
        for number in 0..1_000 {
            assert!(ear.updated(format!("x://{number}")));
            ear.changed(Listed::Tools);
        }
        assert!(!ear.updated("x://7".to_owned()) && !ear.changed(Listed::Tools));
        assert!(ear.changed(Listed::Resources));
        ear.news().await;
        let heard = ear.take();
        assert_eq!(heard.lists, BTreeSet::from([Listed::Tools, Listed::Resources]));
        assert_eq!((heard.updated.len(), heard.often), (1_000, 1_002));
        assert_eq!(ear.take(), Heard::default());
        // Taken, it is news again.
        assert!(ear.updated("x://7".to_owned()));
    }

    #[test]
    fn addresses_take_no_more_room_than_they_may() {
        let ear = Ear::default();
        let long = "x".repeat(UPDATED_BYTES_MAX / 4);
        let kept = (0..10).filter(|number| ear.updated(format!("{number}{long}"))).count();
        assert_eq!(kept, 3);
        assert!(!ear.updated("x".repeat(UPDATED_BYTES_MAX)));
        ear.take();
        assert!(ear.updated(long));
    }
}
