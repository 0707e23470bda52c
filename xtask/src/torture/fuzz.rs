//! Fuzzing: with coverage guidance if cargo-fuzz and a nightly toolchain are installed, else by mutation.

use super::RowContext;
use super::rows::RowPlan;
use super::table::{self, FigureRow};
use crate::run;
use std::process::Command;

/// `portcullis_hostile::TARGETS`; `fuzz/` has a program for each.
const TARGETS: [&str; 4] = ["frame", "redactor", "path", "config"];
/// Duration for each target.
const SECONDS: u64 = 60;
/// Far below what one thread does in that time on a slow machine.
const RUNS_MIN: u64 = 10_000;

pub(super) fn work(context: &RowContext<'_>) -> RowPlan {
    let seconds = context.count(SECONDS).to_string();
    if !run::exists(cargo(context).args(["+nightly", "fuzz"])) {
        let mut command = context.layout.command(context.layout.released("hostile"));
        command.args([seconds, context.seed.to_string()]);
        return RowPlan::Run(vec![command]);
    }
    // libFuzzer takes 32 bits.
    let seed = context.seed & 0x7FFF_FFFF;
    let command = |target: &str| {
        let found = context.layout.torture("corpus").join(target);
        if let Err(error) = std::fs::create_dir_all(&found) {
            return Err(format!("cannot make `{}`: {error}", found.display()));
        }
        let mut command = cargo(context);
        // These crates have no unsafe code for a sanitizer to watch. New inputs go to the first folder.
        command.args(["+nightly", "fuzz", "run", "--sanitizer", "none", target]).arg(found);
        command.arg(format!("fuzz/corpus/{target}")).arg("--");
        command.args([format!("-max_total_time={seconds}"), format!("-seed={seed}")]);
        command.args(["-max_len=4096", "-timeout=10", "-print_final_stats=1"]);
        command.env("CARGO_TARGET_DIR", context.layout.torture("fuzz"));
        Ok(command)
    };
    TARGETS.into_iter().map(command).collect::<Result<Vec<_>, _>>().map_or_else(RowPlan::Skip, RowPlan::Run)
}

/// Returns rustup's `cargo`, which knows toolchains; the one that runs this task knows only its own.
fn cargo(context: &RowContext<'_>) -> Command {
    let mut command = context.layout.command("cargo");
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

/// Parses the totals of libFuzzer, or of the mutator.
pub(super) fn figures(log: &str) -> Vec<FigureRow> {
    let runs =
        log.lines().filter_map(|line| line.strip_prefix("Done ")?.split(' ').next()?.parse::<u64>().ok());
    let figure = |(target, runs): (&str, u64)| FigureRow {
        what: format!("{target}: inputs with coverage guidance, all well"),
        measured: runs.to_string(),
        target: format!("≥ {RUNS_MIN}"),
        ok: Some(runs >= RUNS_MIN),
    };
    let guided: Vec<FigureRow> = TARGETS.into_iter().zip(runs).map(figure).collect();
    if guided.is_empty() { table::marked(log) } else { guided }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read() {
        let log = "#2 INITED\nDone 1234567 runs in 61 second(s)\nstat::x\nDone 12 runs in 61 second(s)\n";
        let figures = figures(log);
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].measured.as_str(), figures[0].ok), ("1234567", Some(true)));
        assert_eq!((figures[1].what.split(':').next(), figures[1].ok), (Some("redactor"), Some(false)));
    }

    #[test]
    fn every_target_has_a_program_and_a_corpus() {
        let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let mut programs: Vec<_> = std::fs::read_dir(fuzz.join("fuzz_targets"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".rs", ""))
            .collect();
        programs.sort();
        let mut targets = TARGETS.map(str::to_owned);
        targets.sort();
        assert_eq!(programs, targets);
        assert!(targets.iter().all(|target| fuzz.join("corpus").join(target).is_dir()));
    }
}
