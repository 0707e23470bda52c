//! `cargo xtask test`: runs every check and prints a summary.

use crate::layout::Layout;
use crate::run::{self, ProgramExit};
use anyhow::Result;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Lines of a failed step's output that are shown. The end says what failed; the log has the rest.
const SHOWN_LINES_MAX: usize = 400;

const BUILD: &str = "build";

/// One check.
struct Step {
    name: &'static str,
    what: &'static str,
    /// Whether it needs the built programs, and is skipped if the build failed.
    needs_build: bool,
    plan: fn(&Layout) -> Vec<CommandWords>,
}

/// A command as typed at the root of the repository.
type CommandWords = &'static [&'static str];

const STEPS: [Step; 15] = [
    Step {
        name: "format",
        what: "the code is formatted",
        needs_build: false,
        plan: |_| vec![&["cargo", "fmt", "--all", "--check"]],
    },
    Step {
        name: "clippy",
        what: "no warnings of the compiler and Clippy",
        needs_build: false,
        plan: |_| {
            vec![&["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]]
        },
    },
    Step {
        name: "words",
        what: "type and file names, and the walkthroughs",
        needs_build: false,
        plan: |_| vec![&["cargo", "xtask", "words"]],
    },
    Step {
        name: "tests",
        what: "unit, integration and documentation tests",
        needs_build: false,
        plan: tests,
    },
    Step { name: BUILD, what: "the programs build", needs_build: false, plan: |_| vec![BUILD_WORDS] },
    Step {
        name: "selftest",
        what: "every tool agrees with its schema and snapshot",
        needs_build: true,
        plan: |_| vec![&["target/debug/portcullis", "--selftest"]],
    },
    Step {
        name: "gen",
        what: "generated files are up to date",
        needs_build: false,
        plan: |_| vec![&["cargo", "xtask", "gen", "--check"]],
    },
    Step {
        name: "conformance",
        what: "the official conformance suite, both revisions",
        needs_build: true,
        plan: |_| vec![&["cargo", "xtask", "conformance"]],
    },
    Step {
        name: "clients",
        what: "real clients: Python SDK, TypeScript SDK and Inspector",
        needs_build: true,
        plan: |_| vec![&["cargo", "xtask", "clients"]],
    },
    Step {
        name: "upstreams",
        what: "real upstream servers, and OpenCode as client",
        needs_build: true,
        plan: |_| vec![&["cargo", "xtask", "upstreams"]],
    },
    Step {
        name: "pages",
        what: "the admin page in a real browser",
        needs_build: true,
        plan: |_| vec![&["cargo", "xtask", "pages"]],
    },
    Step {
        name: "packages",
        what: "each package is complete, installs and starts",
        needs_build: true,
        plan: |_| vec![&["cargo", "xtask", "package", "--dev"]],
    },
    Step {
        name: "calendars",
        what: "calendar events compared with a reference implementation",
        needs_build: false,
        plan: |_| vec![&["cargo", "xtask", "calendars"]],
    },
    Step {
        name: "docs",
        what: "the documentation site, and every link in it",
        needs_build: false,
        plan: |_| vec![&["cargo", "xtask", "docs"]],
    },
    Step {
        name: "deny",
        what: "dependencies, their licenses and sources",
        needs_build: false,
        plan: |_| vec![&["cargo", "xtask", "deny"]],
    },
];

/// With the examples, whose dependencies are those of the tests, so that nothing is compiled twice with other
/// features.
const BUILD_WORDS: CommandWords = &["cargo", "build", "--workspace", "--bins", "--examples", "--locked"];

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
enum StepVerdict {
    Passed,
    Failed,
    Skipped,
}

struct StepResult {
    name: &'static str,
    verdict: StepVerdict,
    took: Duration,
    /// Why it was skipped, or where its log is.
    note: String,
}

pub(crate) fn is_step(name: &str) -> bool {
    STEPS.iter().any(|step| step.name == name)
}

pub(crate) fn list() -> String {
    STEPS.iter().map(|step| format!("{:<12} {}\n", step.name, step.what)).collect()
}

/// Builds the programs that other tasks start.
pub(crate) fn build(layout: &Layout) -> Result<()> {
    run::prepare("build", &mut command(layout, BUILD_WORDS), &layout.log("build-programs"), run::BUILD_LIMIT)
}

/// Runs all steps, or the named ones, and returns whether none failed.
pub(crate) fn test(layout: &Layout, only: &[String]) -> Result<bool> {
    let chosen: Vec<&Step> =
        STEPS.iter().filter(|step| only.is_empty() || only.iter().any(|name| name == step.name)).collect();
    let mut done: Vec<StepResult> = Vec::new();
    for (at, step) in chosen.iter().enumerate() {
        let label = format!("[{}/{}] {}", at + 1, chosen.len(), step.name);
        println!("{label}: {}", step.what);
        let start = Instant::now();
        let build_failed = done.iter().any(|done| done.name == BUILD && done.verdict == StepVerdict::Failed);
        let (verdict, note) = if step.needs_build && build_failed {
            (StepVerdict::Skipped, "the build failed".to_owned())
        } else {
            perform(layout, step, &label)?
        };
        let took = start.elapsed();
        let (word, seconds) = (word(&verdict), took.as_secs_f32());
        match verdict {
            StepVerdict::Skipped => println!("{label}: {word}, {note}"),
            StepVerdict::Passed | StepVerdict::Failed => println!("{label}: {word}, {seconds:.1} s"),
        }
        done.push(StepResult { name: step.name, verdict, took, note });
    }
    print!("\n{}", summary(&done));
    Ok(done.iter().all(|done| done.verdict != StepVerdict::Failed))
}

fn perform(layout: &Layout, step: &Step, label: &str) -> Result<(StepVerdict, String)> {
    let log = layout.log(step.name);
    run::start_log(&log)?;
    let start = Instant::now();
    let mut failed = Vec::new();
    for words in (step.plan)(layout) {
        let alive = |_| println!("{label}: {} s …", start.elapsed().as_secs());
        match run::logged(&mut command(layout, words), &log, run::BUILD_LIMIT, alive) {
            Ok(outcome) if outcome.passed() => {}
            Ok(ProgramExit::Ended(status)) => failed.push((words, status.to_string())),
            Ok(outcome @ ProgramExit::TimedOut(_)) => failed.push((words, outcome.to_string())),
            Err(error) => failed.push((words, format!("{error:#}"))),
        }
    }
    if failed.is_empty() {
        return Ok((StepVerdict::Passed, String::new()));
    }
    println!("{}", tail(&String::from_utf8_lossy(&fs::read(&log)?), SHOWN_LINES_MAX));
    println!("{label}: log     {}", layout.shown(&log));
    for (words, reason) in failed {
        println!("{label}: repeat  {}   ({reason})", words.join(" "));
    }
    Ok((StepVerdict::Failed, layout.shown(&log).to_string()))
}

fn command(layout: &Layout, words: CommandWords) -> Command {
    let mut command = match words.first().copied().unwrap_or_default() {
        "cargo" => layout.cargo(),
        program => layout.command(layout.built(program.trim_start_matches("target/debug/"))),
    };
    // A differing snapshot is a failure and must not be accepted.
    command.args(words.get(1..).unwrap_or_default()).env("INSTA_UPDATE", "no");
    // The output goes to a file; rustfmt looks at `TERM` only.
    command.env("CARGO_TERM_COLOR", "never").env("TERM", "dumb");
    command
}

fn tests(layout: &Layout) -> Vec<CommandWords> {
    let documentation: CommandWords = &["cargo", "test", "--workspace", "--doc", "--locked"];
    let others: CommandWords = if run::exists(layout.cargo().arg("nextest")) {
        &["cargo", "nextest", "run", "--workspace", "--locked", "--no-fail-fast"]
    } else {
        &["cargo", "test", "--workspace", "--lib", "--bins", "--tests", "--locked", "--no-fail-fast"]
    };
    vec![others, documentation]
}

fn word(verdict: &StepVerdict) -> &'static str {
    match verdict {
        StepVerdict::Passed => "ok",
        StepVerdict::Failed => "FAILED",
        StepVerdict::Skipped => "skipped",
    }
}

/// Returns the table of steps and the totals.
fn summary(done: &[StepResult]) -> String {
    let mut text = String::new();
    for done in done {
        let row = format!(
            "{:<12} {:<8} {:>7.1} s  {}",
            done.name,
            word(&done.verdict),
            done.took.as_secs_f32(),
            done.note
        );
        text.push_str(row.trim_end());
        text.push('\n');
    }
    let count = |verdict: StepVerdict| done.iter().filter(|done| done.verdict == verdict).count();
    let (passed, failed, skipped) =
        (count(StepVerdict::Passed), count(StepVerdict::Failed), count(StepVerdict::Skipped));
    text.push_str(&format!("\n{passed} passed, {failed} failed, {skipped} skipped\n"));
    text
}

/// Returns the last lines of a text, and says if there are more.
fn tail(text: &str, lines_max: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let left_out = lines.len().saturating_sub(lines_max);
    let shown = lines.get(left_out..).unwrap_or_default().join("\n");
    if left_out == 0 { shown } else { format!("({left_out} lines before these are in the log)\n{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_ends_with_the_count() {
        let done = |name, verdict, note: &str| StepResult {
            name,
            verdict,
            took: Duration::from_millis(1500),
            note: note.to_owned(),
        };
        let text = summary(&[
            done("format", StepVerdict::Passed, ""),
            done("build", StepVerdict::Failed, "target/xtask/logs/build.log"),
            done("clients", StepVerdict::Skipped, "the build failed"),
        ]);
        let expected = "\
format       ok           1.5 s
build        FAILED       1.5 s  target/xtask/logs/build.log
clients      skipped      1.5 s  the build failed

1 passed, 1 failed, 1 skipped
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_output_is_shown_from_its_end() {
        assert_eq!(tail("a\nb\n", 2), "a\nb");
        assert_eq!(tail("a\nb\nc\n", 2), "(1 lines before these are in the log)\nb\nc");
    }

    #[test]
    fn steps_have_names_of_their_own() {
        for (at, step) in STEPS.iter().enumerate() {
            assert!(STEPS.iter().skip(at + 1).all(|other| other.name != step.name), "{}", step.name);
        }
    }
}
