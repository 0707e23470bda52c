//! `cargo xtask upstreams`: real servers from the registries as upstreams of the built program.
//!
//! All of them are upstreams of one hub at the same time. Each has to connect, to list its tools, and to
//! execute a call with a known result. After the hub has ended, none of its processes may still run. Then
//! OpenCode calls one of them through the hub, if the scripted model that it needs is available.

mod local_page;
mod mcp_http;
mod opencode;
mod servers;

use crate::hub::{self, HubUnderTest};
use crate::layout::Layout;
use crate::node::renew;
use crate::run::{self, StopMethod};
use crate::steps;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use servers::RealServer;
use std::time::{Duration, Instant};

/// Timeout until all servers are connected. A cold interpreter takes seconds.
const CONNECTED_LIMIT: Duration = Duration::from_secs(60);
/// Timeout until the hub's processes are gone after it.
const GONE_LIMIT: Duration = Duration::from_secs(5);

/// Runs every server and every check, and returns whether all passed.
pub(crate) fn run(layout: &Layout) -> Result<bool> {
    let page = local_page::LocalPage::open()?;
    let mut world = servers::install(layout, &page)?;
    steps::build(layout)?;
    let home = layout.work("upstreams");
    renew(&home)?;
    let servers = world.prepare(layout, &home)?;
    let written: String = servers.iter().map(RealServer::section).collect();
    std::fs::write(home.join("portcullis.toml"), written)?;
    let hub = HubUnderTest::start(layout, home, "upstreams-hub")?;
    let mut checks = CheckTally::default();
    let began = Instant::now();
    wait_until_connected(layout, &hub)?;
    println!("{} servers in {:.1} s", servers.len(), began.elapsed().as_secs_f32());
    for server in &servers {
        checks.note(&format!("{}: is connected", server.name), check_connected(layout, &hub, server));
        for check in &server.checks {
            let what = format!("{}: {}", server.name, check.what);
            checks.note(&what, check.make(&hub, server));
        }
    }
    for skipped in &world.skipped {
        println!("skipped {skipped}");
    }
    opencode::run(layout, &hub, &mut checks)?;
    let started = hub.process.descendants();
    checks.note("The hub has started processes", ensure(!started.is_empty(), "nothing"));
    let ended = hub.process.end(StopMethod::BySignal)?;
    checks.note("The hub ends on SIGTERM", ensure(ended.passed(), &ended.to_string()));
    checks.note("Nothing is left running", gone(&started, GONE_LIMIT));
    checks.end()
}

/// Totals of the checks.
#[derive(Default)]
pub(crate) struct CheckTally {
    passed: usize,
    failed: Vec<String>,
}

impl CheckTally {
    fn note(&mut self, what: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => {
                println!("ok     {what}");
                self.passed += 1;
            }
            Err(error) => {
                println!("FAILED {what}: {error:#}");
                self.failed.push(what.to_owned());
            }
        }
    }

    fn end(self) -> Result<bool> {
        println!("\n{} checks passed, {} failed", self.passed, self.failed.len());
        self.failed.iter().for_each(|what| println!("FAILED {what}"));
        Ok(self.failed.is_empty() && self.passed > 0)
    }
}

fn ensure(good: bool, otherwise: &str) -> Result<()> {
    if good { Ok(()) } else { bail!("{otherwise}") }
}

/// Returns the output of `mcp status` for all servers.
fn statuses(layout: &Layout, hub: &HubUnderTest) -> Result<Vec<Value>> {
    let output = hub::portcullis(layout, &hub.home).args(["mcp", "status", "--json"]).output()?;
    let status: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("`mcp status`: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(status["servers"].as_array().cloned().unwrap_or_default())
}

/// Waits until all servers are connected. The check of a server reports a timeout.
fn wait_until_connected(layout: &Layout, hub: &HubUnderTest) -> Result<()> {
    let began = Instant::now();
    loop {
        let statuses = statuses(layout, hub)?;
        let is_connected = |status: &Value| status["status"] == "connected";
        if statuses.iter().all(is_connected) || began.elapsed() > CONNECTED_LIMIT {
            return Ok(());
        }
        run::pause();
    }
}

fn check_connected(layout: &Layout, hub: &HubUnderTest, server: &RealServer) -> Result<()> {
    let statuses = statuses(layout, hub)?;
    let status = statuses.iter().find(|status| status["name"] == server.name).context("no such server")?;
    if status["status"] != "connected" || status["tools"].as_u64() == Some(0) {
        bail!("{status}");
    }
    match server.revision {
        Some(revision) if status["revision"] != revision => bail!("not {revision}: {status}"),
        _ => Ok(()),
    }
}

/// Waits until none of these processes runs.
fn gone(ids: &[u32], limit: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let left: Vec<u32> = ids.iter().copied().filter(|id| run::is_running(*id)).collect();
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > limit {
            let names =
                left.iter().map(|id| std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default());
            bail!(
                "{} processes: {}",
                left.len(),
                names.map(|name| name.trim().to_owned()).collect::<Vec<_>>().join(", ")
            );
        }
        run::pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_still_runs_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let error = gone(&[child.id()], Duration::ZERO).unwrap_err().to_string();
        assert_eq!(error, "1 processes: sleep");
        child.kill().unwrap();
        child.wait().unwrap();
        gone(&[child.id()], Duration::ZERO).unwrap();
    }

    #[test]
    fn one_failed_check_fails_all_and_none_is_no_success() {
        let mut checks = CheckTally::default();
        checks.note("good", Ok(()));
        checks.note("bad", Err(anyhow::anyhow!("why")));
        assert!(!checks.end().unwrap());
        assert!(!CheckTally::default().end().unwrap());
    }
}
