//! The official conformance suite: against the real server with the suite's fixtures behind it, and against a hub that has
//! the suite's servers behind it.
//!
//! The suite judges only what a revision scores. Of servers we are stricter: no check of any scenario may fail or warn.
//! Of clients the suite also tries extensions that we do not have; there what it scores counts.

mod baseline;

use self::baseline::Baseline;
use crate::layout::Layout;
use crate::node::{Node, renew};
use crate::run::{self, Background, Told};
use crate::steps;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// One revision takes about ten seconds; a scenario that hangs is given up by the suite after thirty.
const SUITE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Whom the suite is run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
    Both,
}

/// Runs the suite for every revision: against the fixtures themselves, against a hub behind which they are the only
/// server, in each era, and as the server behind a hub. Returns whether all was well.
pub(crate) fn run(layout: &Layout, side: Side) -> Result<bool> {
    let node = Node::install(layout)?;
    let baseline = Baseline::read(&layout.root.join("xtask/conformance-baseline.toml"))?;
    steps::build(layout)?;
    let mut all_well = true;
    if side != Side::Client {
        for (name, arguments) in [
            ("direct", &[][..]),
            ("behind, newer era", &["behind", "requests"][..]),
            ("behind, older era", &["behind", "sessions"][..]),
        ] {
            all_well &= run_against(layout, &node, &baseline, name, arguments)?;
        }
    }
    if side != Side::Server {
        for revision in REVISIONS {
            all_well &= run_client(layout, &node, revision)?;
        }
    }
    Ok(all_well)
}

/// Lets the suite play the server behind a hub, one scenario after the other.
fn run_client(layout: &Layout, node: &Node, revision: &str) -> Result<bool> {
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
    node: &Node,
    baseline: &Baseline,
    name: &str,
    arguments: &[&str],
) -> Result<bool> {
    let short = arguments.last().copied().unwrap_or("direct");
    let mut command = layout.command(layout.built("conformance-server"));
    command.args(arguments);
    let log = layout.log(&format!("conformance-server-{short}"));
    let mut server = Background::start(&mut command, &log)?;
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
        all_well &= run_revision(layout, node, &url, &Run { name, short, revision, baseline })?;
    }
    let ended = server.end(Told::ByStdin)?;
    if !ended.passed() {
        println!("FAILED the server did not end well: {ended}");
    }
    Ok(all_well && ended.passed())
}

/// One run of the suite.
struct Run<'a> {
    name: &'a str,
    short: &'a str,
    revision: &'a str,
    baseline: &'a Baseline,
}

fn run_revision(layout: &Layout, node: &Node, url: &str, run: &Run<'_>) -> Result<bool> {
    let &Run { name, short, revision, baseline } = run;
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
    let found = Checks::read(&output)?;
    let verdict = baseline.judge(name, revision, &found);
    for line in verdict.expected.iter().chain(&verdict.problems) {
        println!("{name} {revision}  {line}");
    }
    // Where some of it is known to fail the suite's own verdict says nothing.
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

/// The suite's own list of what may fail, empty: with it the suite is strict. It names whole scenarios only, so what may
/// fail here is in our own list.
fn nothing_expected(layout: &Layout) -> Result<PathBuf> {
    let file = layout.work("conformance-nothing-expected.yaml");
    fs::write(&file, "server: []\nclient: []\n").with_context(|| file.display().to_string())?;
    Ok(file)
}

/// What the suite has written about its checks.
#[derive(Debug, Default, PartialEq)]
struct Checks(Vec<Check>);

#[derive(Debug, PartialEq)]
struct Check {
    scenario: String,
    id: String,
    status: Status,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Passed,
    Failed,
    /// Skipped, or for information.
    NotJudged,
}

impl Checks {
    /// Reads every `checks.json`; there is one in the folder of each scenario.
    fn read(output: &Path) -> Result<Checks> {
        let mut checks = Checks::default();
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
                "SUCCESS" => Status::Passed,
                "FAILURE" | "WARNING" => Status::Failed,
                _ => Status::NotJudged,
            };
            let reason = [part("errorMessage"), part("description")];
            let reason = reason.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
            let (scenario, id) = (scenario.to_owned(), part("id").to_owned());
            self.0.push(Check { scenario, id, status, reason: reason.to_owned() });
        }
        Ok(())
    }

    fn passed(&self) -> usize {
        self.0.iter().filter(|check| check.status == Status::Passed).count()
    }

    /// The checks that failed or warned.
    fn failed(&self) -> impl Iterator<Item = &Check> {
        self.0.iter().filter(|check| check.status == Status::Failed)
    }
}

/// The scenario in the name of its folder, which is `server-`, the scenario, `-` and when it ran.
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
        let mut checks = Checks::default();
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
