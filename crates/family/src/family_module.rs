//! A family as a whole, and the list of them.

use crate::BoxError;
use crate::family_parts::FamilyParts;
use crate::health_check::{DoctorParts, HealthCheck};
use crate::section::SectionSpec;
use portcullis_core::{BoxFuture, Family, Provider, Registry, Service};
use portcullis_store::FamilyTables;
use std::fmt;
use std::sync::Arc;

/// The families of a hub, in the order in which their tools are listed.
pub type Families = &'static [FamilyModule];

/// The health checks of a family.
pub type FamilyDoctor = for<'a> fn(&'a DoctorParts<'a>) -> BoxFuture<'a, Vec<HealthCheck>>;

/// All that the rest of the program knows of a family.
pub struct FamilyModule {
    /// The name of its provider, and of its row in `/readyz`.
    pub name: &'static str,
    /// Tables of its own, with the files that they replace.
    pub tables: Option<FamilyTables>,
    /// Its section of the configuration.
    pub section: Option<SectionSpec>,
    /// What `doctor` says of it. It needs no running hub, makes no request, and changes nothing
    /// but folders that are missing.
    pub doctor: Option<FamilyDoctor>,
    /// Builds its tools; `None` if it is not configured.
    pub provide: fn(&FamilyParts) -> Result<Option<Provided>, BoxError>,
}

impl fmt::Debug for FamilyModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FamilyModule").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Tells why a family cannot work, for `/readyz`, which is public: no names and no paths.
pub type ReadinessCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A configured family.
pub struct Provided {
    pub family: Family,
    /// What runs by itself beside its calls.
    pub services: Vec<Arc<dyn Service>>,
    pub readiness: Option<ReadinessCheck>,
}

impl From<Family> for Provided {
    fn from(family: Family) -> Provided {
        Provided { family, services: Vec::new(), readiness: None }
    }
}

impl Provided {
    #[must_use]
    pub fn with_service(mut self, service: Arc<dyn Service>) -> Provided {
        self.services.push(service);
        self
    }

    #[must_use]
    pub fn with_readiness(
        mut self,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Provided {
        self.readiness = Some(Arc::new(check));
        self
    }
}

/// What the registered families bring besides tools.
#[derive(Default)]
pub struct RegisteredFamilies {
    pub services: Vec<Arc<dyn Service>>,
    /// By the name of the family.
    pub readiness: Vec<(&'static str, ReadinessCheck)>,
}

/// Registers the configured families.
pub fn register(
    families: Families,
    parts: &FamilyParts,
    into: &Registry,
) -> Result<RegisteredFamilies, BoxError> {
    let mut registered = RegisteredFamilies::default();
    for module in families {
        let Some(Provided { family, services, readiness }) = (module.provide)(parts)? else { continue };
        debug_assert_eq!(Provider::name(&family), module.name);
        into.add(family)?;
        registered.services.extend(services);
        registered.readiness.extend(readiness.map(|check| (module.name, check)));
    }
    Ok(registered)
}

/// Returns the tables of the families. A family that is off has its tables too, so that turning it off loses nothing.
pub fn tables(families: Families) -> Vec<FamilyTables> {
    families.iter().filter_map(|family| family.tables).collect()
}

/// Returns the sections of the families.
pub fn sections(families: Families) -> impl Iterator<Item = &'static SectionSpec> {
    families.iter().filter_map(|family| family.section.as_ref())
}
