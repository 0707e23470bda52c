//! What a server offered when it last ran, for one that is started only when somebody needs it.
//!
//! What is kept is shown only while the server is reached in the same way and by the same program as then, and only as
//! far as it fits what a person has looked at: both are compared anew, as if the server had just said it.

use crate::catalog::{Offer, Said};
use crate::flaws::flaws;
use crate::link::Carrier;
use crate::server::{Known, Offered, Server};
use crate::spec::Start;
use crate::trust;
use portcullis_store::offers::Offers;
use portcullis_store::pins::Identity;
use portcullis_wire::Revision;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The part of an identity that a server says itself. The rest is known without asking it.
pub(crate) const SAID_NAME: &str = "server";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    identity: Identity,
    name: Option<String>,
    revision: Option<String>,
    instructions: Option<String>,
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    templates: Vec<Box<RawValue>>,
    /// What was left out of them, and why.
    #[serde(default)]
    dropped: Vec<(String, String)>,
    /// Whether it is reached over HTTP+SSE.
    #[serde(default)]
    sse: bool,
}

/// Shows what the server offered when it last ran. Returns whether anything good is remembered.
pub(crate) async fn recall(server: &Server) -> bool {
    let Start::AtNeed(offers) = &server.spec.start else { return false };
    let Some(kept) = read(offers.clone(), server.spec.name.clone()).await else { return false };
    let facts = trust::facts(&server.spec).await;
    let was = kept.identity.iter().filter(|(fact, _)| *fact != SAID_NAME);
    if !was.eq(facts.iter()) {
        return false;
    }
    let said = |all: Vec<Box<RawValue>>, key: &str| {
        let named = all.into_iter().filter_map(|raw| Some(Said { own: named(&raw, key)?, raw }));
        named.collect::<Vec<_>>()
    };
    let revision = kept.revision.as_deref().and_then(Revision::parse);
    let mut offer = Offer {
        instructions: kept.instructions,
        era: revision.map(Revision::era),
        tools: said(kept.tools, "name"),
        prompts: said(kept.prompts, "name"),
        resources: said(kept.resources, "uri"),
        templates: said(kept.templates, "uriTemplate"),
        dropped: kept.dropped,
        ..Offer::default()
    };
    offer.flaws = flaws(&offer.tools, &[], &offer.flaws).await;
    let snapshot = Arc::new(trust::snapshot(&mut offer, kept.identity));
    // Found out once: whoever needs it next does not wait for that again.
    let carrier = if kept.sse { Carrier::Sse } else { Carrier::Usual };
    server.remember(revision.map(|revision| Known { era: revision.era(), carrier }));
    let revision = revision.map(Revision::as_str);
    server.recalls(Offered { offer, snapshot, name: kept.name, revision });
    true
}

/// Keeps what the server offers now, if it is one that may be asked for it while it does not run.
pub(crate) fn remember(server: &Server, offered: &Offered) {
    let Start::AtNeed(offers) = &server.spec.start else { return };
    let raws = |all: &[Said]| all.iter().map(|said| said.raw.clone()).collect();
    let kept = Kept {
        identity: offered.snapshot.identity.clone(),
        name: offered.name.clone(),
        revision: offered.revision.map(str::to_owned),
        instructions: offered.offer.instructions.clone(),
        tools: raws(&offered.offer.tools),
        prompts: raws(&offered.offer.prompts),
        resources: raws(&offered.offer.resources),
        templates: raws(&offered.offer.templates),
        dropped: offered.offer.dropped.clone(),
        sse: server.known().is_some_and(|known| known.carrier == Carrier::Sse),
    };
    let (offers, name) = (offers.clone(), server.spec.name.clone());
    tokio::task::spawn_blocking(move || {
        let kept = serde_json::to_string(&kept).map_err(|error| error.to_string());
        let done = kept.and_then(|kept| offers.keep(&name, &kept).map_err(|error| error.to_string()));
        // Then it is asked again when the hub next starts.
        if let Err(error) = done {
            tracing::warn!(target: "upstream", server = %name, %error, "What a server offers is not remembered.");
        }
    });
}

async fn read(offers: Arc<Offers>, name: String) -> Option<Kept> {
    let read = tokio::task::spawn_blocking(move || {
        let text = offers.of(&name).map_err(|error| error.to_string())?;
        text.map(|text| serde_json::from_str(&text).map_err(|error| error.to_string())).transpose()
    });
    match read.await {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            tracing::warn!(target: "upstream", %error, "What a server offered is not known any more.");
            None
        }
        Err(_) => None,
    }
}

fn named(raw: &RawValue, key: &str) -> Option<String> {
    let fields: portcullis_wire::params::Fields<'_> = serde_json::from_str(raw.get()).ok()?;
    serde_json::from_str(fields.get(key)?.get()).ok()
}
