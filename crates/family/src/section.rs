//! Sections of the configuration file that families declare.

use crate::section_checks::SectionChecks;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A section of the configuration file: its written form, which is the file's grammar, and what it means.
///
/// The JSON schema, the example file and the reference come from the type, so its doc comments are what a user reads. The
/// one of the type says what the section is for. A change of the section needs a restart of the hub.
pub trait ConfigSection: Serialize + DeserializeOwned + JsonSchema + Default + Send + Sync + 'static {
    /// Its name in the file.
    const KEY: &'static str;
    const ABSENT: AbsentSection;
    /// The entry that `init` shows of a list, in TOML: a list has no default to show.
    const EXAMPLE: Option<&'static str> = None;

    /// What the section means.
    type Settings: SectionSettings;

    /// Resolves the section. `None` only after a finding.
    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<Self::Settings>;

    /// Replaces, for display, values of the written form that are not shown.
    fn hide_values(_written: &mut Value) {}
}

/// What a missing section means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsentSection {
    /// The family is off; an empty section turns it on.
    Off,
    /// The same as an empty one.
    Defaults,
}

/// The meaning of a section, whatever its type.
pub trait SectionSettings: Any + fmt::Debug + Send + Sync {}

impl<T: Any + fmt::Debug + Send + Sync> SectionSettings for T {}

/// A section as it was written, whatever its type.
pub trait WrittenSection: Send + Sync {
    /// Returns it as a value, with defaults.
    fn value(&self) -> Value;
    fn settings(&self, checks: &mut SectionChecks<'_>) -> Option<Arc<dyn SectionSettings>>;
}

impl<S: ConfigSection> WrittenSection for S {
    fn value(&self) -> Value {
        json!(self)
    }

    fn settings(&self, checks: &mut SectionChecks<'_>) -> Option<Arc<dyn SectionSettings>> {
        Some(Arc::new(self.resolve(checks)?))
    }
}

/// A [`ConfigSection`] as a value.
#[derive(Clone, Copy)]
pub struct SectionSpec {
    pub key: &'static str,
    pub absent: AbsentSection,
    pub example: Option<&'static str>,
    schema: fn(&mut SchemaGenerator) -> Schema,
    read: fn(Value) -> serde_json::Result<Box<dyn WrittenSection>>,
    default: fn() -> Box<dyn WrittenSection>,
    hide_values: fn(&mut Value),
}

impl SectionSpec {
    pub const fn of<S: ConfigSection>() -> SectionSpec {
        SectionSpec {
            key: S::KEY,
            absent: S::ABSENT,
            example: S::EXAMPLE,
            schema: |generator| generator.subschema_for::<S>(),
            read: |value| Ok(Box::new(serde_json::from_value::<S>(value)?)),
            default: || Box::new(S::default()),
            hide_values: S::hide_values,
        }
    }

    /// Returns its schema, with the default that a missing section has.
    pub fn schema(&self, generator: &mut SchemaGenerator) -> Value {
        let mut schema = (self.schema)(generator).to_value();
        if self.absent == AbsentSection::Defaults {
            schema["default"] = (self.default)().value();
        }
        schema
    }

    /// Reads what was written; `None` if the section is missing and that turns its family off.
    pub fn read(&self, written: Option<Value>) -> serde_json::Result<Option<Box<dyn WrittenSection>>> {
        match (written, self.absent) {
            (Some(written), _) => (self.read)(written).map(Some),
            (None, AbsentSection::Defaults) => Ok(Some((self.default)())),
            (None, AbsentSection::Off) => Ok(None),
        }
    }

    /// Replaces, for display, values of the written form that are not shown.
    pub fn hide_values(&self, written: &mut Value) {
        (self.hide_values)(written);
    }
}

impl fmt::Debug for SectionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionSpec").field("key", &self.key).finish_non_exhaustive()
    }
}

/// What stands for a value that is not shown.
pub const NOT_SHOWN: &str = "[not shown]";

/// Replaces a text that may be a secret itself, unless it refers to one.
pub fn hide_value(value: &mut Value) {
    if value.as_str().is_some_and(|text| !text.contains("secret:")) {
        *value = NOT_SHOWN.into();
    }
}

/// What the sections of a configuration mean.
#[derive(Debug, Clone, Default)]
pub struct Sections(BTreeMap<&'static str, Arc<dyn SectionSettings>>);

impl Sections {
    pub fn insert(&mut self, spec: &SectionSpec, settings: Arc<dyn SectionSettings>) {
        self.0.insert(spec.key, settings);
    }

    /// Returns the settings of a section; `None` if the section turns its family on and is missing.
    pub fn get<S: ConfigSection>(&self) -> Option<&S::Settings> {
        let settings: &dyn Any = self.0.get(S::KEY)?.as_ref();
        settings.downcast_ref()
    }
}
