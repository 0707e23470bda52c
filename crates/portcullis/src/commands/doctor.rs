//! `portcullis doctor`: health checks, each with a fix.

use super::hub_client::with_hub;
use super::{block_on, environment};
use crate::colour::TextStyle;
use crate::home::Home;
use crate::print;
use anyhow::Result;
use portcullis_ops::doctor::{CheckState, HealthCheck, check_all};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, as_json: bool) -> Result<ExitCode> {
    let path = Home::locate(home, environment)?;
    let count_tools = async |home: &Home| {
        with_hub(home, async |hub| Ok(hub.list("tools/list", "tools").await?.len())).await
    };
    let checks = block_on(check_all(path, print::redaction(), count_tools))??;
    let bad = checks.iter().any(|check| matches!(check.state, CheckState::Bad { .. }));
    if as_json {
        print::json(&json!(checks.iter().map(HealthCheck::listing).collect::<Vec<_>>()));
    } else {
        checks.iter().for_each(|check| {
            let (style, word) = match check.state {
                CheckState::Good(_) => (TextStyle::Green, "ok"),
                CheckState::Warning(_) => (TextStyle::Yellow, "warning"),
                CheckState::Bad { .. } => (TextStyle::Red, "PROBLEM"),
            };
            print::line_with(style, word, line(check));
        });
    }
    Ok(ExitCode::from(u8::from(bad)))
}

fn line(check: &HealthCheck) -> String {
    match &check.state {
        CheckState::Good(text) => format!("ok       {:<10} {text}", check.what),
        CheckState::Warning(text) => format!("warning  {:<10} {text}", check.what),
        CheckState::Bad { problem, advice } => {
            let below = format!("\n         {:<10} ", "");
            format!("PROBLEM  {:<10} {}{below}{advice}", check.what, problem.replace('\n', &below))
        }
    }
}
