//! Expected failures of the suite, with reasons: `xtask/conformance-baseline.toml`. Strict both ways: a stale
//! entry fails too.

use super::{CheckStatus, REVISIONS, RUNS, SuiteChecks};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Baseline {
    expected: Vec<ExpectedFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedFailure {
    run: String,
    revision: String,
    scenario: String,
    outcome: ExpectedOutcome,
    checks: Vec<String>,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExpectedOutcome {
    Fails,
    /// The suite does not get as far as the check.
    Absent,
}

/// One run compared with the baseline.
#[derive(Debug, Default, PartialEq)]
pub(super) struct BaselineVerdict {
    /// For each scenario with exceptions, their number and reason.
    pub(super) expected: Vec<String>,
    /// Unexpected failures, and expected ones that did not happen.
    pub(super) problems: Vec<String>,
}

impl Baseline {
    pub(super) fn read(file: &Path) -> Result<Baseline> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Baseline::parse(&text).with_context(|| file.display().to_string())
    }

    fn parse(text: &str) -> Result<Baseline> {
        let baseline: Baseline = toml::from_str(text)?;
        for entry in &baseline.expected {
            // An entry of a run that does not happen would never be found stale.
            if RUNS.iter().all(|(run, _)| *run != entry.run) {
                bail!("there is no run `{}`", entry.run);
            }
            if !REVISIONS.contains(&entry.revision.as_str()) {
                bail!("revision `{}` is not tested", entry.revision);
            }
        }
        Ok(baseline)
    }

    pub(super) fn judge(&self, run: &str, revision: &str, found: &SuiteChecks) -> BaselineVerdict {
        let mut verdict = BaselineVerdict::default();
        let here: Vec<&ExpectedFailure> =
            self.expected.iter().filter(|entry| entry.run == run && entry.revision == revision).collect();
        for check in found.failed() {
            let is_expected = here.iter().any(|entry| {
                entry.outcome == ExpectedOutcome::Fails
                    && entry.scenario == check.scenario
                    && entry.checks.contains(&check.id)
            });
            if !is_expected {
                verdict.problems.push(format!("FAILED {}: {}: {}", check.scenario, check.id, check.reason));
            }
        }
        for entry in here {
            let of_scenario = || found.0.iter().filter(|check| check.scenario == entry.scenario);
            for id in &entry.checks {
                let happened = match entry.outcome {
                    ExpectedOutcome::Fails => {
                        of_scenario().any(|check| check.id == *id && check.status == CheckStatus::Failed)
                    }
                    ExpectedOutcome::Absent => {
                        of_scenario().next().is_some() && !of_scenario().any(|check| check.id == *id)
                    }
                };
                if !happened {
                    verdict.problems.push(format!(
                        "NOT NEEDED {}: {id}: remove it from the baseline, it no longer {}",
                        entry.scenario,
                        match entry.outcome {
                            ExpectedOutcome::Fails => "fails",
                            ExpectedOutcome::Absent => "stays out",
                        }
                    ));
                }
            }
            verdict.expected.push(format!(
                "expected: {}, {} checks: {}",
                entry.scenario,
                entry.checks.len(),
                entry.reason
            ));
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASELINE: &str = r#"
        [[expected]]
        run = "direct"
        revision = "2026-07-28"
        scenario = "tasks"
        outcome = "fails"
        checks = ["a"]
        reason = "there are none"

        [[expected]]
        run = "direct"
        revision = "2026-07-28"
        scenario = "polling"
        outcome = "absent"
        checks = ["b"]
        reason = "there is no stream"
    "#;

    fn problems(run: &str, tasks: &str, polling: &str) -> Vec<String> {
        let baseline = Baseline::parse(BASELINE).unwrap();
        let mut checks = SuiteChecks::default();
        checks.add("tasks", tasks).unwrap();
        checks.add("polling", polling).unwrap();
        baseline.judge(run, "2026-07-28", &checks).problems
    }

    const FAILS: &str = r#"[{"id": "a", "status": "FAILURE"}]"#;
    const PASSES: &str = r#"[{"id": "a", "status": "SUCCESS"}]"#;
    const WITHOUT: &str = r#"[{"id": "c", "status": "INFO"}]"#;

    #[test]
    fn an_entry_of_a_run_that_does_not_happen_is_refused() {
        let refused =
            |from: &str, to: &str| Baseline::parse(&BASELINE.replace(from, to)).unwrap_err().to_string();
        assert_eq!(refused("direct", "behind"), "there is no run `behind`");
        assert_eq!(refused("2026-07-28", "2024-11-05"), "revision `2024-11-05` is not tested");
    }

    #[test]
    fn what_is_expected_is_no_problem() {
        assert_eq!(problems("direct", FAILS, WITHOUT), Vec::<String>::new());
    }

    #[test]
    fn an_unexpected_failure_is_a_problem() {
        assert_eq!(problems("behind, newer era", FAILS, WITHOUT), ["FAILED tasks: a: "]);
    }

    #[test]
    fn an_entry_that_is_no_longer_needed_is_a_problem() {
        let stale = problems("direct", PASSES, r#"[{"id": "b", "status": "SUCCESS"}]"#);
        assert_eq!(stale.len(), 2, "{stale:?}");
        assert!(stale.iter().all(|line| line.starts_with("NOT NEEDED")), "{stale:?}");
    }

    #[test]
    fn a_scenario_that_did_not_run_is_a_problem() {
        assert_eq!(problems("direct", "[]", "[]").len(), 2);
    }
}
