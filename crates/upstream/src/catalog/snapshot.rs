//! Snapshot of an advertised catalog: a pin for each definition, for a person to trust.

use super::{RawCatalog, RawDefinition};
use portcullis_core::json::printable;
use portcullis_store::pins::{DefinitionPin, ServerIdentity, ServerSnapshot};
use std::collections::{BTreeMap, HashMap};

/// Drops ambiguous and unreadable definitions, and pins the rest.
pub(crate) fn snapshot(offer: &mut RawCatalog, identity: ServerIdentity) -> ServerSnapshot {
    let mut dropped = Vec::new();
    let tools = pinned(&mut offer.tools, &mut dropped);
    let prompts = pinned(&mut offer.prompts, &mut dropped);
    let templates = pinned(&mut offer.templates, &mut dropped);
    offer.dropped.extend(dropped);
    ServerSnapshot { identity, instructions: offer.instructions.clone(), tools, prompts, templates }
}

fn pinned(
    all: &mut Vec<RawDefinition>,
    dropped: &mut Vec<(String, String)>,
) -> BTreeMap<String, DefinitionPin> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for said in all.iter() {
        *counts.entry(said.own.clone()).or_default() += 1;
    }
    let mut pins = BTreeMap::new();
    all.retain(|said| {
        // The server would choose at every call which of the two it reaches.
        let why = match (counts.get(&said.own), DefinitionPin::of(said.raw.get())) {
            (Some(1), Ok(pin)) => {
                pins.insert(said.own.clone(), pin);
                return true;
            }
            (Some(1), Err(why)) => why,
            _ => "the server offers two of this name".to_owned(),
        };
        let entry = (printable(&said.own), why);
        if !dropped.contains(&entry) {
            dropped.push(entry);
        }
        false
    });
    pins
}
