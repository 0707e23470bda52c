//! What a family of native tools declares, in one value: its tools, tables, configuration section, health checks and
//! services.
//!
//! A [`FamilyModule`] is one line in a list of [`Families`]. The configuration, `doctor`, the database and the composition of
//! the hub take what they need from that list, and name no family themselves.

mod family_module;
mod family_parts;
mod finding;
mod health_check;
mod section;
mod section_checks;
mod shared_egress;
mod workspace_settings;

pub use family_module::{
    Families, FamilyDoctor, FamilyModule, Provided, ReadinessCheck, RegisteredFamilies, register, sections,
    tables,
};
pub use family_parts::{FamilyMode, FamilyParts, LiveTimeZone};
pub use finding::{Finding, join, key_path};
pub use health_check::{CheckState, DoctorParts, HealthCheck};
pub use section::{
    AbsentSection, ConfigSection, NOT_SHOWN, SectionSettings, SectionSpec, Sections, WrittenSection,
    hide_value,
};
pub use section_checks::{Environment, SectionChecks, resolve_path};
pub use shared_egress::SharedEgress;
pub use workspace_settings::WorkspaceSettings;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
