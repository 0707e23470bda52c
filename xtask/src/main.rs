//! Tasks of this repository, run as `cargo xtask TASK`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a person or a CI log reads what this prints")]

mod bench;
mod clients;
mod conformance;
mod generate;
mod layout;
mod node;
mod python;
mod run;
mod steps;

use anyhow::Result;
use layout::Layout;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask TASK

Tasks:
  test [--only STEP[,STEP]] [--list]  run every check, or only some; or list them
  gen [--check]                       write the generated files, or say which are stale
  conformance [server]                run the official conformance suite
  clients                             let real clients talk to the built program
  bench                               measure the release build and write docs/benchmarks.md

What the tasks need is installed below target/xtask.";

/// What was asked for on the command line.
#[derive(Debug, PartialEq)]
enum Task {
    Help,
    Test(Vec<String>),
    ListSteps,
    Generate(generate::Mode),
    Conformance,
    Clients,
    Bench(Vec<String>),
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let task = match parse(&words) {
        Ok(task) => task,
        Err(reason) => {
            eprintln!("xtask: {reason}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match perform(task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does a task, and returns whether all was well.
fn perform(task: Task) -> Result<bool> {
    let layout = Layout::find()?;
    match task {
        Task::Help => println!("{USAGE}"),
        Task::ListSteps => print!("{}", steps::list()),
        Task::Test(only) => return steps::test(&layout, &only),
        Task::Generate(mode) => return generate::run(&layout, mode),
        Task::Conformance => return conformance::run(&layout),
        Task::Clients => return clients::run(&layout),
        Task::Bench(words) => bench::run(&words)?,
    }
    Ok(true)
}

fn parse(words: &[String]) -> Result<Task, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "-h" | "--help", ..] => Ok(Task::Help),
        ["test", rest @ ..] => parse_test(rest),
        ["gen"] => Ok(Task::Generate(generate::Mode::Write)),
        ["gen", "--check"] => Ok(Task::Generate(generate::Mode::Check)),
        ["conformance"] | ["conformance", "server"] => Ok(Task::Conformance),
        ["clients"] => Ok(Task::Clients),
        ["bench", rest @ ..] => Ok(Task::Bench(rest.iter().map(|word| (*word).to_owned()).collect())),
        other => Err(format!("`{}` is not a task", other.join(" "))),
    }
}

fn parse_test(words: &[&str]) -> Result<Task, String> {
    let mut only = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let names = match *word {
            "--list" => return Ok(Task::ListSteps),
            "--only" => words.next().copied().ok_or("`--only` needs the name of a step")?,
            other => other
                .strip_prefix("--only=")
                .ok_or_else(|| format!("`{other}` is not an option of `test`"))?,
        };
        for name in names.split(',').filter(|name| !name.is_empty()) {
            if !steps::is_step(name) {
                return Err(format!("`{name}` is not a step; `cargo xtask test --list` shows them"));
            }
            only.push(name.to_owned());
        }
    }
    Ok(Task::Test(only))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<Task, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn command_lines_are_understood() {
        let some = |names: &[&str]| Task::Test(names.iter().map(|name| (*name).to_owned()).collect());
        for (line, task) in [
            ("", Task::Help),
            ("--help", Task::Help),
            ("test", some(&[])),
            ("test --only clippy,format", some(&["clippy", "format"])),
            ("test --only=clippy --only deny", some(&["clippy", "deny"])),
            ("test --list", Task::ListSteps),
            ("gen", Task::Generate(generate::Mode::Write)),
            ("gen --check", Task::Generate(generate::Mode::Check)),
            ("conformance", Task::Conformance),
            ("conformance server", Task::Conformance),
            ("clients", Task::Clients),
        ] {
            assert_eq!(check(line), Ok(task), "{line}");
        }
    }

    #[test]
    fn slips_are_told() {
        for (line, reason) in [
            ("tets", "`tets` is not a task"),
            ("gen --chek", "`gen --chek` is not a task"),
            ("test --only", "`--only` needs the name of a step"),
            ("test --only clipy", "`clipy` is not a step; `cargo xtask test --list` shows them"),
            ("test --fast", "`--fast` is not an option of `test`"),
        ] {
            assert_eq!(check(line), Err(reason.to_owned()), "{line}");
        }
    }
}
