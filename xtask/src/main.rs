//! Tasks of this repository, run as `cargo xtask TASK`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a person or a CI log reads what this prints")]

mod bench;
mod browser;
mod calendars;
mod clients;
mod conformance;
mod deny;
mod dist;
mod docs;
mod generate;
mod hub;
mod layout;
mod node;
mod package;
mod pages;
mod python;
mod run;
mod steps;
mod torture;
mod upstreams;
mod words;

use anyhow::Result;
use layout::Layout;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask TASK

Tasks:
  test [--only STEP[,STEP]] [--list]  run all checks, or the named steps; --list lists them
  gen [--check]                       write the generated files; --check reports stale ones
  conformance [server|client]         run the official conformance suite against the hub as server, as client, or both
  clients                             test the built program with real MCP clients
  upstreams                           test the built program with real upstream servers, and with OpenCode as client
  pages [--keep]                      test the admin page in a browser; --keep updates the screenshots of the README
  calendars [--seed N]                compare calendar events with a reference implementation
  docs                                build the documentation site into target/docs-site, and check its links
  words                               check type names, file names and the walkthroughs in CONTRIBUTING.md
  deny                                check licenses and sources of the dependencies (cargo-deny)
  dist                                build the shipped binary (PGO) into target/shipped; half an hour
  package [--dev | --profile NAME]    write the packages into target/packages, and install and start each; a static and a
                                      dynamic release build, or with --dev the existing development build
  bench [fetch|upstream]              measure the shipped binary and write docs/benchmarks.md; or only compare
                                      web_fetch with mcp-server-fetch, or upstream calls with other proxies
  torture [--seed N] [--only ROW[,ROW]] [--minutes M] [--json]
                                      run the long stress tests, fault injection and fuzzing; ten minutes

Dependencies of the tasks are installed below target/xtask.";

/// The parsed command line.
#[derive(Debug, PartialEq)]
enum Task {
    Help,
    Test(Vec<String>),
    ListSteps,
    Generate(generate::GenerateMode),
    Conformance(conformance::SuiteSide),
    Clients,
    Upstreams,
    Pages(pages::ScreenshotMode),
    Calendars(Option<String>),
    Docs,
    Words,
    Deny,
    Dist,
    Package(package::PackageProfile),
    Bench(Vec<String>),
    Torture(torture::TortureSettings),
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

/// Runs a task, and returns whether it succeeded.
fn perform(task: Task) -> Result<bool> {
    let layout = Layout::find()?;
    match task {
        Task::Help => println!("{USAGE}"),
        Task::ListSteps => print!("{}", steps::list()),
        Task::Test(only) => return steps::test(&layout, &only),
        Task::Generate(mode) => return generate::run(&layout, mode),
        Task::Conformance(side) => return conformance::run(&layout, side),
        Task::Clients => return clients::run(&layout),
        Task::Upstreams => return upstreams::run(&layout),
        Task::Pages(pictures) => return pages::run(&layout, pictures),
        Task::Calendars(seed) => return calendars::run(&layout, seed.as_deref()),
        Task::Docs => return docs::run(&layout),
        Task::Words => return words::run(&layout),
        Task::Deny => return deny::run(&layout),
        Task::Dist => dist::build(&layout)?,
        Task::Package(profile) => return package::run(&layout, &profile),
        Task::Bench(words) => bench::run(&words)?,
        Task::Torture(settings) => return torture::run(&layout, &settings),
    }
    Ok(true)
}

fn parse(words: &[String]) -> Result<Task, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "-h" | "--help", ..] => Ok(Task::Help),
        ["test", rest @ ..] => parse_test(rest),
        ["gen"] => Ok(Task::Generate(generate::GenerateMode::Write)),
        ["gen", "--check"] => Ok(Task::Generate(generate::GenerateMode::Check)),
        ["conformance"] => Ok(Task::Conformance(conformance::SuiteSide::Both)),
        ["conformance", "server"] => Ok(Task::Conformance(conformance::SuiteSide::Server)),
        ["conformance", "client"] => Ok(Task::Conformance(conformance::SuiteSide::Client)),
        ["clients"] => Ok(Task::Clients),
        ["upstreams"] => Ok(Task::Upstreams),
        ["pages"] => Ok(Task::Pages(pages::ScreenshotMode::Leave)),
        ["pages", "--keep"] => Ok(Task::Pages(pages::ScreenshotMode::Keep)),
        ["calendars"] => Ok(Task::Calendars(None)),
        ["calendars", "--seed", seed] if seed.parse::<u64>().is_ok() => {
            Ok(Task::Calendars(Some((*seed).to_owned())))
        }
        ["docs"] => Ok(Task::Docs),
        ["words"] => Ok(Task::Words),
        ["deny"] => Ok(Task::Deny),
        ["dist"] => Ok(Task::Dist),
        ["package"] => Ok(Task::Package(package::PackageProfile::Named(package::RELEASE.to_owned()))),
        ["package", "--dev"] => Ok(Task::Package(package::PackageProfile::Dev)),
        ["package", "--profile", name] => {
            Ok(Task::Package(package::PackageProfile::Named((*name).to_owned())))
        }
        ["bench", rest @ ..] => Ok(Task::Bench(rest.iter().map(|word| (*word).to_owned()).collect())),
        ["torture", rest @ ..] => parse_torture(rest),
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

fn parse_torture(words: &[&str]) -> Result<Task, String> {
    let mut settings =
        torture::TortureSettings { seed: None, only: Vec::new(), minutes: torture::MINUTES, as_json: false };
    let mut words = words.iter().flat_map(|word| word.split('='));
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number"));
        match word {
            "--json" => settings.as_json = true,
            "--seed" => settings.seed = Some(number(value()?)?),
            "--minutes" => settings.minutes = number(value()?)?.clamp(1, 24 * 60),
            "--only" => settings.only.extend(value()?.split(',').map(str::to_owned)),
            other => return Err(format!("`{other}` is not an option of `torture`")),
        }
    }
    match settings.only.iter().find(|name| !torture::is_row(name)) {
        Some(name) => Err(format!("`{name}` is not a row; expected {}", torture::names())),
        None => Ok(Task::Torture(settings)),
    }
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
            ("gen", Task::Generate(generate::GenerateMode::Write)),
            ("gen --check", Task::Generate(generate::GenerateMode::Check)),
            ("conformance", Task::Conformance(conformance::SuiteSide::Both)),
            ("conformance server", Task::Conformance(conformance::SuiteSide::Server)),
            ("conformance client", Task::Conformance(conformance::SuiteSide::Client)),
            ("clients", Task::Clients),
            ("upstreams", Task::Upstreams),
            ("pages", Task::Pages(pages::ScreenshotMode::Leave)),
            ("pages --keep", Task::Pages(pages::ScreenshotMode::Keep)),
            ("docs", Task::Docs),
            ("words", Task::Words),
            ("deny", Task::Deny),
            ("dist", Task::Dist),
            ("package", Task::Package(package::PackageProfile::Named("release".to_owned()))),
            ("package --dev", Task::Package(package::PackageProfile::Dev)),
            ("package --profile dist", Task::Package(package::PackageProfile::Named("dist".to_owned()))),
            ("calendars", Task::Calendars(None)),
            ("calendars --seed 9", Task::Calendars(Some("9".to_owned()))),
        ] {
            assert_eq!(check(line), Ok(task), "{line}");
        }
    }

    #[test]
    fn torture_takes_its_settings() {
        let torture = |seed, only: &[&str], minutes, as_json| {
            let only = only.iter().map(|name| (*name).to_owned()).collect();
            Ok(Task::Torture(torture::TortureSettings { seed, only, minutes, as_json }))
        };
        assert_eq!(check("torture"), torture(None, &[], 10, false));
        let line = "torture --seed 7 --only kill,fuzz --minutes=2 --json";
        assert_eq!(check(line), torture(Some(7), &["kill", "fuzz"], 2, true));
        assert_eq!(check("torture --seed x"), Err("`x` is not a number".to_owned()));
        assert!(check("torture --only kil").unwrap_err().starts_with("`kil` is not a row; expected kill, "));
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
