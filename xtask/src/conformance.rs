//! The official conformance suite: against the real server with the suite's fixtures as upstream, and against
//! a hub as the client of the suite's servers.
//!
//! The suite judges only what a revision scores. For servers this task is stricter: no check of any scenario
//! may fail or warn. For clients the suite also tries extensions that the hub does not have; there only
//! scored checks count.

mod baseline;

use self::baseline::Baseline;
use crate::layout::Layout;
use crate::node::{NodePackages, renew};
use crate::run::{self, BackgroundProcess, StopMethod};
use crate::steps;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// The runs against the hub as a server, with the arguments of the fixtures' program.
const RUNS: [(&str, &[&str]); 3] = [
    ("direct", &[]),
    ("behind, newer era", &["behind", "requests"]),
    ("behind, older era", &["behind", "sessions"]),
];
/// One revision takes about ten seconds; the suite gives up a hanging scenario after thirty.
const SUITE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The side that the suite tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuiteSide {
    Server,
    Client,
    Both,
}

/// Runs the suite for every revision: against the fixtures, against a hub with the fixtures as its only
/// upstream, in each era, and with the hub as the client. Returns whether all passed.
pub(crate) fn run(layout: &Layout, side: SuiteSide) -> Result<bool> {
    let node = NodePackages::install(layout)?;
    let baseline = Baseline::read(&layout.root.join("xtask/conformance-baseline.toml"))?;
    steps::build(layout)?;
    let mut all_well = true;
    if side != SuiteSide::Client {
        for (name, arguments) in RUNS {
            all_well &= run_against(layout, &node, &baseline, name, arguments)?;
        }
    }
    if side != SuiteSide::Server {
        for revision in REVISIONS {
            all_well &= run_client(layout, &node, revision)?;
        }
    }
    Ok(all_well)
}

/// Runs the suite as an upstream server of a hub, one scenario after the other.
fn run_client(layout: &Layout, node: &NodePackages, revision: &str) -> Result<bool> {
    let name = format!("conformance-client-{revision}");
    let (log, output) = (layout.log(&name), layout.work(&name));
    run::start_log(&log)?;
    renew(&output)?;
    let mut suite = layout.command(node.program());
    suite.arg(node.module("@modelcontextprotocol/conformance/dist/index.js"));
    suite.args(["client", "--requirements", revision, "--command"]).arg(layout.built("conformance-client"));
    suite.arg("--expected-failures").arg(nothing_expected(layout)?);
    suite.arg("--output-dir").arg(&output);
    let alive = |elapsed: Duration| println!("{revision} client: {} s …", elapsed.as_secs());
    let outcome = run::logged(&mut suite, &log, SUITE_LIMIT, alive)?;
    let text = fs::read_to_string(&log)?;
    let passed = text.lines().filter(|line| line.starts_with('✓')).count();
    let total = text.lines().rfind(|line| line.trim_start().starts_with("Total:"));
    println!("{revision}  client: {passed} scenarios passed; {}", total.unwrap_or("no total").trim());
    let is_well = outcome.passed() && passed > 0;
    if !is_well {
        println!("{revision}  client: FAILED: {outcome}; see {}", layout.shown(&log));
    }
    Ok(is_well)
}

fn run_against(
    layout: &Layout,
    node: &NodePackages,
    baseline: &Baseline,
    name: &str,
    arguments: &[&str],
) -> Result<bool> {
    let short = arguments.last().copied().unwrap_or("direct");
    let mut command = layout.command(layout.built("conformance-server"));
    command.args(arguments);
    let log = layout.log(&format!("conformance-server-{short}"));
    let mut server = BackgroundProcess::start(&mut command, &log)?;
    let url = server.greeting(|stdout| {
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    })?;
    if url.is_empty() {
        bail!("the server ended at once; see {}", layout.shown(&log));
    }
    let mut all_well = true;
    for revision in REVISIONS {
        all_well &= run_revision(layout, node, &url, &SuiteRun { name, short, revision, baseline })?;
    }
    let ended = server.end(StopMethod::ByStdin)?;
    if !ended.passed() {
        println!("FAILED the server did not end well: {ended}");
    }
    Ok(all_well && ended.passed())
}

/// One run of the suite.
struct SuiteRun<'a> {
    name: &'a str,
    short: &'a str,
    revision: &'a str,
    baseline: &'a Baseline,
}

fn run_revision(layout: &Layout, node: &NodePackages, url: &str, run: &SuiteRun<'_>) -> Result<bool> {
    let &SuiteRun { name, short, revision, baseline } = run;
    let log = layout.log(&format!("conformance-{short}-{revision}"));
    let output = layout.work("conformance").join(format!("{short}-{revision}"));
    run::start_log(&log)?;
    renew(&output)?;
    let mut suite = layout.command(node.program());
    suite.arg(node.module("@modelcontextprotocol/conformance/dist/index.js"));
    suite.args(["server", "--url", url, "--requirements", revision, "--expected-failures"]);
    suite.arg(nothing_expected(layout)?).arg("--output-dir").arg(&output);
    let alive = |elapsed: Duration| println!("{name} {revision}: {} s …", elapsed.as_secs());
    let outcome = run::logged(&mut suite, &log, SUITE_LIMIT, alive)?;

    let text = fs::read_to_string(&log)?;
    let total = text.lines().rfind(|line| line.trim_start().starts_with("Total:"));
    println!("{name} {revision}  {}", total.unwrap_or("no total").trim());
    let found = SuiteChecks::read(&output)?;
    let verdict = baseline.judge(name, revision, &found);
    for line in verdict.expected.iter().chain(&verdict.problems) {
        println!("{name} {revision}  {line}");
    }
    // With known failures, the suite's own verdict says nothing.
    let passed = outcome.passed() || found.failed().next().is_some();
    let is_well = passed && verdict.problems.is_empty() && found.passed() > 0 && total.is_some();
    if !is_well {
        println!(
            "{name} {revision}  FAILED: {outcome}, {} checks passed; see {}",
            found.passed(),
            layout.shown(&log)
        );
    }
    Ok(is_well)
}

/// An empty list of expected failures, which makes the suite strict. The suite's list names whole scenarios
/// only, so exceptions are in this project's baseline.
fn nothing_expected(layout: &Layout) -> Result<PathBuf> {
    let file = layout.work("conformance-nothing-expected.yaml");
    fs::write(&file, "server: []\nclient: []\n").with_context(|| file.display().to_string())?;
    Ok(file)
}

/// The results of the suite's checks.
#[derive(Debug, Default, PartialEq)]
struct SuiteChecks(Vec<SuiteCheck>);

#[derive(Debug, PartialEq)]
struct SuiteCheck {
    scenario: String,
    id: String,
    status: CheckStatus,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckStatus {
    Passed,
    Failed,
    /// Skipped, or informational.
    NotJudged,
}

impl SuiteChecks {
    /// Reads every `checks.json`; there is one in the folder of each scenario.
    fn read(output: &Path) -> Result<SuiteChecks> {
        let mut checks = SuiteChecks::default();
        let mut folders = Vec::new();
        for folder in fs::read_dir(output)? {
            folders.push(folder?.path());
        }
        folders.sort();
        for file in folders.iter().map(|folder| folder.join("checks.json")).filter(|file| file.exists()) {
            let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let text = fs::read_to_string(&file)?;
            checks.add(scenario(&folder), &text).with_context(|| file.display().to_string())?;
        }
        Ok(checks)
    }

    fn add(&mut self, scenario: &str, text: &str) -> Result<()> {
        let listed: Vec<Value> = serde_json::from_str(text)?;
        for check in listed {
            let part = |name: &str| check.get(name).and_then(Value::as_str).unwrap_or_default();
            let status = match part("status") {
                "SUCCESS" => CheckStatus::Passed,
                "FAILURE" | "WARNING" => CheckStatus::Failed,
                _ => CheckStatus::NotJudged,
            };
            let reason = [part("errorMessage"), part("description")];
            let reason = reason.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
            let (scenario, id) = (scenario.to_owned(), part("id").to_owned());
            self.0.push(SuiteCheck { scenario, id, status, reason: reason.to_owned() });
        }
        Ok(())
    }

    fn passed(&self) -> usize {
        self.0.iter().filter(|check| check.status == CheckStatus::Passed).count()
    }

    /// The checks that failed or warned.
    fn failed(&self) -> impl Iterator<Item = &SuiteCheck> {
        self.0.iter().filter(|check| check.status == CheckStatus::Failed)
    }
}

/// Returns the scenario from its folder name: `server-`, the scenario, `-` and a timestamp.
fn scenario(folder: &str) -> &str {
    const WHEN: usize = "-2026-07-28T00-00-00-000Z".len();
    let name = folder.strip_prefix("server-").unwrap_or(folder);
    name.len().checked_sub(WHEN).and_then(|end| name.get(..end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_warnings_are_problems() {
        let mut checks = SuiteChecks::default();
        let text = r#"[
            {"id": "a", "status": "SUCCESS"},
            {"id": "b", "status": "SKIPPED"},
            {"id": "c", "status": "INFO"},
            {"id": "d", "status": "WARNING", "description": "should be"},
            {"id": "e", "status": "FAILURE", "description": "must be", "errorMessage": "was not"}
        ]"#;
        checks.add("ping", text).unwrap();
        assert_eq!(checks.passed(), 1);
        let failed: Vec<_> =
            checks.failed().map(|check| (check.id.as_str(), check.reason.as_str())).collect();
        assert_eq!(failed, [("d", "should be"), ("e", "was not")]);
        assert!(checks.add("ping", "{}").is_err());
    }

    #[test]
    fn the_scenario_is_read_from_its_folder() {
        assert_eq!(scenario("server-server-sse-polling-2026-11-18T09-10-08-126Z"), "server-sse-polling");
        assert_eq!(scenario("server-ping"), "ping");
    }
}
