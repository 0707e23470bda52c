//! `portcullis doctor`: health checks, each with a fix.

use super::hub_client::with_hub;
use super::{block_on, environment};
use crate::home::Home;
use crate::print;
use anyhow::Result;
use portcullis_ops::doctor::{
    CheckState, HealthCheck, HubState, check_approvals, check_clients, check_config, check_egress,
    check_families, check_home, check_hub, check_secrets, check_servers, check_services, check_workspace,
    open_secrets, unreadable,
};
use portcullis_server::local;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, as_json: bool) -> Result<ExitCode> {
    let path = Home::locate(home, environment)?;
    let mut checks = vec![check_home(&path).of("home")];
    if path.is_dir() {
        let home = Home::open(path)?;
        checks.extend(look_inside(&home)?);
    }
    let bad = checks.iter().any(|check| matches!(check.state, CheckState::Bad { .. }));
    if as_json {
        print::json(&json!(checks.iter().map(HealthCheck::listing).collect::<Vec<_>>()));
    } else {
        checks.iter().for_each(|check| print::line(line(check)));
    }
    Ok(ExitCode::from(u8::from(bad)))
}

fn look_inside(home: &Home) -> Result<Vec<HealthCheck>> {
    let (mut checks, config) = check_config(home);
    let Some(config) = config else { return Ok(checks) };
    print::redaction().set_home(home, &config);
    checks.extend([
        check_workspace(&config).of("workspace"),
        check_clients(home, &config).of("clients"),
        check_approvals(home, &config).of("approvals"),
    ]);
    let store = open_secrets(home, &config);
    checks.extend(check_egress(&config));
    checks.extend(block_on(check_families(home, &config, store.as_ref()))?);
    checks.push(store.as_ref().map_or_else(unreadable, check_secrets).of("secrets"));
    let hub = look_at_hub(home)?;
    if !config.mcp.is_empty() {
        let runs = hub.answers();
        checks.extend(check_servers(&config, runs));
    }
    checks.push(check_hub(&config, hub).of("hub"));
    checks.extend(check_services(&config, local::holder(home.path()).map(|hub| hub.pid)));
    Ok(checks)
}

fn look_at_hub(home: &Home) -> Result<HubState> {
    if local::claim(home.path())?.is_some() {
        return Ok(HubState::Stopped);
    }
    let tools =
        block_on(async { with_hub(home, async |link| Ok(link.list("tools/list", "tools").await?)).await })?;
    Ok(match tools {
        Ok(tools) => HubState::Running { tools: tools.len() },
        Err(error) => HubState::Silent(format!("{error:#}")),
    })
}

fn line(check: &HealthCheck) -> String {
    match &check.state {
        CheckState::Good(text) => format!("ok       {:<10} {text}", check.what),
        CheckState::Warning(text) => format!("warning  {:<10} {text}", check.what),
        CheckState::Bad { problem, advice } => {
            format!("PROBLEM  {:<10} {problem}\n         {:<10} {advice}", check.what, "")
        }
    }
}
