//! `portcullis --selftest`: checks every tool against its schema and snapshot.

use super::block_on;
use super::hub_client::with_hub;
use crate::{print, surface};
use anyhow::Result;
use portcullis_ops::selftest::Selftest;
use serde_json::{Value, json};
use std::process::ExitCode;

pub(crate) fn run(as_json: bool) -> Result<ExitCode> {
    let (selftest, snapshots) = (Selftest::prepare()?, surface::snapshots()?);
    let checked = block_on(async {
        with_hub(&selftest.home, async |link| selftest.check(link, &snapshots).await).await
    })??;
    let failed = checked.iter().filter(|tool| !tool.problems.is_empty()).count();
    if as_json {
        let tools: Vec<Value> =
            checked.iter().map(|tool| json!({ "name": tool.name, "problems": tool.problems })).collect();
        print::json(&json!({ "tools": tools, "passed": checked.len() - failed, "failed": failed }));
    } else {
        for tool in &checked {
            let word = if tool.problems.is_empty() { "ok" } else { "FAILED" };
            print::line(format!("{word:<7} {}", tool.name));
            tool.problems.iter().for_each(|problem| print::line(format!("        {problem}")));
        }
        print::line(format!("selftest: {} passed, {failed} failed", checked.len() - failed));
    }
    Ok(ExitCode::from(u8::from(failed > 0)))
}
