//! Who wants to be told of which resources of a server.

use super::{Server, lock};
use portcullis_core::ToolError;
use std::collections::BTreeSet;

impl Server {
    pub(crate) fn watched(&self) -> BTreeSet<String> {
        lock(&self.watched).iter().map(|(uri, _)| uri.clone()).collect()
    }

    /// Hears that the connection is lost, so that nobody hears of changes of what is watched.
    pub(crate) fn goes_unheard(&self) {
        let watched = self.watched();
        lock(&self.unheard).extend(watched);
    }

    /// Returns what may have changed unheard, to be told of as soon as the server tells of changes again.
    pub(crate) fn take_unheard(&self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.unheard))
    }

    /// Returns what is watched of which this resource is all or a part.
    pub(crate) fn watched_of(&self, uri: &str) -> Vec<String> {
        let watched = lock(&self.watched);
        let whole = watched.iter().map(|(whole, _)| whole).filter(|whole| is_part(uri, whole));
        let mut whole: Vec<String> = whole.cloned().collect();
        // In their order, so those of several clients stand together.
        whole.dedup();
        whole
    }

    /// Returns who wants to be told of what: addresses, and clients.
    pub(crate) fn watches(&self) -> BTreeSet<(String, String)> {
        lock(&self.watched).clone()
    }

    /// Hears that a client begins, or wants no longer, to be told of a resource.
    pub(crate) fn watch(&self, uri: &str, client: &str, wanted: bool) {
        let one = (uri.to_owned(), client.to_owned());
        let mut watched = lock(&self.watched);
        let changed = if wanted { watched.insert(one) } else { watched.remove(&one) };
        let is_new = changed && watched.iter().filter(|(other, _)| other == uri).count() <= 1;
        drop(watched);
        if is_new {
            // Whatever was said before, it is asked again.
            self.subscribed.send_modify(|said| drop(said.remove(uri)));
        }
        if changed {
            self.watch_changed.notify_one();
            self.uses.changed.notify_waiters();
        }
    }

    /// Says why changes of a resource that is watched will not be told. One that cannot be asked now is asked when it can.
    pub(crate) async fn is_told(&self, uri: &str) -> Result<(), ToolError> {
        let Some(connection) = self.live.get().filter(|connection| !connection.is_modern()) else {
            return Ok(());
        };
        let mut subscribed = self.subscribed.subscribe();
        let said = tokio::select! {
            said = subscribed.wait_for(|said| said.contains_key(uri)) => said.ok().and_then(|said| said.get(uri).cloned()),
            () = connection.inbox.retired.cancelled() => None,
            () = self.stop.cancelled() => None,
        };
        match said {
            Some(Err(error)) => Err(ToolError::foreign(&self.spec.name, error)),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

/// Returns whether an address is that of `whole`, or of something below it.
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
