//! The tool families of a configuration, and the HTTP client that they share.

use crate::config::{Config, VaultSettings};
use crate::{database, script_sandbox};
use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use jiff::tz::TimeZone;
use portcullis_core::{Clock, Registry, SystemClock, ToolDef};
use portcullis_egress::{
    CertificateDer, EgressClient, EgressSettings, NoSecrets, SecretSource, SystemResolver,
};
use portcullis_tools::{
    CalendarConfig, GithubConfig, ScriptsConfig, SyncConfig, SyncTimes, ToolsConfig, VaultConfig, WebConfig,
};
use std::sync::Arc;
use std::time::Duration;

/// Retry interval of a failed vault push.
const PUSH_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The configured time zone.
pub type LiveZone = Arc<ArcSwap<TimeZone>>;

pub fn live_zone(config: &Config) -> LiveZone {
    Arc::new(ArcSwap::from_pointee(config.time.zone.clone()))
}

fn vault_config(vault: &VaultSettings, secrets: Arc<dyn SecretSource>) -> VaultConfig {
    let sync = vault.sync.as_ref().map(|sync| SyncConfig {
        address: sync.address.clone(),
        user: sync.user.clone(),
        token: sync.token.clone(),
        secrets,
        author: sync.author.clone(),
        times: SyncTimes { pull_after: sync.pull_after, within: sync.within, retry_after: PUSH_RETRY_AFTER },
        at_start: true,
    });
    VaultConfig { path: vault.path.clone(), sync }
}

pub fn tools(
    config: &Config,
    secrets: Arc<dyn SecretSource>,
    zone: LiveZone,
    scripts: Option<ScriptsConfig>,
) -> Result<ToolsConfig> {
    let local = ToolsConfig::local(config.workspace.data_dir(), config.prompts.path.clone());
    let local = ToolsConfig {
        workspace: config.workspace.enabled,
        memory: config.memory.enabled,
        vault: config.vault.as_ref().map(|vault| vault_config(vault, secrets.clone())),
        scripts,
        ..local
    };
    if config.web.is_none() && config.calendars.is_empty() && config.github.is_none() {
        return Ok(local);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let egress = Arc::new(egress(config, secrets, clock.clone())?);
    let local = local.with_egress(&egress);
    let web = config.web.as_ref().map(|web| WebConfig {
        egress: egress.clone(),
        clock: clock.clone(),
        plain_http: web.plain_http,
        respect_robots: web.respect_robots,
        user_agent: web.user_agent.clone(),
        allow: web.allow.clone(),
        deny: web.deny.clone(),
    });
    let calendars = (!config.calendars.is_empty()).then(|| CalendarConfig {
        egress: egress.clone(),
        clock: clock.clone(),
        zone: Arc::new(move || TimeZone::clone(&zone.load())),
        calendars: config.calendars.clone(),
    });
    let github = config.github.as_ref().map(|github| GithubConfig {
        egress: egress.clone(),
        clock: clock.clone(),
        base_url: github.base_url.clone(),
        token: github.token.clone(),
        repositories: github.repositories.clone(),
    });
    Ok(ToolsConfig { web, calendars, github, ..local })
}

/// Builds the HTTP client that all tool families share, so that rate limits and bounds apply to all together.
pub fn egress(
    config: &Config,
    secrets: Arc<dyn SecretSource>,
    clock: Arc<dyn Clock>,
) -> Result<EgressClient> {
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
    let (workspace_root, prompts_dir) = (folder.path().join("ai-data"), folder.path().join("prompts"));
    let database = database::in_memory()?;
    let scripts = config.scripts.enabled.then(|| script_sandbox::nowhere(config, &database));
    let mut tools = ToolsConfig {
        workspace_root,
        prompts_dir,
        ..tools(config, Arc::new(NoSecrets), live_zone(config), scripts)?
    };
    if let Some(vault) = &mut tools.vault {
        vault.path = folder.path().join("vault");
        vault.sync.iter_mut().for_each(|sync| sync.at_start = false);
    }
    let registry = Registry::default();
    portcullis_tools::register(&tools, &registry).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(registry.tools())
}
