//! What the tool families of a configuration are built from, and the HTTP client that they share.

use crate::config::Config;
use crate::database;
use anyhow::{Context, Error, Result};
use arc_swap::ArcSwap;
use jiff::tz::TimeZone;
use portcullis_core::{ChangeNotifier, Clock, GateHandle, Registry, SystemClock, ToolDef};
use portcullis_egress::{
    CertificateDer, EgressClient, EgressSettings, NoSecrets, SecretSource, SystemResolver,
};
use portcullis_family::{FamilyMode, FamilyParts, SharedEgress};
use portcullis_store::database::Database;
use std::path::Path;
use std::sync::Arc;

/// The configured time zone.
pub type LiveZone = Arc<ArcSwap<TimeZone>>;

pub fn live_zone(config: &Config) -> LiveZone {
    Arc::new(ArcSwap::from_pointee(config.time.zone.clone()))
}

/// Returns what the families of a hub are built from.
pub fn family_parts(
    config: &Config,
    database: &Database,
    secrets: Arc<dyn SecretSource>,
    zone: LiveZone,
    changes: ChangeNotifier,
) -> Result<FamilyParts> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let client = {
        let (config, secrets, clock) = (config.clone(), secrets.clone(), clock.clone());
        move || Ok(egress(&config, secrets.clone(), clock.clone())?)
    };
    Ok(FamilyParts {
        sections: config.sections.clone(),
        root: FamilyParts::open_root(&config.workspace).map_err(Error::from_boxed)?,
        workspace: config.workspace.clone(),
        database: database.clone(),
        clock,
        zone: Arc::new(move || TimeZone::clone(&zone.load())),
        secrets,
        egress: SharedEgress::new(client),
        gate: GateHandle::default(),
        changes,
        mode: FamilyMode::Live,
    })
}

/// Returns what families are built from that are only listed. They get an empty folder as their workspace.
pub fn parts_to_list(
    config: &Config,
    folder: &Path,
    database: &Database,
    changes: ChangeNotifier,
) -> Result<FamilyParts> {
    let mut here = config.clone();
    here.workspace.path = folder.to_owned();
    let parts = family_parts(&here, database, Arc::new(NoSecrets), live_zone(config), changes)?;
    Ok(FamilyParts { mode: FamilyMode::ListOnly, ..parts })
}

/// Builds the HTTP client that all tool families share.
fn egress(config: &Config, secrets: Arc<dyn SecretSource>, clock: Arc<dyn Clock>) -> Result<EgressClient> {
    let settings = EgressSettings {
        exceptions: config.egress.exceptions.clone(),
        per_host: config.egress.per_host,
        extra_roots: extra_roots(config)?,
        ..EgressSettings::default()
    };
    Ok(EgressClient::new(settings, Arc::new(SystemResolver::default()), secrets, clock)?)
}

/// Reads the additional CA certificates.
pub fn extra_roots(config: &Config) -> Result<Vec<CertificateDer<'static>>> {
    let Some(path) = &config.egress.ca_file else { return Ok(Vec::new()) };
    portcullis_egress::certificates(path).with_context(|| format!("`egress.ca_file` is `{}`", path.display()))
}

/// Returns the native tools of a configuration, without a client's scope. Does not touch its data.
pub fn native_tools(config: &Config) -> Result<Vec<Arc<ToolDef>>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let registry = Registry::default();
    let database = database::in_memory(config)?;
    let parts = parts_to_list(config, folder.path(), &database, registry.changes())?;
    portcullis_family::register(config.families, &parts, &registry).map_err(Error::from_boxed)?;
    Ok(registry.tools())
}
