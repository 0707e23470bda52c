//! A whole file: the sections of this crate, and those that the families declare.

use super::{WrittenConfig, hide_values};
use portcullis_family::{Families, SectionSpec, WrittenSection, sections};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// Lets an editor find the schema; ignored by the hub.
pub(crate) const SCHEMA_KEY: &str = "$schema";
/// The section behind which those of the families are shown.
const BEFORE_FAMILIES: &str = "workspace";

/// A file as it was written, with defaults.
#[derive(Clone)]
pub(crate) struct WrittenDocument {
    pub(crate) core: WrittenConfig,
    /// Without those that are missing and have no default.
    pub(crate) sections: Vec<(&'static SectionSpec, Arc<dyn WrittenSection>)>,
}

impl WrittenDocument {
    /// Reads a document. The schema has been checked, so an error tells little.
    pub(crate) fn read(mut document: Value, families: Families) -> serde_json::Result<WrittenDocument> {
        let mut written = Vec::new();
        if let Value::Object(members) = &mut document {
            members.shift_remove(SCHEMA_KEY);
            for spec in sections(families) {
                let section = spec.read(members.shift_remove(spec.key))?;
                written.extend(section.map(|section| (spec, Arc::from(section))));
            }
        }
        Ok(WrittenDocument { core: WrittenConfig::deserialize(document)?, sections: written })
    }

    /// Returns the file with defaults.
    pub(crate) fn value(&self) -> Value {
        self.value_with(|_, section| section.value())
    }

    /// Returns the file with defaults, redacted.
    pub(crate) fn shown(&self) -> Value {
        let mut shown = self.value_with(|spec, section| {
            let mut value = section.value();
            spec.hide_values(&mut value);
            value
        });
        hide_values(&mut shown);
        shown
    }

    fn value_with(&self, value: impl Fn(&SectionSpec, &dyn WrittenSection) -> Value) -> Value {
        let mut all = json!(self.core);
        insert_sections(
            &mut all,
            self.sections.iter().map(|(spec, section)| (spec.key, value(spec, &**section))),
        );
        all
    }
}

impl fmt::Debug for WrittenDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrittenDocument({})", self.shown())
    }
}

/// Puts the sections of families among the others.
pub(super) fn insert_sections(all: &mut Value, sections: impl Iterator<Item = (&'static str, Value)>) {
    let Value::Object(members) = all else { return };
    let before = members.keys().position(|key| key == BEFORE_FAMILIES);
    let at = before.map_or(members.len(), |at| at + 1);
    for (offset, (key, value)) in sections.enumerate() {
        members.shift_insert(at + offset, key.to_owned(), value);
    }
}
