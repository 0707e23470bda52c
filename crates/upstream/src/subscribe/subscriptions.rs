//! Resource subscriptions of one upstream server: which client watches which URI, and what the server said to it.

use parking_lot::Mutex;
use portcullis_core::{CatalogChange, ChangeNotifier, ForeignError, WatchState};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::{Notify, watch};

/// By URI: whether a server of the older era accepted the subscription, or how it refused.
pub(crate) type SubscriptionResults = BTreeMap<String, Result<(), ForeignError>>;

pub(crate) struct ResourceSubscriptions {
    /// URIs and the clients that watch them.
    watched: Mutex<BTreeSet<(String, String)>>,
    /// What may have changed since the last connection was lost.
    missed: Mutex<BTreeSet<String>>,
    /// Notified when something else is watched than before.
    pub(crate) changed: Notify,
    pub(crate) results: watch::Sender<SubscriptionResults>,
    changes: ChangeNotifier,
    /// The client that the server belongs to, where it is one client's.
    client: Option<String>,
}

impl ResourceSubscriptions {
    pub(crate) fn new(changes: ChangeNotifier, client: Option<String>) -> ResourceSubscriptions {
        ResourceSubscriptions {
            watched: Mutex::default(),
            missed: Mutex::default(),
            changed: Notify::new(),
            results: watch::Sender::default(),
            changes,
            client,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.watched.lock().is_empty()
    }

    /// Returns the URIs that are watched.
    pub(crate) fn uris(&self) -> BTreeSet<String> {
        self.watched.lock().iter().map(|(uri, _)| uri.clone()).collect()
    }

    /// Returns URIs with the clients that watch them.
    pub(crate) fn all(&self) -> BTreeSet<(String, String)> {
        self.watched.lock().clone()
    }

    /// Returns the watched resources that this one is, or is a part of.
    pub(crate) fn watched_of(&self, uri: &str) -> Vec<String> {
        let watched = self.watched.lock();
        let whole = watched.iter().map(|(whole, _)| whole).filter(|whole| is_part(uri, whole));
        let mut whole: Vec<String> = whole.cloned().collect();
        // The set is ordered by URI, so the same one watched by several clients comes in a row.
        whole.dedup();
        whole
    }

    /// Subscribes or unsubscribes a client. Returns whether that changed anything.
    pub(crate) fn set(&self, uri: &str, client: &str, state: WatchState) -> bool {
        let one = (uri.to_owned(), client.to_owned());
        let mut watched = self.watched.lock();
        let changed = match state {
            WatchState::Wanted => watched.insert(one),
            WatchState::Ended => watched.remove(&one),
        };
        let is_new = changed && watched.iter().filter(|(other, _)| other == uri).count() <= 1;
        drop(watched);
        if is_new {
            // An earlier result no longer counts: the server is asked again.
            self.results.send_modify(|results| drop(results.remove(uri)));
        }
        if changed {
            self.changed.notify_one();
        }
        changed
    }

    /// Takes note that the connection is lost, and with it the notifications.
    pub(crate) fn connection_lost(&self) {
        let watched = self.uris();
        self.missed.lock().extend(watched);
    }

    /// Returns what may have changed unnoticed, to be announced as soon as the server notifies again.
    pub(crate) fn take_missed(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.missed.lock())
    }

    /// Announces a changed resource to those who watch it, or what it is a part of.
    pub(crate) fn announce(&self, uri: String) {
        let watched = self.watched_of(&uri);
        if !watched.is_empty() {
            let client = self.client.clone();
            self.changes.announce(CatalogChange::ResourceUpdatedOf { client, uri, watched });
        }
    }
}

/// Returns whether a URI is `whole`, or below it.
fn is_part(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || whole.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_begins_where_a_name_ends() {
        for (uri, whole, expected) in [
            ("x://a", "x://a", true),
            ("x://a/b", "x://a", true),
            ("x://a/b", "x://a/", true),
            ("x://a", "x://a/", false),
            ("x://ab", "x://a", false),
            ("x://a?b", "x://a", false),
            ("y://a/b", "x://a", false),
        ] {
            assert_eq!(is_part(uri, whole), expected, "{uri} {whole}");
        }
    }
}
