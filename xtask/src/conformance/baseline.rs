//! Expected failures of the suite, with reasons: `xtask/conformance-baseline.toml`. Strict both ways: a stale
//! entry fails too.

use super::{CheckStatus, SuiteChecks};
use anyhow::{Context, Result};
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
        toml::from_str(&text).with_context(|| file.display().to_string())
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
        let baseline: Baseline = toml::from_str(BASELINE).unwrap();
        let mut checks = SuiteChecks::default();
        checks.add("tasks", tasks).unwrap();
        checks.add("polling", polling).unwrap();
        baseline.judge(run, "2026-07-28", &checks).problems
    }

    const FAILS: &str = r#"[{"id": "a", "status": "FAILURE"}]"#;
    const PASSES: &str = r#"[{"id": "a", "status": "SUCCESS"}]"#;
    const WITHOUT: &str = r#"[{"id": "c", "status": "INFO"}]"#;

    #[test]
    fn what_is_expected_is_no_problem() {
        assert_eq!(problems("direct", FAILS, WITHOUT), Vec::<String>::new());
    }

    #[test]
    fn an_unexpected_failure_is_a_problem() {
        assert_eq!(problems("behind", FAILS, WITHOUT), ["FAILED tasks: a: "]);
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
