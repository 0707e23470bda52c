//! OpenCode with a scripted model calls a real server through the hub.
//!
//! The script and the model are not part of this repository; the check is skipped without them.

use super::CheckTally;
use crate::hub::HubUnderTest;
use crate::layout::Layout;
use crate::node::NodePackages;
use crate::run;
use anyhow::{Result, bail};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The script has a timeout for each of its steps. Half a minute is usual.
const CONVERSATION_LIMIT: Duration = Duration::from_secs(300);
const SUM: &str = "The sum of 2 and 40 is 42.";

pub(super) fn run(layout: &Layout, hub: &HubUnderTest, checks: &mut CheckTally) -> Result<()> {
    let Some(script) = script(layout) else {
        println!("skipped OpenCode: there is no ../shared/fixtures/opencode/e2e.sh");
        return Ok(());
    };
    let packages = NodePackages::packages(layout, "opencode", "OpenCode")?;
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = packages.module(&format!("opencode-linux-{architecture}/bin/opencode"));
    if !program.exists() {
        println!("skipped OpenCode: there is no build of it for this machine");
        return Ok(());
    }
    let url = format!("{}/mcp", hub.url);
    let authorization = format!("Bearer {}", hub.token);
    let remote = json!({ "gate": { "type": "remote", "url": url, "oauth": false, "headers": { "Authorization": authorization } } });
    let local = json!({ "gate": { "type": "local", "command": [
        layout.built("portcullis"), "--home", hub.home, "--mcp"
    ] } });
    for (how, servers) in [("over HTTP", remote), ("on stdio", local)] {
        let result = converse(layout, &script, &program, &servers.to_string());
        checks.note(&format!("OpenCode {how}: calls a server through the hub"), result);
    }
    Ok(())
}

fn script(layout: &Layout) -> Option<PathBuf> {
    let shared = std::env::var_os("PORTCULLIS_SHARED").map(PathBuf::from);
    let shared = shared.or_else(|| Some(layout.root.parent()?.join("shared")))?;
    Some(shared.join("fixtures/opencode/e2e.sh")).filter(|script| script.exists())
}

fn converse(layout: &Layout, script: &PathBuf, program: &PathBuf, servers: &str) -> Result<()> {
    let log = layout.log("upstreams-opencode");
    run::start_log(&log)?;
    let mut command = layout.command("bash");
    command.arg(script).arg(program).arg(servers).args(["gate_everything_get-sum", r#"{"a": 2, "b": 40}"#]);
    command.env("LLM_PORT", free_port()?.to_string()).env("OC_PORT", free_port()?.to_string());
    let outcome = run::logged(&mut command, &log, CONVERSATION_LIMIT, |_| println!("OpenCode …"))?;
    let output = fs::read_to_string(&log)?;
    // The called tool with its result, and the model's reply.
    let called = output
        .lines()
        .any(|line| line.starts_with("tool: gate_everything_get-sum completed") && line.contains(SUM));
    let answered = output.lines().any(|line| line.starts_with("reply:") && line.contains(SUM));
    if !outcome.passed() || !called || !answered {
        bail!("{outcome}\n{output}");
    }
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
