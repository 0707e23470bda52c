//! Catalog cache: what a server advertised when it last ran, for one that is started on demand.
//!
//! It is used only while the server is reached in the same way and by the same program, and only as far as it
//! matches the pins: both are compared again, as if the server had just advertised it.

use super::schema_flaws::find_schema_flaws;
use super::snapshot::snapshot;
use super::state::AdvertisedCatalog;
use super::{RawCatalog, RawDefinition};
use crate::rpc::handshake::ProtocolHint;
use crate::spec::{ServerSpec, StartPolicy};
use crate::transport::TransportHint;
use portcullis_core::{detach_blocking, run_blocking};
use portcullis_store::catalogs::CatalogStore;
use portcullis_store::pins::ServerIdentity;
use portcullis_wire::Revision;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The part of an identity that the server states itself. The rest is known without it.
pub(crate) const SAID_NAME: &str = "server";

#[derive(Serialize, Deserialize)]
struct CachedCatalog {
    identity: ServerIdentity,
    name: Option<String>,
    revision: Option<String>,
    instructions: Option<String>,
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    templates: Vec<Box<RawValue>>,
    /// What was dropped, and why.
    #[serde(default)]
    dropped: Vec<(String, String)>,
    /// What its transport left for the next connection.
    #[serde(default)]
    transport_hint: Option<String>,
}

/// Reads what the server advertised when it last ran; `None` where nothing is cached that still holds.
pub(crate) async fn restore(spec: &ServerSpec) -> Option<(AdvertisedCatalog, Option<ProtocolHint>)> {
    let StartPolicy::AtNeed(store) = &spec.start else { return None };
    let kept = read(store.clone(), spec.name.clone()).await?;
    let facts = spec.transport.identity().await;
    let was = kept.identity.iter().filter(|(fact, _)| *fact != SAID_NAME);
    if !was.eq(facts.iter()) {
        return None;
    }
    let said = |all: Vec<Box<RawValue>>, key: &str| {
        let named = all.into_iter().filter_map(|raw| Some(RawDefinition { own: named(&raw, key)?, raw }));
        named.collect::<Vec<_>>()
    };
    let revision = kept.revision.as_deref().and_then(Revision::parse);
    let mut offer = RawCatalog {
        instructions: kept.instructions,
        era: revision.map(Revision::era),
        tools: said(kept.tools, "name"),
        prompts: said(kept.prompts, "name"),
        resources: said(kept.resources, "uri"),
        templates: said(kept.templates, "uriTemplate"),
        dropped: kept.dropped,
        ..RawCatalog::default()
    };
    offer.flaws = find_schema_flaws(&offer.tools, &[], &offer.flaws).await;
    let snapshot = Arc::new(snapshot(&mut offer, kept.identity));
    // Found out once: the next call does not wait for that again.
    let transport = kept.transport_hint.as_deref().map(TransportHint::new);
    let hint = revision.map(|revision| ProtocolHint { era: revision.era(), transport });
    let revision = revision.map(Revision::as_str);
    Some((AdvertisedCatalog { offer, snapshot, name: kept.name, revision }, hint))
}

/// Writes what the server advertises to the cache, for a server that is started on demand.
pub(crate) fn save(spec: &ServerSpec, offered: &AdvertisedCatalog, hint: Option<TransportHint>) {
    let StartPolicy::AtNeed(offers) = &spec.start else { return };
    let raws = |all: &[RawDefinition]| all.iter().map(|said| said.raw.clone()).collect();
    let kept = CachedCatalog {
        identity: offered.snapshot.identity.clone(),
        name: offered.name.clone(),
        revision: offered.revision.map(str::to_owned),
        instructions: offered.offer.instructions.clone(),
        tools: raws(&offered.offer.tools),
        prompts: raws(&offered.offer.prompts),
        resources: raws(&offered.offer.resources),
        templates: raws(&offered.offer.templates),
        dropped: offered.offer.dropped.clone(),
        transport_hint: hint.map(|hint| hint.as_str().to_owned()),
    };
    let (offers, name) = (offers.clone(), spec.name.clone());
    detach_blocking(move || {
        let kept = serde_json::to_string(&kept).map_err(|error| error.to_string());
        let done = kept.and_then(|kept| offers.keep(&name, &kept).map_err(|error| error.to_string()));
        // Then it is read again when the hub next starts.
        if let Err(error) = done {
            tracing::warn!(target: "upstream", server = %name, %error, "catalog could not be cached");
        }
    });
}

async fn read(offers: Arc<CatalogStore>, name: String) -> Option<CachedCatalog> {
    let read = run_blocking(move || {
        let text = offers.of(&name).map_err(|error| error.to_string())?;
        text.map(|text| serde_json::from_str(&text).map_err(|error| error.to_string())).transpose()
    });
    match read.await {
        Some(Ok(kept)) => kept,
        Some(Err(error)) => {
            tracing::warn!(target: "upstream", %error, "cached catalog could not be read");
            None
        }
        None => None,
    }
}

fn named(raw: &RawValue, key: &str) -> Option<String> {
    let fields: portcullis_wire::params::RawMembers<'_> = serde_json::from_str(raw.get()).ok()?;
    serde_json::from_str(fields.get(key)?.get()).ok()
}
