//! Resource links in a server's results. They can be read there, whether the server lists them or not.

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// How many URIs of one server are remembered; the oldest are dropped first.
const ADDRESSES_MAX: usize = 1_000;
/// The longest URI. Together they take 2 MB at most.
const ADDRESS_BYTES_MAX: usize = 2 * 1024;
/// A substring of every result with a link.
const NAMED: &str = "\"resource";

/// The links of one server.
#[derive(Default)]
pub(crate) struct ResourceLinks(Mutex<LinkSet>);

#[derive(Default)]
struct LinkSet {
    all: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

/// A result of a tool or a prompt, as far as it can contain links.
#[derive(Deserialize)]
struct ResultLinks<'a> {
    #[serde(borrow, default)]
    content: Vec<Item<'a>>,
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Item<'a>,
}

/// A link has a URI, and an embedded resource has one inside.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource: Option<Embedded<'a>>,
}

#[derive(Deserialize)]
struct Embedded<'a> {
    #[serde(borrow)]
    uri: Option<Cow<'a, str>>,
}

impl<'a> Item<'a> {
    fn address(self) -> Option<Cow<'a, str>> {
        match &*self.kind {
            "resource_link" => self.uri,
            "resource" => self.resource.and_then(|resource| resource.uri),
            _ => None,
        }
    }
}

impl ResourceLinks {
    /// Collects the links of a result.
    pub(crate) fn look(&self, result: &RawValue) {
        // Most results have none, and are passed on unparsed.
        if !result.get().contains(NAMED) {
            return;
        }
        // A result of another shape has none that a client could find.
        let Ok(names) = serde_json::from_str::<ResultLinks<'_>>(result.get()) else { return };
        let items =
            names.content.into_iter().chain(names.messages.into_iter().map(|message| message.content));
        let addresses = items.filter_map(Item::address).filter(|address| address.len() <= ADDRESS_BYTES_MAX);
        let mut known = self.0.lock();
        for address in addresses.take(ADDRESSES_MAX) {
            known.add(&address);
        }
    }

    pub(crate) fn has(&self, uri: &str) -> bool {
        self.0.lock().all.contains(uri)
    }
}

impl LinkSet {
    fn add(&mut self, address: &str) {
        if self.all.contains(address) {
            return;
        }
        if self.order.len() >= ADDRESSES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        let address: Arc<str> = address.into();
        self.all.insert(address.clone());
        self.order.push_back(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn links_and_what_is_embedded_are_remembered_and_the_oldest_forgotten() {
        let linked = ResourceLinks::default();
        let look =
            |result: serde_json::Value| linked.look(&RawValue::from_string(result.to_string()).unwrap());
        look(json!({ "content": [
            { "type": "text", "text": "a \"resource\" b", "uri": "no://text" },
            { "type": "resource_link", "uri": "a://link", "name": "A", "new": [1] },
            { "type": "resource", "resource": { "uri": "a://embedded", "text": "x" } },
            { "type": "resource_link", "uri": "x".repeat(ADDRESS_BYTES_MAX + 1) },
        ] }));
        look(
            json!({ "messages": [{ "role": "user", "content": { "type": "resource_link", "uri": "a://prompt" } }] }),
        );
        look(json!({ "content": "resource_link" }));
        for (uri, is_known) in [
            ("a://link", true),
            ("a://embedded", true),
            ("a://prompt", true),
            ("no://text", false),
            (&"x".repeat(ADDRESS_BYTES_MAX + 1), false),
        ] {
            assert_eq!(linked.has(uri), is_known, "{uri}");
        }
        for number in 0..ADDRESSES_MAX {
            look(json!({ "content": [{ "type": "resource_link", "uri": format!("b://{number}") }] }));
        }
        assert!(!linked.has("a://link") && linked.has("b://0"));
        assert_eq!(linked.0.lock().all.len(), ADDRESSES_MAX);
    }
}
